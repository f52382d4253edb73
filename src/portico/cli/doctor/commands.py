"""The programs that servers are started by: on PATH, executable, new enough, and given files that exist."""

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

from portico.cli.doctor.finding import Finding, Places
from portico.cli.doctor.packages import unpinned
from portico.config import BackendConfig
from portico.upstream.process import environment

_ASK_S = 10.0
_INSTALL: Mapping[str, str] = {
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
_WINDOWS = ("cmd", "powershell", "pwsh.exe")
_SCRIPTS = re.compile(r".*\.(?:js|mjs|cjs|ts|mts|py|pyz|rb|sh|php|jar)", re.IGNORECASE)
_INTERPRETERS = re.compile(r"(?:node|nodejs|python[\d.]*|deno|bun|ruby|sh|bash|zsh|php|tsx|java|uv)")
_NEEDS_SCRIPT = re.compile(r"node|nodejs|python[\d.]*|ruby|sh|bash|zsh|php|npx|uvx|docker|podman|deno|bun|uv")
_NO_SCRIPT = frozenset({"-m", "-c", "-e", "--eval", "-p", "--print", "-S"})
_RUNNERS = ("uv", "deno", "bun")
"""Have words of their own (`run`) before the script."""
_TAKES_VALUE = frozenset({"-r", "--require", "--import", "--loader", "-W", "-X"})
_TAKES_FOLDER = ("--directory",)
_OLD: Mapping[str, tuple[str, str, tuple[int, ...], tuple[int, ...]]] = {
    "node": ("command.node_old", "Node.js", (18,), (20,)),
    "python": ("command.python_old", "Python", (3, 10), (3, 10)),
}
"""Program → the finding, its name, and the versions below which most servers do not run, and some do not."""


@dataclass(frozen=True)
class Program:
    """A program on this machine."""

    path: str
    version: tuple[int, ...] = ()
    problem: str = ""
    """Why it could not be asked."""


def program_name(command: str) -> str:
    """`/usr/bin/npx.cmd` → `npx`."""
    return re.sub(r"\.(?:exe|cmd|bat)$", "", PurePath(command.replace("\\", "/")).name, flags=re.IGNORECASE).lower()


def found(server: BackendConfig) -> str | None:
    """The file that a server's command is, as the gateway would look for it."""
    command, folder = server.command or "", server.cwd or ""
    # Relative to `cwd`, and on the PATH that the server gets.
    sought = os.path.abspath(os.path.join(folder, command)) if os.path.dirname(command) else command
    return shutil.which(sought, path=environment(server.env, server.inherit_env).get("PATH"))


def check(name: str, server: BackendConfig, places: Places) -> Iterator[Finding]:
    """What can be seen of one server's command without running it."""
    command, at = server.command or "", places.server(name, "command")
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield Finding(
            "command.cwd_missing",
            "broken",
            f"the working directory {server.cwd} does not exist",
            f"mkdir -p {server.cwd}  or correct `cwd`",
            **places.server(name, "cwd"),
        )
        return
    if program_name(command) in _WINDOWS and sys.platform != "win32" and found(server) is None:
        rest = [arg for arg in server.args if arg.lower() not in ("/c", "/s", "/d")]
        yield Finding(
            "command.windows_only",
            "broken",
            f"{command} exists on Windows only",
            f"Write command: {rest[0]}, args: [{', '.join(rest[1:])}]." if rest else "Name the program itself.",
            **at,
        )
        return
    if found(server) is None:
        yield _missing(command, server, at)
        return
    if not server.args and _NEEDS_SCRIPT.fullmatch(program_name(command)):
        yield Finding(
            "command.no_script",
            "broken",
            f"{command} alone is no server: it is told to run nothing",
            "Write what it should run into `args`.",
            **at,
        )
        return
    yield from _files(name, server, places)
    if loose := unpinned(program_name(command), server.args):
        yield Finding("command.unpinned", "note", loose.message, loose.remedy, **places.server(name, "args"))


def _missing(command: str, server: BackendConfig, at: Mapping[str, object]) -> Finding:
    sought = os.path.join(server.cwd or "", command)
    if os.path.dirname(command) and os.path.isfile(sought):
        return Finding(
            "command.not_executable",
            "broken",
            f"{command} is not executable",
            f"chmod +x {os.path.abspath(sought)}",
            **at,  # pyright: ignore[reportArgumentType]
        )
    words = command.split()
    where = "" if os.path.dirname(command) else " on PATH"
    if len(words) > 1:
        remedy = f"Put the arguments into args: command: {words[0]}, args: [{', '.join(words[1:])}]."
    elif "PATH" in server.env and shutil.which(command):
        remedy = f"`env` sets a PATH without it: add {os.path.dirname(str(shutil.which(command)))} there."
    else:
        advice = "Install it, or write its full path (`command -v` in your own shell shows it)."
        remedy = _INSTALL.get(program_name(command), advice)
        if near := _nearest(command):
            remedy = f"Did you mean {near}? {remedy if program_name(command) in _INSTALL else ''}".strip()
    return Finding("command.missing", "broken", f"the command {command!r} does not exist{where}", remedy, **at)  # pyright: ignore[reportArgumentType]


def _nearest(command: str) -> str:
    """A usual program that was misspelt."""
    from portico.config_file.names import misspelled

    near = misspelled(command, _INSTALL)
    return near if near and near != command and shutil.which(near) else ""


def _files(name: str, server: BackendConfig, places: Places) -> Iterator[Finding]:
    """The folder it should run in, and the script it should run, where they are not there."""
    program, base = program_name(server.command or ""), Path(server.cwd or ".")
    for position, (option, folder) in enumerate(zip(server.args, server.args[1:], strict=False), 1):
        if program == "uv" and option in _TAKES_FOLDER:
            base /= folder  # it goes there before it opens the script
            if not base.is_dir():
                said, at = f"the folder {folder} does not exist", places.server(name, "args", position)
                yield Finding("command.folder_missing", "broken", said, "Correct the path.", **at)
                return
    position = script_position(program, server.args)
    script = "" if position is None else server.args[position]
    if position is None or (base / script).exists():
        return
    where = "" if os.path.isabs(script) or server.cwd is None else f" in {server.cwd}"
    mend = "Write its full path" if os.path.isabs(script) or server.cwd else "Write its full path, or set `cwd`"
    yield Finding(
        "command.script_missing",
        "broken",
        f"{script}, which {server.command} should run, does not exist{where}",
        f"{mend}; build the server first if it has to be built.",
        **places.server(name, "args", position),
    )


def script_position(program: str, args: Sequence[str]) -> int | None:
    """Which argument is the script that an interpreter runs; None where that is not certain. Pure."""
    if not _INTERPRETERS.fullmatch(program):
        return None
    before = ""
    for position, argument in enumerate(args):
        if argument in _NO_SCRIPT:
            return None
        # Whether a runner's option takes the next word is its own secret, so that word is not looked at.
        value_of = before in _TAKES_VALUE or (program in _RUNNERS and before.startswith("-"))
        before = argument
        if argument.startswith("-") or value_of:
            continue
        if _SCRIPTS.fullmatch(argument) and "://" not in argument:
            return position
        if program not in _RUNNERS:
            return None  # it runs that; what follows is its own
    return None


async def versions(servers: Mapping[str, BackendConfig], places: Places) -> list[Finding]:
    """Programs that are too old, each asked once, and a container engine that does not run."""
    asked: dict[str, tuple[str, list[str]]] = {}
    for name, server in servers.items():
        path, program = found(server), program_name(server.command or "")
        if path is None:
            continue
        kind = "node" if program in ("node", "npx", "npm") else "python" if program.startswith("python") else program
        if program in ("npx", "npm"):
            path = shutil.which("node", path=environment(server.env, server.inherit_env).get("PATH"))
        if path is not None and kind in (*_OLD, "docker", "podman"):
            asked.setdefault(f"{kind}\0{path}", (path, []))[1].append(name)
    told = await asyncio.gather(
        *(_findings(key.partition("\0")[0], path, names, places) for key, (path, names) in asked.items())
    )
    return [finding for findings in told for finding in findings]


async def _findings(kind: str, path: str, names: Iterable[str], places: Places) -> list[Finding]:
    if kind in _OLD:
        return list(_age(kind, await asyncio.to_thread(_asked, path), names, places))
    try:
        done = await asyncio.to_thread(_run, path, "version", "--format", "{{.Server.Version}}")
    except (OSError, subprocess.SubprocessError):
        done = None
    if done is not None and done.returncode == 0:
        return []
    remedy = "Start Docker Desktop, or: sudo systemctl start docker" if kind == "docker" else "podman machine start"
    return [
        Finding("command.docker_down", "broken", f"{kind} is installed, but its engine does not answer", remedy, **at)
        for at in (places.server(name, "command") for name in names)
    ]


def _age(kind: str, program: Program, names: Iterable[str], places: Places) -> Iterator[Finding]:
    finding, called, least, usual = _OLD[kind]
    if not program.version or program.version >= usual:
        return
    version = ".".join(map(str, program.version))
    wanted = ".".join(map(str, usual))
    for name in names:
        yield Finding(
            finding,
            "warning" if program.version < least else "note",
            f"{program.path} is {called} {version}, and many servers need {wanted} or newer",
            f"Install {called} {wanted} or newer, or name another one in `command`.",
            **places.server(name, "command"),
        )


@cache
def _asked(path: str) -> Program:
    try:
        done = _run(path, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        return Program(path, problem=str(error))
    number = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout + done.stderr)
    return Program(path, tuple(int(part) for part in number.groups() if part) if number else ())


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    with contextlib.suppress(ValueError):  # a NUL in a path
        return subprocess.run(  # noqa: S603 - a program of the configuration, which is run anyway
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    raise OSError("the path cannot be used")
