"""A server's questions on the way back to a client that does not answer them in rounds of its
own."""

from collections.abc import Mapping
from typing import Any

import pytest

from portico.calls import elicitation
from portico.calls.call import CallContext, ServerRequest
from portico.calls.elicitation import MAX_REQUESTS_AT_ONCE, resolve_elicitations
from portico.errors import RemoteError
from portico.upstream.backend import Raw, Relay
from tests.upstream.loopback_server import Caller

ROOTS: Raw = {"method": "roots/list"}
DONE: Raw = {"content": []}


class Server:
    """Answers with these, one after the other, and remembers what it was sent."""

    def __init__(self, *answers: Raw) -> None:
        self._answers = list(answers)
        self.heard: list[Mapping[str, Any]] = []

    async def handle(self, request: ServerRequest) -> Raw:
        self.heard.append(request.params or {})
        return self._answers.pop(0)

    async def call(self, params: Raw, relay: Relay | None, *, is_multi_round: bool = False) -> Raw:
        context = CallContext(relay=relay, is_multi_round=is_multi_round)
        request = ServerRequest(server="s", method="tools/call", params=params, context=context)
        return await resolve_elicitations(request, self.handle)


def asking(state: str | None = None, **requests: Any) -> Raw:
    result: Raw = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    return result if state is None else {**result, "requestState": state}


async def test_every_input_request_is_relayed_and_the_call_repeated_with_answers_and_state():
    client = Caller({"roots/list": {"roots": []}, "elicitation/create": {"action": "decline"}})
    client.capabilities = {"roots": {}}
    form = {"method": "elicitation/create", "params": {"message": "?"}}
    server = Server(asking("one", a=ROOTS, b=form), asking(c=ROOTS), DONE)
    assert await server.call({"_meta": {"x": 1}}, client) is DONE
    answers = [(one.get("inputResponses"), one.get("requestState")) for one in server.heard]
    assert answers == [
        (None, None),
        ({"a": {"roots": []}, "b": {"action": "decline"}}, "one"),
        ({"c": {"roots": []}}, None),
    ]
    declared = [one["_meta"]["io.modelcontextprotocol/clientCapabilities"] for one in server.heard]
    assert declared == [{"roots": {}}] * 3


async def test_a_server_that_only_wants_its_state_back_gets_it_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(elicitation, "FIRST_POLL_S", 0.001)
    server = Server(asking("one"), asking("two"), DONE)
    assert await server.call({}, Caller()) is DONE
    assert [dict(one) for one in server.heard] == [
        {},
        {"requestState": "one"},
        {"requestState": "two"},
    ]


async def test_input_requests_are_returned_to_multi_round_clients_and_without_a_relay():
    for relay, rounds in ((Caller(), True), (None, False)):
        result = asking(a=ROOTS)
        params = {"_meta": {"portico/server": "s"}}
        labelled = asking(a={**ROOTS, "params": params})
        assert await Server(result).call({}, relay, is_multi_round=rounds) == labelled


@pytest.mark.parametrize(
    "requests",
    [["roots/list"], {"a": "roots/list"}, {str(n): ROOTS for n in range(MAX_REQUESTS_AT_ONCE + 1)}],
)
async def test_what_cannot_be_asked_is_an_error_and_not_a_wait(requests: Any):
    server = Server({"resultType": "input_required", "inputRequests": requests})
    with pytest.raises(RemoteError, match="server"):
        await server.call({}, Caller())


async def test_one_refused_input_request_cancels_the_others_and_the_call():
    class Choosy(Caller):
        async def request(self, method: str, params: Raw) -> Raw:
            if method == "sampling/createMessage":
                raise RemoteError(-1, "no model here")
            return await super().request(method, params)

    client = Choosy()
    server = Server(asking(a=ROOTS, b={"method": "sampling/createMessage"}))
    with pytest.raises(RemoteError, match="no model here"):
        await server.call({}, client)
    assert len(server.heard) == 1
