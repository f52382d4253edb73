"""`portico serve`: the gateway over HTTP, until a signal stops it."""

import asyncio
import errno
import json
import logging
import signal
import socket
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from portico.app import GatewayRuntime
from portico.cli.config_watcher import watch_changes
from portico.cli.exit import EXIT_OK, print_note, run_to_exit_code
from portico.cli.garbage_collector import collect_garbage, defer_full_collections
from portico.cli.gateway_client import WILDCARD_HOSTS
from portico.cli.screen import Screen
from portico.cli.setup import Setup, load_setup
from portico.cli.signals import (
    GracefulStop,
    exit_cleanly_on_signal,
    handle_stop_signals,
    run_with_uvloop,
)
from portico.cli.span_export import export_spans
from portico.config import Config
from portico.errors import ConfigError, PorticoError
from portico.events import ConfigApplied, Event
from portico.rendering.lines import format_count
from portico.server.http.app import (
    check_exposure,
    compute_max_in_flight,
    is_loopback,
    make_app,
    make_server,
)
from portico.server.http.lazy_app import LazyApp
from portico.server.http.slow_clients import ConnectionLimits, compute_max_connections
from portico.server.profile_endpoint import ProfileEndpoint
from portico.upstream.lifecycle.status import TROUBLED_STATES

POLL_S = 0.05
SWITCH_INTERVAL_S = 0.001
"""How long a computing thread may hold the interpreter while others wait; adds to every request."""


def run_serve(files: Sequence[str], flags: Mapping[str, Any], profiles: Sequence[str]) -> int:
    """Serve the configuration of these files and flags until a signal arrives."""
    return run_to_exit_code(
        lambda: serve(load_setup(files, flags=flags, short_lived=False), Screen(), profiles)
    )


def serve(setup: Setup, screen: Screen, profiles: Sequence[str]) -> int:
    """Listen, print the addresses, and serve."""
    settings = setup.config.gateway
    check_exposure(settings.host, settings.token.get_secret_value() if settings.token else None)
    for profile in profiles:
        setup.config.resolve_profile(profile)
    with (
        exit_cleanly_on_signal(),
        bind_socket(settings.host, settings.port) as listening,
        export_spans(),
        defer_full_collections(),
    ):
        return run_with_uvloop(_serve_until_stopped(setup, screen, profiles, listening))
    return EXIT_OK


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises PorticoError or ConfigError with the reason if
    impossible.
    """
    if ":" in host:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PorticoError(
                f"port {port} on {host} is already in use",
                advice=(
                    "Is Portico running already? Stop it, or choose another port with --port "
                    "(0 picks a free one)."
                ),
            ) from error
        if isinstance(error, PermissionError):
            raise PorticoError(
                f"this user may not listen on port {port}",
                advice="Choose a port above 1023 with --port.",
            ) from error
        raise ConfigError(
            f"{host} cannot be listened on: {error.strerror or error}",
            advice=(
                "gateway.host is an address of this machine: 127.0.0.1, ::1, or 0.0.0.0 for "
                "all of them."
            ),
            key="gateway.host",
        ) from error


async def _serve_until_stopped(
    setup: Setup, screen: Screen, profiles: Sequence[str], listener: socket.socket
) -> int:
    config = setup.config
    settings = config.gateway
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    async with GatewayRuntime(config) as gateway, watch_changes(gateway, setup):
        monitoring = gateway.ensure_monitoring()
        if is_loopback(settings.host) or settings.host in WILDCARD_HOSTS:
            own_hosts = ()
        else:
            own_hosts = (settings.host,)
        endpoints = _select_endpoints(gateway, profiles)
        app = make_app(
            endpoints,
            token=settings.token.get_secret_value() if settings.token else None,
            allowed_hosts=(*settings.allowed_hosts, *own_hosts),
            allowed_origins=settings.allowed_origins,
            max_request_bytes=int(config.limits.max_request_bytes),
            max_request_values=config.limits.max_request_values,
            api=_make_lazy_api(gateway) if "" in endpoints and settings.api else None,
            max_in_flight=compute_max_in_flight(config.limits),
            spool_bytes=int(config.limits.unread_bytes),
            spool_folder=config.data_dir,
            metrics=(lambda: monitoring.metrics) if settings.metrics else None,
            health=monitoring.readiness.check_health,
            publish=gateway.bus.publish,
        )
        connection_limits = ConnectionLimits(
            send_s=config.limits.send_s, max_connections=compute_max_connections()
        )
        server = make_server(app, settings.host, settings.port, connection_limits)
        stop = GracefulStop(gateway.drain, lambda: _stop_server(server))
        with handle_stop_signals(stop), _follow_config_changes(gateway, app, profiles):
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await _wait_until_started(server, serving)
            collecting = asyncio.create_task(collect_garbage(), name="collect garbage")
            _announce(config, screen, endpoints, listener.getsockname()[1])
            await _show_progress(gateway, screen, serving)
            await serving
            collecting.cancel()
        await stop.cancel_drain()
    return EXIT_OK


def _stop_server(server: uvicorn.Server) -> None:
    # From here on uvicorn only logs that streams end before their clients expected it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    # Same path as a signal: open streams are told of the shutdown and need not be aborted.
    server.handle_exit(signal.SIGTERM, None)


def _select_endpoints(
    gateway: GatewayRuntime, profiles: Sequence[str]
) -> dict[str, ProfileEndpoint]:
    endpoints = gateway.get_endpoints().items()
    return {name: endpoint for name, endpoint in endpoints if not profiles or name in profiles}


@contextmanager
def _follow_config_changes(
    gateway: GatewayRuntime, app: Starlette, profiles: Sequence[str]
) -> Generator[None]:
    """Apply the limits and profiles of a changed configuration while serving."""
    tasks: set[asyncio.Task[None]] = set()

    def apply_config(_: Event) -> None:
        app.state.in_flight.limit = compute_max_in_flight(gateway.config.limits)
        app.state.spool.max_bytes = int(gateway.config.limits.unread_bytes)
        update = app.state.endpoints.replace_endpoints(_select_endpoints(gateway, profiles))
        tasks.add(task := asyncio.create_task(update, name="update endpoints"))
        task.add_done_callback(tasks.discard)

    unsubscribe = gateway.bus.subscribe(apply_config, ConfigApplied)
    try:
        yield
    finally:
        unsubscribe()
        for task in tasks:
            task.cancel()


def _make_lazy_api(gateway: GatewayRuntime) -> ASGIApp:
    """Make the REST API on first use. It shows what the main endpoint shows, and needs it."""
    view = gateway.get_view()

    def make() -> ASGIApp:
        from portico.api.app import make_api

        return make_api(
            view.profile_state,
            view.search_service,
            gateway.store,
            upstreams=gateway.upstreams,
            audit=lambda: gateway.calls.audit,
        )

    return LazyApp(make)


async def _wait_until_started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)


def _announce(
    config: Config, screen: Screen, endpoints: Mapping[str, ProfileEndpoint], port: int
) -> None:
    settings = config.gateway
    if settings.host in WILDCARD_HOSTS:
        host = "127.0.0.1"
    else:
        host = settings.host
    root = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    urls = {name: f"{root}/p/{name}" if name else root for name in endpoints}
    for name, url in urls.items():
        if name:
            what = f"profile {name}"
        else:
            what = "every server"
        screen.write_text(f"{url}  {what}, exposure {endpoints[name].view.settings.exposure}")
    if "" in endpoints and settings.api:
        rest = "REST, with the token" if settings.token else "REST"
        screen.write_text(f"{root.removesuffix('/mcp')}/api/docs  the same as JSON ({rest})")
    first_name, first = next(iter(urls.items()))
    if settings.token:
        header = ' --header "Authorization: Bearer $PORTICO_TOKEN"'
    else:
        header = ""
    screen.write_text("", "Add it to a client:")
    screen.write_text(
        f"  claude mcp add --transport http {first_name or 'portico'} {first}{header}"
    )
    entry = {"type": "http", "url": first}
    if settings.token:
        headers = {"headers": {"Authorization": "Bearer ${PORTICO_TOKEN}"}}
    else:
        headers = {}
    screen.write_text(
        f"  {json.dumps({'mcpServers': {first_name or 'portico': {**entry, **headers}}})}"
    )
    if not is_loopback(settings.host) and not settings.allowed_hosts:
        print_note(
            "Clients elsewhere are refused until gateway.allowed_hosts names the host they "
            "connect to."
        )
    screen.write_text("", "Ctrl+C stops it.")
    sys.stdout.flush()


def _is_listed_or_failed(gateway: GatewayRuntime, name: str) -> bool:
    """Return whether a server need not be waited for; a changed configuration may have removed
    it.
    """
    entry = gateway.catalog.snapshot.servers.get(name)
    upstream = gateway.upstreams.get(name)
    return entry is None or upstream is None or entry.is_listed or upstream.state in TROUBLED_STATES


async def _show_progress(
    gateway: GatewayRuntime, screen: Screen, serving: "asyncio.Task[None]"
) -> None:
    """Show progress until every unlisted server is listed or has failed; requests are served
    meanwhile.
    """
    pending = {
        name
        for name, upstream in gateway.upstreams.items()
        if upstream.state in ("configured", "starting")
    }
    listed = asyncio.ensure_future(gateway.wait_until_listed())
    with screen.show_start_progress(sorted(pending)) as on_listed:
        while not serving.done():
            done, _ = await asyncio.wait(
                {listed, serving}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED
            )
            for name in [name for name in pending if _is_listed_or_failed(gateway, name)]:
                pending.discard(name)
                on_listed(name)
            if listed in done:
                break
    if not listed.done():
        listed.cancel()
    elif not serving.done():
        snapshot = gateway.catalog.snapshot
        print_note(
            f"{format_count(len(snapshot.tools), 'tool')} on "
            f"{format_count(len(snapshot.servers), 'server')}."
        )
        broken = [
            upstream.name
            for upstream in gateway.list_statuses()
            if upstream.state in TROUBLED_STATES
        ]
        if broken:
            print_note(f"Not usable now: {', '.join(broken)}. `portico status` says why.")
