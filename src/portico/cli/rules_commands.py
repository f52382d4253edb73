"""Declarations of `portico rules test` and `list`.

Only what the option parser needs: their work is in `commands/rules.py`.
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from portico.cli.options import ProfileOptions

TargetArgument = Annotated[
    str,
    Parameter(help="A tool, `resource:SERVER.URI` or `prompt:SERVER.NAME`."),
]
ArgumentWords = Annotated[str, Parameter(help="Arguments of the call, as for `portico call`.")]


@dataclass(frozen=True, kw_only=True)
class RulesOptions(ProfileOptions):
    """Options of `rules`."""

    who: Annotated[str, Parameter(name=["--as"], show_default=True)] = "local"
    """For whom: `local`, `token`, `key:NAME`, or a person: SUBJECT, or 'ISSUER SUBJECT'."""
    group: Annotated[list[str] | None, Parameter(name=["--group", "-g"])] = None
    """A group of that person; repeat it for more."""
    client: str = ""
    """What its client calls itself."""


_DEFAULTS = RulesOptions()


async def test_rules(
    target: TargetArgument,
    /,
    *arguments: ArgumentWords,
    options: RulesOptions = _DEFAULTS,  # noqa: PT028 - a command, not a test
) -> int:
    """Say what a call would come to, which rule decides, and which came close."""
    from portico.cli.commands.rules import run_test

    return await run_test(target, arguments, options)


async def list_rules(*, options: RulesOptions = _DEFAULTS) -> int:
    """List what somebody sees, and what may be done with it."""
    from portico.cli.commands.rules import run_list

    return await run_list(options)
