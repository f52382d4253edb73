"""Checks the programs that start servers: on PATH, executable, new enough, with existing files."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from portico.cli.doctor.checks.packages import find_unpinned
from portico.cli.doctor.finding import ConfigLocations, DoctorFinding
from portico.config import BackendConfig
from portico.upstream.transports.process import build_environment

_VERSION_TIMEOUT_S = 10.0
_INSTALL_ADVICE: Mapping[str, str] = {
    "npx": "Install Node.js 20 or newer (it brings npx): https://nodejs.org/en/download",
    "node": "Install Node.js 20 or newer: https://nodejs.org/en/download",
    "npm": "Install Node.js 20 or newer (it brings npm): https://nodejs.org/en/download",
    "uvx": "Install uv (it brings uvx): pip install uv",
    "uv": "pip install uv",
    "pipx": "pip install pipx",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
    "podman": "Install Podman: https://podman.io/docs/installation",
    "bunx": "Install Bun (it brings bunx): https://bun.sh/docs/installation",
    "bun": "Install Bun: https://bun.sh/docs/installation",
    "deno": "Install Deno: https://docs.deno.com/runtime/getting_started/installation/",
    "python": "Write command: python3, or the full path of an interpreter.",
    "python3": "Install Python 3.10 or newer, or write the full path of an interpreter.",
}
_WINDOWS_PROGRAMS = ("cmd", "powershell", "pwsh.exe")
_SCRIPTS = re.compile(r".*\.(?:js|mjs|cjs|ts|mts|py|pyz|rb|sh|php|jar)", re.IGNORECASE)
_INTERPRETERS = re.compile(
    r"(?:node|nodejs|python[\d.]*|deno|bun|ruby|sh|bash|zsh|php|tsx|java|uv)"
)
_NEEDS_SCRIPT = re.compile(
    r"node|nodejs|python[\d.]*|ruby|sh|bash|zsh|php|npx|uvx|docker|podman|deno|bun|uv"
)
_NO_SCRIPT_OPTIONS = frozenset({"-m", "-c", "-e", "--eval", "-p", "--print", "-S"})
_RUNNERS = ("uv", "deno", "bun")
"""They have subcommands (`run`) before the script."""
_TAKES_VALUE = frozenset({"-r", "--require", "--import", "--loader", "-W", "-X"})
_TAKES_FOLDER = ("--directory",)
_VERSION_RULES: Mapping[str, tuple[str, str, tuple[int, ...], tuple[int, ...]]] = {
    "node": ("command.node_old", "Node.js", (18,), (20,)),
    "python": ("command.python_old", "Python", (3, 10), (3, 10)),
}
"""Program → finding id, name, and the versions that most servers and many servers need."""


@dataclass(frozen=True)
class InstalledProgram:
    """A program on this machine."""

    path: str
    version: tuple[int, ...] = ()
    problem: str = ""
    """Why its version could not be read."""


def parse_program_name(command: str) -> str:
    """`/usr/bin/npx.cmd` → `npx`."""
    return re.sub(
        r"\.(?:exe|cmd|bat)$", "", PurePath(command.replace("\\", "/")).name, flags=re.IGNORECASE
    ).lower()


def find_program(server: BackendConfig) -> str | None:
    """Return the path of a server's command, found as the gateway would."""
    command = server.command or ""
    folder = server.cwd or ""
    # Relative to `cwd`, and on the server's own PATH.
    if os.path.dirname(command):
        path = os.path.abspath(os.path.join(folder, command))
    else:
        path = command
    return shutil.which(path, path=build_environment(server.env, server.inherit_env).get("PATH"))


def check(name: str, server: BackendConfig, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a server's command, without running it."""
    command = server.command or ""
    at = locations.locate_server(name, "command")
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield DoctorFinding(
            "command.cwd_missing",
            "broken",
            f"the working directory {server.cwd} does not exist",
            f"mkdir -p {server.cwd}  or correct `cwd`",
            **locations.locate_server(name, "cwd"),
        )
        return
    if (
        parse_program_name(command) in _WINDOWS_PROGRAMS
        and sys.platform != "win32"
        and find_program(server) is None
    ):
        other_args = [arg for arg in server.args if arg.lower() not in ("/c", "/s", "/d")]
        remedy = "Name the program itself."
        if other_args:
            remedy = f"Write command: {other_args[0]}, args: [{', '.join(other_args[1:])}]."
        message = f"{command} exists on Windows only"
        yield DoctorFinding("command.windows_only", "broken", message, remedy, **at)
        return
    if find_program(server) is None:
        yield _make_missing_finding(command, server, at)
        return
    if not server.args and _NEEDS_SCRIPT.fullmatch(parse_program_name(command)):
        yield DoctorFinding(
            "command.no_script",
            "broken",
            f"{command} alone is no server: it is told to run nothing",
            "Write what it should run into `args`.",
            **at,
        )
        return
    yield from _check_files(name, server, locations)
    if unpinned := find_unpinned(parse_program_name(command), server.args):
        yield DoctorFinding(
            "command.unpinned",
            "note",
            unpinned.message,
            unpinned.remedy,
            **locations.locate_server(name, "args"),
        )


def _make_missing_finding(
    command: str, server: BackendConfig, at: Mapping[str, object]
) -> DoctorFinding:
    path = os.path.join(server.cwd or "", command)
    if os.path.dirname(command) and os.path.isfile(path):
        return DoctorFinding(
            "command.not_executable",
            "broken",
            f"{command} is not executable",
            f"chmod +x {os.path.abspath(path)}",
            **at,  # pyright: ignore[reportArgumentType]
        )
    words = command.split()
    if os.path.dirname(command):
        where = ""
    else:
        where = " on PATH"
    if len(words) > 1:
        remedy = (
            f"Put the arguments into args: command: {words[0]}, args: [{', '.join(words[1:])}]."
        )
    elif "PATH" in server.env and shutil.which(command):
        remedy = (
            f"`env` sets a PATH without it: add {os.path.dirname(str(shutil.which(command)))} "
            "there."
        )
    else:
        advice = "Install it, or write its full path (`command -v` in your own shell shows it)."
        remedy = _INSTALL_ADVICE.get(parse_program_name(command), advice)
        if near := _suggest_program(command):
            remedy = (
                f"Did you mean {near}? "
                f"{remedy if parse_program_name(command) in _INSTALL_ADVICE else ''}"
            ).strip()
    return DoctorFinding(
        "command.missing",
        "broken",
        f"the command {command!r} does not exist{where}",
        remedy,
        **at,  # pyright: ignore[reportArgumentType]
    )


def _suggest_program(command: str) -> str:
    """Return a common program with a similar name."""
    from portico.config_file.names import find_intended_name

    near = find_intended_name(command, _INSTALL_ADVICE)
    if near and near != command and shutil.which(near):
        return near
    return ""


def _check_files(
    name: str, server: BackendConfig, locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    """Check that the folder and the script that a command names exist."""
    program = parse_program_name(server.command or "")
    base = Path(server.cwd or ".")
    for position, (option, folder) in enumerate(zip(server.args, server.args[1:], strict=False), 1):
        if program == "uv" and option in _TAKES_FOLDER:
            base /= folder  # uv changes to that folder before it opens the script.
            if not base.is_dir():
                message = f"the folder {folder} does not exist"
                at = locations.locate_server(name, "args", position)
                yield DoctorFinding(
                    "command.folder_missing", "broken", message, "Correct the path.", **at
                )
                return
    position = find_script_position(program, server.args)
    if position is None:
        script = ""
    else:
        script = server.args[position]
    if position is None or (base / script).exists():
        return
    if os.path.isabs(script) or server.cwd is None:
        where = ""
    else:
        where = f" in {server.cwd}"
    if os.path.isabs(script) or server.cwd:
        remedy = "Write its full path"
    else:
        remedy = "Write its full path, or set `cwd`"
    yield DoctorFinding(
        "command.script_missing",
        "broken",
        f"{script}, which {server.command} should run, does not exist{where}",
        f"{remedy}; build the server first if it has to be built.",
        **locations.locate_server(name, "args", position),
    )


def find_script_position(program: str, args: Sequence[str]) -> int | None:
    """Return the index of the script that an interpreter runs; None if uncertain. Pure."""
    if not _INTERPRETERS.fullmatch(program):
        return None
    before = ""
    for position, argument in enumerate(args):
        if argument in _NO_SCRIPT_OPTIONS:
            return None
        # It is unknown which options of a runner take a value, so the next word is skipped.
        is_value = before in _TAKES_VALUE or (program in _RUNNERS and before.startswith("-"))
        before = argument
        if argument.startswith("-") or is_value:
            continue
        if _SCRIPTS.fullmatch(argument) and "://" not in argument:
            return position
        if program not in _RUNNERS:
            return None  # That is the program; what follows are its arguments.
    return None


async def check_versions(
    servers: Mapping[str, BackendConfig], locations: ConfigLocations
) -> list[DoctorFinding]:
    """Return outdated programs, each asked once, and container engines that do not run."""
    programs: dict[str, tuple[str, list[str]]] = {}
    for name, server in servers.items():
        path = find_program(server)
        program = parse_program_name(server.command or "")
        if path is None:
            continue
        if program in ("node", "npx", "npm"):
            kind = "node"
        elif program.startswith("python"):
            kind = "python"
        else:
            kind = program
        if program in ("npx", "npm"):
            path = shutil.which(
                "node", path=build_environment(server.env, server.inherit_env).get("PATH")
            )
        if path is not None and kind in (*_VERSION_RULES, "docker", "podman"):
            programs.setdefault(f"{kind}\0{path}", (path, []))[1].append(name)
    findings_by_program = await asyncio.gather(
        *(
            _check_program(key.partition("\0")[0], path, names, locations)
            for key, (path, names) in programs.items()
        )
    )
    return [finding for findings in findings_by_program for finding in findings]


async def _check_program(
    kind: str, path: str, names: Iterable[str], locations: ConfigLocations
) -> list[DoctorFinding]:
    if kind in _VERSION_RULES:
        return list(
            _check_version(kind, await asyncio.to_thread(_read_version, path), names, locations)
        )
    try:
        completed = await asyncio.to_thread(
            _run_program, path, "version", "--format", "{{.Server.Version}}"
        )
    except (OSError, subprocess.SubprocessError):
        completed = None
    if completed is not None and completed.returncode == 0:
        return []
    if kind == "docker":
        remedy = "Start Docker Desktop, or: sudo systemctl start docker"
    else:
        remedy = "podman machine start"
    return [
        DoctorFinding(
            "command.docker_down",
            "broken",
            f"{kind} is installed, but its engine does not answer",
            remedy,
            **at,
        )
        for at in (locations.locate_server(name, "command") for name in names)
    ]


def _check_version(
    kind: str, program: InstalledProgram, names: Iterable[str], locations: ConfigLocations
) -> Iterator[DoctorFinding]:
    finding, title, minimum, recommended = _VERSION_RULES[kind]
    if not program.version or program.version >= recommended:
        return
    version = ".".join(map(str, program.version))
    recommended_text = ".".join(map(str, recommended))
    for name in names:
        yield DoctorFinding(
            finding,
            "warning" if program.version < minimum else "note",
            f"{program.path} is {title} {version}, and many servers need {recommended_text} "
            "or newer",
            f"Install {title} {recommended_text} or newer, or name another one in `command`.",
            **locations.locate_server(name, "command"),
        )


@cache
def _read_version(path: str) -> InstalledProgram:
    try:
        completed = _run_program(path, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        return InstalledProgram(path, problem=str(error))
    number = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", completed.stdout + completed.stderr)
    return InstalledProgram(
        path, tuple(int(part) for part in number.groups() if part) if number else ()
    )


def _run_program(*words: str) -> "subprocess.CompletedProcess[str]":
    with contextlib.suppress(ValueError):  # a NUL in a path
        return subprocess.run(  # noqa: S603 - a program of the configuration, which is run anyway
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    raise OSError("the path cannot be used")
