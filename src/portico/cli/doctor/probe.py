"""Meets every server: starts it, lets it introduce itself, lists it, ends it. All together, each
within bounds."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.listing import ServerListing, fetch_listing
from portico.config import BackendConfig, Config
from portico.errors import BackendTimeout, PorticoError
from portico.upstream.backend import Connection, InitializeInfo, Raw
from portico.upstream.backends.factory import make_backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.transports.process import ProcessGuard

START_SLOT_S = 5.0
"""How long a server that is slow to start keeps one of those outside that wait for their turn."""
CLOSE_S = 15.0
MAX_LISTINGS = 4
"""Listings of one server; each may take `timeouts.list_s`."""

Stage = Literal["start", "list", "met"]


@dataclass(frozen=True)
class ServerProbe:
    """How it went with one server."""

    server: str
    kind: str
    stage: Stage
    """How far it came: its start, its listing, or all of it."""
    seconds: float
    """Until it had introduced itself, or failed to."""
    initialize_info: InitializeInfo | None = None
    listing: ServerListing | None = None
    error: PorticoError | None = None
    noise: int = 0
    noise_samples: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    needed_signal: bool = False
    """It did not end when its input was closed, and had to be told by a signal."""


class _IgnoringListener:
    """Hears nothing: a visit is too short for news."""

    def on_notification(self, method: str, params: Raw) -> None:
        return

    def on_lost(self, reason: str) -> None:
        return


async def probe_servers(
    config: Config, servers: Mapping[str, BackendConfig], on_probed: Callable[[str], None]
) -> dict[str, ServerProbe]:
    """Meet these servers; no longer than the slowest of them is allowed to take."""
    guard = ProcessGuard()
    gate = asyncio.Semaphore(config.limits.start_concurrency)
    mask = ErrorMask(lambda: config)

    async def probe_and_report(name: str) -> ServerProbe:
        visit = await _probe_server(name, servers[name], config, guard, gate, mask)
        on_probed(name)
        return visit

    try:
        visits = await asyncio.gather(*(probe_and_report(name) for name in servers))
    finally:
        await asyncio.to_thread(guard.close)
    return dict(zip(servers, visits, strict=True))


async def _probe_server(
    name: str,
    server: BackendConfig,
    config: Config,
    guard: ProcessGuard,
    start_slots: asyncio.Semaphore,
    mask: ErrorMask,
) -> ServerProbe:
    backend = make_backend(
        name, server, config.limits, guard, mask.mask_text, config.data_dir, persist=False
    )
    started = 0.0
    stage = "start"
    facts: dict[str, Any] = {}
    connection: Connection | None = None
    try:
        async with start_slots:
            started = time.monotonic()
            connecting = asyncio.create_task(
                _connect_within(backend.connect(_IgnoringListener()), server.timeouts.start_s)
            )
            await asyncio.wait({connecting}, timeout=START_SLOT_S)
        connection = await connecting
        facts |= {"seconds": time.monotonic() - started, "hello": connection.initialize_info}
        stage = "list"
        async with asyncio.timeout(MAX_LISTINGS * server.timeouts.list_s):
            facts["listing"] = await fetch_listing(connection, server.timeouts.list_s)
        stage = "met"
    except TimeoutError:
        facts["error"] = BackendTimeout(
            f"its lists did not end within {MAX_LISTINGS * server.timeouts.list_s:g} s"
        )
    except PorticoError as error:
        facts["error"] = error
    except Exception as error:  # whatever one server does, the others are examined
        facts["error"] = PorticoError(f"{type(error).__name__}: {error}")
    if "error" in facts:
        await mask.mask_error(facts["error"])
    facts.setdefault("seconds", time.monotonic() - started)
    if connection is not None:
        with contextlib.suppress(TimeoutError, PorticoError, OSError):
            await asyncio.wait_for(connection.close(), CLOSE_S)
    said = backend.diagnostics()
    return ServerProbe(
        name,
        backend.kind,
        stage,
        noise=int(said.get("noise", 0)),
        noise_samples=tuple(map(mask.mask_text, said.get("noise_samples", ()))),
        stderr=tuple(mask.mask_text(line) for line in said.get("stderr", ()) if line.strip()),
        # One that failed was not given the time to end by itself.
        needed_signal=stage == "met"
        and said.get("exit_code") in (-signal.SIGTERM, _SIGKILL_EXIT_CODE),
        **facts,
    )


_SIGKILL_EXIT_CODE = -getattr(signal, "SIGKILL", 9)


async def _connect_within(connecting: Any, start_s: float) -> Connection:
    try:
        async with asyncio.timeout(start_s):
            return await connecting
    except TimeoutError:
        raise BackendTimeout(
            f"it did not introduce itself within {start_s:g} s",
            advice="Raise timeouts.start_s if it is only slow; else run its command by hand and see what it waits for.",
        ) from None
