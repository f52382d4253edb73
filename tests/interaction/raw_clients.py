"""Clients of bare JSON-RPC, one over HTTP and one over a pair of pipes: they see what is on the
wire and no more."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import httpx2

from portico.cli.local_gateway.endpoint import ServedGateway, open_local_endpoint
from portico.cli.local_gateway.registration import identify_configuration
from portico.config.limits import LimitsConfig
from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.stdio import LineLimits, open_pipe_streams, serve_streams
from portico.upstream.backend import Era

Message = dict[str, Any]

TIMEOUT_S = 240.0
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
INFO: Message = {"name": "raw", "version": "1"}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def envelope(**capabilities: Any) -> Message:
    """Return what every request of the modern era carries."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": INFO,
    }


def hello(version: str = LEGACY, **capabilities: Any) -> Message:
    """The params of `initialize`."""
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": INFO}


class RawClient(Protocol):
    """A client of either kind, introduced in one era."""

    era: Era

    async def request(self, method: str, params: Message | None = None) -> Message:
        """The whole answer, error or result."""
        ...


async def result(client: RawClient, method: str, params: Message | None = None) -> Message:
    answer = await client.request(method, params)
    assert "result" in answer, answer
    return answer["result"]


async def call(client: RawClient, name: str, /, **arguments: Any) -> Message:
    """The whole answer to a call."""
    return await client.request("tools/call", {"name": name, "arguments": arguments})


async def pages(client: RawClient, method: str, key: str) -> list[Any]:
    """Every item of a listing."""
    items: list[Any] = []
    params: Message = {}
    while True:
        page = await result(client, method, params)
        items += page[key]
        if "nextCursor" not in page:
            return items
        params = {"cursor": page["nextCursor"]}


class RawHttp:
    """Posts JSON; what comes beside an answer is in `unprompted`."""

    def __init__(self, http: httpx2.AsyncClient, url: str, era: Era, capabilities: Message) -> None:
        self.http, self.url = http, url
        self.era: Era = era
        self.introduction: Message = {}
        self.unprompted: list[Message] = []
        self._capabilities = capabilities
        self._headers = dict(ACCEPT)
        self._ids = count(1)

    async def introduce(self) -> None:
        if self.era == "modern":
            self._headers["mcp-protocol-version"] = MODERN
            self.introduction = await result(self, "server/discover")
            return
        reply, answer = await self._post("initialize", hello(**self._capabilities))
        self.introduction = answer["result"]
        self._headers["mcp-session-id"] = reply.headers["mcp-session-id"]
        self._headers["mcp-protocol-version"] = self.introduction["protocolVersion"]
        await self.notify("notifications/initialized")

    async def request(self, method: str, params: Message | None = None) -> Message:
        return (await self._post(method, params))[1]

    async def notify(self, method: str, params: Message | None = None) -> None:
        frame: Message = {"jsonrpc": "2.0", "method": method} | (
            {} if params is None else {"params": params}
        )
        assert (
            await self.http.post(self.url, json=frame, headers=self._headers)
        ).status_code == 202

    async def body(self, method: str, params: Message | None = None) -> bytes:
        """The bytes of the answer as they came."""
        return (await self._post(method, params))[0].content

    async def _post(self, method: str, params: Message | None) -> tuple[httpx2.Response, Message]:
        id = next(self._ids)
        params = dict(params or {})
        headers = dict(self._headers)
        if self.era == "modern":
            params["_meta"] = {**envelope(**self._capabilities), **params.get("_meta", {})}
            headers["mcp-method"] = method
            if method in ("tools/call", "prompts/get", "resources/read"):
                headers["mcp-name"] = params.get("uri") or params["name"]
            elif method.startswith("tasks/"):
                headers["mcp-name"] = params["taskId"]
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        reply = await self.http.post(self.url, content=json.dumps(frame), headers=headers)
        answer: Message | None = None
        for message in messages(reply):
            if message.get("id") == id and "method" not in message:
                answer = message
            else:
                self.unprompted.append(message)
        assert answer is not None, (reply.status_code, reply.text)
        return reply, answer


def messages(reply: httpx2.Response) -> list[Message]:
    """Return what a reply carries, in a JSON body or in an event stream."""
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        return [json.loads(reply.content)]
    lines = re.split(
        "\r\n|\r|\n", reply.content.decode()
    )  # not splitlines: it also splits where JSON does not
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]


@asynccontextmanager
async def raw_http(
    url: str, era: Era, *, token: str = "", **capabilities: Any
) -> AsyncGenerator[RawHttp]:
    """A raw client of the endpoint at `url`, introduced."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(timeout=TIMEOUT_S, headers=headers) as http:
        client = RawHttp(http, url, era, capabilities)
        await client.introduce()
        yield client


class RawLines:
    """Writes and reads lines; what nobody waited for is in `unprompted`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        era: Era,
        capabilities: Message,
    ) -> None:
        self.era: Era = era
        self.introduction: Message = {}
        self.unprompted: list[Message] = []
        self._reader, self._writer = reader, writer
        self._capabilities = capabilities
        self._ids = count(1)

    async def introduce(self) -> None:
        if self.era == "modern":
            self.introduction = await result(self, "server/discover")
        else:
            self.introduction = await result(self, "initialize", hello(**self._capabilities))
            await self.send({"method": "notifications/initialized"})

    async def request(self, method: str, params: Message | None = None) -> Message:
        return await self.answer_to(await self.ask(method, params))

    async def ask(self, method: str, params: Message | None = None) -> int:
        """Sends a request without waiting; its id."""
        id = next(self._ids)
        params = dict(params or {})
        if self.era == "modern":
            params["_meta"] = {**envelope(**self._capabilities), **params.get("_meta", {})}
        await self.send({"id": id, "method": method, "params": params})
        return id

    async def answer_to(self, id: int) -> Message:
        return await self.wait_for(
            lambda message: message.get("id") == id and "method" not in message
        )

    async def wait_for(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that is wanted, among those already read or those to come."""
        for message in self.unprompted:
            if wanted(message):
                self.unprompted.remove(message)
                return message
        async with asyncio.timeout(TIMEOUT_S):
            while not wanted(message := json.loads(await self.line())):
                self.unprompted.append(message)
        return message

    async def line(self) -> bytes:
        line = await self._reader.readline()
        if not line:
            raise EOFError("the gateway closed the pipe")
        return line

    async def send(self, message: Message) -> None:
        await self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


@asynccontextmanager
async def pipes_to(
    endpoint: ProfileEndpoint, **options: Any
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A endpoint served over a pair of pipes, and the other ends of the two."""
    to_server, to_client = os.pipe(), os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=16 * 2**20)
    source, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(to_client[0], "rb", 0)
    )
    sink, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(to_server[1], "wb", 0)
    )

    async def serve() -> None:
        ours: Any = os.fdopen(to_server[0], "rb", 0), os.fdopen(to_client[1], "wb", 0)
        limits = LineLimits(**options)
        ours_in, ours_out = ours
        streams = open_pipe_streams(ours_in, ours_out, limits, reject_invalid_lines=True)
        await serve_streams(endpoint, streams)

    served = asyncio.create_task(serve())
    try:
        yield reader, asyncio.StreamWriter(sink, protocol, None, loop)
    finally:
        sink.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(served, TIMEOUT_S)
        source.close()


@asynccontextmanager
async def bridge_to(
    endpoint: ProfileEndpoint,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A endpoint served to `portico stdio` as a bridge, and the pipes of that process."""

    async def refuse(*_: Any) -> Any:
        raise AssertionError("neither commands nor REST here")

    served = ServedGateway(
        select_endpoints=lambda: {"": endpoint},
        get_limits=LimitsConfig,
        run_command=refuse,
        inspect=refuse,
        api=refuse,
        stop=lambda: None,
        describe_waiting=str,
    )
    with TemporaryDirectory() as folder:
        own = {"PORTICO_DATA_DIR": folder, "PORTICO_CONFIG": f"{folder}/portico.yaml"}
        configuration = identify_configuration(environ=own)
        others = {name: os.environ[name] for name in os.environ if "PORTICO" not in name}
        async with open_local_endpoint(served, configuration, "", background=False):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "portico", "stdio"),
                env={**others, **own},
                stdin=PIPE,
                stdout=PIPE,
                limit=16 * 2**20,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                yield process.stdout, process.stdin
            finally:
                process.stdin.close()
                try:
                    await asyncio.wait_for(process.wait(), TIMEOUT_S)
                except TimeoutError:
                    process.kill()
                    raise


@asynccontextmanager
async def raw_lines(
    endpoint: ProfileEndpoint, era: Era, **capabilities: Any
) -> AsyncGenerator[RawLines]:
    """A raw client of a endpoint over pipes, introduced."""
    async with pipes_to(endpoint) as (reader, writer):
        client = RawLines(reader, writer, era, capabilities)
        await client.introduce()
        yield client
