"""`portico serve`: the gateway over HTTP, until it is told to stop."""

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

from portico.app import Gateway
from portico.cli.beside import EVERYWHERE
from portico.cli.collector import collect_garbage, own_collector
from portico.cli.ending import DONE, ended, note
from portico.cli.exporting import exporting
from portico.cli.opening import Setup, set_up
from portico.cli.reloading import following
from portico.cli.running import Stop, on_stop, run_fast, stoppable
from portico.cli.screen import Screen
from portico.config import Config
from portico.disclosure.lines import counted
from portico.errors import ConfigError, PorticoError
from portico.events import ConfigTaken, Event
from portico.server.door import Door
from portico.server.http import check_exposure, is_loopback, make_app, make_server, most_under_way
from portico.server.late import Late
from portico.server.slow_clients import Patience, most_connections
from portico.upstream.status import TROUBLED

POLL_S = 0.05
SWITCH_S = 0.001
"""How long a thread that computes keeps the others waiting: every step of a request may have to wait that long."""


def command(files: Sequence[str], flags: Mapping[str, Any], profiles: Sequence[str]) -> int:
    """Serve these files' configuration under these flags until a signal comes."""
    return ended(lambda: serve(set_up(files, flags=flags, passing=False), Screen(), profiles))


def serve(setup: Setup, screen: Screen, profiles: Sequence[str]) -> int:
    """Listen, say where, and serve."""
    settings = setup.config.gateway
    check_exposure(settings.host, settings.token.get_secret_value() if settings.token else None)
    for profile in profiles:
        setup.config.view(profile)
    with stoppable(), bound(settings.host, settings.port) as listening, exporting(), own_collector():
        return run_fast(_serve(setup, screen, profiles, listening))
    return DONE


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there, or the reason why none can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PorticoError(
                f"port {port} on {host} is already in use",
                advice="Is Portico running already? Stop it, or choose another port with --port (0 picks a free one).",
            ) from error
        if isinstance(error, PermissionError):
            raise PorticoError(
                f"this user may not listen on port {port}", advice="Choose a port above 1023 with --port."
            ) from error
        raise ConfigError(
            f"{host} cannot be listened on: {error.strerror or error}",
            advice="gateway.host is an address of this machine: 127.0.0.1, ::1, or 0.0.0.0 for all of them.",
            key="gateway.host",
        ) from error


async def _serve(setup: Setup, screen: Screen, profiles: Sequence[str], listening: socket.socket) -> int:
    config = setup.config
    settings = config.gateway
    sys.setswitchinterval(SWITCH_S)
    async with Gateway(config) as gateway, following(gateway, setup):
        watched = gateway.watched()
        here = () if is_loopback(settings.host) or settings.host in EVERYWHERE else (settings.host,)
        doors = _chosen(gateway, profiles)
        app = make_app(
            doors,
            token=settings.token.get_secret_value() if settings.token else None,
            allowed_hosts=(*settings.allowed_hosts, *here),
            allowed_origins=settings.allowed_origins,
            max_request_bytes=int(config.limits.max_request_bytes),
            max_request_values=config.limits.max_request_values,
            api=_api(gateway) if "" in doors and settings.api else None,
            under_way=most_under_way(config.limits),
            unread_bytes=int(config.limits.unread_bytes),
            unread_folder=config.data_dir,
            metrics=(lambda: watched.metrics) if settings.metrics else None,
            health=watched.readiness.health,
            publish=gateway.bus.publish,
        )
        patience = Patience(send_s=config.limits.send_s, connections=most_connections())
        server = make_server(app, settings.host, settings.port, patience)
        stop = Stop(gateway.drain, lambda: _end(server))
        with on_stop(stop), _as_configured(gateway, app, profiles):
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            await _started(server, serving)
            collecting = asyncio.create_task(collect_garbage(), name="collect garbage")
            _announce(config, screen, doors, listening.getsockname()[1])
            await _show_progress(gateway, screen, serving)
            await serving
            collecting.cancel()
        await stop.settled()
    return DONE


def _end(server: uvicorn.Server) -> None:
    # What uvicorn has to say from here on is that streams end before their clients wanted it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    # Told as by a signal: streams that only listen hear of the end in this way, and need not be cut off.
    server.handle_exit(signal.SIGTERM, None)


def _chosen(gateway: Gateway, profiles: Sequence[str]) -> dict[str, Door]:
    return {name: door for name, door in gateway.doors().items() if not profiles or name in profiles}


@contextmanager
def _as_configured(gateway: Gateway, app: Starlette, profiles: Sequence[str]) -> Generator[None]:
    """While it serves: a configuration that is taken over may bring a profile, or take one away, or other limits."""
    showing: set[asyncio.Task[None]] = set()

    def taken(_: Event) -> None:
        app.state.under_way.most = most_under_way(gateway.config.limits)
        app.state.unread.most_bytes = int(gateway.config.limits.unread_bytes)
        doors = app.state.entrances.show(_chosen(gateway, profiles))
        showing.add(task := asyncio.create_task(doors, name="show the doors"))
        task.add_done_callback(showing.discard)

    forget = gateway.bus.subscribe(taken, ConfigTaken)
    try:
        yield
    finally:
        forget()
        for task in showing:
            task.cancel()


def _api(gateway: Gateway) -> ASGIApp:
    """The REST API; it shows what the front door shows, so it is not there without that."""
    view = gateway.view()

    def make() -> ASGIApp:
        from portico.api.app import make_api

        return make_api(
            view.sight,
            view.searching,
            gateway.record,
            upstreams=gateway.upstreams,
            audit=lambda: gateway.calls.audit,
        )

    return Late(make)


async def _started(server: uvicorn.Server, serving: "asyncio.Task[None]") -> None:
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.005)


def _announce(config: Config, screen: Screen, doors: Mapping[str, Door], port: int) -> None:
    settings = config.gateway
    host = "127.0.0.1" if settings.host in EVERYWHERE else settings.host
    root = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    urls = {name: f"{root}/p/{name}" if name else root for name in doors}
    for name, url in urls.items():
        what = f"profile {name}" if name else "every server"
        screen.text(f"{url}  {what}, exposure {doors[name].view.face.exposure}")
    if "" in doors and settings.api:
        needs = ", with the token" if settings.token else ""
        screen.text(f"{root.removesuffix('/mcp')}/api/docs  the same as JSON (REST{needs})")
    first_name, first = next(iter(urls.items()))
    header = ' --header "Authorization: Bearer $PORTICO_TOKEN"' if settings.token else ""
    screen.text("", "Add it to a client:")
    screen.text(f"  claude mcp add --transport http {first_name or 'portico'} {first}{header}")
    entry = {"type": "http", "url": first}
    headers = {"headers": {"Authorization": "Bearer ${PORTICO_TOKEN}"}} if settings.token else {}
    screen.text(f"  {json.dumps({'mcpServers': {first_name or 'portico': {**entry, **headers}}})}")
    if not is_loopback(settings.host) and not settings.allowed_hosts:
        note("Clients elsewhere are refused until gateway.allowed_hosts names the host they connect to.")
    screen.text("", "Ctrl+C stops it.")
    sys.stdout.flush()


def _heard(gateway: Gateway, name: str) -> bool:
    """Whether a server need not be waited for; another configuration may have taken it away."""
    entry, upstream = gateway.catalog.snapshot.servers.get(name), gateway.upstreams.get(name)
    return entry is None or upstream is None or entry.known or upstream.state in TROUBLED


async def _show_progress(gateway: Gateway, screen: Screen, serving: "asyncio.Task[None]") -> None:
    """Progress until every server whose offer is unknown has been heard; calls are answered meanwhile."""
    waiting = {name for name, one in gateway.upstreams.items() if one.state in ("configured", "starting")}
    listed = asyncio.ensure_future(gateway.listed())
    with screen.starting(sorted(waiting)) as heard:
        while not serving.done():
            done, _ = await asyncio.wait({listed, serving}, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for name in [name for name in waiting if _heard(gateway, name)]:
                waiting.discard(name)
                heard(name)
            if listed in done:
                break
    if not listed.done():
        listed.cancel()
    elif not serving.done():
        snapshot = gateway.catalog.snapshot
        note(f"{counted(len(snapshot.tools), 'tool')} on {counted(len(snapshot.servers), 'server')}.")
        broken = [one.name for one in gateway.statuses() if one.state in TROUBLED]
        if broken:
            note(f"Not usable now: {', '.join(broken)}. `portico status` says why.")
