"""The commands that show how things stand, in figures, as a person sees them: status, tokens, usage, tiers."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from portico.cli.options import Files, Given, Json, Limit, Offline, Profile, asking, unusable

if TYPE_CHECKING:
    from portico.cli.opening import Setup
    from portico.cli.screen import Screen


def status(
    *,
    offline: Offline = False,
    config: Files = None,
    json: Json = False,
) -> int:
    """Connect to every server and show how it does."""
    from portico.cli import status as standing

    return asking(Given(config, None, json), lambda setup, screen: standing.status(setup, screen, offline))


def tokens(
    *,
    verify: Annotated[
        bool, Parameter(help="Fail (exit code 1) when a tier is over its budget.", show_default=False)
    ] = False,
    offline: Offline = False,
    config: Files = None,
    profile: Profile = None,
    json: Json = False,
) -> int:
    """Show what the tools cost in tokens: directly, through Portico, and each tier."""

    def job(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli import tokens as counting

        return counting.tokens(setup, screen, offline=offline, verify=verify)

    return asking(Given(config, profile, json), job)


def usage(
    name: Annotated[str | None, Parameter(help="A tool or a server; without it, everything that was used.")] = None,
    /,
    *,
    calls: Annotated[bool, Parameter(help="List the latest calls.", show_default=False)] = False,
    days: Annotated[
        float | None, Parameter(help="Only what was used in the last so many days.", validator=validators.Number(gt=0))
    ] = None,
    limit: Limit = 20,
    forget: Annotated[
        bool,
        Parameter(help="Forget every call; with --server, those of that server's tools.", show_default=False),
    ] = False,
    server: Annotated[str | None, Parameter(name=["--server", "-s"], help="Only this server.")] = None,
    config: Files = None,
    profile: Profile = None,
    json: Json = False,
) -> int:
    """Show how the tools' calls went: how many, how well, how fast."""
    given = Given(config, profile, json)
    if name is not None and server is not None:
        return unusable("NAME and --server are both given", "Keep one.")
    if forget and (name is not None or calls or days is not None or profile is not None):
        return unusable("--forget forgets all, or with --server a server's", "Leave out what else is given.")

    def job(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli import usage as using

        if forget:
            return using.forget(setup, screen, server)
        asked = using.Asked(name or server, days, limit)
        return (using.calls if calls else using.usage)(setup, screen, asked)

    return asking(given, job)


def tiers(
    *,
    recompute: Annotated[bool, Parameter(help="Compute them now, and tell what moved.", show_default=False)] = False,
    limit: Limit = 20,
    offline: Offline = False,
    config: Files = None,
    profile: Profile = None,
    json: Json = False,
) -> int:
    """Show which tools matter most here, by their use."""

    def job(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli import tiers as standing

        return standing.tiers(setup, screen, recompute=recompute, limit=limit, offline=offline)

    return asking(Given(config, profile, json), job)
