"""Flags, environment and files → a configuration, and a gateway over it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portico.app import Gateway
from portico.cli import logs
from portico.cli.ending import note
from portico.config import Config
from portico.config_file import LoadedConfig, load
from portico.errors import PorticoError
from portico.storage.record import RecordUnavailable

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
    seen: "Signature"
    """The files as they were when they were read."""
    again: "Callable[[], Setup]"
    """Read everything anew, as it is now."""


def set_up(
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    flags: Mapping[str, Any] | None = None,
    passing: bool = True,
) -> Setup:
    """The effective configuration; `passing` commands answer and end, and their answer says what servers are down."""
    setup = read(files, profile, flags)
    config = setup.config
    answered = passing and setup.loaded.sources["log_level"].kind == "default"
    quiet = ("portico.upstream", "portico.catalog") if answered else ()
    logs.set_up(config.log_level, quiet, config.log_format, lambda: _secrets(config))
    if setup.demo:
        note(
            f"No configuration found: using the embedded demo servers ({', '.join(config.servers)}). "
            "Write a portico.yaml, or name a file with --config."
        )
    for warning in setup.loaded.warnings:
        note(f"Warning: {warning}")
    return setup


def read(files: Sequence[str] = (), profile: str | None = None, flags: Mapping[str, Any] | None = None) -> Setup:
    """The configuration that files, environment and flags make now; raises ConfigError."""
    loaded = load(list(files) or None, flags)
    config = loaded.config
    demo = loaded.path is None and not config.servers
    if demo:
        from portico.demo import servers

        config = config.model_copy(update={"servers": servers()})
    config.view(profile)  # an unknown profile is refused before anything starts
    exposure = (flags or {}).get("exposure")
    if profile is not None and exposure is not None:
        # A flag wins over the file, and the profile's own exposure is in the file.
        own = config.profiles[profile].model_copy(update={"exposure": config.exposure})
        config = config.model_copy(update={"profiles": {**config.profiles, profile: own}})
    return Setup(config, loaded, profile, demo, signature(loaded.files), lambda: read(files, profile, flags))


Signature = tuple[tuple[int, ...] | None, ...]


def signature(files: Iterable[Path]) -> Signature:
    """What tells whether any of these files is another than it was."""
    return tuple(map(_stamp, files))


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    # Mode and owner too: a file that others can write is refused, and taken once that is corrected.
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid


def log_as(config: Config, before: Config) -> None:
    """Log as a configuration that was taken over says; what was secret before still is."""
    logs.set_up(config.log_level, (), config.log_format, lambda: _secrets(before) | _secrets(config))


def _secrets(config: Config) -> frozenset[str]:
    from portico.config_file.secret_values import secret_values  # many a gateway never logs a line

    return secret_values(config)


PATIENCE_S = 3.0
"""How long a command that only looks waits for the next server to be heard, before it answers without the rest."""

Wanted = Callable[[Gateway], Iterable[str]]
"""Which servers to ask before a command answers."""


@asynccontextmanager
async def opened(
    setup: Setup, screen: "Screen", wanted: Wanted, patience: float | None = None
) -> AsyncGenerator[Gateway]:
    """A gateway for one answer: asks these servers, shows progress, and leaves nothing behind."""
    gateway = Gateway(setup.config)
    try:
        await ask(gateway, screen, wanted(gateway), patience)
        yield gateway
    finally:
        await gateway.close()


async def ask(gateway: Gateway, screen: "Screen", names: Iterable[str], patience: float | None = None) -> None:
    """Start and list these servers; with patience, until none of them has been heard for so many seconds."""
    waiting = list(names)
    if not waiting:
        return
    with screen.starting(waiting) as show:
        try:
            async with asyncio.timeout(patience) as waited:

                def heard(name: str) -> None:
                    show(name)
                    if patience is not None and not waited.expired():
                        waited.reschedule(asyncio.get_running_loop().time() + patience)

                await gateway.refresh(waiting, heard)
        except TimeoutError:
            return  # those that are still starting are named with the answer


async def recalled(gateway: Gateway) -> None:
    """Know what is on record, for commands that are nothing without it."""
    try:
        await gateway.record.open()
    except RecordUnavailable as error:
        raise PorticoError(f"the record of calls cannot be read: {error.message}", advice=error.advice) from error
    await gateway.recall()
    if problem := gateway.record.problem:
        raise PorticoError(
            f"the record of calls cannot be read: {problem}", advice="`portico status` names the database."
        )


def still_starting(gateway: Gateway) -> list[str]:
    """Servers that were waited for in vain."""
    return sorted(name for name, upstream in gateway.upstreams.items() if upstream.state == "starting")


def unlisted(gateway: Gateway) -> list[str]:
    """Servers whose offer is not known; functions always, because asking them costs nothing and code changes."""
    servers = gateway.catalog.snapshot.servers
    return [
        name
        for name, upstream in gateway.upstreams.items()
        if upstream.state != "disabled" and (upstream.backend.kind == "functions" or not servers[name].known)
    ]


def every(gateway: Gateway) -> list[str]:
    """Every server that may be started."""
    return [name for name, upstream in gateway.upstreams.items() if upstream.state != "disabled"]


def none(gateway: Gateway) -> list[str]:
    """No server: what is known from last time must do."""
    return []
