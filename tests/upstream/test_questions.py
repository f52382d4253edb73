"""What a server asks over a pipe in the middle of a call; the test is the server and writes its
lines."""

from collections.abc import AsyncGenerator

import pytest

from portico.errors import BackendTimeout
from portico.upstream.backend import CallAlreadyEnded, Raw, RequestOptions
from tests.upstream.loopback import Caller, let_pass, soon
from tests.upstream.test_peer import Far, outcome, settled

QUESTION: Raw = {"message": "Who?", "requestedSchema": {"type": "object"}}


class Over(Caller):
    """A client whose call is over."""

    async def request(self, method: str, params: Raw) -> Raw:
        raise CallAlreadyEnded


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    far = Far()
    yield far
    await far.hang_up()


def asks(far: Far, request_id: object = "q", **params: object) -> None:
    far.say(id=request_id, method="elicitation/create", params={**QUESTION, **params})


@pytest.mark.parametrize(("timeout", "longest"), [(5.0, None), (None, 5.0), (5.0, 6.0)])
async def test_no_call_is_too_late_while_its_client_is_asked(
    far: Far, timeout: float | None, longest: float | None
):
    client = Caller()
    calling = far.ask(ask=RequestOptions(timeout, client, total_timeout=longest))
    call = await far.next()
    asks(far)
    await soon(client.asked)
    let_pass(100)
    await settled()
    assert not calling.done()
    far.say(id=call["id"], result={"ok": True})
    assert await outcome(calling) == {"ok": True}


async def test_after_the_answer_the_clock_goes_on(far: Far):
    client = Caller({"elicitation/create": {"action": "decline"}})
    calling = far.ask(ask=RequestOptions(timeout=5, relay=client))
    await far.next()
    asks(far)
    await soon(client.asked)
    assert (await far.next())["result"] == {"action": "decline"}
    let_pass(100)
    with pytest.raises(BackendTimeout, match="within 5 s"):
        await outcome(calling)


async def test_a_question_whose_call_ends_is_answered_with_that(far: Far):
    client = Caller()
    calling = far.ask(ask=RequestOptions(relay=client))
    call = await far.next()
    asks(far)
    await soon(client.asked)
    far.say(id=call["id"], result={})
    await outcome(calling)
    answer = await far.next()
    assert (answer["id"], answer["error"]["message"]) == (
        "q",
        "the call that this question belongs to is over",
    )


async def test_a_question_outlives_one_of_its_clients_calls_if_there_is_another(far: Far):
    client = Caller()
    calls = [far.ask(ask=RequestOptions(relay=client)) for _ in range(2)]
    ids = [(await far.next())["id"] for _ in calls]
    asks(far)
    await soon(client.asked)
    far.say(id=ids[1], result={})
    await outcome(calls[1])
    await settled()
    assert far.sent.empty()


async def test_a_question_for_a_call_that_is_over_goes_to_another_of_the_same_client(far: Far):
    client = Caller({"elicitation/create": {"action": "accept"}})
    far.ask(ask=RequestOptions(relay=client))
    await far.next()
    far.ask(ask=RequestOptions(relay=Over()))
    await far.next()
    asks(far)
    assert (await far.next())["result"] == {"action": "accept"}


async def test_a_question_for_calls_that_are_all_over_is_refused(far: Far):
    far.ask(ask=RequestOptions(relay=Over()))
    await far.next()
    asks(far)
    assert "outside a client's call" in (await far.next())["error"]["message"]


async def test_a_server_can_withdraw_its_question(far: Far):
    client = Caller()
    calling = far.ask(ask=RequestOptions(relay=client))
    call = await far.next()
    asks(far)
    await soon(client.asked)
    far.say(method="notifications/cancelled", params={"requestId": "q"})
    await settled()
    far.say(id=call["id"], result={"went": "on"})
    assert await outcome(calling) == {"went": "on"}
    assert far.sent.empty()


async def test_the_end_of_a_visit_is_told_to_the_client_that_was_sent_there(far: Far):
    one, two = Caller({"elicitation/create": {"action": "accept"}}, "one"), Caller(origin="two")
    calling = far.ask(ask=RequestOptions(relay=one))
    call = await far.next()
    asks(far, mode="url", url="https://example.org", elicitationId="visit")
    await far.next()
    far.say(id=call["id"], result={})
    await outcome(calling)
    far.ask(ask=RequestOptions(relay=two))
    refused = await far.next()
    elicitations = [{"elicitationId": "theirs", "mode": "url"}]
    far.say(
        id=refused["id"],
        error={"code": -32042, "message": "", "data": {"elicitations": elicitations}},
    )
    for visit in ("visit", "theirs", "unknown", "visit", None):
        far.say(method="notifications/elicitation/complete", params={"elicitationId": visit})
    await settled()
    assert [told[1]["elicitationId"] for told in one.told] == ["visit"]
    assert [told[1]["elicitationId"] for told in two.told] == ["theirs"]


async def test_so_many_visits_are_remembered_and_no_more(far: Far):
    client = Caller({"elicitation/create": {"action": "accept"}})
    far.ask(ask=RequestOptions(relay=client))
    await far.next()
    for number in range(300):
        asks(far, number, mode="url", elicitationId=str(number))
        await far.next()
    for number in range(300):
        far.say(method="notifications/elicitation/complete", params={"elicitationId": str(number)})
    await settled()
    assert {told[1]["elicitationId"] for told in client.told} == {
        str(number) for number in range(44, 300)
    }
