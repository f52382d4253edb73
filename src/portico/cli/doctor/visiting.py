"""Meets every server: starts it, lets it introduce itself, lists it, ends it. All together, each within bounds."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.listing import Listing, fetch
from portico.config import BackendConfig, Config
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import Connection, Hello, Raw
from portico.upstream.error_mask import ErrorMask
from portico.upstream.factory import make_backend
from portico.upstream.process import Guard

GATE_S = 5.0
"""How long a server that is slow to start keeps one of those outside that wait for their turn."""
CLOSE_S = 15.0
LISTS = 4
"""Listings of one server; each may take `timeouts.list_s`."""

Stage = Literal["start", "list", "met"]


@dataclass(frozen=True)
class Visit:
    """How it went with one server."""

    server: str
    kind: str
    stage: Stage
    """How far it came: its start, its listing, or all of it."""
    seconds: float
    """Until it had introduced itself, or failed to."""
    hello: Hello | None = None
    listing: Listing | None = None
    error: PorticoError | None = None
    noise: int = 0
    noise_samples: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    signalled: bool = False
    """It did not end when its input was closed, and had to be told by a signal."""


class _Silent:
    """Hears nothing: a visit is too short for news."""

    def notified(self, method: str, params: Raw) -> None:
        return

    def lost(self, reason: str) -> None:
        return


async def visit_all(
    config: Config, servers: Mapping[str, BackendConfig], heard: Callable[[str], None]
) -> dict[str, Visit]:
    """Meet these servers; no longer than the slowest of them is allowed to take."""
    guard, gate = Guard(), asyncio.Semaphore(config.limits.start_concurrency)
    mask = ErrorMask(lambda: config)

    async def meet(name: str) -> Visit:
        visit = await _visit(name, servers[name], config, guard, gate, mask)
        heard(name)
        return visit

    try:
        visits = await asyncio.gather(*(meet(name) for name in servers))
    finally:
        await asyncio.to_thread(guard.close)
    return dict(zip(servers, visits, strict=True))


async def _visit(
    name: str, server: BackendConfig, config: Config, guard: Guard, gate: asyncio.Semaphore, mask: ErrorMask
) -> Visit:
    backend = make_backend(name, server, config.limits, guard, mask.text, config.data_dir, remembering=False)
    started, stage = 0.0, "start"
    facts: dict[str, Any] = {}
    connection: Connection | None = None
    try:
        async with gate:
            started = time.monotonic()
            connecting = asyncio.create_task(_connected(backend.connect(_Silent()), server.timeouts.start_s))
            await asyncio.wait({connecting}, timeout=GATE_S)
        connection = await connecting
        facts |= {"seconds": time.monotonic() - started, "hello": connection.hello}
        stage = "list"
        async with asyncio.timeout(LISTS * server.timeouts.list_s):
            facts["listing"] = await fetch(connection, server.timeouts.list_s)
        stage = "met"
    except TimeoutError:
        facts["error"] = BackendTimeout(f"its lists did not end within {LISTS * server.timeouts.list_s:g} s")
    except PorticoError as error:
        facts["error"] = error
    except Exception as error:  # whatever one server does, the others are examined
        facts["error"] = PorticoError(f"{type(error).__name__}: {error}")
    if "error" in facts:
        await mask.error(facts["error"])
    facts.setdefault("seconds", time.monotonic() - started)
    if connection is not None:
        with contextlib.suppress(TimeoutError, PorticoError, OSError):
            await asyncio.wait_for(connection.close(), CLOSE_S)
    said = backend.diagnostics()
    return Visit(
        name,
        backend.kind,
        stage,
        noise=int(said.get("noise", 0)),
        noise_samples=tuple(map(mask.text, said.get("noise_samples", ()))),
        stderr=tuple(mask.text(line) for line in said.get("stderr", ()) if line.strip()),
        # One that failed was not given the time to end by itself.
        signalled=stage == "met" and said.get("exit_code") in (-signal.SIGTERM, _KILLED),
        **facts,
    )


_KILLED = -getattr(signal, "SIGKILL", 9)


async def _connected(connecting: Any, start_s: float) -> Connection:
    try:
        async with asyncio.timeout(start_s):
            return await connecting
    except TimeoutError:
        raise BackendTimeout(
            f"it did not introduce itself within {start_s:g} s",
            advice="Raise timeouts.start_s if it is only slow; else run its command by hand and see what it waits for.",
        ) from None
