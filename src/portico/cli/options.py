"""Options that commands have in common, and how a command that asks one question is run."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from portico.cli.ending import UNUSABLE, complain, ended
from portico.errors import PorticoError

if TYPE_CHECKING:
    from portico.cli.opening import Setup
    from portico.cli.screen import Screen

Files = Annotated[
    list[str] | None,
    Parameter(name=["--config", "-c"], help="Configuration file; repeat it to add files, a later one wins."),
]
Profile = Annotated[str | None, Parameter(name=["--profile", "-p"], help="See what this profile's clients see.")]
Json = Annotated[bool, Parameter(name="--json", help="Answer as JSON.", show_default=False)]
Offline = Annotated[
    bool, Parameter(help="Start nothing: answer from what is known from last time.", show_default=False)
]
Limit = Annotated[int, Parameter(name=["--limit", "-n"], help="How many to show.", validator=validators.Number(gte=1))]


@dataclass(frozen=True)
class Given:
    """What nearly every command is given."""

    config: list[str] | None
    profile: str | None
    json: bool


def asking(given: Given, job: "Callable[[Setup, Screen], Coroutine[Any, Any, int]]") -> int:
    """Run one question against a gateway that exists for it alone."""

    def answer() -> int:
        from portico.cli.opening import set_up
        from portico.cli.screen import Screen

        screen = Screen(as_json=given.json)
        setup = set_up(given.config or (), profile=given.profile)
        return asyncio.run(job(setup, screen))

    return ended(answer, as_json=given.json)


def unusable(message: str, advice: str) -> int:
    """Refuse a command line, with what to write instead."""
    complain(PorticoError(message, advice=advice))
    return UNUSABLE
