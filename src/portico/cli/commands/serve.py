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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette

from portico.auth.console_sessions import ConsoleSessions
from portico.cli.config_report import report_config
from portico.cli.config_watcher import watch_changes
from portico.cli.exit import EXIT_OK, print_note, run_to_exit_code
from portico.cli.local_gateway.command_runner import (
    ParsedCommand,
    RemoteStreams,
    inspect_gateway,
)
from portico.cli.local_gateway.endpoint import ServedGateway, open_local_endpoint
from portico.cli.local_gateway.registration import WILDCARD_HOSTS, build_url
from portico.cli.logs import LogFile
from portico.cli.screen import Screen
from portico.cli.serving_process import (
    GracefulStop,
    collect_garbage,
    defer_full_collections,
    exit_cleanly_on_signal,
    export_spans,
    handle_stop_signals,
    run_with_uvloop,
)
from portico.cli.setup import Setup, load_setup
from portico.config import Config, GatewayConfig
from portico.console.files import ConsoleFiles
from portico.errors import ConfigError, PorticoError
from portico.events import ConfigApplied, Event
from portico.gateway import GatewayRuntime
from portico.gateway.data_folder import open_key_store
from portico.gateway.rest_app import RestApp
from portico.gateway.server_sign_ins import open_server_sign_ins
from portico.gateway.subject_tokens import follow_subjects
from portico.rendering.token_budget import format_count
from portico.server.http.app import (
    LazyApp,
    check_exposure,
    compute_max_in_flight,
    is_loopback,
    make_app,
    make_server,
)
from portico.server.http.server_sign_in import ServerSignIns
from portico.server.http.slow_clients import ConnectionLimits, compute_max_connections
from portico.server.profile_endpoint import ProfileEndpoint
from portico.upstream.lifecycle.status import TROUBLED_STATES

if TYPE_CHECKING:
    from portico.adoption.config_editor import ConfigEditor
    from portico.cli.client_installer import ClientInstaller

POLL_S = 0.05
SWITCH_INTERVAL_S = 0.00005
"""How long a computing thread may hold the interpreter while others wait.

A request waits for it several times: beside a thread that computes, the p99 of other clients' calls
was 2.1 times as long at 0.0002 and 1.5 times at 0.00005; shorter ones change nothing more.
"""
_FIRST_OWN_PORT = 8_421
_OWN_PORTS = 1_000
"""Ports of gateways in the background where another configuration's has the default one."""


def run_serve(
    files: Sequence[str],
    profiles: Sequence[str],
    host: str | None,
    port: int | None,
    token: str | None,
    exposure: str | None,
    log_file: str | None = None,
) -> int:
    """Serve the configuration of these files and flags until a signal arrives."""
    log = LogFile(Path(log_file)) if log_file else None
    if log is not None:
        log.open()
    flags = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.token": token,
        "exposure": exposure,
    }
    return run_to_exit_code(
        lambda: serve(load_setup(files, flags=flags, short_lived=False), Screen(), profiles, log)
    )


def serve(setup: Setup, screen: Screen, profiles: Sequence[str], log: LogFile | None = None) -> int:
    """Listen, print the addresses, and serve; with a `log`, in the background."""
    settings = setup.config.gateway
    token = _get_token(settings)
    needs_keys = token is None and not setup.config.auth and not is_loopback(settings.host)
    has_others = bool(setup.config.auth) or (needs_keys and asyncio.run(_has_keys(setup.config)))
    check_exposure(settings.host, token, has_others=has_others)
    for profile in profiles:
        setup.config.resolve_profile(profile)
    with (
        exit_cleanly_on_signal(),
        _bind_or_choose(setup, in_background=log is not None) as listening,
        export_spans(),
        defer_full_collections(),
    ):
        return run_with_uvloop(_serve_until_stopped(setup, screen, profiles, listening, log))
    return EXIT_OK


def _bind_or_choose(setup: Setup, *, in_background: bool) -> socket.socket:
    """Bind the configured port; in the background a free one where the default one is taken."""
    settings = setup.config.gateway
    try:
        return bind_socket(settings.host, settings.port)
    except PorticoError:
        if not in_background or setup.loaded.sources["gateway.port"].kind != "default":
            raise
    # The same one at each start: clients over HTTP know it.
    own_port = _FIRST_OWN_PORT + int(setup.configuration.id[:8], 16) % _OWN_PORTS
    try:
        return bind_socket(settings.host, own_port)
    except PorticoError:
        return bind_socket(settings.host, 0)


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises PorticoError or ConfigError with the reason if
    impossible.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
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


# What changes files loads the command line, which `serve` needs for nothing else.


def _open_config_editor(files: Sequence[Path]) -> "ConfigEditor":
    from portico.adoption.config_editor import ConfigEditor
    from portico.cli.config_change import open_history

    return ConfigEditor(files, open_history())


def _open_client_installer(files: Sequence[Path]) -> "ClientInstaller":
    from portico.cli.client_installer import ClientInstaller
    from portico.cli.commands.install import open_backups

    return ClientInstaller(files, open_backups())


async def _serve_until_stopped(
    setup: Setup,
    screen: Screen,
    profiles: Sequence[str],
    listener: socket.socket,
    log: LogFile | None,
) -> int:
    config = setup.config
    settings = config.gateway
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gateway = GatewayRuntime(config)
    # Before it starts: what it says of a server that wants a sign-in has the link.
    sign_ins = _open_sign_ins(gateway, settings, listener)
    async with gateway, watch_changes(gateway, setup) as followed:
        await gateway.load_keys()
        monitoring = gateway.ensure_monitoring()
        hosts = settings.allowed_hosts
        origins = settings.allowed_origins
        if settings.public_url is not None:
            public = urlsplit(settings.public_url)
            hosts = (*hosts, public.netloc, public.hostname or "")
            origins = (*origins, f"{public.scheme}://{public.netloc}")
        if not is_loopback(settings.host) and settings.host not in WILDCARD_HOSTS:
            hosts = (*hosts, settings.host)
        endpoints = _select_endpoints(gateway, profiles)
        sessions = ConsoleSessions()
        files = list(map(Path, setup.configuration.files))
        api = RestApp(
            gateway,
            lambda: report_config(gateway, setup),
            sessions,
            partial(_open_config_editor, files),
            partial(_open_client_installer, files),
        )
        has_api = "" in endpoints and settings.api
        has_console = has_api and settings.console
        app = make_app(
            endpoints,
            token=_get_token(settings),
            keys=gateway.keys,
            verifiers=gateway.open_verifiers(),
            public_url=settings.public_url,
            authorization_server=gateway.authorization_server,
            server_sign_ins=sign_ins,
            allowed_hosts=hosts,
            allowed_origins=origins,
            max_request_bytes=int(config.limits.max_request_bytes),
            max_request_values=config.limits.max_request_values,
            api=api if has_api else None,
            console=LazyApp(ConsoleFiles) if has_console else None,
            sessions=sessions,
            max_in_flight=compute_max_in_flight(config.limits),
            spool_bytes=int(config.limits.unread_bytes),
            spool_folder=config.data_dir,
            metrics=(lambda: monitoring.metrics) if settings.metrics else None,
            health=monitoring.readiness.check_health,
            publish=gateway.bus.publish,
            on_verified=follow_subjects(gateway),
        )
        connection_limits = ConnectionLimits(
            send_s=config.limits.send_s, max_connections=compute_max_connections()
        )
        server = make_server(app, settings.host, settings.port, connection_limits)
        stop = GracefulStop(
            gateway.drain,
            lambda: _stop_server(server, gateway, api),
            lambda: _describe_waiting(gateway),
        )

        async def run_command(command: ParsedCommand, streams: RemoteStreams) -> int:
            if followed is not None:  # What `portico rename` wrote a moment ago holds already.
                await followed.wait_until_read()
            return await command.run(gateway, setup, streams)

        with handle_stop_signals(stop), _follow_config_changes(gateway, app, profiles):
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await _wait_until_started(server, serving)
            port = listener.getsockname()[1]
            if has_console:
                root = settings.public_url or build_url(settings.host, port)
                gateway.approvals.page_url = f"{root}/console/approvals"
            if gateway.calls.recorder.audit is not None:
                gateway.calls.recorder.audit.use_stdout()
            served = ServedGateway(
                select_endpoints=lambda: _select_endpoints(gateway, profiles),
                get_limits=lambda: gateway.config.limits,
                run_command=run_command,
                inspect=lambda request: inspect_gateway(
                    gateway, request, sessions if has_console else None
                ),
                api=api,
                stop=stop,
                describe_waiting=lambda: _describe_waiting(gateway),
            )
            async with open_local_endpoint(
                served,
                setup.configuration,
                build_url(settings.host, port),
                background=log is not None,
            ):
                services = [asyncio.create_task(collect_garbage(), name="collect garbage")]
                if log is not None:
                    services.append(asyncio.create_task(log.rotate_when_full(), name="rotate log"))
                _announce(gateway, screen, endpoints, port, in_background=log is not None)
                await _show_progress(gateway, screen, serving)
                await serving
                for service in services:
                    service.cancel()
        await stop.cancel_drain()
    return EXIT_OK


def _open_sign_ins(
    gateway: GatewayRuntime, settings: GatewayConfig, listener: socket.socket
) -> ServerSignIns | None:
    """Return the pages that sign in to servers, where it is known how browsers reach them."""
    url = settings.public_url
    if url is None and is_loopback(settings.host):
        url = build_url(settings.host, listener.getsockname()[1])
    if url is None:
        return None
    return open_server_sign_ins(gateway, url.rstrip("/"))


def _get_token(settings: GatewayConfig) -> str | None:
    return settings.token.get_secret_value() if settings.token else None


async def _has_keys(config: Config) -> bool:
    store = open_key_store(config)
    try:
        return bool(await store.load())
    finally:
        await store.close()


def _describe_waiting(gateway: GatewayRuntime) -> str:
    """Say what a stop waits for; empty if for nothing."""
    running = gateway.admission.limiter.running
    if not running:
        return ""
    return (
        f"Waiting for {format_count(running, 'request')} to end, at most "
        f"{gateway.config.limits.drain_s:g} s."
    )


def _stop_server(server: uvicorn.Server, gateway: GatewayRuntime, api: RestApp) -> None:
    api.close()
    for endpoint in gateway.open_endpoints:
        endpoint.sessions.end_listeners()
    # From here on uvicorn only logs that streams end before their clients expected it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    # Same path as a signal: open streams learn of the shutdown and need not be aborted.
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


async def _wait_until_started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)


def _announce(
    gateway: GatewayRuntime,
    screen: Screen,
    endpoints: Mapping[str, ProfileEndpoint],
    port: int,
    *,
    in_background: bool,
) -> None:
    settings = gateway.config.gateway
    is_open = settings.token is None and not (gateway.keys.is_required or gateway.verifiers)
    root = build_url(settings.host, port)
    urls = {name: f"{root}/mcp/p/{name}" if name else f"{root}/mcp" for name in endpoints}
    for name, url in urls.items():
        what = f"profile {name}" if name else "every server"
        screen.write_text(f"{url}  {what}, exposure {endpoints[name].view.settings.exposure}")
    if "" in endpoints and settings.api and settings.console:
        screen.write_text(f"{root}/console  for people, in the browser (`portico console`)")
    if "" in endpoints and settings.api:
        rest = "REST" if is_open else "REST, with the token or a key"
        screen.write_text(f"{root}/api/docs  the same as JSON ({rest})")
    if not in_background:  # there `portico start` has said it, and this is a log
        needs_header = not is_open and not gateway.verifiers
        _explain_clients(screen, *next(iter(urls.items())), needs_header=needs_header)
    is_named = settings.allowed_hosts or settings.public_url
    if not is_loopback(settings.host) and not is_named:
        print_note(
            "Clients elsewhere are refused until gateway.public_url or gateway.allowed_hosts "
            "names the host they connect to."
        )
    stop = "`portico stop` stops it." if in_background else "Ctrl+C stops it."
    screen.write_text("", stop)
    sys.stdout.flush()


def _explain_clients(screen: Screen, name: str, url: str, *, needs_header: bool) -> None:
    command = f"claude mcp add --transport http {name or 'portico'} {url}"
    entry: dict[str, Any] = {"type": "http", "url": url}
    if needs_header:
        command += ' --header "Authorization: Bearer $PORTICO_TOKEN"'
        entry["headers"] = {"Authorization": "Bearer ${PORTICO_TOKEN}"}
    screen.write_text("", "Add it to a client:", f"  {command}")
    screen.write_text(f"  {json.dumps({'mcpServers': {name or 'portico': entry}})}")


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
