"""The same failure reads the same by every way to a tool: its kind, what to do, whether to try
again, parameters."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from portico.config import Config, Profile
from portico.errors import BackendBusy, BackendTimeout, BackendUnavailable, RemoteError
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import get_text

TIMEOUT_S = 240
LOOK: Raw = {
    "name": "look",
    "description": "Look at a place.",
    "inputSchema": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
    },
    "annotations": {"readOnlyHint": True},
}
TAKES = "place: string"

FAILURES: dict[str, Callable[[], Exception]] = {
    "unavailable": lambda: BackendUnavailable("eye: the server exited with code 3"),
    "timeout": lambda: BackendTimeout("eye: no answer in 2 s"),
    "busy": lambda: BackendBusy("eye: 8 calls wait already", advice="Try again later."),
    "remote": lambda: RemoteError(-32000, "the lens is dirty", {"lens": 2}),
}
RETRYABLE = {"unavailable", "timeout", "busy"}
KINDS = ["unknown_name", "invalid_arguments", *FAILURES, "tool_error"]
WORDS = {
    "unknown_name": "lok",
    "invalid_arguments": '"place" is a required property',
    "unavailable": "exited with code 3",
    "timeout": "no answer in 2 s",
    "busy": "8 calls wait already",
    "remote": "the lens is dirty",
    "tool_error": "it is too dark",
}


def eye(kind: str) -> FakeBackend:
    backend = FakeBackend([LOOK])

    def answer(arguments: Raw) -> Raw:
        if kind in FAILURES:
            raise FAILURES[kind]()
        return {"content": [{"type": "text", "text": "it is too dark"}], "isError": True}

    backend.on_call("look", answer)
    return backend


@asynccontextmanager
async def client_of(kind: str, exposure: Any) -> AsyncGenerator[Client]:
    config = Config(
        exposure="meta", profiles={"other": Profile(exposure=exposure)}, intent="look at a place"
    )
    async with (
        gateway_over({"eye": eye(kind)}, config) as gateway,
        connect(gateway, profile="other") as client,
    ):
        yield client


def make_request(kind: str) -> tuple[str, Raw]:
    return "lok" if kind == "unknown_name" else "look", {} if kind == "invalid_arguments" else {
        "place": "here"
    }


async def call_by_name(client: Client, name: str, arguments: Raw) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        return await client.call_tool(name, arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("view", [{}, {"view": "shape"}], ids=["result", "shape"])
async def test_by_call_tool(kind: str, view: Raw):
    name, arguments = make_request(kind)
    async with client_of(kind, "meta") as client:
        answer = await call_by_name(
            client, "call_tool", {"name": f"eye.{name}", "arguments": arguments, **view}
        )
    _is_reported(kind, answer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exposure", ["semantic", "full"])
async def test_by_the_name_it_is_listed_under(kind: str, exposure: str):
    name, arguments = make_request(kind)
    async with client_of(kind, exposure) as client:
        if kind in ("unknown_name", "remote"):  # as its own server would: an error of the protocol
            with pytest.raises(MCPError) as caught:
                await call_by_name(client, f"eye__{name}", arguments)
            assert WORDS[kind] in caught.value.error.message
            assert caught.value.error.code == (-32000 if kind == "remote" else -32602)
            return
        answer = await call_by_name(client, f"eye__{name}", arguments)
    _is_reported(kind, answer)


@pytest.mark.parametrize("kind", KINDS)
async def test_in_a_script(kind: str):
    name, arguments = make_request(kind)
    code = f"await call_tool('eye.{name}', {arguments!r})"
    async with client_of(kind, "meta") as client:
        answer = await call_by_name(client, "run_code", {"code": code, "language": "python"})
    assert answer.is_error
    text = get_text(answer)
    assert WORDS[kind] in text
    assert "line 1" in text
    if kind != "tool_error":
        assert f"{kind}: " in text
    assert (TAKES in text) == (kind == "invalid_arguments")
    assert ("Try again later." in text) == (kind == "busy")


@pytest.mark.parametrize("kind", KINDS)
async def test_in_a_workflow(kind: str):
    name, arguments = make_request(kind)
    async with client_of(kind, "meta") as client:
        answer = await call_by_name(
            client,
            "run_workflow",
            {"steps": [{"id": "one", "tool": f"eye.{name}", "arguments": arguments}]},
        )
    assert answer.is_error
    text = get_text(answer)
    # Its arguments are looked at before anything runs, and each problem names its step.
    assert (
        "step one arguments.place: eye.look requires it"
        if kind == "invalid_arguments"
        else WORDS[kind]
    ) in text
    assert ("Try again later." in text) == (kind == "busy")


def _is_reported(kind: str, answer: Any) -> None:
    assert answer.is_error
    text = get_text(answer)
    assert WORDS[kind] in text
    if kind == "tool_error":
        assert text == "it is too dark"
        return
    assert text.startswith(f"{kind}: ")
    assert (TAKES in text) == (kind == "invalid_arguments")
    reported = answer.meta["portico/error"]
    assert (reported["kind"], reported["retryable"]) == (kind, kind in RETRYABLE)
    assert bool(reported.get("advice")) == (kind in ("unknown_name", "invalid_arguments", "busy"))
    assert reported.get("problems") == (
        ['"place" is a required property'] if kind == "invalid_arguments" else None
    )
    assert reported.get("nearest") == (["eye.look"] if kind == "unknown_name" else None)
    assert reported.get("code") == (-32000 if kind == "remote" else None)
    assert reported.get("data") == ({"lens": 2} if kind == "remote" else None)
