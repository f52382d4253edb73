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
from pathlib import Path, PurePath

from portico.cli.doctor.finding import ConfigLocation, ConfigLocations, DoctorFinding, broken, note
from portico.config import BackendConfig
from portico.config.inherited_environment import build_environment

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
_RUNNER_OPTIONS: dict[str, frozenset[str]] = {
    "npx": frozenset(
        ("-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--prefix")
    ),
    "uvx": frozenset(
        ("--from", "--with", "--with-editable", "--python", "-p", "--index-url", "--index")
    ),
    "docker": frozenset((
        "-e", "--env", "-v", "--volume", "--mount", "--name", "-p", "--publish", "--network",
        "--net", "--env-file", "-w", "--workdir", "-u", "--user", "--entrypoint", "--add-host",
        "--platform", "--memory", "-m", "--cpus", "-l", "--label",
    )),
}  # fmt: skip
_NPM_VERSION = re.compile(r"(?:@[^/@]+/)?[^@]+@(?P<version>.+)")
_PYTHON_VERSION = re.compile(r".*(?:==|@)\s*(?P<version>[\w.]+).*")
_LOCAL = re.compile(r"(?:[./~]|git\+|https?://|file:|github:).*")


def parse_program_name(command: str) -> str:
    """`/usr/bin/npx.cmd` → `npx`."""
    name = PurePath(command.replace("\\", "/")).name.lower()
    return re.sub(r"\.(?:exe|cmd|bat)$", "", name)


def find_program(command: str, server: BackendConfig) -> str | None:
    """Return the path of a command, found as the gateway would: on the server's own PATH."""
    if os.path.dirname(command):
        command = os.path.abspath(os.path.join(server.cwd or "", command))
    return shutil.which(command, path=_get_path(server))


def _get_path(server: BackendConfig) -> str | None:
    return build_environment(os.environ, server.env, server.inherit_env).get("PATH")


def check(name: str, server: BackendConfig, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Yield what is wrong with a server's command, without running it."""
    command = server.command or ""
    program = parse_program_name(command)
    at = locations.locate_server(name, "command")
    if server.cwd is not None and not os.path.isdir(server.cwd):
        yield broken(
            "command.cwd_missing",
            f"the working directory {server.cwd} does not exist",
            f"mkdir -p {server.cwd}  or correct `cwd`",
            locations.locate_server(name, "cwd"),
        )
    elif find_program(command, server) is None:
        yield _make_missing_finding(command, server, at)
    elif not server.args and _NEEDS_SCRIPT.fullmatch(program):
        yield broken(
            "command.no_script",
            f"{command} alone is no server: it has nothing to run",
            "Write what it should run into `args`.",
            at,
        )
    else:
        yield from _check_files(name, server, locations)
        if unpinned := find_unpinned(program, server.args):
            args_at = locations.locate_server(name, "args")
            yield note("command.unpinned", unpinned.message, unpinned.remedy, args_at)


def _make_missing_finding(command: str, server: BackendConfig, at: ConfigLocation) -> DoctorFinding:
    program = parse_program_name(command)
    if program in _WINDOWS_PROGRAMS and sys.platform != "win32":
        other_args = [arg for arg in server.args if arg.lower() not in ("/c", "/s", "/d")]
        remedy = "Name the program itself."
        if other_args:
            remedy = f"Write command: {other_args[0]}, args: [{', '.join(other_args[1:])}]."
        return broken("command.windows_only", f"{command} exists on Windows only", remedy, at)
    path = os.path.abspath(os.path.join(server.cwd or "", command))
    has_folder = bool(os.path.dirname(command))
    if has_folder and os.path.isfile(path):
        message = f"{command} is not executable"
        return broken("command.not_executable", message, f"chmod +x {path}", at)
    words = command.split()
    found = shutil.which(command)
    if len(words) > 1:
        remedy = (
            f"Put the arguments into args: command: {words[0]}, args: [{', '.join(words[1:])}]."
        )
    elif "PATH" in server.env and found:
        remedy = f"`env` sets a PATH without it: add {os.path.dirname(found)} there."
    elif near := _suggest_program(command):
        remedy = f"Did you mean {near}? {_INSTALL_ADVICE.get(program, '')}".strip()
    else:
        advice = "Install it, or write its full path (`command -v` in your own shell shows it)."
        remedy = _INSTALL_ADVICE.get(program, advice)
    where = "" if has_folder else " on PATH"
    return broken("command.missing", f"the command {command!r} does not exist{where}", remedy, at)


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
                yield broken("command.folder_missing", message, "Correct the path.", at)
                return
    position = find_script_position(program, server.args)
    if position is None:
        return
    script = server.args[position]
    if (base / script).exists():
        return
    where = ""
    remedy = "Write its full path"
    if not os.path.isabs(script):
        if server.cwd:
            where = f" in {server.cwd}"
        else:
            remedy = "Write its full path, or set `cwd`"
    yield broken(
        "command.script_missing",
        f"{script}, which {server.command} should run, does not exist{where}",
        f"{remedy}; build the server first if it has to be built.",
        locations.locate_server(name, "args", position),
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
    servers_by_program: dict[tuple[str, str], list[str]] = {}
    for name, server in servers.items():
        program = parse_program_name(server.command or "")
        kind = "python" if program.startswith("python") else program
        path = find_program(server.command or "", server)
        if path and program in ("npx", "npm"):
            kind = "node"
            path = shutil.which("node", path=_get_path(server))
        if path and kind in (*_VERSION_RULES, "docker", "podman"):
            servers_by_program.setdefault((kind, path), []).append(name)
    checked = await asyncio.gather(
        *(
            asyncio.to_thread(_check_program, kind, path, names, locations)
            for (kind, path), names in servers_by_program.items()
        )
    )
    return [finding for findings in checked for finding in findings]


def _check_program(
    kind: str, path: str, names: Iterable[str], locations: ConfigLocations
) -> list[DoctorFinding]:
    places = [locations.locate_server(name, "command") for name in names]
    if kind not in _VERSION_RULES:
        completed = _run_program(path, "version", "--format", "{{.Server.Version}}")
        if completed is not None and completed.returncode == 0:
            return []
        remedy = "podman machine start"
        if kind == "docker":
            remedy = "Start Docker Desktop, or: sudo systemctl start docker"
        message = f"{kind} is installed, but its engine does not answer"
        return [broken("command.docker_down", message, remedy, at) for at in places]
    id, title, minimum, recommended = _VERSION_RULES[kind]
    version = _read_version(path)
    if not version or version >= recommended:
        return []
    severity = "warning" if version < minimum else "note"
    installed = ".".join(map(str, version))
    wanted = ".".join(map(str, recommended))
    message = f"{path} is {title} {installed}, and many servers need {wanted} or newer"
    remedy = f"Install {title} {wanted} or newer, or name another one in `command`."
    return [DoctorFinding(id, severity, message, remedy, at) for at in places]


def _read_version(path: str) -> tuple[int, ...]:
    """Return a program's version; empty if it does not say."""
    completed = _run_program(path, "--version")
    output = completed.stdout + completed.stderr if completed else ""
    number = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", output)
    if number:
        return tuple(int(part) for part in number.groups() if part)
    return ()


def _run_program(*words: str) -> "subprocess.CompletedProcess[str] | None":
    # A ValueError is a NUL in a path.
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 - a program of the configuration, which is run anyway
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    return None


@dataclass(frozen=True)
class UnpinnedPackage:
    """A package whose version is not pinned."""

    message: str
    remedy: str


def find_unpinned(program: str, args: Sequence[str]) -> UnpinnedPackage | None:
    """Return the package that a runner would fetch in its newest version; None if pinned or
    none.
    """
    words = list(args)
    if program in ("npx", "bunx", "pnpx"):
        return _check_npm(words)
    if program in ("pnpm", "yarn", "bun") and words[:1] in (["dlx"], ["x"]):
        return _check_npm(words[1:])
    if program == "uvx":
        return _check_python(words)
    if program == "uv" and words[:2] == ["tool", "run"]:
        return _check_python(words[2:])
    if program == "pipx" and words[:1] == ["run"]:
        return _check_python(words[1:])
    if program in ("docker", "podman") and words[:1] == ["run"]:
        return _check_image(words[1:])
    return None


def _find_package(args: Sequence[str], program: str, source: tuple[str, ...]) -> str:
    """Return the package a runner fetches: the value of its option, else its first plain
    argument.
    """
    before = ""
    for argument in args:
        option, sign, value = argument.partition("=")
        if before in source:
            return argument
        if sign and option in source:
            return value
        if not argument.startswith("-") and before not in _RUNNER_OPTIONS[program]:
            return argument
        before = argument
    return ""


def _check_npm(args: Sequence[str]) -> UnpinnedPackage | None:
    package = _find_package(args, "npx", ("-p", "--package"))
    bare = package.removesuffix("@latest")
    remedy = f"Write {bare}@1.2.3 (npm view {bare} version shows the newest)."
    return _check_version(package, _NPM_VERSION.fullmatch(package), remedy)


def _check_python(args: Sequence[str]) -> UnpinnedPackage | None:
    package = _find_package(args, "uvx", ("--from", "--spec"))
    remedy = f"Write {package.removesuffix('@latest')}==1.2.3."
    return _check_version(package, _PYTHON_VERSION.fullmatch(package), remedy)


def _check_version(
    package: str, pinned: re.Match[str] | None, remedy: str
) -> UnpinnedPackage | None:
    if not package or _LOCAL.fullmatch(package):
        return None
    if pinned and pinned["version"] not in ("latest", "next", "*"):
        return None
    return _make_unpinned(package.removesuffix("@latest"), remedy)


def _check_image(args: Sequence[str]) -> UnpinnedPackage | None:
    image = _find_package(args, "docker", ())
    tag = image.rpartition("/")[2].partition(":")[2]
    if not image or "@sha256:" in image or (tag and tag != "latest"):
        return None
    bare = image.removesuffix(":latest")
    return _make_unpinned(image, f"Write {bare}:1.2.3, or its @sha256 digest.")


def _make_unpinned(package: str, remedy: str) -> UnpinnedPackage:
    return UnpinnedPackage(
        f"{package} is fetched in whatever version is newest: its tools may change from one "
        "start to the next",
        remedy,
    )
