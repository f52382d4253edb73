"""Flags, environment and files → a configuration, and a gateway for it."""

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
    """The loaded configuration of a command."""

    config: Config
    loaded: LoadedConfig
    profile: str | None
    demo: bool
    """No configuration was found, so the servers are the embedded ones."""
    signature: "Signature"
    """Signature of the files when they were read."""
    reload: "Callable[[], Setup]"
    """Load everything again."""


def load_setup(
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    flags: Mapping[str, Any] | None = None,
    short_lived: bool = True,
) -> Setup:
    """Load the configuration and set up logging.

    Commands that are `short_lived` report broken servers in their output, so those are not logged.
    """
    setup = read_setup(files, profile, flags)
    config = setup.config
    is_quiet = short_lived and setup.loaded.sources["log_level"].kind == "default"
    if is_quiet:
        quiet_loggers = ("portico.upstream", "portico.catalog")
    else:
        quiet_loggers = ()
    logs.configure_logging(
        config.log_level, quiet_loggers, config.log_format, lambda: _collect_secrets(config)
    )
    if setup.demo:
        print_note(
            "No configuration found: using the embedded demo servers "
            f"({', '.join(config.servers)}). Write a portico.yaml, or name a file with --config."
        )
    for warning in setup.loaded.warnings:
        print_note(f"Warning: {warning}")
    return setup


def read_setup(
    files: Sequence[str] = (), profile: str | None = None, flags: Mapping[str, Any] | None = None
) -> Setup:
    """Load the configuration of files, environment and flags; raises ConfigError."""
    loaded = load(list(files) or None, flags)
    config = loaded.config
    demo = loaded.path is None and not config.servers
    if demo:
        from portico.demo import make_demo_servers

        config = config.model_copy(update={"servers": make_demo_servers()})
    config.resolve_profile(profile)  # Refuses an unknown profile before anything starts.
    exposure = (flags or {}).get("exposure")
    if profile is not None and exposure is not None:
        # A flag overrides the file, including the exposure of the profile.
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
    """Return a value that changes when one of these files changes."""
    return tuple(map(_stat_file, files))


def _stat_file(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    # With mode and owner: a file that others can write is rejected until its mode is corrected.
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode, found.st_uid


def reconfigure_logging(config: Config, previous: Config) -> None:
    """Apply the log settings of a changed configuration; previous secrets stay masked."""
    logs.configure_logging(
        config.log_level,
        (),
        config.log_format,
        lambda: _collect_secrets(previous) | _collect_secrets(config),
    )


def _collect_secrets(config: Config) -> frozenset[str]:
    # Imported late, because many gateways never log a line.
    from portico.config_file.secret_values import collect_secret_values

    return collect_secret_values(config)


LISTING_WAIT_S = 3.0
"""How long a read-only command waits for the next server to be listed before it answers."""

ServerSelector = Callable[[GatewayRuntime], Iterable[str]]
"""Selects the servers to list before a command answers."""


@asynccontextmanager
async def open_gateway(
    setup: Setup,
    screen: "Screen",
    select_servers: ServerSelector,
    idle_timeout: float | None = None,
) -> AsyncGenerator[GatewayRuntime]:
    """Open a gateway for one command, list the selected servers with progress, and close it."""
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
    """Start and list these servers; stop waiting after `idle_timeout` seconds without any
    listing.
    """
    server_names = list(names)
    if not server_names:
        return
    with screen.show_start_progress(server_names) as show:
        try:
            async with asyncio.timeout(idle_timeout) as waited:

                def on_listed(name: str) -> None:
                    show(name)
                    if idle_timeout is not None and not waited.expired():
                        waited.reschedule(asyncio.get_running_loop().time() + idle_timeout)

                await gateway.refresh(server_names, on_listed)
        except TimeoutError:
            return  # Servers that are still starting are named with the answer.


async def load_record_or_raise(gateway: GatewayRuntime) -> None:
    """Load the usage record; raises PorticoError if it cannot be read."""
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
    """Return the servers that are still starting."""
    return sorted(
        name for name, upstream in gateway.upstreams.items() if upstream.state == "starting"
    )


def select_unlisted_servers(gateway: GatewayRuntime) -> list[str]:
    """Select servers without a known listing, and all of kind `functions`, which are cheap to
    list.
    """
    servers = gateway.catalog.snapshot.servers
    return [
        name
        for name, upstream in gateway.upstreams.items()
        if upstream.state != "disabled"
        and (upstream.backend.kind == "functions" or not servers[name].is_listed)
    ]


def select_enabled_servers(gateway: GatewayRuntime) -> list[str]:
    """Select every server that may be started."""
    return [name for name, upstream in gateway.upstreams.items() if upstream.state != "disabled"]


def select_no_servers(gateway: GatewayRuntime) -> list[str]:
    """Select no server; only stored listings are used."""
    return []
