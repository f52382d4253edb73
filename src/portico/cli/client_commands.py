"""Command-line definitions of `adopt`, `install` and `uninstall`."""

from typing import Annotated, Literal

from cyclopts import Parameter

from portico.cli.exit import run_to_exit_code
from portico.cli.options import FilesOption, JsonOption
from portico.config import Exposure

ScopeOption = Annotated[
    Literal["user", "project", "local"] | None,
    Parameter(
        help=(
            "Which file of the client: for every folder, or of this one. Default: user, where "
            "it has one."
        )
    ),
]
ClientFileOption = Annotated[
    str | None, Parameter(help="The client's file, where it is elsewhere.")
]
ClientArgument = Annotated[
    str,
    Parameter(
        help="claude-desktop, claude-code, cursor, vscode, windsurf, codex, gemini, zed or cline."
    ),
]


def adopt(
    *,
    source: Annotated[
        list[str] | None,
        Parameter(
            name="--from", help="Only this file, or the files of this client; repeat it for more."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, Parameter(help="Only this server; repeat it for more.")
    ] = None,
    without: Annotated[
        list[str] | None,
        Parameter(name="--except", help="All but this server; repeat it for more."),
    ] = None,
    output: Annotated[
        str | None,
        Parameter(
            name=["--output", "-o"],
            help="The configuration to write or add to. Default: this user's own.",
        ),
    ] = None,
    yes: Annotated[
        bool, Parameter(name=["--yes", "-y"], help="Adopt without asking.", show_default=False)
    ] = False,
    dry_run: Annotated[
        bool, Parameter(help="Show what would be written, and write nothing.", show_default=False)
    ] = False,
    no_start: Annotated[
        bool,
        Parameter(
            name=["--no-start", "--offline"],
            help="Start no server: count only what is known.",
            show_default=False,
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Take over the servers that your clients already have: find, count, choose, write."""

    def start_adopt() -> int:
        from portico.cli.commands.adopt import AdoptCommandOptions
        from portico.cli.commands.adopt import adopt as run_adopt
        from portico.cli.screen import Screen

        options = AdoptCommandOptions(
            source or (), output, only or (), without or (), yes, dry_run, not no_start
        )
        return run_adopt(options, Screen(as_json=json))

    return run_to_exit_code(start_adopt, as_json=json)


def install(
    client: ClientArgument,
    /,
    *,
    write: Annotated[
        bool, Parameter(help="Change the file; without it, only show how.", show_default=False)
    ] = False,
    scope: ScopeOption = None,
    file: ClientFileOption = None,
    url: Annotated[
        str | None,
        Parameter(
            help="Lead it to a running `portico serve` instead of starting one: its /mcp address."
        ),
    ] = None,
    exposure: Annotated[
        Exposure | None, Parameter(help="What it sees. Default: what suits the client.")
    ] = None,
    replace: Annotated[
        bool,
        Parameter(
            help="Take the servers that Portico has out of the client's file.", show_default=False
        ),
    ] = False,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Point a client at Portico; shows what would change unless --write is given."""

    def start_install() -> int:
        from portico.cli.commands import install as install_command
        from portico.cli.screen import Screen

        return install_command.install(
            client,
            config=config or (),
            scope=scope,
            url=url,
            exposure=exposure,
            file=file,
            write=write,
            screen=Screen(as_json=json),
            replace=replace,
        )

    return run_to_exit_code(start_install, as_json=json)


def uninstall(
    client: ClientArgument,
    /,
    *,
    dry_run: Annotated[
        bool, Parameter(help="Only show how its file would change.", show_default=False)
    ] = False,
    scope: ScopeOption = None,
    file: ClientFileOption = None,
    json: JsonOption = False,
) -> int:
    """Give a client its file back as it was before `portico install`."""

    def start_uninstall() -> int:
        from portico.cli.commands import install as install_command
        from portico.cli.screen import Screen

        return install_command.uninstall(
            client, scope=scope, file=file, write=not dry_run, screen=Screen(as_json=json)
        )

    return run_to_exit_code(start_uninstall, as_json=json)
