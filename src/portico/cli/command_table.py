"""Definitions of every command and option. Implementations are imported when they run."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter, validators

from portico import __version__
from portico.cli import client_commands, report_commands
from portico.cli.exit import EXIT_INVALID, EXIT_OK, run_to_exit_code
from portico.cli.options import (
    CommonOptions,
    FilesOption,
    JsonOption,
    OfflineOption,
    ProfileOption,
    refuse_command_line,
    run_async_command,
)
from portico.config import Exposure

if TYPE_CHECKING:
    from portico.cli.screen import Screen
    from portico.cli.setup import Setup

_HELP = (
    "One MCP endpoint in front of all your MCP servers: agents see a few small tools and "
    "search for the rest.\n\n"
    "Without a configuration everything runs on embedded demo servers, so every command can "
    "be tried at once."
)
_EXAMPLES = """Examples:
  portico demo                          see search, describe and call at work
  portico adopt                         take over the servers your clients have
  portico search "create an issue"      find tools in your servers

The configuration is portico.yaml or .mcp.json in this folder, else the one
that `adopt` wrote for you, or the file that --config or PORTICO_CONFIG names.
A client's mcpServers file will do."""

_RUN_GROUP = Group.create_ordered("Run")
_LOOK_GROUP = Group.create_ordered("Look and call")
_SETUP_GROUP = Group.create_ordered("Set up")

app = App(
    name="portico",
    help=_HELP,
    help_epilogue=_EXAMPLES,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative=""),
)
app.register_install_completion_command(
    group=_SETUP_GROUP,
    help="Install completion for this shell (bash, zsh, fish) and start it with the shell.",
)


def run_command_line(arguments: Sequence[str]) -> int:
    """Parse a command line, run it and return the exit code."""
    try:
        code = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return EXIT_INVALID
    except SystemExit as leaving:
        if isinstance(leaving.code, int):
            return leaving.code
        return EXIT_OK
    if isinstance(code, int):
        return code
    return EXIT_OK


@app.command(group=_RUN_GROUP, help_epilogue="", sort_key=1)
def serve(
    *,
    config: FilesOption = None,
    host: Annotated[
        str | None, Parameter(help="Address to listen on; any but loopback needs a token.")
    ] = None,
    port: Annotated[
        int | None, Parameter(help="Port to listen on; 0 picks a free one. Default 8420.")
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            help=(
                "Bearer token that clients must send; PORTICO_TOKEN keeps it out of the "
                "process list."
            )
        ),
    ] = None,
    exposure: Annotated[
        Exposure | None,
        Parameter(help="What clients see: the meta-tools, every tool, or search and describe."),
    ] = None,
    profile: Annotated[
        list[str] | None,
        Parameter(name=["--profile", "-p"], help="Serve only this profile; repeat it for more."),
    ] = None,
) -> int:
    """Serve every server as one, over HTTP."""
    from portico.cli.commands import serve as serve_command

    flags = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.token": token,
        "exposure": exposure,
    }
    return serve_command.run_serve(config or (), flags, profile or ())


@app.command(group=_RUN_GROUP, help_epilogue="", sort_key=2)
def stdio(
    *,
    config: FilesOption = None,
    profile: ProfileOption = None,
    exposure: Annotated[
        Exposure | None,
        Parameter(help="What it sees: the meta-tools, every tool, or search and describe."),
    ] = None,
) -> int:
    """Serve one client on stdin and stdout, for clients that start their servers themselves."""
    from portico.cli.commands import stdio as stdio_command

    return stdio_command.run_stdio(config or (), profile, exposure)


@app.command(group=_RUN_GROUP, help_epilogue="", sort_key=3)
def demo(*, json: JsonOption = False) -> int:
    """Show search, describe and call on the demo servers, with what each costs in tokens."""

    def start_demo() -> int:
        from portico.cli.commands import demo as demo_command
        from portico.cli.screen import Screen

        return asyncio.run(demo_command.run_demo(Screen(as_json=json)))

    return run_to_exit_code(start_demo, as_json=json)


@app.command(group=_RUN_GROUP, help_epilogue="", sort_key=4)
def restart(
    name: Annotated[str, Parameter(help="The server, as the configuration names it.")],
    /,
    *,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Start a server of the running gateway anew, also one that is in quarantine."""

    def start_restart() -> int:
        from portico.cli.commands import restart as restart_command
        from portico.cli.screen import Screen
        from portico.cli.setup import load_setup

        return restart_command.restart(load_setup(config or ()), Screen(as_json=json), name)

    return run_to_exit_code(start_restart, as_json=json)


@app.command(group=_LOOK_GROUP, help_epilogue="", sort_key=1)
def search(
    *query: Annotated[
        str, Parameter(help="What you want to do, in your own words, or a tool's name.")
    ],
    server: Annotated[
        str | None, Parameter(name=["--server", "-s"], help="Only this server.")
    ] = None,
    category: Annotated[
        str | None, Parameter(help="Only this category; `portico browse` lists them.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        Parameter(
            name=["--tag", "-t"], help="Only servers with this tag; repeat it to allow others."
        ),
    ] = None,
    max_latency_ms: Annotated[
        float | None,
        Parameter(
            help="Leave out tools that were slower so far.", validator=validators.Number(gte=0)
        ),
    ] = None,
    min_success_rate: Annotated[
        float | None,
        Parameter(
            help="Leave out tools that failed more often (0 … 1).",
            validator=validators.Number(gte=0, lte=1),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Parameter(
            name=["--limit", "-n"],
            help="How many tools to show. Default 8; 3 where nothing fits.",
            validator=validators.Number(gte=1),
        ),
    ] = None,
    detail: Annotated[
        Literal["brief", "schema"], Parameter(help="One line a tool, or its typed parameters.")
    ] = "brief",
    explain: Annotated[
        bool, Parameter(help="Tell why each tool ranks where it does.", show_default=False)
    ] = False,
    tool: Annotated[
        list[str] | None,
        Parameter(help="With --explain: tell where this tool stands, and why; repeat it for more."),
    ] = None,
    forget: Annotated[
        bool,
        Parameter(
            help=(
                "Forget what searches and calls have taught; with --server or --profile, only "
                "that one's."
            ),
            show_default=False,
        ),
    ] = False,
    offline: OfflineOption = False,
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Find tools by what they do."""
    options = CommonOptions(config, profile, json)
    if forget and query:
        return refuse_command_line(
            "--forget takes no query", "Narrow it with --server or --profile."
        )
    if not forget and not query:
        return refuse_command_line(
            "search needs a QUERY", 'Say what you want to do: portico search "send a mail".'
        )
    if forget:
        from portico.cli.commands import search_forget

        return run_async_command(
            options, lambda setup, screen: search_forget.forget_learning(setup, screen, server)
        )

    def start_search(setup: "Setup", screen: "Screen") -> Coroutine[Any, Any, int]:
        from portico.cli.commands import search as search_command
        from portico.meta_tools.no_match import MAX_UNLIKELY
        from portico.meta_tools.search_request import DEFAULT_LIMIT, SearchRequest

        request = SearchRequest(
            " ".join(query),
            server,
            tuple(tag or ()),
            max_latency_ms,
            min_success_rate,
            limit=limit or DEFAULT_LIMIT,
            detail=detail,
            category=category,
        )
        # An explicit --limit applies to unlikely matches too.
        if limit is None:
            weak_limit = MAX_UNLIKELY
        else:
            weak_limit = None
        explained_tools = tuple(tool or ())
        return search_command.search(
            setup,
            screen,
            search_command.SearchCommandOptions(
                request, weak_limit, explain or bool(explained_tools), explained_tools, offline
            ),
        )

    return run_async_command(options, start_search)


@app.command(group=_LOOK_GROUP, help_epilogue="", sort_key=2)
def browse(
    server: Annotated[
        str | None, Parameter(help="The server whose tools to list; without it, every server.")
    ] = None,
    /,
    *,
    category: Annotated[str | None, Parameter(help="List the tools of this category.")] = None,
    offline: OfflineOption = False,
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """List the servers and categories, or the tools of one."""
    from portico.cli.commands import browse as browse_command

    return run_async_command(
        CommonOptions(config, profile, json),
        lambda setup, screen: browse_command.browse(setup, screen, server, category, offline),
    )


@app.command(group=_LOOK_GROUP, help_epilogue="", sort_key=3)
def describe(
    name: Annotated[str, Parameter(help="A tool, as search shows it: server.tool")],
    /,
    *names: Annotated[str, Parameter(help="More tools.")],
    detail: Annotated[
        Literal["brief", "schema", "full"],
        Parameter(help="One line, typed parameters, or everything."),
    ] = "schema",
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Show what tools take and do."""
    from portico.cli.commands import browse as browse_command

    return run_async_command(
        CommonOptions(config, profile, json),
        lambda setup, screen: browse_command.describe(setup, screen, (name, *names), detail),
    )


@app.command(group=_LOOK_GROUP, help_epilogue="", sort_key=4)
def call(
    name: Annotated[str, Parameter(help="The tool: server.tool")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help=(
                "key=value (read by the tool's types), key:=JSON, one JSON object, or - to "
                "read that from stdin."
            ),
        ),
    ],
    config: FilesOption = None,
    profile: ProfileOption = None,
    json: JsonOption = False,
) -> int:
    """Run a tool and show its result."""
    from portico.cli.commands import call as call_command

    return run_async_command(
        CommonOptions(config, profile, json),
        lambda setup, screen: call_command.call(setup, screen, name, arguments),
    )


for _sort_key, _command in enumerate(
    (report_commands.status, report_commands.tokens, report_commands.usage, report_commands.tiers),
    5,
):
    app.command(_command, group=_LOOK_GROUP, help_epilogue="", sort_key=_sort_key)


@app.command(group=_LOOK_GROUP, help_epilogue="", sort_key=9)
def audit(
    *,
    tail: Annotated[
        int,
        Parameter(
            name=["--tail", "-n"], help="How many to show.", validator=validators.Number(gte=1)
        ),
    ] = 20,
    tool: Annotated[
        str | None,
        Parameter(help="Only this tool: server.tool, a tool's name, or a pattern: git.*"),
    ] = None,
    client: Annotated[str | None, Parameter(help="Only this client, as it calls itself.")] = None,
    failed: Annotated[
        bool, Parameter(help="Only what did not succeed.", show_default=False)
    ] = False,
    verify: Annotated[
        bool,
        Parameter(
            help="Check that no line was changed or taken out, and show none.",
            negative="",
            show_default=False,
        ),
    ] = False,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Show the latest calls of the audit log: who called what, and how it ended."""

    def start_audit() -> int:
        from portico.cli.commands import audit as audit_command
        from portico.cli.screen import Screen
        from portico.cli.setup import load_setup

        setup = load_setup(config or ())
        screen = Screen(as_json=json)
        if verify:
            return audit_command.verify_audit_log(setup, screen)
        return audit_command.show_audit_log(
            setup, screen, audit_command.AuditCommandOptions(tail, tool, client, failed)
        )

    return run_to_exit_code(start_audit, as_json=json)


for _sort_key, _command in enumerate(
    (client_commands.adopt, client_commands.install, client_commands.uninstall), -3
):
    app.command(_command, group=_SETUP_GROUP, help_epilogue="", sort_key=_sort_key)


@app.command(
    group=_SETUP_GROUP,
    help_epilogue="",
    sort_key=0,
    help=(
        "Find what is wrong with the configuration, the servers and this machine, "
        "and how to mend it."
    ),
)
def doctor(
    *,
    server: Annotated[
        list[str] | None,
        Parameter(
            name=["--server", "-s"],
            help="Examine only this server; repeat it for more.",
            negative="",
        ),
    ] = None,
    offline: Annotated[
        bool, Parameter(help="Start no server and ask none.", show_default=False)
    ] = False,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    def start_doctor() -> int:
        from portico.cli.doctor.examination import DoctorOptions
        from portico.cli.doctor.report import run_doctor
        from portico.cli.screen import Screen

        options = DoctorOptions(config or (), server or (), offline)
        return asyncio.run(run_doctor(options, Screen(as_json=json)))

    return run_to_exit_code(start_doctor, as_json=json)


@app.command(group=_SETUP_GROUP, help_epilogue="", sort_key=1, name="config")
def show_config(
    *,
    sources: Annotated[
        bool, Parameter(help="Show where each key came from.", show_default=False)
    ] = False,
    config: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Show the effective configuration, secrets masked."""

    def start_show_config() -> int:
        from portico.cli.commands import config as config_command
        from portico.cli.screen import Screen
        from portico.cli.setup import load_setup

        return config_command.show_config(load_setup(config or ()), Screen(as_json=json), sources)

    return run_to_exit_code(start_show_config, as_json=json)


@app.command(group=_SETUP_GROUP, help_epilogue="", sort_key=2)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="For which shell.")], /
) -> int:
    """Print the shell's completion script."""
    print(app.generate_completion(shell=shell))  # noqa: T201 - this is the output
    return EXIT_OK
