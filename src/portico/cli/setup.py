"""Flags, environment and files → a configuration, and a gateway over it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portico.app import GatewayRuntime
from portico.cli import logs
from portico.cli.exit import print_note
from portico.config import Config
from portico.config_file import LoadedConfig, load
from portico.errors import PorticoError
from portico.storage.gateway_store import StoreUnavailable

if TYPE_CHECKING:
    from portico.cli.screen import Screen


@dataclass(frozen=True)
class Setup:
    """What a command works with."""

    config: Config
    loaded: LoadedConfig
    profile: str | None
    demo: bool
    """No configuration was found: the servers are the embedded ones."""
    signature: "Signature"
    """The files as they were when they were read."""
    reload: "Callable[[], Setup]"
    """Read everything anew, as it is now."""


def load_setup(
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    flags: Mapping[str, Any] | None = None,
    short_lived: bool = True,
) -> Setup:
    """The effective configuration; `passing` commands answer and end, and their answer says what
    servers are down."""
    setup = read_setup(files, profile, flags)
    config = setup.config
    answered = short_lived and setup.loaded.sources["log_level"].kind == "default"
    if answered:
        quiet = ("portico.upstream", "portico.catalog")
    else:
        quiet = ()
    logs.configure_logging(
        config.log_level, quiet, config.log_format, lambda: _collect_secrets(config)
    )
    if setup.demo:
        print_note(
            f"No configuration found: using the embedded demo servers ({', '.join(config.servers)}). "
            "Write a portico.yaml, or name a file with --config."
        )
    for warning in setup.loaded.warnings:
        print_note(f"Warning: {warning}")
    return setup


def read_setup(
    files: Sequence[str] = (), profile: str | None = None, flags: Mapping[str, Any] | None = None
) -> Setup:
    """The configuration that files, environment and flags make now; raises ConfigError."""
    loaded = load(list(files) or None, flags)
    config = loaded.config
    demo = loaded.path is None and not config.servers
    if demo:
        from portico.demo import make_demo_servers

        config = config.model_copy(update={"servers": make_demo_servers()})
    config.resolve_profile(profile)  # an unknown profile is refused before anything starts
    exposure = (flags or {}).get("exposure")
    if profile is not None and exposure is not None:
        # A flag wins over the file, and the profile's own exposure is in the file.
        own = config.profiles[profile].model_copy(update={"exposure": config.exposure})
        config = config.model_copy(update={"profiles": {**config.profiles, profile: own}})
    return Setup(
        config,
        loaded,
        profile,
        demo,
        compute_signature(loaded.files),
        lambda: read_setup(files, profile, flags),
    )


Signature = tuple[tuple[int, ...] | None, ...]


def compute_signature(files: Iterable[Path]) -> Signature:
    """What tells whether any of these files is another than it was."""
    return tuple(map(_stat_file, files))


def _stat_file(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    # Mode and owner too: a file that others can write is refused, and taken once that is corrected.
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid


def reconfigure_logging(config: Config, previous: Config) -> None:
    """Log as a configuration that was taken over says; what was secret before still is."""
    logs.configure_logging(
        config.log_level,
        (),
        config.log_format,
        lambda: _collect_secrets(previous) | _collect_secrets(config),
    )


def _collect_secrets(config: Config) -> frozenset[str]:
    from portico.config_file.secret_values import (
        collect_secret_values,  # many a gateway never logs a line
    )

    return collect_secret_values(config)


LISTING_WAIT_S = 3.0
"""How long a command that only looks waits for the next server to be heard, before it answers
without the rest."""

ServerSelector = Callable[[GatewayRuntime], Iterable[str]]
"""Which servers to ask before a command answers."""


@asynccontextmanager
async def open_gateway(
    setup: Setup,
    screen: "Screen",
    select_servers: ServerSelector,
    idle_timeout: float | None = None,
) -> AsyncGenerator[GatewayRuntime]:
    """A gateway for one answer: asks these servers, shows progress, and leaves nothing behind."""
    gateway = GatewayRuntime(setup.config)
    try:
        await list_servers(gateway, screen, select_servers(gateway), idle_timeout)
        yield gateway
    finally:
        await gateway.close()


async def list_servers(
    gateway: GatewayRuntime,
    screen: "Screen",
    names: Iterable[str],
    idle_timeout: float | None = None,
) -> None:
    """Start and list these servers; with patience, until none of them has been heard for so many
    seconds."""
    waiting = list(names)
    if not waiting:
        return
    with screen.show_start_progress(waiting) as show:
        try:
            async with asyncio.timeout(idle_timeout) as waited:

                def heard(name: str) -> None:
                    show(name)
                    if idle_timeout is not None and not waited.expired():
                        waited.reschedule(asyncio.get_running_loop().time() + idle_timeout)

                await gateway.refresh(waiting, heard)
        except TimeoutError:
            return  # those that are still starting are named with the answer


async def load_record_or_raise(gateway: GatewayRuntime) -> None:
    """Know what is on record, for commands that are nothing without it."""
    try:
        await gateway.store.open()
    except StoreUnavailable as error:
        raise PorticoError(
            f"the record of calls cannot be read: {error.message}", advice=error.advice
        ) from error
    await gateway.load_usage()
    if problem := gateway.store.problem:
        raise PorticoError(
            f"the record of calls cannot be read: {problem}",
            advice="`portico status` names the database.",
        )


def find_starting_servers(gateway: GatewayRuntime) -> list[str]:
    """Servers that were waited for in vain."""
    return sorted(
        name for name, upstream in gateway.upstreams.items() if upstream.state == "starting"
    )


def select_unlisted_servers(gateway: GatewayRuntime) -> list[str]:
    """Servers whose offer is not known; functions always, because asking them costs nothing and
    code changes."""
    servers = gateway.catalog.snapshot.servers
    return [
        name
        for name, upstream in gateway.upstreams.items()
        if upstream.state != "disabled"
        and (upstream.backend.kind == "functions" or not servers[name].is_listed)
    ]


def select_enabled_servers(gateway: GatewayRuntime) -> list[str]:
    """Every server that may be started."""
    return [name for name, upstream in gateway.upstreams.items() if upstream.state != "disabled"]


def select_no_servers(gateway: GatewayRuntime) -> list[str]:
    """No server: what is known from last time must do."""
    return []
