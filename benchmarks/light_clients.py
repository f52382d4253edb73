"""Clients that cost next to nothing: one connection each, requests as bytes, answers read as far as
needed.

The SDK's client takes longer for a call than some of what is measured; hundreds of them would
measure themselves.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httptools

from benchmarks.programs import MODERN

LEGACY = "2025-11-25"
ANSWER_S = 60.0


class NoAnswer(Exception):
    """Describes what came back is no answer to what was asked."""


class _Reply(asyncio.Protocol):
    """One connection: the answer that is being read."""

    def __init__(self) -> None:
        self.body = b""
        self.session = ""
        self.retry_after = 0.0
        self.status = 0
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def exchange(self, request: bytes) -> bytes:
        assert self._transport is not None
        self.body, self._parser = b"", httptools.HttpResponseParser(self)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._done
        return self.body

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(NoAnswer(f"the connection was lost: {exc}"))

    # --- what the parser finds

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mcp-session-id":
            self.session = value.decode()
        elif name.lower() == b"retry-after":
            self.retry_after = float(value)

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class LightClient:
    """One client of one gateway."""

    def __init__(self, reply: _Reply, url: str, era: str, name: str) -> None:
        self._reply, self._url, self._era, self._name = reply, urlsplit(url), era, name
        self._id = 0

    async def introduce(self) -> None:
        """Say hello, where the era has that."""
        if self._era == "modern":
            return
        info = {"name": self._name, "version": "1"}
        await self._ask(
            "initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        )
        await self._ask("notifications/initialized", {}, answered=False)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The whole answer to a call; `{"turned_away": seconds}` where the gateway had no time to
        read it."""
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, tool)

    async def _ask(
        self, method: str, params: dict[str, Any], tool: str = "", *, answered: bool = True
    ) -> Any:
        self._id += 1
        if self._era == "modern":
            prefix = "io.modelcontextprotocol/"
            about = {"protocolVersion": MODERN, "clientCapabilities": {}}
            about["clientInfo"] = {"name": self._name, "version": "1"}
            params = {**params, "_meta": {prefix + key: value for key, value in about.items()}}
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if answered:
            frame["id"] = self._id
        async with asyncio.timeout(ANSWER_S):
            body = await self._reply.exchange(
                self._request(method, tool, json.dumps(frame).encode())
            )
        if not answered:
            return None
        if self._reply.status == 503:
            return {"turned_away": self._reply.retry_after}
        found = _answer(body, self._id)
        if found is None:
            raise NoAnswer(f"{self._reply.status}: {body[:200]!r}")
        return found

    def _request(self, method: str, tool: str, body: bytes) -> bytes:
        lines = [
            f"POST {self._url.path} HTTP/1.1",
            f"host: {self._url.netloc}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            f"content-length: {len(body)}",
        ]
        if self._era == "modern":
            lines += [
                f"mcp-protocol-version: {MODERN}",
                f"mcp-method: {method}",
                *([f"mcp-name: {tool}"] * bool(tool)),
            ]
        elif self._reply.session:
            lines += [f"mcp-protocol-version: {LEGACY}", f"mcp-session-id: {self._reply.session}"]
        return "\r\n".join((*lines, "", "")).encode() + body

    def close(self) -> None:
        """Hang up."""
        self._reply.close()


def _answer(body: bytes, request_id: int) -> Any:
    """The answer in a body of JSON, or among the events of a stream."""
    texts = (
        [body]
        if body.startswith(b"{")
        else [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
    )
    for text in texts:
        with suppress(ValueError):
            message = json.loads(text)
            if message.get("id") == request_id and ("result" in message or "error" in message):
                return message
    return None


async def open_light_client(url: str, era: str, name: str = "benchmark") -> LightClient:
    """A client that is connected and introduced."""
    at = urlsplit(url)
    _, reply = await asyncio.get_running_loop().create_connection(
        _Reply, at.hostname or "", at.port or 80
    )
    one = LightClient(reply, url, era, name)
    await one.introduce()
    return one


@asynccontextmanager
async def open_light_clients(
    count: int, url: str, era: str, name: str = "benchmark"
) -> AsyncGenerator[list[LightClient]]:
    """So many clients; they open one after the other, so that no listening socket overflows."""
    there: list[LightClient] = []
    try:
        for _ in range(count):
            there.append(await open_light_client(url, era, name))  # noqa: PERF401  (what is there must be closed)
        yield there
    finally:
        for one in there:
            one.close()
