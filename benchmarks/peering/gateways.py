"""The gateways that are compared: how each is set, how it is started, and what a client says to it.

Each is set as well as its documentation allows for one user on one machine; `settings` says how,
for the reader.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import processes
from benchmarks.peering import installation
from benchmarks.peering.installation import Package, Place
from benchmarks.peering.upstreams import Upstream
from benchmarks.table import get_installed_version

Request = tuple[str, dict[str, Any]]
"""A tool of the gateway, and its arguments."""
FOUND = 5
"""How many tools a search is asked for."""


@dataclass(frozen=True)
class Gateway:
    """One gateway; what differs between them is in the methods."""

    place: Place
    name: ClassVar[str]
    package: ClassVar[Package | None] = None
    settings: ClassVar[str]
    no_search: ClassVar[str] = ""
    """Why it cannot be asked for tools by what they do; empty where it can."""
    to_stdio: ClassVar[bool] = False
    """It reaches servers by starting them, and not over HTTP."""

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        """Put its configuration into a folder of its own."""
        raise NotImplementedError

    def command(self, folder: Path, port: int) -> list[str]:
        """Return what starts it."""
        raise NotImplementedError

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return what it gets through the environment, beside what every process is."""
        return {}

    async def fill(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        """Return what has to be done once before it can serve; mostly nothing."""

    def endpoints(self, port: int, servers: Sequence[str]) -> dict[str, str]:
        """Return where a client finds each server: mostly all of them at one place."""
        return dict.fromkeys(servers, f"http://127.0.0.1:{port}/mcp")

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        """Return what a client says to call a server's tool."""
        raise NotImplementedError

    def said(self, result: Any) -> str:
        """Return what the tool said, taken out of what the gateway wrapped it in."""
        return getattr(result.content[0], "text", "") if result.content else ""

    def search(self, query: str) -> Request:
        """Return what a client says to find tools."""
        raise NotImplementedError

    def found(self, result: Any) -> list[str]:
        """The names of the tools that a search named, best first."""
        raise NotImplementedError


class Portico(Gateway):
    name = "portico"
    settings = "defaults (exposure meta, search by words and meaning)"

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        processes.write_config(
            folder, {"servers": {one.name: {"url": one.url} for one in upstreams}}
        )

    def command(self, folder: Path, port: int) -> list[str]:
        return [
            *processes.portico(),
            "serve",
            "--config",
            str(folder / "portico.yaml"),
            "--port",
            str(port),
        ]

    async def fill(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        """Wait for the vectors once; on every later start they are there."""
        from portico.config_file import load
        from portico.gateway import GatewayRuntime as App

        async with App(load(folder / "portico.yaml").config) as app:
            await app.wait_until_listed()
            while (
                app.catalog.unencoded_count and (task := app.catalog.start_encoding()) is not None
            ):
                await task

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return "call_tool", {"name": f"{server}.{tool}", "arguments": arguments}

    def search(self, query: str) -> Request:
        return "search_tools", {"query": query, "limit": FOUND}

    def found(self, result: Any) -> list[str]:
        return re.findall(r"^([\w.-]+\.[\w.-]+)\(", self.said(result), re.MULTILINE)


class PorticoToStdio(Portico):
    name = "portico → stdio"
    settings = "as above, the server started by the gateway"
    to_stdio = True

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        servers = {
            one.name: {"command": one.command[0], "args": list(one.command[1:])}
            for one in upstreams
        }
        processes.write_config(folder, {"servers": servers})


class FastMCP(Gateway):
    name = "fastmcp BM25"
    package = installation.FASTMCP
    settings = (
        "create_proxy over connected clients (init_timeout 2 s), mounted with "
        "namespaces; ResponseCachingMiddleware on "
        f"each for its tools/list (5 min); BM25SearchTransform(max_results={FOUND}); uvloop"
    )
    kind: ClassVar[str] = "bm25"

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        (folder / "servers.json").write_text(
            json.dumps({one.name: one.url for one in upstreams}), "utf-8"
        )

    def command(self, folder: Path, port: int) -> list[str]:
        program = str(Path(__file__).with_name("fastmcp_gateway.py"))
        return [
            self.place.python,
            "-P",
            program,
            "--port",
            str(port),
            self.kind,
            str(folder / "servers.json"),
        ]

    def environment(self, folder: Path) -> Mapping[str, str]:
        return {"FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_LOG_LEVEL": "ERROR"}

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return "call_tool", {"name": f"{server}_{tool}", "arguments": arguments}

    def search(self, query: str) -> Request:
        return "search_tools", {"query": query}

    def found(self, result: Any) -> list[str]:
        text = self.said(result)
        return [tool["name"] for tool in json.loads(text)] if text.startswith("[") else []


class FastMCPCode(FastMCP):
    name = "fastmcp CodeMode"
    settings = (
        "the same with CodeMode() (search, get_schema, execute in Monty); a call is one `execute`"
    )
    no_search = "its search is the BM25 of the line above"
    kind = "code"

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return "execute", {"code": f"return await call_tool({f'{server}_{tool}'!r}, {arguments!r})"}

    def said(self, result: Any) -> str:
        text = super().said(result)
        return text if result.is_error else _inner(text)


class OneMCP(Gateway):
    name = "1mcp"
    package = installation.ONE_MCP
    settings = (
        "serve --enable-lazy-loading (not with async loading, as it advises) --log-level "
        "error; connectionTimeout 2 s"
    )
    no_search = "lists tools by server, pattern or tag; no search"

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        servers = {
            one.name: {"type": "http", "url": one.url, "connectionTimeout": 2_000}
            for one in upstreams
        }
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")

    def command(self, folder: Path, port: int) -> list[str]:
        program = self.place.folder / "node_modules" / "@1mcp" / "agent" / "build" / "index.js"
        where = ["--config-dir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
        return [
            self.place.node,
            str(program),
            "serve",
            *where,
            "--enable-lazy-loading",
            "--log-level",
            "error",
        ]

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return "tool_invoke", {"server": server, "toolName": tool, "args": arguments}

    def said(self, result: Any) -> str:
        return _inner(super().said(result))


class OneMCPAsync(OneMCP):
    """It advises against both at once; each is better at something, so both are shown."""

    name = "1mcp async"
    settings = "the same with --enable-async-loading: it listens before its servers have answered"

    def command(self, folder: Path, port: int) -> list[str]:
        return [*super().command(folder, port), "--enable-async-loading"]


class MCPProxy(Gateway):
    name = "mcp-proxy"
    package = installation.MCP_PROXY
    settings = (
        "--named-server-config: every server started by it and served at an endpoint of its own"
    )
    no_search = "one endpoint for each server; no search"
    to_stdio = True

    def write(self, folder: Path, upstreams: Sequence[Upstream]) -> None:
        servers = {
            one.name: {"command": one.command[0], "args": list(one.command[1:])}
            for one in upstreams
        }
        (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")

    def command(self, folder: Path, port: int) -> list[str]:
        where = [
            "--named-server-config",
            str(folder / "servers.json"),
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        return [*self.place.script("mcp-proxy"), *where, "--log-level", "ERROR"]

    def endpoints(self, port: int, servers: Sequence[str]) -> dict[str, str]:
        return {server: f"http://127.0.0.1:{port}/servers/{server}/mcp" for server in servers}

    def call(self, server: str, tool: str, arguments: dict[str, Any]) -> Request:
        return tool, arguments


def own_place() -> Place:
    """This environment, where Portico is."""
    return Place(Path(), get_installed_version("portico-mcp"))


@dataclass
class Field:
    """Describes who takes part, and who does not and why."""

    present: dict[str, Gateway] = field(default_factory=dict[str, Gateway])
    absent: dict[str, str] = field(default_factory=dict[str, str])


def _inner(text: str) -> str:
    """The text of a result that another result carries as JSON; the text itself where it is
    none."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    for _ in range(2):
        value = value.get("result", value) if isinstance(value, dict) else value
    if isinstance(value, dict) and isinstance(content := value.get("content"), list) and content:
        return str(content[0].get("text", ""))
    return value if isinstance(value, str) else text
