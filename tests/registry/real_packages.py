"""Real packages that are added from a registry, end to end: installed, started, listed, trusted.

    python -m tests.registry.real_packages [NAME]…

Needs npx, uvx and the package indexes. Prints a line for each; exit code 1 if one does not work.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.registry.registry_server import serve_registry

TIMEOUT_S = 600


@dataclass(frozen=True)
class RealPackage:
    """A package, and what it asks for."""

    kind: str
    identifier: str
    version: str
    key: str
    """What Portico calls it."""
    secrets: tuple[str, ...] = ()
    arguments: tuple[dict[str, Any], ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    with_hash: bool = False
    """Whether its entry gives the hash of its file."""


FOLDER = {"type": "positional", "valueHint": "folder", "isRequired": True, "format": "filepath"}
PACKAGES = (
    RealPackage("npm", "@modelcontextprotocol/server-memory", "2026.8.31", "memory"),
    RealPackage("npm", "@modelcontextprotocol/server-filesystem", "2026.8.31", "filesystem",
                arguments=(FOLDER,), values={"folder": "/tmp"}),
    RealPackage("npm", "@modelcontextprotocol/server-sequential-thinking", "2026.8.31",
                "sequential-thinking", with_hash=True),
    RealPackage("npm", "@upstash/context7-mcp", "4.1.1", "context7"),
    RealPackage("npm", "@notionhq/notion-mcp-server", "2.5.2", "notion",
                secrets=("NOTION_TOKEN",)),
    RealPackage("npm", "airtable-mcp-server", "1.14.0", "airtable", secrets=("AIRTABLE_API_KEY",)),
    RealPackage("npm", "@antv/mcp-server-chart", "0.9.10", "chart"),
    RealPackage("npm", "terraform-mcp-server", "0.13.0", "terraform"),
    RealPackage("npm", "@openbnb/mcp-server-airbnb", "0.3.0", "airbnb"),
    RealPackage("npm", "mcp-server-commands", "0.5.0", "commands"),
    RealPackage("npm", "exa-mcp-server", "3.4.1", "exa", secrets=("EXA_API_KEY",)),
    RealPackage("pypi", "mcp-server-time", "2026.10.19", "time", with_hash=True),
    RealPackage("pypi", "mcp-server-calculator", "0.2.1", "calculator"),
    RealPackage("pypi", "wikipedia-mcp", "2.0.1", "wikipedia"),
    RealPackage("pypi", "mcp-server-git", "2026.10.19", "git"),
    RealPackage("pypi", "meilisearch-mcp", "0.7.0", "meilisearch"),
    RealPackage("pypi", "arxiv-mcp-server", "0.8.2", "arxiv"),
    RealPackage("pypi", "duckduckgo-mcp-server", "0.7.0", "duckduckgo"),
    RealPackage("pypi", "mcp-shell-server", "1.1.14", "shell"),
    RealPackage("pypi", "mcp-server-fetch", "2026.10.24", "fetch"),
)  # fmt: skip
IN_CI = ("memory", "filesystem", "time")


def make_entry(package: RealPackage, sha256: str = "") -> dict[str, Any]:
    """Return the server that a registry has of a package."""
    entry: dict[str, Any] = {
        "registryType": package.kind,
        "identifier": package.identifier,
        "version": package.version,
        "transport": {"type": "stdio"},
    }
    if package.secrets:
        entry["environmentVariables"] = [
            {"name": name, "isSecret": True, "isRequired": True} for name in package.secrets
        ]
    if package.arguments:
        entry["packageArguments"] = list(package.arguments)
    if sha256:
        entry["fileSha256"] = sha256
    return {
        "name": f"io.github.example/{package.identifier.rpartition('/')[2]}",
        "description": f"The package {package.identifier}",
        "version": package.version,
        "packages": [entry],
    }


def find_hash(package: RealPackage) -> str:
    """Return the SHA-256 of a package's file, as the index has it."""
    if package.kind == "pypi":
        with urllib.request.urlopen(
            f"https://pypi.org/simple/{package.identifier}/", timeout=TIMEOUT_S
        ) as reply:
            page = reply.read().decode()
        wheel = f"-{package.version}-py3-none-any.whl#sha256="
        return page[page.index(wheel) + len(wheel) :][:64]
    url = f"https://registry.npmjs.org/{package.identifier}/{package.version}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:
        tarball = json.load(reply)["dist"]["tarball"]
    with urllib.request.urlopen(tarball, timeout=TIMEOUT_S) as reply:
        return hashlib.sha256(reply.read()).hexdigest()


def run_portico(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with a configuration and data of its own."""
    environ = {**os.environ, "PORTICO_DATA_DIR": str(folder / "data")}
    environ.pop("PORTICO_CONFIG", None)
    return subprocess.run(
        [sys.executable, "-m", "portico", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def try_package(package: RealPackage) -> str:
    """Add, look at and list one package; return what is wrong, or nothing."""
    sha256 = find_hash(package) if package.with_hash else ""
    entry = make_entry(package, sha256)
    with tempfile.TemporaryDirectory() as name, serve_registry([entry]) as registry:
        folder = Path(name)
        (folder / "portico.yaml").write_text("# ours\ngateway: {port: 0}\n")
        settings = {**package.values, **dict.fromkeys(package.secrets, "no-real-secret-1")}
        options = [
            word for name, value in settings.items() for word in ("--set", f"{name}={value}")
        ]
        added = run_portico(
            folder, "add", entry["name"], "--registry", registry.url, "--yes", "--json", *options
        )
        if added.returncode:
            return f"add: {added.stderr.strip()[-400:]}"
        answer = json.loads(added.stdout)
        if answer["server"] != package.key or not answer["tools"]:
            return f"add says {answer['server']}, {answer['tools']} tools"
        text = (folder / "portico.yaml").read_text()
        if not text.startswith("# ours\n") or "no-real-secret" in text or "trust: ask" not in text:
            return f"the configuration is {text}"
        held = json.loads(run_portico(folder, "browse", package.key, "--json").stdout)
        trusted = run_portico(folder, "trust", package.key)
        if trusted.returncode:
            return f"trust: {trusted.stderr.strip()[-400:]}"
        shown = json.loads(run_portico(folder, "browse", package.key, "--json").stdout)
        if not all("[Held back" in json.dumps(tool) for tool in held["tools"]):
            return "its tools were not held back before they were looked at"
        if not shown["tools"] or "[Held back" in json.dumps(shown["tools"]):
            return "its tools are held back although they were looked at"
    return ""


def main(names: Sequence[str]) -> int:
    """Try the named packages, or all."""
    chosen = [one for one in PACKAGES if not names or one.key in names]
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for package, problem in zip(chosen, pool.map(try_package, chosen), strict=True):
            failed += bool(problem)
            title = f"{package.kind} {package.identifier} {package.version}"
            print(f"{'FAILED' if problem else 'works '} {title} {problem}", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} work")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
