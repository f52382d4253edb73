"""Clients of bare JSON-RPC, one over HTTP and one over a pair of pipes: they see what is on the
wire and no more."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Protocol

import httpx2

from portico.server.profile_endpoint import ProfileEndpoint
from portico.server.stdio import open_pipe_streams
from portico.upstream.backend import Era

Message = dict[str, Any]

PATIENCE_S = 20.0
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
INFO: Message = {"name": "raw", "version": "1"}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def envelope(**capabilities: Any) -> Message:
    """What every request of the modern era carries."""
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
    """Posts JSON; what comes beside an answer is in `unasked`."""

    def __init__(self, http: httpx2.AsyncClient, url: str, era: Era, capabilities: Message) -> None:
        self.http, self.url = http, url
        self.era: Era = era
        self.introduction: Message = {}
        self.unasked: list[Message] = []
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
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        reply = await self.http.post(self.url, content=json.dumps(frame), headers=headers)
        answer: Message | None = None
        for message in messages(reply):
            if message.get("id") == id and "method" not in message:
                answer = message
            else:
                self.unasked.append(message)
        assert answer is not None, (reply.status_code, reply.text)
        return reply, answer


def messages(reply: httpx2.Response) -> list[Message]:
    """What a reply carries, in a JSON body or in an event stream."""
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
    """A raw client of the door at `url`, introduced."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(timeout=PATIENCE_S, headers=headers) as http:
        client = RawHttp(http, url, era, capabilities)
        await client.introduce()
        yield client


class RawLines:
    """Writes and reads lines; what nobody waited for is in `unasked`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        era: Era,
        capabilities: Message,
    ) -> None:
        self.era: Era = era
        self.introduction: Message = {}
        self.unasked: list[Message] = []
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
        for message in self.unasked:
            if wanted(message):
                self.unasked.remove(message)
                return message
        async with asyncio.timeout(PATIENCE_S):
            while not wanted(message := json.loads(await self.line())):
                self.unasked.append(message)
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
    door: ProfileEndpoint, **options: Any
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A door served over a pair of pipes, and the other ends of the two."""
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
        async with open_pipe_streams(*ours, reject_invalid_lines=True, **options) as (
            received,
            sending,
        ):
            await door.server.run(received, sending, door.server.create_initialization_options())

    served = asyncio.create_task(serve())
    try:
        yield reader, asyncio.StreamWriter(sink, protocol, None, loop)
    finally:
        sink.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(served, PATIENCE_S)
        source.close()


@asynccontextmanager
async def raw_lines(
    door: ProfileEndpoint, era: Era, **capabilities: Any
) -> AsyncGenerator[RawLines]:
    """A raw client of a door over pipes, introduced."""
    async with pipes_to(door) as (reader, writer):
        client = RawLines(reader, writer, era, capabilities)
        await client.introduce()
        yield client
