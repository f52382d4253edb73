"""Declarations of `demo`, and of `serve` and `stdio` for what `main` does not parse itself."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from portico.cli.options import OUTPUT_DEFAULTS, FilesOption, OutputOptions, ProfileOption
from portico.config import Exposure


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of `serve`."""

    config: FilesOption = None
    """Configuration file; repeat it to add files, a later one wins."""
    host: str | None = None
    """Address to listen on; any but loopback needs a token."""
    port: int | None = None
    """Port to listen on; 0 picks a free one. Default 8420."""
    token: str | None = None
    """Bearer token that clients must send; PORTICO_TOKEN keeps it out of the process list."""
    exposure: Exposure | None = None
    """What clients see: the meta-tools, every tool, or search and describe."""
    profile: Annotated[list[str] | None, Parameter(name=["--profile", "-p"])] = None
    """Serve only this profile; repeat it for more."""
    log_file: str | None = None
    """Write everything to this file, which is rotated, as `portico start` does."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StdioOptions:
    """Options of `stdio`."""

    config: FilesOption = None
    """Configuration file; repeat it to add files, a later one wins."""
    profile: ProfileOption = None
    """See what this profile's clients see."""
    exposure: Exposure | None = None
    """What it sees: the meta-tools, every tool, or search and describe."""
    alone: bool = False
    """Do not pass everything on to the gateway that already runs, if there is one."""


_SERVE_DEFAULTS = ServeOptions()
_STDIO_DEFAULTS = StdioOptions()


def serve(*, options: ServeOptions = _SERVE_DEFAULTS) -> int:
    """Serve over HTTP."""
    from portico.cli.commands.serve import run_serve

    return run_serve(
        options.config or (),
        options.profile or (),
        options.host,
        options.port,
        options.token,
        options.exposure,
        options.log_file,
    )


def stdio(*, options: StdioOptions = _STDIO_DEFAULTS) -> int:
    """Serve one client on stdin and stdout."""
    from portico.cli.main import run_stdio

    return run_stdio(options.config or (), options.profile, options.exposure, alone=options.alone)


async def demo(*, options: OutputOptions = OUTPUT_DEFAULTS) -> int:
    """Run the task and show each step."""
    from portico.cli.commands.demo import run_demo

    return await run_demo(options)
