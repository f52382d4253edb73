"""What a server asks over a pipe in the middle of a call; the test is the server and writes its
lines."""

from collections.abc import AsyncGenerator

import pytest

from portico.errors import BackendTimeout
from portico.upstream.backend import CallAlreadyEnded, Raw, RequestOptions
from tests.upstream.loopback_server import (
    Caller,
    advance_clock,
    get_soon,
    run_pending_callbacks,
)
from tests.upstream.protocol.test_session import FakeServer, outcome

QUESTION: Raw = {"message": "Who?", "requestedSchema": {"type": "object"}}


class Over(Caller):
    """A client whose call is over."""

    async def request(self, method: str, params: Raw) -> Raw:
        raise CallAlreadyEnded


@pytest.fixture
async def server() -> AsyncGenerator[FakeServer]:
    server = FakeServer()
    yield server
    await server.disconnect()


def asks(server: FakeServer, request_id: object = "q", **params: object) -> None:
    server.send(id=request_id, method="elicitation/create", params={**QUESTION, **params})


@pytest.mark.parametrize(("timeout", "longest"), [(5.0, None), (None, 5.0), (5.0, 6.0)])
async def test_no_call_is_too_late_while_its_client_is_asked(
    server: FakeServer, timeout: float | None, longest: float | None
):
    client = Caller()
    calling = server.start_request(options=RequestOptions(timeout, client, total_timeout=longest))
    call = await server.next()
    asks(server)
    await get_soon(client.requests)
    advance_clock(100)
    await run_pending_callbacks()
    assert not calling.done()
    server.send(id=call["id"], result={"ok": True})
    assert await outcome(calling) == {"ok": True}


async def test_after_the_answer_the_clock_goes_on(server: FakeServer):
    client = Caller({"elicitation/create": {"action": "decline"}})
    calling = server.start_request(options=RequestOptions(timeout=5, relay=client))
    await server.next()
    asks(server)
    await get_soon(client.requests)
    assert (await server.next())["result"] == {"action": "decline"}
    advance_clock(100)
    with pytest.raises(BackendTimeout, match="within 5 s"):
        await outcome(calling)


async def test_a_server_request_whose_call_ends_is_answered_with_that(server: FakeServer):
    client = Caller()
    calling = server.start_request(options=RequestOptions(relay=client))
    call = await server.next()
    asks(server)
    await get_soon(client.requests)
    server.send(id=call["id"], result={})
    await outcome(calling)
    answer = await server.next()
    assert (answer["id"], answer["error"]["message"]) == (
        "q",
        "the call that this question belongs to is over",
    )


async def test_a_server_request_outlives_one_of_its_clients_calls_if_there_is_another(
    server: FakeServer,
):
    client = Caller()
    calls = [server.start_request(options=RequestOptions(relay=client)) for _ in range(2)]
    ids = [(await server.next())["id"] for _ in calls]
    asks(server)
    await get_soon(client.requests)
    server.send(id=ids[1], result={})
    await outcome(calls[1])
    await run_pending_callbacks()
    assert server.sent.empty()


async def test_a_server_request_for_a_call_that_is_over_goes_to_another_of_the_same_client(
    server: FakeServer,
):
    client = Caller({"elicitation/create": {"action": "accept"}})
    server.start_request(options=RequestOptions(relay=client))
    await server.next()
    server.start_request(options=RequestOptions(relay=Over()))
    await server.next()
    asks(server)
    assert (await server.next())["result"] == {"action": "accept"}


async def test_a_server_request_for_calls_that_are_all_over_is_refused(server: FakeServer):
    server.start_request(options=RequestOptions(relay=Over()))
    await server.next()
    asks(server)
    assert "outside a client's call" in (await server.next())["error"]["message"]


async def test_a_server_can_withdraw_its_request(server: FakeServer):
    client = Caller()
    calling = server.start_request(options=RequestOptions(relay=client))
    call = await server.next()
    asks(server)
    await get_soon(client.requests)
    server.send(method="notifications/cancelled", params={"requestId": "q"})
    await run_pending_callbacks()
    server.send(id=call["id"], result={"went": "on"})
    assert await outcome(calling) == {"went": "on"}
    assert server.sent.empty()


async def test_the_completion_of_a_url_elicitation_goes_to_its_client(server: FakeServer):
    one, two = Caller({"elicitation/create": {"action": "accept"}}, "one"), Caller(origin="two")
    calling = server.start_request(options=RequestOptions(relay=one))
    call = await server.next()
    asks(server, mode="url", url="https://example.org", elicitationId="visit")
    await server.next()
    server.send(id=call["id"], result={})
    await outcome(calling)
    server.start_request(options=RequestOptions(relay=two))
    refused = await server.next()
    elicitations = [{"elicitationId": "theirs", "mode": "url"}]
    server.send(
        id=refused["id"],
        error={"code": -32042, "message": "", "data": {"elicitations": elicitations}},
    )
    for visit in ("visit", "theirs", "unknown", "visit", None):
        server.send(method="notifications/elicitation/complete", params={"elicitationId": visit})
    await run_pending_callbacks()
    assert [told[1]["elicitationId"] for told in one.notifications] == ["visit"]
    assert [told[1]["elicitationId"] for told in two.notifications] == ["theirs"]


async def test_so_many_visits_are_remembered_and_no_more(server: FakeServer):
    client = Caller({"elicitation/create": {"action": "accept"}})
    server.start_request(options=RequestOptions(relay=client))
    await server.next()
    for number in range(300):
        asks(server, number, mode="url", elicitationId=str(number))
        await server.next()
    for number in range(300):
        server.send(
            method="notifications/elicitation/complete", params={"elicitationId": str(number)}
        )
    await run_pending_callbacks()
    assert {told[1]["elicitationId"] for told in client.notifications} == {
        str(number) for number in range(44, 300)
    }
