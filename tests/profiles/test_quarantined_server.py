"""A server in quarantine is shown as what it is, wherever servers are shown, and never as one that
does not exist."""

import asyncio

import pytest

from portico.errors import BackendUnavailable
from portico.testing import FakeBackend, connect, gateway_over

REASON = (
    "it is in quarantine after 5 failures within 10 min; the last: the server exited with code 4"
)
ECHO = {"name": "echo", "description": "Repeats.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    "uri",
    ["portico://overview", "portico://backends", "portico://backend/post"],
    ids=lambda uri: uri[10:],
)
async def test_a_quarantine_is_seen_in_resources(uri: str):
    async with (
        asyncio.timeout(240),
        gateway_over({"post": FakeBackend([ECHO])}) as gateway,
        connect(gateway) as client,
    ):
        gateway.upstreams["post"].set_state("quarantined", REASON)
        text = str((await client.read_resource(uri)).contents[0])
        assert "post" in text
        assert "quarantine" in text or "Unavailable now: post" in text


async def test_a_quarantine_is_shown_by_browse_status_and_unknown_names():
    never = FakeBackend([ECHO])
    never.refuses = BackendUnavailable("no")
    async with (
        asyncio.timeout(240),
        gateway_over({"post": FakeBackend([ECHO]), "never": never}) as gateway,
        connect(gateway) as client,
    ):
        for name in ("post", "never"):
            gateway.upstreams[name].set_state("quarantined", REASON)
        browsed = str((await client.call_tool("browse_tools", {})).content[0])
        assert "[quarantined: it is in quarantine after 5 failures" in browsed
        status = str((await client.get_prompt("backend_status")).messages[0].content)
        assert "post: quarantined (it is in quarantine after 5 failures" in status
        called = str(
            (await client.call_tool("call_tool", {"name": "never.tool", "arguments": {}})).content[
                0
            ]
        )
        assert "never is known but unavailable since" in called
        assert "quarantine" in called
