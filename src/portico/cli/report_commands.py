"""Command-line definitions of `status`, `tokens`, `usage` and `tiers`."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, validators

from portico.cli.options import (
    CommonOptions,
    FilesOption,
    JsonOption,
    LimitOption,
    OfflineOption,
    ProfileOption,
    refuse_command_line,
    run_async_command,
)

if TYPE_CHECKING:
    from portico.cli.screen import Screen
    from portico.cli.setup import Setup


def status(
    *,
    offline: OfflineOption = False,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Connect to every server and show how it does."""
    from portico.cli.commands import status as status_command

    return run_async_command(
        CommonOptions(config, None, json),
        lambda setup, screen: status_command.show_status(setup, screen, offline),
    )


def tokens(
    *,
    verify: Annotated[
        bool,
        Parameter(help="Fail (exit code 1) when a tier is over its budget.", show_default=False),
    ] = False,
    offline: OfflineOption = False,
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Show what the tools cost in tokens: directly, through Portico, and each tier."""

    def start_tokens(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli.commands import tokens as tokens_command

        return tokens_command.show_tokens(setup, screen, offline=offline, verify=verify)

    return run_async_command(CommonOptions(config, profile, json), start_tokens)


def usage(
    name: Annotated[
        str | None, Parameter(help="A tool or a server; without it, everything that was used.")
    ] = None,
    /,
    *,
    calls: Annotated[bool, Parameter(help="List the latest calls.", show_default=False)] = False,
    days: Annotated[
        float | None,
        Parameter(
            help="Only what was used in the last so many days.", validator=validators.Number(gt=0)
        ),
    ] = None,
    limit: LimitOption = 20,
    forget: Annotated[
        bool,
        Parameter(
            help="Forget every call; with --server, those of that server's tools.",
            show_default=False,
        ),
    ] = False,
    server: Annotated[
        str | None, Parameter(name=["--server", "-s"], help="Only this server.")
    ] = None,
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Show how the tools' calls went: how many, how well, how fast."""
    options = CommonOptions(config, profile, json)
    if name is not None and server is not None:
        return refuse_command_line("NAME and --server are both given", "Keep one.")
    if forget and (name is not None or calls or days is not None or profile is not None):
        return refuse_command_line(
            "--forget forgets all, or with --server a server's", "Leave out what else is given."
        )

    def start_usage(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli.commands import usage as usage_command

        if forget:
            return usage_command.forget_usage(setup, screen, server)
        usage_options = usage_command.UsageCommandOptions(name or server, days, limit)
        if calls:
            return usage_command.show_calls(setup, screen, usage_options)
        return usage_command.show_usage(setup, screen, usage_options)

    return run_async_command(options, start_usage)


def tiers(
    *,
    recompute: Annotated[
        bool, Parameter(help="Compute them now, and tell what moved.", show_default=False)
    ] = False,
    limit: LimitOption = 20,
    offline: OfflineOption = False,
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Show which tools matter most here, by their use."""

    def start_tiers(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli.commands import tiers as tiers_command

        return tiers_command.show_tiers(
            setup, screen, recompute=recompute, limit=limit, offline=offline
        )

    return run_async_command(CommonOptions(config, profile, json), start_tiers)
