"""Declarations of the commands that set Portico up.

Only what the option parser needs: the work of each is in `commands/`, and is imported when a
command runs, so that help is shown without loading the gateway.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from portico.cli.options import ConfigOptions, LimitOption, OutputOptions
from portico.config import Exposure

Severity = Literal["broken", "warning", "note"]
"""Something does not work · it works but causes trouble · worth knowing."""
Scope = Literal["user", "project", "local"] | None
ClientArgument = Annotated[
    str,
    Parameter(
        help="claude-desktop, claude-code, cursor, vscode, windsurf, codex, gemini, zed or cline."
    ),
]
ServerArgument = Annotated[str, Parameter(help="The server, as the configuration names it.")]
ServerOrTool = Annotated[str, Parameter(help="A server, or a tool: server.tool")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdoptOptions(OutputOptions):
    """Options of the command line."""

    source: Annotated[list[str] | None, Parameter(name="--from")] = None
    """Only this file, or the files of this client; repeat it for more."""
    only: list[str] | None = None
    """Only this server; repeat it for more."""
    without: Annotated[list[str] | None, Parameter(name="--except")] = None
    """All but this server; repeat it for more."""
    output: Annotated[str | None, Parameter(name=["--output", "-o"])] = None
    """The configuration to write or add to. Default: this user's own."""
    all_projects: bool = False
    """Also servers that Claude Code has only in other folders."""
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False
    """Adopt without asking."""
    dry_run: bool = False
    """Show what would be written, and write nothing."""
    no_start: Annotated[bool, Parameter(name=["--no-start", "--offline"])] = False
    """Start no server: count only what is known."""


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(ConfigOptions):
    """Options of commands that change the configuration."""

    dry_run: bool = False
    """Only show the change."""


@dataclass(frozen=True, kw_only=True)
class AddOptions(ChangeOptions):
    """Options of `add`."""

    url: str | None = None
    """The address of a remote server."""
    openapi: str | None = None
    """The description of an HTTP API, a file or URL: its operations become tools."""
    base_url: str | None = None
    """The API's own address, where its description names another."""
    env: Annotated[list[str] | None, Parameter(name=["--env", "-e"])] = None
    """A variable for it, NAME=VALUE, or NAME to pass on the gateway's own; repeat it for more."""
    header: Annotated[list[str] | None, Parameter(name=["--header", "-H"])] = None
    """A header for every request, "Name: value"; repeat it for more."""
    cwd: str | None = None
    """The folder it runs in."""
    description: str | None = None
    """What it is for, in a sentence."""
    no_check: bool = False
    """Do not start it before it is written."""
    set_: Annotated[list[str] | None, Parameter(name="--set")] = None
    """From a registry or bundle: a value it asks for, NAME=VALUE; repeat it for more."""
    as_: Annotated[str | None, Parameter(name="--as")] = None
    """From a registry or bundle: the server's name here. Default: after its own."""
    package: Annotated[
        Literal["npm", "pypi", "oci", "mcpb", "remote"] | None, Parameter(name="--package")
    ] = None
    """From a registry: which of its packages. Default: the first that can be started here."""
    version: Annotated[str, Parameter(name="--server-version")] = "latest"
    """From a registry: this version."""
    registry: str | None = None
    """The registry to ask. Default: `registry.url` of the configuration."""
    sha256: str | None = None
    """From a file or URL: what its SHA-256 has to be."""
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False
    """From a registry or bundle: start it and add it without asking."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FindOptions(ConfigOptions):
    """Options of `find`."""

    update: bool = False
    """Fetch the registry's servers first: a snapshot that is searched from then on, offline too."""
    registry: str | None = None
    """With --update: the registry to ask. Default: `registry.url` of the configuration."""
    limit: LimitOption = 5
    """How many to show."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InstallOptions(ConfigOptions):
    """Options of `install`."""

    write: bool = False
    """Change the file; without it, only show how."""
    scope: Scope = None
    """Which file: for every folder, or of this one. Default: user, where the client has one."""
    file: str | None = None
    """The client's file, where it is elsewhere."""
    url: str | None = None
    """Lead it to a running `portico serve` instead of starting one: its /mcp address."""
    exposure: Exposure | None = None
    """What it sees. Default: what suits the client."""
    replace: bool = False
    """Take the servers that Portico has out of the client's file."""
    drop_rules: bool = False
    """With --replace: also those for which the client has rules that Portico cannot keep."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class UninstallOptions(OutputOptions):
    """Options of `uninstall`."""

    dry_run: bool = False
    """Only show how its file would change."""
    scope: Scope = None
    """Which file: for every folder, or of this one. Default: all of them."""
    file: str | None = None
    """The client's file, where it is elsewhere."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DoctorOptions(ConfigOptions):
    """Options of the command line. With servers, the installation is not checked."""

    server: Annotated[list[str] | None, Parameter(name=["--server", "-s"])] = None
    """Examine only this server; repeat it for more."""
    offline: bool = False
    """Start no server and ask none."""
    level: Severity = "note"
    """Show only findings this bad or worse."""


_ADOPT_DEFAULTS = AdoptOptions()
_CHANGE_DEFAULTS = ChangeOptions()
_ADD_DEFAULTS = AddOptions()
_FIND_DEFAULTS = FindOptions()
_INSTALL_DEFAULTS = InstallOptions()
_UNINSTALL_DEFAULTS = UninstallOptions()
_DOCTOR_DEFAULTS = DoctorOptions()


def adopt(*, options: AdoptOptions = _ADOPT_DEFAULTS) -> int:
    """Take over the servers of clients."""
    from portico.cli.commands.adopt import run_adopt

    return run_adopt(options)


def find(
    *words: Annotated[str, Parameter(help="What the server should do, or its name.")],
    options: FindOptions = _FIND_DEFAULTS,
) -> int:
    """Find servers in a registry by what they do."""
    from portico.cli.commands.find import run_find

    return run_find(words, options)


def add(
    name: Annotated[
        str,
        Parameter(
            help="A name for the server: letters, digits, _ and -. Or where it comes from: its "
            "name in a registry (io.github.owner/name), a bundle (./x.mcpb) or a URL of one."
        ),
    ],
    /,
    *command: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="After --: the program to run and its arguments."
        ),
    ],
    options: AddOptions = _ADD_DEFAULTS,
) -> int:
    """Try a server and add it to the configuration."""
    from portico.cli.commands.add import run_add

    return run_add(name, command, options)


def remove(name: ServerArgument, /, *, options: ChangeOptions = _CHANGE_DEFAULTS) -> int:
    """Take a server out of the configuration."""
    from portico.cli.commands.servers import run_remove

    return run_remove(name, options)


def enable(name: ServerOrTool, /, *, options: ChangeOptions = _CHANGE_DEFAULTS) -> int:
    """Switch a server or one of its tools on."""
    from portico.cli.commands.servers import run_enable

    return run_enable(name, options)


def disable(name: ServerOrTool, /, *, options: ChangeOptions = _CHANGE_DEFAULTS) -> int:
    """Switch a server or one of its tools off."""
    from portico.cli.commands.servers import run_disable

    return run_disable(name, options)


def rename(
    name: ServerArgument,
    new_name: Annotated[str, Parameter(help="Its new name: letters, digits, _ and -.")],
    /,
    *,
    options: ChangeOptions = _CHANGE_DEFAULTS,
) -> int:
    """Give a server another name, also in `pins`, profiles and rules."""
    from portico.cli.commands.servers import run_rename

    return run_rename(name, new_name, options)


def undo(*, options: ChangeOptions = _CHANGE_DEFAULTS) -> int:
    """Undo the last change that a command made to the configuration."""
    from portico.cli.commands.servers import run_undo

    return run_undo(options)


def install(client: ClientArgument = "", /, *, options: InstallOptions = _INSTALL_DEFAULTS) -> int:
    """Show the change to the client's file; with `write`, apply it and store a backup."""
    from portico.cli.commands.install import run_install

    return run_install(client, options)


def uninstall(
    client: ClientArgument = "", /, *, options: UninstallOptions = _UNINSTALL_DEFAULTS
) -> int:
    """Restore the client's file; with `dry_run`, only show the change."""
    from portico.cli.commands.install import run_uninstall

    return run_uninstall(client, options)


async def doctor(*, options: DoctorOptions = _DOCTOR_DEFAULTS) -> int:
    """Examine, show the report, and return the exit code."""
    from portico.cli.commands.doctor import run_doctor

    return await run_doctor(options)
