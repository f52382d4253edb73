"""A call is made again only where the server was lost and the tool may run twice."""

import pytest

from portico.catalog.tool import make_tool
from portico.errors import BackendBusy, BackendTimeout, BackendUnavailable, PorticoError, RecordedOnly, RemoteError
from portico.execution.retrying import LONGEST_PAUSE_S, RetryRule, again, pause
from portico.upstream.http_refusal import SessionGone

READS = make_tool("s", {"name": "get", "annotations": {"readOnlyHint": True}})
REPEATS = make_tool("s", {"name": "put", "annotations": {"idempotentHint": True}})
WRITES = make_tool("s", {"name": "post", "annotations": {"readOnlyHint": False}})
LOST = BackendUnavailable("lost")


def test_tools_that_may_run_twice_are_asked_again_once():
    for tool in (READS, REPEATS):
        assert again(RetryRule(), tool, LOST, 1)
        assert not again(RetryRule(), tool, LOST, 2)
    assert not again(RetryRule(), WRITES, LOST, 1)
    assert not again(RetryRule(), make_tool("s", {"name": "x", "annotations": {"readOnlyHint": "yes"}}), LOST, 1)


def test_any_tool_is_asked_again_where_the_server_cannot_have_begun():
    gone = SessionGone("no such session", 404)
    assert again(RetryRule(), WRITES, gone, 1)
    assert not again(RetryRule(), WRITES, gone, 2)
    assert not again(RetryRule(times=0), WRITES, gone, 1)


def test_the_configuration_says_which_and_how_often():
    assert again(RetryRule(tools=("po*",)), WRITES, LOST, 1)
    assert again(RetryRule(times=3), READS, LOST, 3)
    assert not again(RetryRule(times=0, tools=("*",)), READS, LOST, 1)


@pytest.mark.parametrize(
    "error", [BackendTimeout("slow"), BackendBusy("full"), RecordedOnly("no"), RemoteError(-32603, "no")], ids=repr
)
def test_an_answer_is_an_answer(error: PorticoError):
    assert not again(RetryRule(times=5), READS, error, 1)


def test_pauses_grow_but_not_without_end():
    pauses = [pause(attempt) for attempt in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
