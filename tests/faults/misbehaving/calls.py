"""Scripts that strike in the middle of a call: death, silence, noise, floods, and requests of the
server's own."""

from __future__ import annotations

from tests.faults.misbehaving.steps import (
    LIMIT,
    die,
    encode,
    freeze,
    hang,
    kill,
    line,
    notice,
    raw,
    say,
    stderr,
    strikes,
    text,
    wait,
)  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.faults.misbehaving.steps import Step, Strike

STDERR_FLOOD = 100 * 1024 * 1024
STORM = 10_000


@strikes("call")
def dies_in_a_call(strike: Strike) -> Iterator[Step]:
    yield stderr(b"panic: index out of range\n")
    yield die(4)


@strikes("call")
def killed_in_a_call(strike: Strike) -> Iterator[Step]:
    yield kill()


@strikes("call")
def dies_after_an_answer(strike: Strike) -> Iterator[Step]:
    yield say(strike.answer)
    yield die(0)


@strikes("call")
def dies_in_an_answer(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.answer)[:-10])
    yield die(9)


@strikes("call")
def hangs_in_a_call(strike: Strike) -> Iterator[Step]:
    yield hang()


@strikes("call")
def freezes_in_a_call(strike: Strike) -> Iterator[Step]:
    yield freeze()


@strikes("call")
def half_an_answer(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.answer)[:-10])
    yield freeze()


# noise


@strikes("call")
def text_between_answers(strike: Strike) -> Iterator[Step]:
    for data in (
        b"DEBUG handling tools/call",
        b"",
        b"   ",
        b"\x1b[31mwarning\x1b[0m",
        b"{oops",
        b'{"jsonrpc": "2.0"',
    ):
        yield line(data)
    yield say(strike.answer)


@strikes("call")
def binary_between_answers(strike: Strike) -> Iterator[Step]:
    yield line(bytes(number for number in range(256) if number not in b"\r\n") * 16)
    yield say(strike.answer)


@strikes("call")
def json_that_is_no_jsonrpc(strike: Strike) -> Iterator[Step]:
    odd = ({"level": "info"}, {"jsonrpc": "2.0"}, {"id": strike.id}, {"result": {}}, {"error": {}})
    for message in odd:
        yield say(message)
    yield say(strike.answer)


@strikes("call")
def json_that_is_no_object(strike: Strike) -> Iterator[Step]:
    for data in (b"42", b"null", b'"text"', b"[]", b"[[[]]]", b"[1, 2]"):
        yield line(data)
    yield say(strike.answer)


@strikes("call")
def only_garbage(strike: Strike) -> Iterator[Step]:
    yield line(b"Segmentation fault (core dumped)")
    yield hang()


# size and pace


@strikes("call")
def answer_over_the_limit(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying(text("x" * (LIMIT + 1))))


@strikes("call")
def answer_far_over_the_limit(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.saying(text("")))[:-5])
    for _ in range(32):
        yield raw(b"x" * LIMIT)
    yield line(b'"}]}}')


@strikes("call")
def answer_just_under_the_limit(strike: Strike) -> Iterator[Step]:
    nonce: str = strike.result["content"][0]["text"]
    yield say(strike.saying(text(nonce + " " + "x" * (LIMIT - 1_000))))


@strikes("call")
def line_without_end(strike: Strike) -> Iterator[Step]:
    for _ in range(16):
        yield raw(b"x" * LIMIT)
    yield hang()


@strikes("call")
def error_over_the_limit(strike: Strike) -> Iterator[Step]:
    yield say(strike.refusing(-32000, "x" * (LIMIT + 1)))


@strikes("call")
def huge_error(strike: Strike) -> Iterator[Step]:
    yield say(strike.refusing(-32000, "x" * (LIMIT // 2), data=["y" * (LIMIT // 4)]))


@strikes("call")
def drips(strike: Strike) -> Iterator[Step]:
    data = encode(strike.answer)
    for place in range(len(data) - 1):
        yield raw(data[place : place + 1]) if strike.wire == "stdio" else wait(0)
        yield wait(0.002)
    yield line(data[-1:] if strike.wire == "stdio" else data)


@strikes("call")
def drips_for_ever(strike: Strike) -> Iterator[Step]:
    yield raw(b'{"jsonrpc": "2.0", "result": "')
    for _ in range(60):
        yield raw(b"x")
        yield wait(0.05)
    yield line(b'"}')
    yield hang()


@strikes("call")
def stderr_flood(strike: Strike) -> Iterator[Step]:
    yield stderr((b"error: " + b"x" * 92 + b"\n") * 1_000, STDERR_FLOOD // 100_000)
    yield say(strike.answer)


@strikes("call")
def stderr_without_lines(strike: Strike) -> Iterator[Step]:
    yield stderr(b"x" * 65_536, 200)
    yield say(strike.answer)


# floods of what is allowed


@strikes("call")
def list_changed_storm(strike: Strike) -> Iterator[Step]:
    for _ in range(STORM):
        yield say(notice("tools/list_changed", {}))
    yield say(strike.answer)


@strikes("call")
def progress_flood(strike: Strike) -> Iterator[Step]:
    for number in range(STORM):
        yield say(notice("progress", {"progressToken": strike.token, "progress": number}))
    yield say(strike.answer)


@strikes("call")
def log_flood(strike: Strike) -> Iterator[Step]:
    for number in range(STORM):
        yield say(notice("message", {"level": "info", "data": f"line {number}"}))
    yield say(strike.answer)


@strikes("call")
def odd_notifications(strike: Strike) -> Iterator[Step]:
    odd: tuple[Any, ...] = (
        None,
        7,
        "text",
        [],
        [None],
        {},
        {"progressToken": None},
        {"progressToken": [1]},
        {"uri": 7},
    )
    for method in (
        "progress",
        "message",
        "cancelled",
        "resources/updated",
        "tools/list_changed",
        "nobody/knows",
    ):
        for params in odd:
            yield say(notice(method, params))
    for token in ("nobody", -1, 10**30, True, {}, "1" * 1_000):
        yield say(notice("progress", {"progressToken": token, "progress": 1}))
    for progress in (None, "half", [], -1, 1e308):
        yield say(
            notice(
                "progress", {"progressToken": strike.token, "progress": progress, "total": "all"}
            )
        )
    for method in (None, 7, "", [], {"a": 1}, "x" * 1_000):
        yield say({"jsonrpc": "2.0", "method": method})
    yield say(strike.answer)


# requests of the server's own


def _asking(strike: Strike, count: int) -> Iterator[Step]:
    for number in range(count):
        yield say({"jsonrpc": "2.0", "id": f"roots-{number}", "method": "roots/list"})
    yield say(strike.answer)


@strikes("call")
def thirty_roots(strike: Strike) -> Iterator[Step]:
    yield from _asking(strike, 30)


@strikes("call")
def ten_thousand_roots(strike: Strike) -> Iterator[Step]:
    yield from _asking(strike, STORM)


@strikes("call")
def odd_requests(strike: Strike) -> Iterator[Step]:
    ids: tuple[Any, ...] = ("a", 7, 1.5, True, [], {}, "x" * 10_000, 10**30, -1, strike.id)
    for id in ids:
        for method in (
            "ping",
            "log",
            "sampling/createMessage",
            "elicitation/create",
            "tools/call",
            7,
            None,
        ):
            yield say({"jsonrpc": "2.0", "id": id, "method": method, "params": [id]})
    yield say(strike.answer)
