"""Probes every server: starts, initializes, lists and stops it, all concurrently with timeouts."""

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
from portico.gateway.data_folder import open_credential_store
from portico.upstream.backend import Backend, Connection, IgnoringListener, InitializeInfo
from portico.upstream.backends.factory import make_backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.oauth.server_accounts import ServerAccounts
from portico.upstream.oauth.token_store import TokenStore
from portico.upstream.secret_reader import SecretReader
from portico.upstream.transports.process import ProcessGuard

START_SLOT_S = 5.0
"""How long a slow start occupies a start slot, in seconds."""
CLOSE_S = 15.0
MAX_LISTINGS = 4
"""Number of listings of a server; each may take `timeouts.list_s`."""

_SIGNAL_EXIT_CODES = (-signal.SIGTERM, -getattr(signal, "SIGKILL", 9))

Stage = Literal["start", "list", "met"]


@dataclass(frozen=True)
class ServerProbe:
    server: str
    kind: str
    stage: Stage
    """How far it came: its start, its listing, or all of it."""
    seconds: float
    """Time until it was initialized, or failed."""
    initialize_info: InitializeInfo | None = None
    listing: ServerListing | None = None
    error: PorticoError | None = None
    noise: int = 0
    noise_samples: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    denials: tuple[str, ...] = ()
    """What its containment seems to have denied it."""
    needed_signal: bool = False
    """It did not end when its input was closed, only on a signal."""


async def probe_servers(
    config: Config, servers: Mapping[str, BackendConfig], on_probed: Callable[[str], None]
) -> dict[str, ServerProbe]:
    """Probe these servers concurrently."""
    guard = ProcessGuard()
    secrets = SecretReader(guard)
    accounts = ServerAccounts(TokenStore(open_credential_store(config), secrets))
    start_slots = asyncio.Semaphore(config.limits.start_concurrency)
    mask = ErrorMask(lambda: config)

    async def probe_and_report(name: str) -> ServerProbe:
        backend = make_backend(
            name,
            servers[name],
            config.limits,
            guard,
            mask.mask_text,
            config.data_dir,
            persist=False,
            secrets=secrets,
            accounts=accounts,
        )
        probe = await _probe_server(name, servers[name], backend, start_slots, mask)
        on_probed(name)
        return probe

    try:
        probes = await asyncio.gather(*(probe_and_report(name) for name in servers))
    finally:
        await accounts.close()
        await asyncio.to_thread(guard.close)
    return dict(zip(servers, probes, strict=True))


async def _probe_server(
    name: str,
    server: BackendConfig,
    backend: Backend,
    start_slots: asyncio.Semaphore,
    mask: ErrorMask,
) -> ServerProbe:
    started = 0.0
    stage = "start"
    facts: dict[str, Any] = {}
    connection: Connection | None = None
    list_s = server.timeouts.list_s
    try:
        async with start_slots:
            started = time.monotonic()
            connecting = asyncio.create_task(_connect(backend, server.timeouts.start_s))
            await asyncio.wait({connecting}, timeout=START_SLOT_S)
        connection = await connecting
        facts["seconds"] = time.monotonic() - started
        facts["initialize_info"] = connection.initialize_info
        stage = "list"
        async with asyncio.timeout(MAX_LISTINGS * list_s):
            facts["listing"] = await fetch_listing(connection, list_s)
        stage = "met"
    except TimeoutError:
        facts["error"] = BackendTimeout(f"its lists did not end within {MAX_LISTINGS * list_s:g} s")
    except PorticoError as error:
        facts["error"] = error
    except Exception as error:  # Whatever one server does, the others are still examined.
        facts["error"] = PorticoError(f"{type(error).__name__}: {error}")
    if "error" in facts:
        await mask.mask_error(facts["error"])
    facts.setdefault("seconds", time.monotonic() - started)
    if connection is not None:
        with contextlib.suppress(TimeoutError, PorticoError, OSError):
            await asyncio.wait_for(connection.close(), CLOSE_S)
    diagnostics = backend.diagnostics()
    stderr = (mask.mask_text(line) for line in diagnostics.get("stderr", ()) if line.strip())
    return ServerProbe(
        name,
        backend.kind,
        stage,
        noise=int(diagnostics.get("noise", 0)),
        noise_samples=tuple(map(mask.mask_text, diagnostics.get("noise_samples", ()))),
        stderr=tuple(stderr),
        denials=tuple(map(mask.mask_text, diagnostics.get("denials", ()))),
        # A failed server was not given the time to end by itself.
        needed_signal=stage == "met" and diagnostics.get("exit_code") in _SIGNAL_EXIT_CODES,
        **facts,
    )


async def _connect(backend: Backend, start_s: float) -> Connection:
    try:
        async with asyncio.timeout(start_s):
            return await backend.connect(IgnoringListener())
    except TimeoutError:
        raise BackendTimeout(
            f"it did not initialize within {start_s:g} s",
            advice="Raise timeouts.start_s if it is only slow; else run its command by hand and "
            "see what it waits for.",
        ) from None
