"""Every command with its module, which is imported when the command runs or its help is shown."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Group, Parameter

from portico import __version__
from portico.cli.completion import NAMES_BY_SHELL
from portico.cli.exit import EXIT_INVALID, EXIT_OK, run_to_exit_code
from portico.cli.streams import ProcessStreams, use_streams

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
_COMMANDS: dict[str, dict[str, str]] = {
    "Run": {
        "serve_commands:serve": "Serve every server as one, over HTTP.",
        "serve_commands:stdio": (
            "Serve one client on stdin and stdout, for clients that start their servers themselves."
        ),
        "serve_commands:demo": (
            "Show search, describe, call, script and approval on the demo servers, with what "
            "each costs in tokens."
        ),
        "commands.background:start": (
            "Run the gateway in the background, once for all clients of this user."
        ),
        "commands.background:stop": "Stop the gateway that runs for this configuration.",
        "commands.logs:logs": "Show the log of the gateway in the background, or of one server.",
        "commands.restart:restart": (
            "Restart the gateway in the background, or one server of the running gateway."
        ),
    },
    "Look and call": {
        "look_commands:search": "Find tools by what they do.",
        "look_commands:browse": "List the servers and categories, or the tools of one.",
        "look_commands:describe": "Show what tools take and do.",
        "look_commands:call": "Run a tool and show its result.",
        "look_commands:status": "Connect to every server and show how it does.",
        "commands.top:top": "Show live what the servers of the running gateway do.",
        "commands.console:console": (
            "Open the console of the running gateway in the browser, signed in."
        ),
        "look_commands:tokens": (
            "Show what the tools cost in tokens: directly, through Portico, and each tier."
        ),
        "look_commands:usage": "Show how the tools' calls went: how many, how well, how fast.",
        "look_commands:tiers": "Show which tools matter most here, by their use.",
        "look_commands:trust": (
            "Show what servers say differently than when they were trusted, and trust it."
        ),
        "look_commands:audit": (
            "Show the latest calls of the audit log: who called what, and how it ended."
        ),
    },
    "Approve": {
        "approval_commands:approvals": "List the calls that wait for a person's approval.",
        "approval_commands:approve": "Approve a call: it may run once, exactly as listed.",
        "approval_commands:deny": "Deny a call.",
    },
    "Set up": {
        "setup_commands:adopt": (
            "Take over the servers that your clients already have: find, count, choose, write."
        ),
        "setup_commands:find": "Find servers in a registry by what they do.",
        "setup_commands:add": (
            "Add a server to the configuration, once it was tried: a command, a URL, or one of a "
            "registry."
        ),
        "setup_commands:remove": "Take a server out of the configuration.",
        "setup_commands:enable": "Switch a server, or one of its tools, on.",
        "setup_commands:disable": "Switch a server, or one of its tools, off.",
        "setup_commands:rename": "Give a server another name.",
        "setup_commands:undo": "Undo the last change that a command made to the configuration.",
        "sign_in_commands:login": "Sign in to a remote server with OAuth.",
        "sign_in_commands:logout": "Forget the sign-in to a remote server.",
        "setup_commands:install": (
            "Point a client at Portico; shows what would change unless --write is given."
        ),
        "setup_commands:uninstall": (
            "Give a client its file back as it was before `portico install`."
        ),
        "setup_commands:doctor": (
            "Find what is wrong with the configuration, the servers and this machine, and how "
            "to repair it."
        ),
        "commands.config:config": "Show the effective configuration, secrets masked.",
    },
}
"""Group → `module:function` in `portico.cli`, the function named like the command → its help."""

app = App(
    name="portico",
    help=_HELP,
    help_epilogue=_EXAMPLES,
    help_format="plaintext",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=False),
)


def _add_commands() -> Group:
    group = Group.create_ordered("")
    for title, commands in _COMMANDS.items():
        group = Group.create_ordered(title)
        for sort_key, (path, text) in enumerate(commands.items(), -len(commands)):
            app.command(
                f"portico.cli.{path}",
                name=path.partition(":")[2],
                group=group,
                help=text,
                help_epilogue="",
                sort_key=sort_key,
            )
    return group


_RULES_HELP = "Say what the rules make of a call, and what somebody sees."
_RULES_COMMANDS = {
    "test": "Say what a call would come to, which rule decides, and which came close.",
    "list": "List what somebody sees, and what may be done with it.",
}
_KEYS_HELP = (
    "Give people and programs keys to the gateway over HTTP, and take them back.\n\n"
    "A key is sent as `Authorization: Bearer portico_…`. As soon as there is one, every request "
    "over HTTP needs a key or gateway.token; running gateways know within a second."
)
_KEYS_COMMANDS = {
    "add": "Make a key and show it, once.",
    "list": "List the keys: names, what they open, when they end and were last used.",
    "rotate": "Make a new key in place of one; both are valid for a while.",
    "revoke": "End a key now, or all of a name.",
}


def _add_subcommands(noun: str, text: str, commands: Mapping[str, str], group: Group) -> None:
    """Add `portico NOUN VERB` for each verb; its function is `VERB_NOUN` in `NOUN_commands`."""
    parent = App(
        name=noun,
        help=text,
        help_format="plaintext",
        help_epilogue="",
        group=group,
        sort_key=0,
    )
    for sort_key, (name, help_text) in enumerate(commands.items()):
        parent.command(
            f"portico.cli.{noun}_commands:{name}_{noun}",
            name=name,
            help=help_text,
            help_epilogue="",
            sort_key=sort_key,
        )
    app.command(parent)


_SETUP_GROUP = _add_commands()
_add_subcommands("keys", _KEYS_HELP, _KEYS_COMMANDS, _SETUP_GROUP)
_add_subcommands("rules", _RULES_HELP, _RULES_COMMANDS, _SETUP_GROUP)
app.register_install_completion_command(
    group=_SETUP_GROUP,
    help="Install completion for this shell (bash, zsh, fish) and start it with the shell.",
)


@app.command(group=_SETUP_GROUP, help_epilogue="", sort_key=0)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="For which shell.")], /
) -> int:
    """Print the shell's completion script."""
    script = app.generate_completion(shell=shell).rstrip()
    print(f"{script}\n{NAMES_BY_SHELL[shell]}")  # noqa: T201 - this is the output
    return EXIT_OK


def run_command_line(arguments: Sequence[str]) -> int:
    """Parse a command line, run it and return the exit code."""
    use_streams(ProcessStreams())
    try:
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=True)
        as_json: bool = getattr(bound.arguments.get("options"), "json", False)
        return run_to_exit_code(lambda: _run(command, bound), as_json=as_json)
    except CycloptsError:
        return EXIT_INVALID
    except SystemExit as leaving:
        if isinstance(leaving.code, int):
            return leaving.code
        return EXIT_OK


def _run(command: Callable[..., Any], bound: inspect.BoundArguments) -> int:
    code = command(*bound.args, **bound.kwargs)
    if inspect.iscoroutine(code):
        code = asyncio.run(code)
    if isinstance(code, int):
        return code
    return EXIT_OK
