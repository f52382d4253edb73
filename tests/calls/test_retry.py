"""A call is made again only where the server was lost and the tool may run twice."""

import pytest

from portico.calls.dispatcher import MAX_BACKOFF_S, compute_backoff, should_retry
from portico.catalog.tool import make_tool
from portico.config.backend import RetryConfig
from portico.errors import (
    BackendBusy,
    BackendTimeout,
    BackendUnavailable,
    PorticoError,
    RecordedOnly,
    RemoteError,
)
from portico.upstream.transports.http_errors import SessionExpired

READS = make_tool("s", {"name": "get", "annotations": {"readOnlyHint": True}})
REPEATS = make_tool("s", {"name": "put", "annotations": {"idempotentHint": True}})
WRITES = make_tool("s", {"name": "post", "annotations": {"readOnlyHint": False}})
LOST = BackendUnavailable("lost")


def test_tools_that_may_run_twice_are_asked_again_once():
    for tool in (READS, REPEATS):
        assert should_retry(RetryConfig(), tool, LOST, 1)
        assert not should_retry(RetryConfig(), tool, LOST, 2)
    assert not should_retry(RetryConfig(), WRITES, LOST, 1)
    assert not should_retry(
        RetryConfig(),
        make_tool("s", {"name": "x", "annotations": {"readOnlyHint": "yes"}}),
        LOST,
        1,
    )


def test_any_tool_is_asked_again_where_the_server_cannot_have_begun():
    gone = SessionExpired("no such session", 404)
    assert should_retry(RetryConfig(), WRITES, gone, 1)
    assert not should_retry(RetryConfig(), WRITES, gone, 2)
    assert not should_retry(RetryConfig(times=0), WRITES, gone, 1)


def test_the_configuration_says_which_and_how_often():
    assert should_retry(RetryConfig(tools=("po*",)), WRITES, LOST, 1)
    assert should_retry(RetryConfig(times=3), READS, LOST, 3)
    assert not should_retry(RetryConfig(times=0, tools=("*",)), READS, LOST, 1)


@pytest.mark.parametrize(
    "error",
    [BackendTimeout("slow"), BackendBusy("full"), RecordedOnly("no"), RemoteError(-32603, "no")],
    ids=repr,
)
def test_an_answer_is_an_answer(error: PorticoError):
    assert not should_retry(RetryConfig(times=5), READS, error, 1)


def test_pauses_grow_but_not_without_end():
    pauses = [compute_backoff(attempt) for attempt in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_BACKOFF_S
