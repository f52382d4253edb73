"""The soak, small: its books tell what cannot be accounted for, and a short run on a real gateway
loses nothing."""

import asyncio
import math
import random
from typing import Any

import pytest
from benchmarks.soak_account import (
    CROSSED,
    ERROR,
    HUNG,
    LEFT,
    LOST,
    OK,
    Asked,
    Books,
    Fault,
    judge,
    outcome,
    trend,
)
from benchmarks.soak_clients import Client
from benchmarks.soak_transports import Lost, Message

RUN_S = 110.0
MINE, OTHERS = "~0123456789abcdef~", "~fedcba9876543210~"


def make_request(
    outcome: str,
    sent: float = 10.0,
    ended: float = 11.0,
    kind: str = "unavailable",
    wants: str = OK,
) -> Asked:
    needs = frozenset({"main", "main/b01", "client 1"})
    return Asked("client 1", "echo", needs, frozenset({MINE}), sent, wants, ended, outcome, kind)


def text(said: str, **more: object) -> dict[str, object]:
    return {"result": {"content": [{"type": "text", "text": said}], **more}}


def classify(message: dict[str, object], *, failing: bool = False) -> str:
    return outcome(message, frozenset({MINE}), [MINE, "b01"], failing=failing)[0]


def test_an_answer_is_right_with_its_own_nonce_and_server_only() -> None:
    assert classify(text(f"{MINE} b01")) == OK
    assert classify(text(f"{OTHERS} b01")) == CROSSED
    assert classify(text(f"{MINE} {OTHERS} b01")) == CROSSED
    assert classify(text(f"{MINE} b02")) == CROSSED
    assert classify(text("b01")) == CROSSED


def test_an_error_is_no_answer_of_somebody_elses_either() -> None:
    assert classify(text(f"failed: {MINE}", isError=True)) == ERROR
    assert classify(text(f"failed: {OTHERS}", isError=True)) == CROSSED
    assert classify(text(f"{MINE} b01"), failing=True) == CROSSED, (
        "a call that cannot succeed has somebody else's answer"
    )


@pytest.mark.parametrize("hits", ["main/b01", "main", "client 1"])
def test_an_error_is_explained_by_a_fault_on_what_it_needed_while_it_needed_it(hits: str) -> None:
    fault = Fault("killed", frozenset({hits}), 10.5, 12.0)
    assert judge(Books([make_request(ERROR)], [fault])).unexplained == []
    assert judge(Books([make_request(ERROR, sent=11.0, ended=11.5)], [fault])).explained[
        "killed"
    ] == (
        1,
        0,
        1,
    )
    assert judge(Books([make_request(ERROR)], [fault])).explained["killed"] == (1, 1, 0)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("killed", frozenset({"main/b02"}), 10.5, 12.0),
        Fault("killed", frozenset({"main/b01"}), 11.5, 12.0),
        Fault("killed", frozenset({"main/b01"}), 8.0, 9.0),
        Fault("(reloaded)", frozenset(), 10.5, 12.0),
    ],
)
def test_no_other_fault_explains_it(fault: Fault) -> None:
    assert len(judge(Books([make_request(ERROR)], [fault])).unexplained) == 1


def test_an_error_of_the_gateway_itself_is_never_explained() -> None:
    fault = Fault("killed", frozenset({"main/b01"}), 10.5, 12.0)
    assert len(judge(Books([make_request(ERROR, kind="internal")], [fault])).unexplained) == 1


def test_what_is_crossed_lost_hung_or_open_is_bad_whatever_was_done_to_its_server() -> None:
    fault = Fault("killed", frozenset({"main/b01"}), 10.5, 12.0)
    all_ = [
        make_request(CROSSED),
        make_request(LOST),
        make_request(HUNG),
        make_request("", ended=math.inf),
    ]
    assert judge(Books(all_, [fault])).bad == all_


def test_a_client_that_was_killed_has_lost_nothing() -> None:
    fault = Fault("killed", frozenset({"client 1"}), 10.5, 12.0)
    assert judge(Books([make_request(LOST)], [fault])).bad == []


def test_a_line_through_samples_tells_growth_from_noise() -> None:
    seconds = [float(second) for second in range(120)]
    grown = trend("grown", seconds, [100 + second / 60 * 5 for second in seconds])
    noisy = trend("noisy", seconds, [100 + (second % 7) for second in seconds])
    assert grown.per_minute == pytest.approx(5)
    assert grown.doubt < 0.1
    assert abs(noisy.per_minute) < noisy.doubt


class NeverOpens:
    """A transport whose opening is never answered."""

    def __init__(self) -> None:
        self.is_opening = asyncio.Event()

    async def open(self) -> None:
        self.is_opening.set()
        await asyncio.Event().wait()

    async def ask(self, method: str, params: dict[str, Any], *, slow: bool = False) -> Message:
        raise Lost(method)

    async def close(self) -> None:
        pass


async def test_a_client_that_is_killed_while_it_opens_a_session_has_left_and_not_hung() -> None:
    books, transport = Books(), NeverOpens()
    client = Client("client 1", "main", lambda: transport, [], books, random.Random(1), rate=1.0)
    opening = asyncio.create_task(client.open())
    await transport.is_opening.wait()
    opening.cancel()
    await asyncio.wait({opening})
    assert [one.outcome for one in books.asked] == [LEFT]
    assert not judge(books).bad
