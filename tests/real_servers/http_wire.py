"""Conversations over HTTP: Streamable HTTP in both eras, and the older pair of an event stream and
a POST address."""

from __future__ import annotations

import asyncio
import contextlib
import json
from urllib.parse import urljoin

import httpx2

from tests.real_servers.catalogue import Era, Raw
from tests.real_servers.jsonrpc_client import MODERN, TIMEOUT_S, Conversation

_BOTH = "application/json, text/event-stream"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class HttpConversation(Conversation):
    """Streamable HTTP: every frame is a POST, its answer JSON or an event stream."""

    def __init__(self, era: Era, url: str, client: httpx2.AsyncClient | None = None) -> None:
        super().__init__(era)
        self._url = url
        self._client = client or httpx2.AsyncClient(
            timeout=httpx2.Timeout(TIMEOUT_S, read=None), trust_env=False
        )
        self._headers: dict[str, str] = {"MCP-Protocol-Version": MODERN} if era == "modern" else {}

    async def introduce(self) -> None:
        await super().introduce()
        if self.era == "legacy":
            self.spawn(self._listen())

    async def send(self, frame: Raw) -> None:
        headers = {**self._headers, "Accept": _BOTH, "Content-Type": "application/json"}
        if self.era == "modern" and "method" in frame:
            headers |= _modern_headers(frame)
        async with self._client.stream(
            "POST", self._url, content=json.dumps(frame), headers=headers
        ) as response:
            if session := response.headers.get("mcp-session-id"):
                self._headers["Mcp-Session-Id"] = session
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                await self._hear(response)
            elif (body := await response.aread()) and response.headers["content-type"].startswith(
                "application/json"
            ):
                self.received(json.loads(body))
            elif response.status_code >= 400:
                raise AssertionError((frame, response.status_code, body))

    def received(self, frame: Raw) -> None:
        if "protocolVersion" in frame.get("result", {}) and not self.hello:
            self._headers["MCP-Protocol-Version"] = frame["result"]["protocolVersion"]
        super().received(frame)

    async def close(self) -> None:
        if "Mcp-Session-Id" in self._headers:
            with contextlib.suppress(httpx2.HTTPError):
                await self._client.delete(self._url, headers=self._headers)
        await self._client.aclose()

    async def _listen(self) -> None:
        """Return what a handshake-era server says outside any request."""
        headers = {**self._headers, "Accept": "text/event-stream"}
        with contextlib.suppress(httpx2.HTTPError):
            async with self._client.stream("GET", self._url, headers=headers) as response:
                if response.status_code == 200:
                    await self._hear(response)

    async def _hear(self, response: httpx2.Response) -> None:
        async for event in httpx2.EventSource(response, max_event_size=None):
            if event.data:
                self.received(json.loads(event.data))


class SseConversation(Conversation):
    """The HTTP+SSE transport of 2024-11-05: one stream brings everything, its first event says
    where to POST."""

    def __init__(self, era: Era, url: str) -> None:
        super().__init__(era)
        self._url = url
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(TIMEOUT_S, read=None), trust_env=False
        )
        self._address: asyncio.Future[str] | None = None

    async def introduce(self) -> None:
        self._address = asyncio.get_running_loop().create_future()
        self.spawn(self._listen(self._address))
        await super().introduce()

    async def send(self, frame: Raw) -> None:
        assert self._address is not None
        response = await self._client.post(urljoin(self._url, await self._address), json=frame)
        assert response.status_code < 400, (frame, response.status_code, response.text)

    async def close(self) -> None:
        await self._client.aclose()

    async def _listen(self, address: asyncio.Future[str]) -> None:
        async with self._client.stream(
            "GET", self._url, headers={"Accept": "text/event-stream"}
        ) as response:
            async for event in httpx2.EventSource(response, max_event_size=None):
                if event.event == "endpoint":
                    address.set_result(event.data)
                else:
                    self.received(json.loads(event.data))
        self.over()


def _modern_headers(frame: Raw) -> dict[str, str]:
    method = frame["method"]
    named = _NAMED_BY.get(method)
    return {"Mcp-Method": method, **({"Mcp-Name": frame["params"][named]} if named else {})}
