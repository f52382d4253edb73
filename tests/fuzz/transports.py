"""Every way a client talks to a gateway, as one question and one answer: typed, over HTTP, over
pipes, in both eras."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import httpx2
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from portico.errors import INVALID_REQUEST
from portico.gateway import GatewayRuntime
from portico.testing import connect, serve_http
from portico.upstream.backend import Era
from tests.fuzz.loop_thread import Running
from tests.interaction.raw_clients import (
    ACCEPT,
    LEGACY,
    MODERN,
    RawLines,
    envelope,
    hello,
    messages,
    raw_lines,
)

Message = dict[str, Any]
WIRES = (
    "typed_legacy",
    "typed_modern",
    "http_legacy",
    "http_modern",
    "pipes_legacy",
    "pipes_modern",
)


class Wire(Protocol):
    """One way in."""

    async def request(self, method: str, params: Message) -> Message:
        """The answer, as JSON-RPC has it."""
        ...


@dataclass(frozen=True)
class Typed:
    """The SDK's own client."""

    client: Client

    async def request(self, method: str, params: Message) -> Message:
        """A call of a tool; the client knows no other request with noise in it."""
        assert method == "tools/call"
        try:
            result = await self.client.call_tool(params["name"], params["arguments"])
        except MCPError as error:
            return {
                "error": {
                    "code": error.error.code,
                    "message": error.error.message,
                    "data": error.error.data,
                }
            }
        except ValueError as error:
            return {
                "error": {
                    "code": INVALID_REQUEST,
                    "message": f"the client cannot say this: {error}",
                }
            }
        return {"result": result.model_dump(by_alias=True, mode="json", exclude_none=True)}


@dataclass(frozen=True)
class Reply:
    """Describes what came back over HTTP."""

    status: int
    messages: list[Message]
    text: str
    headers: Mapping[str, str]


class Http:
    """Posts of any bytes, to any address of the gateway."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http, self.url = http, url

    async def send(
        self,
        content: bytes,
        headers: Mapping[str, str] | list[tuple[bytes, bytes]],
        verb: str = "POST",
        url: str = "",
    ) -> Reply:
        """The whole reply to one request."""
        reply = await self.http.request(verb, url or self.url, content=content, headers=headers)
        found: list[Message] = []
        if reply.content and reply.headers.get("content-type", "").startswith(
            ("application/json", "text/event")
        ):
            found = [message for message in messages(reply) if type(message) is dict]
        return Reply(reply.status_code, found, reply.text, reply.headers)


class Posted:
    """JSON-RPC over HTTP."""

    def __init__(self, http: Http, era: Era) -> None:
        self.http, self.era = http, era
        self.headers: dict[str, str] = dict(ACCEPT)
        self._ids = count(1)

    async def introduce(self) -> None:
        if self.era == "modern":
            self.headers["mcp-protocol-version"] = MODERN
            return
        frame = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello()}
        reply = await self.http.send(json.dumps(frame).encode(), self.headers)
        self.headers |= {
            "mcp-session-id": reply.headers["mcp-session-id"],
            "mcp-protocol-version": LEGACY,
        }
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.http.send(json.dumps(ready).encode(), self.headers)).status == 202

    async def request(self, method: str, params: Message) -> Message:
        """The one answer; a request that cannot be read is answered without its id."""
        id = next(self._ids)
        headers = dict(self.headers)
        if self.era == "modern":
            params = {**params, "_meta": {**envelope(), **params.get("_meta", {})}}
            headers["mcp-method"] = method
            if isinstance(params.get("name"), str):
                headers["mcp-name"] = params["name"]
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        reply = await self.http.send(json.dumps(frame).encode(), headers)
        assert reply.status < 500, (reply.status, reply.text)
        answers = [
            message
            for message in reply.messages
            if message.get("id") in (id, None) and "method" not in message
        ]
        assert len(answers) == 1, (reply.status, reply.text)
        return answers[0]


@dataclass(frozen=True)
class Piped:
    """JSON-RPC over a pair of pipes."""

    lines: RawLines

    async def request(self, method: str, params: Message) -> Message:
        return await self.lines.request(method, params)


async def wires(
    running: Running, gateway: GatewayRuntime, url: str, profile: str | None = None
) -> dict[str, Wire]:
    """Every way in, open as long as the loop runs."""
    hold = running.holder.hold
    http = Http(
        await hold(httpx2.AsyncClient(timeout=240)), f"{url}/p/{profile}" if profile else url
    )
    found: dict[str, Wire] = {}
    for era in ("legacy", "modern"):
        found[f"typed_{era}"] = Typed(await hold(connect(gateway, "memory", era, profile)))
        found[f"http_{era}"] = posted = Posted(http, era)
        await posted.introduce()
        found[f"pipes_{era}"] = Piped(await hold(raw_lines(gateway.get_endpoint(profile), era)))
    return found


async def serve(running: Running, gateway: GatewayRuntime, **options: Any) -> str:
    """The address of a gateway, as long as the loop runs."""
    return await running.holder.hold(serve_http(gateway, **options))


def ask(running: Running, wire: Wire, method: str, params: Message) -> Message:
    """One answer, in time."""
    return running.do(asyncio.wait_for(wire.request(method, params), 240))
