"""Flags, environment and files → a configuration, and a gateway over it."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portico.app import Gateway
from portico.cli import logs
from portico.cli.ending import note
from portico.config import Config
from portico.config_file import LoadedConfig, load

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


def set_up(
    files: Sequence[str] = (),
    *,
    profile: str | None = None,
    flags: Mapping[str, Any] | None = None,
    passing: bool = True,
) -> Setup:
    """The effective configuration; `passing` commands answer and end, and their answer says what servers are down."""
    loaded = load(list(files) or None, flags)
    config = loaded.config
    answered = passing and loaded.sources["log_level"].kind == "default"
    logs.set_up(config.log_level, quiet=("portico.upstream", "portico.catalog") if answered else ())
    demo = loaded.path is None and not config.servers
    if demo:
        from portico.demo import servers

        config = config.model_copy(update={"servers": servers()})
        note(
            f"No configuration found: using the embedded demo servers ({', '.join(config.servers)}). "
            "Write a portico.yaml, or name a file with --config."
        )
    for warning in loaded.warnings:
        note(f"Warning: {warning}")
    config.view(profile)  # an unknown profile is refused before anything starts
    exposure = (flags or {}).get("exposure")
    if profile is not None and exposure is not None:
        # A flag wins over the file, and the profile's own exposure is in the file.
        own = config.profiles[profile].model_copy(update={"exposure": config.exposure})
        config = config.model_copy(update={"profiles": {**config.profiles, profile: own}})
    return Setup(config, loaded, profile, demo)


Wanted = Callable[[Gateway], Iterable[str]]
"""Which servers to ask before a command answers."""


@asynccontextmanager
async def opened(setup: Setup, screen: "Screen", wanted: Wanted) -> AsyncGenerator[Gateway]:
    """A gateway for one answer: asks these servers, shows progress, and leaves nothing behind."""
    gateway = Gateway(setup.config)
    try:
        await ask(gateway, screen, wanted(gateway))
        yield gateway
    finally:
        await gateway.close()


async def ask(gateway: Gateway, screen: "Screen", names: Iterable[str]) -> None:
    """Start and list these servers."""
    waiting = list(names)
    if waiting:
        with screen.starting(waiting) as heard:
            await gateway.refresh(waiting, heard)


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
