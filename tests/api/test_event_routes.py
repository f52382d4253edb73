"""The event stream over REST, read from a real server."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from portico.api.event_feed import (
    MAX_CALLS_IN_BATCH,
    MAX_LISTENERS_EACH,
    EventFeed,
    EventListener,
    describe_event,
)
from portico.callers import LOCAL_USER, Caller, Principal
from portico.errors import Overloaded
from portico.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallRefused,
    CallStarted,
    CatalogChanged,
    ConfigApplied,
    ConfigRejected,
    EventBus,
    ServerStateChanged,
    ToolCalled,
    ToolsShown,
)
from portico.gateway.rest_app import RestApp
from portico.testing import serve_http
from tests.api.api_client import V1, backend, make_tools
from tests.gateways import TIMEOUT_S, run_gateway
from tests.http import open_client

Sent = tuple[str, dict[str, Any], str]


def parse_events(text: str) -> list[Sent]:
    found: list[Sent] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and line[0] != ":")
        if fields:
            found.append((fields["event"], json.loads(fields["data"]), fields.get("id", "")))
    return found


class EventReader:
    """Reads events of one stream."""

    def __init__(self, chunks: AsyncIterator[str]) -> None:
        self._chunks = chunks
        self._text = ""
        self.events: list[Sent] = []

    async def wait_for(self, name: str) -> dict[str, Any]:
        """Return the data of the next event of a name."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for at, event in enumerate(self.events):
                    if event[0] == name:
                        del self.events[: at + 1]
                        return event[1] | {"id": event[2]}
                self.events.clear()
                self._text += await anext(self._chunks)
                *whole, self._text = self._text.split("\n\n")
                self.events = parse_events("\n\n".join(whole))


@asynccontextmanager
async def listen(
    http: httpx2.AsyncClient, headers: Mapping[str, str] | None = None
) -> AsyncGenerator[EventReader]:
    async with http.stream("GET", f"{V1}/events", headers=dict(headers or {})) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        yield EventReader(reply.aiter_text())


async def test_a_call_is_seen_as_it_begins_and_ends_and_a_server_as_it_changes():
    server = backend(*make_tools("git", 1))
    async with run_gateway({"git": server}) as gateway:
        api = RestApp(gateway)
        async with serve_http(gateway, api=api) as url, open_client(url) as http:
            async with listen(http) as reader:
                hello = await reader.wait_for("hello")
                assert hello["missed"] is False
                await http.post(f"{V1}/calls", json={"tool": "git.git_0"})
                started = await reader.wait_for("call_started")
                ended = await reader.wait_for("call_ended")
                assert started["call"] == ended["call"]
                assert (ended["tool"], ended["ok"], ended["via"]) == ("git.git_0", True, "rest")
                server.die("the test ended it")
                while (await reader.wait_for("server"))["state"] != "down":
                    pass
            # Goes on where it was.
            again = {"last-event-id": started["id"]}
            async with listen(http, again) as reader:
                assert (await reader.wait_for("hello"))["missed"] is False
                assert (await reader.wait_for("call_ended"))["call"] == started["call"]
            async with listen(http, {"last-event-id": "other-7"}) as reader:
                assert (await reader.wait_for("hello"))["missed"] is True
                api.close()


async def test_a_listener_that_does_not_read_is_told_so_and_dropped():
    bus = EventBus()
    feed = EventFeed(bus, max_events=10)
    behind = True
    listener = EventListener(LOCAL_USER, lambda _: True, lambda: True, lambda: behind)
    feed.reserve("ana")
    stream = feed.stream("ana", listener)
    assert b"event: hello" in await anext(stream)
    for at in range(25):
        bus.publish(ServerStateChanged(f"s{at}", "ready"))
    behind = False
    (lagged,) = parse_events((await anext(stream)).decode())
    assert lagged[:2] == ("lagged", {"missed": 15})
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_stream_ends_with_the_credential_of_its_listener_and_with_the_feed():
    feed = EventFeed(EventBus())
    is_open = True
    listener = EventListener(LOCAL_USER, lambda _: True, lambda: is_open, lambda: False)
    for _ in range(2):
        feed.reserve("ana")
    first = feed.stream("ana", listener)
    second = feed.stream(
        "ana", EventListener(LOCAL_USER, lambda _: True, lambda: True, lambda: False)
    )
    await anext(first)
    await anext(second)
    is_open = False
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(first), TIMEOUT_S)
    feed.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(second), TIMEOUT_S)


async def test_many_listeners_of_one_caller_are_refused():
    feed = EventFeed(EventBus())
    for _ in range(MAX_LISTENERS_EACH):
        feed.reserve("ana")
    with pytest.raises(Overloaded):
        feed.reserve("ana")
    feed.reserve("ben")


async def test_of_very_many_calls_the_number_is_sent():
    bus = EventBus()
    feed = EventFeed(bus)
    feed.reserve("ana")
    listener = EventListener(LOCAL_USER, lambda _: True, lambda: True, lambda: False)
    stream = feed.stream("ana", listener)
    await anext(stream)
    for at in range(MAX_CALLS_IN_BATCH + 30):
        bus.publish(ToolCalled(f"s.t{at}", "0", 0.1, True))
    events = parse_events((await anext(stream)).decode())
    assert len(events) == MAX_CALLS_IN_BATCH + 1
    assert events[-1][:2] == ("skipped", {"events": 30})


def test_a_key_of_certain_profiles_sees_its_own_calls_and_servers_only():
    principal = Principal("key", "ana", profiles=("work",))
    listener = EventListener(principal, lambda server: server == "git", lambda: True, lambda: False)
    own = Caller(principal=principal)
    assert listener.may_see(CallStarted("1", "git.x", own))
    assert not listener.may_see(CallStarted("1", "git.x", Caller()))
    assert listener.may_see(ServerStateChanged("git", "ready"))
    assert not listener.may_see(ServerStateChanged("mail", "ready"))
    assert not listener.may_see(ConfigApplied("mail added"))


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (CallStarted("1", "s.t"), "call_started"),
        (ToolCalled("s.t", "h", 0.1, False, error="x"), "call_ended"),
        (CallRefused("s.t", "invalid_arguments"), "call_refused"),
        (ApprovalRequested("1", "s.t"), "approval_requested"),
        (ApprovalDecided("1", "s.t", True, "key ana", "key bob", "rest"), "approval_decided"),
        (ServerStateChanged("s", "down", "API_TOKEN=hidden-1 is wrong"), "server"),
        (CatalogChanged("s", added=("s.a\x1b[31m",)), "catalog"),
        (ConfigApplied("token=hidden-1"), "config"),
        (ConfigRejected("password: hidden-1"), "config"),
        (ToolsShown(Caller(), "text"), "ledger"),
    ],
)
def test_events_are_described_without_secrets_and_control_characters(event: Any, name: str):
    found, data = describe_event(event)
    assert found == name
    assert "hidden" not in str(data)
    assert "\x1b" not in json.dumps(data)


async def test_a_head_request_is_answered_without_a_stream():
    async with (
        run_gateway({"git": backend(*make_tools("git", 1))}) as gateway,
        serve_http(gateway, api=RestApp(gateway)) as url,
        open_client(url) as http,
    ):
        reply = await http.head(f"{V1}/events")
        assert (reply.status_code, reply.content) == (200, b"")
