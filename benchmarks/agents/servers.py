"""Recorded servers that answer, behind Portico and behind FastMCP's search.

Every call is checked against the tool's input schema and logged, then answered with
`{"status": "ok", "id": "r-123"}`.
"""

import shutil
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks import processes
from benchmarks.agents.conversation import Conversation
from benchmarks.agents.tasks import ToolCall
from benchmarks.fleet import recordings
from benchmarks.tokens import wait_until_encoded
from benchmarks.vector_cache import locate_vectors
from portico.catalog.schema_validator import is_valid_for_schema
from portico.config import Config
from portico.gateway import VECTOR_FILE, GatewayRuntime
from portico.rendering.token_budget import TokenCounter
from portico.testing import connect
from portico.upstream.backend import NO_OPTIONS, Connection, Era, Listener, Raw, RequestOptions
from portico.upstream.backends.factory import RecordedConnection

ANSWER: Mapping[str, Any] = {"status": "ok", "id": "r-123"}
FASTMCP_RESULTS = 5
"""Tools that FastMCP's search names by default."""


@dataclass
class CallLog:
    """The calls that servers accepted."""

    calls: list[ToolCall] = field(default_factory=list[ToolCall])

    def take(self) -> list[ToolCall]:
        """Return the calls since the last time."""
        calls = self.calls
        self.calls = []
        return calls


@dataclass(frozen=True)
class AnsweringServer:
    """A backend made of a recording; it accepts calls whose arguments fit the schema."""

    name: str
    recording: Raw
    log: CallLog

    kind = "answering"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        return _AnsweringConnection(self.name, self.recording, self.log)

    def diagnostics(self) -> Mapping[str, Any]:
        return {}


class _AnsweringConnection(RecordedConnection):
    def __init__(self, name: str, recording: Raw, log: CallLog) -> None:
        super().__init__(name, recording)
        self._server = name
        self._schemas = {tool["name"]: tool["inputSchema"] for tool in recording["tools"]}
        self._log = log

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        if method != "tools/call" or params is None:
            return await super().request(method, params, options)
        name = params["name"]
        arguments: Raw = params.get("arguments") or {}
        text = answer_call(self._server, name, self._schemas[name], arguments, self._log)
        if text is None:
            problem = {"type": "text", "text": "The arguments do not fit the schema."}
            return {"content": [problem], "isError": True}
        return {"content": [{"type": "text", "text": text}], "structuredContent": dict(ANSWER)}


def answer_call(
    server: str, name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any], log: CallLog
) -> str | None:
    """Log a call and return its answer; None where the arguments do not fit the schema."""
    if not is_valid_for_schema(schema, arguments):
        return None
    log.calls.append(ToolCall(f"{server}.{name}", arguments))
    return orjson.dumps(ANSWER).decode()


def load_recordings(shared: Path | None, only: Collection[str] | None = None) -> dict[str, Raw]:
    """Return the recorded servers by name, all or some of them."""
    return {
        recording["slug"]: recording
        for recording in recordings(shared)
        if only is None or recording["slug"] in only
    }


@dataclass(frozen=True)
class GatewayFleet:
    """A running gateway over answering servers, and one client of it."""

    call: Callable[[str, dict[str, Any]], Awaitable[Any]]
    """Calls a tool that the gateway lists."""
    log: CallLog
    counter: TokenCounter
    names: Mapping[str, str]
    """The gateway's name of each tool, by address."""
    tools: Sequence[Mapping[str, Any]]
    """What the gateway lists: `name`, `description`, `inputSchema`."""
    instructions: str = ""

    def start_conversation(self) -> Conversation:
        return Conversation(self.call, self.counter.count)


@asynccontextmanager
async def open_gateway(
    servers: Mapping[str, Raw], cache: Path, counter: TokenCounter
) -> AsyncGenerator[GatewayFleet]:
    """Run Portico over the servers, searched by meaning too; it learns nothing from use, so that no
    task helps the next one. Vectors are kept in `cache` between runs."""
    log = CallLog()
    backends = {name: AnsweringServer(name, recording, log) for name, recording in servers.items()}
    kept = locate_vectors(cache)
    with processes.scratch() as folder:
        if kept.exists():
            shutil.copyfile(kept, folder / VECTOR_FILE)
        config = Config.model_validate({"data_dir": folder, "learning": "off"})
        async with GatewayRuntime(config, backends=backends) as gateway:
            await gateway.wait_until_listed()
            await wait_until_encoded(gateway)
            _keep_vectors(folder / VECTOR_FILE, kept)
            async with connect(gateway) as client:
                names = {address: address for address in gateway.get_view().snapshot.tools}
                tools = _to_definitions((await client.list_tools()).tools)
                said = gateway.get_view().render_instructions()
                yield GatewayFleet(client.call_tool, log, counter, names, tools, said)


def _keep_vectors(made: Path, kept: Path) -> None:
    """Copy the vectors back where there are more than before."""
    if not made.exists() or (kept.exists() and kept.stat().st_size >= made.stat().st_size):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    half = kept.with_suffix(".new")
    shutil.copyfile(made, half)
    half.replace(kept)


@asynccontextmanager
async def open_fastmcp(
    servers: Mapping[str, Raw], counter: TokenCounter
) -> AsyncGenerator[GatewayFleet]:
    """Run FastMCP's BM25 search over the same tools."""
    import fastmcp
    from fastmcp.server.transforms.search import BM25SearchTransform
    from fastmcp.tools.base import Tool, ToolResult

    log = CallLog()

    class AnsweringTool(Tool):
        server: str
        upstream_name: str

        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            text = answer_call(self.server, self.upstream_name, self.parameters, arguments, log)
            if text is None:
                raise ValueError("The arguments do not fit the schema.")
            return ToolResult(content=text)

    gateway: Any = fastmcp.FastMCP("gateway")
    names: dict[str, str] = {}
    for server, recording in servers.items():
        for tool in recording["tools"]:
            name = f"{server}_{tool['name']}"
            names[f"{server}.{tool['name']}"] = name
            gateway.add_tool(
                AnsweringTool(
                    name=name,
                    description=tool.get("description") or "",
                    parameters=tool["inputSchema"],
                    server=server,
                    upstream_name=tool["name"],
                )
            )
    gateway.add_transform(BM25SearchTransform(max_results=FASTMCP_RESULTS))
    async with fastmcp.Client(gateway) as client:
        tools = _to_definitions(await client.list_tools())
        yield GatewayFleet(client.call_tool_mcp, log, counter, names, tools)


def _to_definitions(tools: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [
        {
            "name": tool.name,
            "description": tool.description or "",
            "inputSchema": tool.input_schema,
        }
        for tool in tools
    ]
