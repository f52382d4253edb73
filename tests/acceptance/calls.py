"""One call of every server, directly and over each way through Portico."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.acceptance.fleet import Raw, Started
from tests.real_servers.http_wire import HttpConversation
from tests.real_servers.jsonrpc_client import TIMEOUT_S, Conversation, ConversationOver
from tests.real_servers.stdio_wire import StdioConversation

AT_ONCE = 3
CALL_S = 120.0


class CallFailed(Exception):
    """The tool, or what stands before it, says no."""


FAILURES = (
    AssertionError,
    OSError,
    TimeoutError,
    ConversationOver,
    httpx2.HTTPError,
    CallFailed,
)


@dataclass(frozen=True)
class Answer:
    """What a call came to."""

    works: bool
    text: str


async def call_each(
    servers: Sequence[Started], call: Callable[[Started], Awaitable[str]]
) -> dict[str, Answer]:
    """Call every server, a few at once; what is raised counts as an answer that is wrong."""
    free = asyncio.Semaphore(AT_ONCE)

    async def answer(started: Started) -> Answer:
        async with free:
            try:
                async with asyncio.timeout(CALL_S):
                    text = await call(started)
            except FAILURES as failed:
                return Answer(works=False, text=f"{type(failed).__name__}: {failed}"[:300])
        return Answer(started.answers_right(text), text)

    answers = await asyncio.gather(*(answer(started) for started in servers))
    return {it.server.name: found for it, found in zip(servers, answers, strict=True)}


async def call_directly(started: Started, env: Mapping[str, str], cwd: str) -> str:
    """Start the server as a client does, list its tools, call one, and end it."""
    talk: Conversation = StdioConversation("legacy", started.command, {**env, **started.env}, cwd)
    if started.url is not None:
        talk = HttpConversation("legacy", started.url, _build_client(started.url, env))
    async with talk.opened():
        listed = await talk.result("tools/list")
        if started.server.tool not in {tool["name"] for tool in listed["tools"]}:
            raise CallFailed(f"{started.server.tool} is not listed")
        return await call_tool(talk, started.server.tool, started.arguments)


def _build_client(url: str, env: Mapping[str, str]) -> httpx2.AsyncClient:
    """An HTTP client that uses the proxy and the authority in `env`, as programs do."""
    secure = url.startswith("https:")
    trusted = env.get("SSL_CERT_FILE") if secure else None
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(TIMEOUT_S, read=None),
        trust_env=False,
        proxy=env.get("HTTPS_PROXY") if secure else None,
        verify=ssl.create_default_context(cafile=trusted),
    )


async def call_through(talk: Conversation, name: str, arguments: Raw) -> str:
    """Call a tool of a server behind Portico, over the meta-tool."""
    return await call_tool(talk, "call_tool", {"name": name, "arguments": arguments})


async def call_tool(talk: Conversation, name: str, arguments: Raw) -> str:
    """The text of a result; `CallFailed` where it is an error."""
    answer = await talk.request("tools/call", {"name": name, "arguments": arguments})
    if "error" in answer:
        raise CallFailed(answer["error"].get("message", ""))
    return read_result(answer["result"])


def read_result(result: Mapping[str, Any]) -> str:
    """Every text of a result."""
    text = "\n".join(block.get("text", json.dumps(block)) for block in result["content"])
    if result.get("isError"):
        raise CallFailed(text)
    return text
