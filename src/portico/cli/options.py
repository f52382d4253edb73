"""Options that commands share, and a runner for commands that open a gateway."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from portico.cli.exit import EXIT_INVALID, print_error, run_to_exit_code
from portico.errors import PorticoError

if TYPE_CHECKING:
    from portico.cli.screen import Screen
    from portico.cli.setup import Setup

FilesOption = Annotated[
    list[str] | None,
    Parameter(
        name=["--config", "-c"],
        help="Configuration file; repeat it to add files, a later one wins.",
    ),
]
ProfileOption = Annotated[
    str | None, Parameter(name=["--profile", "-p"], help="See what this profile's clients see.")
]
JsonOption = Annotated[bool, Parameter(name="--json", help="Answer as JSON.", show_default=False)]
OfflineOption = Annotated[
    bool,
    Parameter(help="Start nothing: answer from what is known from last time.", show_default=False),
]
LimitOption = Annotated[
    int,
    Parameter(name=["--limit", "-n"], help="How many to show.", validator=validators.Number(gte=1)),
]


@dataclass(frozen=True)
class CommonOptions:
    """Options of nearly every command."""

    config_files: list[str] | None
    profile: str | None
    json: bool


def run_async_command(
    options: CommonOptions, job: "Callable[[Setup, Screen], Coroutine[Any, Any, int]]"
) -> int:
    """Run one job with its own configuration and screen."""

    def run_job() -> int:
        from portico.cli.screen import Screen
        from portico.cli.setup import load_setup

        screen = Screen(as_json=options.json)
        setup = load_setup(options.config_files or (), profile=options.profile)
        return asyncio.run(job(setup, screen))

    return run_to_exit_code(run_job, as_json=options.json)


def refuse_command_line(message: str, advice: str) -> int:
    """Print an error for an invalid command line and return the exit code."""
    print_error(PorticoError(message, advice=advice))
    return EXIT_INVALID
