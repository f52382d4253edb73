"""Flags, environment and files → a configuration, and a gateway for it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portico.callers import Caller
from portico.cli import logs
from portico.cli.exit import print_note, print_warning
from portico.cli.local_gateway.registration import ServedConfiguration, identify_configuration
from portico.config import Config
from portico.config_file import LoadedConfig, load
from portico.errors import PorticoError
from portico.gateway import GatewayRuntime
from portico.profiles.view import ProfileView
from portico.standard_paths import get_user_config
from portico.storage.gateway_store import StoreUnavailable
from portico.upstream.lifecycle.status import TROUBLED_STATES

if TYPE_CHECKING:
    from portico.cli.screen import Screen


class CommandGateway:
    """The running gateway that commands of this context use instead of one of their own."""

    def __init__(self, gateway: GatewayRuntime, setup: "Setup") -> None:
        self.gateway = gateway
        self._setup = setup

    def make_setup(self, profile: str | None) -> "Setup":
        """Return the setup of a command for a profile; raises UnknownName for an unknown one."""
        self.gateway.config.resolve_profile(profile)
        return replace(self._setup, config=self.gateway.config, profile=profile)


_running: ContextVar[CommandGateway | None] = ContextVar("running gateway", default=None)


def use_running_gateway(gateway: CommandGateway) -> None:
    """Make the commands that run in this context use a gateway that runs."""
    _running.set(gateway)


def get_running_gateway() -> GatewayRuntime | None:
    """Return the gateway that this command runs in; None for a command in its own process."""
    running = _running.get()
    return running.gateway if running is not None else None


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
    configuration: ServedConfiguration
    """By what commands find the gateway that serves it."""

    @property
    def caller(self) -> Caller:
        """Who makes the calls of the command."""
        return Caller(profile=self.profile or "")


def load_setup(
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    flags: Mapping[str, Any] | None = None,
    short_lived: bool = True,
) -> Setup:
    """Load the configuration and set up logging.

    Commands that are `short_lived` report broken servers in their output, so those are not logged,
    and servers that the configuration makes unusable are not warned of.
    """
    running = _running.get()
    if running is not None:
        setup = running.make_setup(profile)
    else:
        setup = read_setup(files, profile, flags)
        _configure_logging(setup, short_lived=short_lived)
    if setup.demo:
        print_note(
            "No configuration found: using the embedded demo servers "
            f"({', '.join(setup.config.servers)}). `portico adopt` takes over the servers of your "
            "clients, `portico add` adds one, --config names a file."
        )
    for warning in setup.loaded.warnings:
        if not (short_lived and warning.unusable_server):
            print_warning(str(warning))
    return setup


def note_hidden_config(setup: Setup) -> None:
    """Print a note if a client's file of this folder is used instead of the user's own."""
    path = setup.loaded.path
    if path is None or path.name != ".mcp.json" or os.environ.get("PORTICO_CONFIG"):
        return
    hidden = get_user_config(os.environ)
    if os.path.isfile(hidden):
        print_note(f"Using .mcp.json of this folder; {hidden} exists too: --config names it.")


def _configure_logging(setup: Setup, *, short_lived: bool) -> None:
    config = setup.config
    is_quiet = short_lived and setup.loaded.sources["log_level"].kind == "default"
    quiet_loggers = logs.SERVER_LOGGERS if is_quiet else ()
    logs.configure_logging(
        config.log_level, quiet_loggers, config.log_format, lambda: _collect_secrets(config)
    )


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
        identify_configuration(files, exposure),
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
    select_servers: ServerSelector | None = None,
    idle_timeout: float | None = None,
) -> AsyncGenerator[GatewayRuntime]:
    """Open a gateway for one command, list the selected servers with progress, and close it."""
    running = _running.get()
    if running is not None:
        if select_servers is not None:
            await list_servers(
                running.gateway, screen, select_servers(running.gateway), idle_timeout
            )
        yield running.gateway
        return
    gateway = GatewayRuntime(setup.config)
    try:
        if select_servers is not None:
            await list_servers(gateway, screen, select_servers(gateway), idle_timeout)
        yield gateway
    finally:
        if running is None:
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
    if _running.get() is not None:
        # It has started its servers itself, and tries those that failed again in its own time.
        server_names = [name for name in server_names if _is_first_listing_due(gateway, name)]
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


def _is_first_listing_due(gateway: GatewayRuntime, name: str) -> bool:
    is_troubled = gateway.upstreams[name].state in TROUBLED_STATES
    return not is_troubled and not gateway.catalog.snapshot.servers[name].is_listed


async def load_record_or_raise(gateway: GatewayRuntime) -> None:
    """Load the usage record; raises PorticoError if it cannot be read."""
    problem = ""
    advice = "`portico status` names the database."
    try:
        await gateway.store.open()
        await gateway.load_usage()
        problem = gateway.store.problem
    except StoreUnavailable as error:
        problem = error.message
        advice = error.advice
    if problem:
        raise PorticoError(f"the record of calls cannot be read: {problem}", advice=advice)


def note_starting_servers(gateway: GatewayRuntime) -> None:
    """Print a note about servers that are still starting."""
    upstreams = gateway.upstreams.items()
    starting = sorted(name for name, upstream in upstreams if upstream.state == "starting")
    if starting:
        them = "it" if len(starting) == 1 else "them"
        print_note(f"Still starting: {', '.join(starting)}; `portico status` waits for {them}.")


def select_unlisted_servers(gateway: GatewayRuntime) -> list[str]:
    """Select servers without a known listing, and all of kind `functions`, which are cheap to
    list.
    """
    servers = gateway.catalog.snapshot.servers
    return [
        name
        for name in select_enabled_servers(gateway)
        if gateway.upstreams[name].backend.kind == "functions" or not servers[name].is_listed
    ]


def select_view(gateway: GatewayRuntime, setup: Setup) -> ProfileView:
    """Return what the local user sees of the command's profile."""
    return gateway.get_view(setup.profile, setup.caller)


def select_enabled_servers(gateway: GatewayRuntime) -> list[str]:
    return [name for name, upstream in gateway.upstreams.items() if upstream.state != "disabled"]
