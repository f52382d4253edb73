"""One raw JSON-RPC conversation with a server, whatever carries it: frames in, frames out, no SDK
and no Portico.

Declares what Portico declares and answers a server's own requests the same way on every transport,
so that a server called directly and one called through the gateway meet the same client.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from portico.upstream.protocol.envelope import RELAYED_CAPABILITIES
from tests.real_servers.catalogue import Era, Raw

TIMEOUT_S = 60.0
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
CLIENT_INFO: Raw = {"name": "raw", "version": "1"}
ENVELOPE: Raw = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT_INFO,
}
ANSWERS: Mapping[str, Raw] = {
    "ping": {},
    "roots/list": {"roots": []},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "pong"},
        "model": "none",
        "stopReason": "endTurn",
    },
    "elicitation/create": {"action": "accept", "content": {"name": "Ann", "check": True}},
}
_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


class ConversationOver(Exception):
    """The other side is gone."""


class Conversation(ABC):
    """The part that is the same on every transport."""

    def __init__(self, era: Era) -> None:
        self.era: Era = era
        self.hello: Raw = {}
        """The result of `initialize` or `server/discover`."""
        self.noise = 0
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        self._ids = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def send(self, frame: Raw) -> None:
        """Deliver a frame; what comes back goes to `received`."""

    @abstractmethod
    async def close(self) -> None:
        """End it and everything it holds."""

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Conversation]:
        """Introduced, and closed in the end."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self.introduce()
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self.close()

    async def introduce(self) -> None:
        """Open the conversation in its era."""
        if self.era == "modern":
            self.hello = await self.result("server/discover")
            return
        capabilities = dict(RELAYED_CAPABILITIES)
        params = {
            "protocolVersion": LEGACY,
            "capabilities": capabilities,
            "clientInfo": CLIENT_INFO,
        }
        self.hello = await self.result("initialize", params)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def request(self, method: str, params: Raw | None = None) -> Raw:
        """The answer without its id: `{"result": …}` or `{"error": …}`."""
        number = next(self._ids)
        params = dict(params or {})
        if self.era == "modern":
            params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self.send(
                    {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                )
                frame = await answer
        finally:
            del self._waiting[number]
        return {key: value for key, value in frame.items() if key not in ("jsonrpc", "id")}

    async def result(self, method: str, params: Raw | None = None) -> Raw:
        """The result of a request that must succeed."""
        answer = await self.request(method, params)
        assert "result" in answer, (method, answer)
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> Raw:
        """The result of a tool that must exist."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments})

    async def everything(self, method: str) -> list[Raw]:
        """All pages of a list; none where the server does not know the method."""
        items: list[Raw] = []
        cursor: str | None = None
        while True:
            answer = await self.request(method, {"cursor": cursor} if cursor else None)
            if answer.get("error", {}).get("code") == -32601:
                return items
            items += answer["result"][_LISTS[method]]
            cursor = answer["result"].get("nextCursor")
            if not cursor:
                return items

    def received(self, frame: Any) -> None:
        """Take one frame of the server's."""
        if not isinstance(frame, dict) or "jsonrpc" not in frame:
            self.noise += 1
        elif "method" in frame:
            if "id" in frame:
                self.spawn(self.send(_answer(frame)))
        elif (answer := self._waiting.get(frame.get("id", 0))) is not None and not answer.done():
            answer.set_result(frame)

    def over(self) -> None:
        """Nothing will be received any more."""
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConversationOver("the server hung up"))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; it ends with the conversation."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _answer(frame: Raw) -> Raw:
    answered = ANSWERS.get(frame["method"])
    if answered is None:
        error = {"code": -32601, "message": f"{frame['method']} is not offered"}
        return {"jsonrpc": "2.0", "id": frame["id"], "error": error}
    return {"jsonrpc": "2.0", "id": frame["id"], "result": answered}
