"""Each peer in an environment of its own, at one version: found where it was installed, or
installed when asked."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

from tests.real_servers.installation import find_node

from benchmarks.processes import REPOSITORY
from benchmarks.table import get_installed_version

DEFAULT_DIR = REPOSITORY / ".cache" / "peers"
INSTALL_S = 900.0


@dataclass(frozen=True)
class Package:
    """Describes what is installed, and where under the folder of peers."""

    folder: str
    source: Literal["pypi", "npm"]
    name: str
    version: str
    extras: str = ""
    beside: tuple[str, ...] = ()
    """Other packages, with their versions, that let it do its best."""

    @property
    def requirements(self) -> list[str]:
        """As pip or npm takes them."""
        own = (
            f"{self.name}@{self.version}"
            if self.source == "npm"
            else f"{self.name}{self.extras}=={self.version}"
        )
        return [own, *self.beside]


FASTMCP = Package("fastmcp", "pypi", "fastmcp", "4.1.2", "[code-mode]", ("uvloop==0.23.0",))
CONTEXTFORGE = Package("contextforge", "pypi", "mcp-contextforge-gateway", "1.0.7.post20260921")
MCP_PROXY = Package("mcp-proxy", "pypi", "mcp-proxy", "0.13.0")
ONE_MCP = Package("1mcp", "npm", "@1mcp/agent", "0.35.0")


@dataclass(frozen=True)
class Place:
    """Describes where an installed peer is."""

    folder: Path
    version: str
    python: str = ""
    """The interpreter of its environment."""
    node: str = ""

    def script(self, name: str) -> list[str]:
        """A command of its environment."""
        return [str(Path(self.python).parent / name)]


class NotThere(Exception):
    """A peer cannot take part; the message says why, in a few words."""


def find(package: Package, peers: Path) -> Place:
    """The installed peer; FastMCP may also be this environment's own."""
    folder = peers / package.folder
    if package.source == "npm":
        return _find_npm(package, folder)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    there = _version_in(folder, package.name)
    if there == package.version:
        return Place(folder, there, str(python))
    if package is FASTMCP and (own := get_installed_version("fastmcp")):
        return Place(Path(sys.prefix), own, sys.executable)
    raise NotThere(f"{there} is there, {package.version} is pinned" if there else "not installed")


def install(package: Package, peers: Path, say: Callable[[str], None]) -> None:
    """Bring a peer that is not there yet; `NotThere` says why that failed."""
    folder = peers / package.folder
    if (
        _version_in(folder, package.name) == package.version
        or _npm_version(folder, package.name) == package.version
    ):
        return
    say(f"installing {' '.join(package.requirements)} …")
    folder.mkdir(parents=True, exist_ok=True)
    if package.source == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise NotThere("npm is not on the PATH")
        (folder / "package.json").write_text('{"private": true}', "utf-8")
        # No package's own script runs: none of these needs one.
        quiet = ["--save-exact", "--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error"]
        _run([npm, "install", "--prefix", str(folder), *quiet, *package.requirements])
    else:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        quiet = ["--quiet", "--disable-pip-version-check"]
        _run([str(python), "-m", "pip", "install", *quiet, *package.requirements])


def _find_npm(package: Package, folder: Path) -> Place:
    there = _npm_version(folder, package.name)
    if there != package.version:
        raise NotThere(
            f"{there} is there, {package.version} is pinned" if there else "not installed"
        )
    node = find_node()
    if node is None:
        raise NotThere("Node.js is not on the PATH")
    return Place(folder, there, node=str(node))


def _npm_version(folder: Path, name: str) -> str:
    try:
        return json.loads((folder / "node_modules" / name / "package.json").read_text("utf-8"))[
            "version"
        ]
    except (OSError, ValueError, KeyError):
        return ""


def _version_in(folder: Path, name: str) -> str:
    places = [
        str(place)
        for place in (*folder.glob("lib/python*/site-packages"), folder / "Lib" / "site-packages")
    ]
    return next((one.version for one in distributions(name=name, path=places)), "")


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotThere(f"cannot be installed here: {error}") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line] or [
            "no reason given"
        ]
        raise NotThere(f"cannot be installed here: {lines[-1].strip()[:160]}")
