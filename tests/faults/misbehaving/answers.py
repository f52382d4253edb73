"""Scripts that answer a call, but not as they should: wrong ids, too many answers, results of wrong
types."""

from __future__ import annotations

from tests.faults.misbehaving.steps import Message, encode, hang, line, say, strikes, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.faults.misbehaving.steps import Script, Step, Strike

STALE = "somebody else's answer"

_IDS: dict[str, Any] = {
    "id_as_fraction": float,
    "id_of_another": lambda id: id + 1_000,
    "id_null": lambda id: None,
    "id_list": lambda id: [id],
    "id_object": lambda id: {"id": id},
    "id_true": lambda id: True,
    "id_huge": lambda id: 10**40,
}


def _with_id(change: Any) -> Script:
    def script(strike: Strike) -> Iterator[Step]:
        yield say({**strike.answer, "id": change(strike.id)})
        yield hang()

    return script


for _name, _change in _IDS.items():
    strikes("call", _name)(_with_id(_change))


@strikes("call")
def id_as_text(strike: Strike) -> Iterator[Step]:
    # It is understood; to hang as well would hold up the next call on the same connection.
    yield say({**strike.answer, "id": str(strike.id)})


@strikes("call")
def answers_twice(strike: Strike) -> Iterator[Step]:
    yield say(strike.answer)
    yield say(strike.saying(text(STALE)))
    yield say(strike.refusing(text=STALE))


@strikes("call")
def answers_to_nobody(strike: Strike) -> Iterator[Step]:
    # Also those that have been given up, and those that will be asked next.
    for away in range(1, 100):
        yield say(strike.saying(text(STALE), id=strike.number - away))
        yield say(strike.saying(text(STALE), id=strike.number + away))
    yield say(strike.answer)


@strikes("call")
def answer_and_error_in_one(strike: Strike) -> Iterator[Step]:
    yield say({**strike.answer, **strike.refusing()})


@strikes("call")
def answer_in_a_batch(strike: Strike) -> Iterator[Step]:
    yield say(
        [{"jsonrpc": "2.0", "id": 999_999, "result": {}}, strike.answer, strike.saying(text(STALE))]
    )


_RESULTS: dict[str, Any] = {
    "result_null": None,
    "result_text": "done",
    "result_list": [1, 2],
    "result_number": 7,
    "result_empty": {},
    "content_null": {"content": None},
    "content_text": {"content": "done"},
    "content_empty": {"content": []},
    "content_of_wrong_types": {
        "content": [
            None,
            7,
            "x",
            [],
            {},
            {"type": None},
            {"type": "text"},
            {"type": "text", "text": 7},
            {"type": "image", "data": 5},
            {"type": "resource", "resource": None},
            {"type": "unheard-of"},
        ],
    },
    "structured_of_wrong_type": {
        "content": [{"type": "text", "text": "x"}],
        "structuredContent": [1],
    },
    "is_error_without_text": {"isError": True},
    "is_error_with_nothing": {"isError": True, "content": []},
    "is_error_of_wrong_type": {"isError": "yes", "content": [{"type": "text", "text": "x"}]},
    "meta_of_wrong_type": {"content": [{"type": "text", "text": "x"}], "_meta": 7},
    "asks_for_nothing": {"resultType": "input_required"},
    "unknown_result_type": {"resultType": "teapot", "content": [{"type": "text", "text": "x"}]},
}


def _with_result(result: Any) -> Script:
    def script(strike: Strike) -> Iterator[Step]:
        yield say(strike.saying(result))

    return script


for _name, _result in _RESULTS.items():
    strikes("call", _name)(_with_result(_result))

_ERRORS: dict[str, Any] = {
    "error_text": "no",
    "error_null": None,
    "error_empty": {},
    "error_of_wrong_types": {"code": "E1", "message": {"text": "no"}, "data": [None]},
    "error_huge_code": {"code": 10**30, "message": "no"},
    "error_fraction_code": {"code": 1.5, "message": "no"},
    "error_true_code": {"code": True, "message": "no"},
}


def _with_error(error: Any) -> Script:
    def script(strike: Strike) -> Iterator[Step]:
        answer: Message = {"jsonrpc": "2.0", "id": strike.id, "error": error}
        yield say(answer)

    return script


for _name, _error in _ERRORS.items():
    strikes("call", _name)(_with_error(_error))


def _with_json(value: bytes) -> Script:
    def script(strike: Strike) -> Iterator[Step]:
        yield line(
            encode(strike.saying({"content": [], "structuredContent": {"a": 0}})).replace(
                b"0}", value + b"}"
            )
        )

    return script


for _name, _value in {
    "json_too_deep": b"[" * 100_000 + b"]" * 100_000,
    "json_deep": b"[" * 900 + b"]" * 900,
    "json_huge_number": b"9" * 5_000,
    "json_nan": b"NaN",
    "json_half_a_surrogate": b'"\\ud800"',
    "json_not_utf8": b'"\xff\xfe"',
    "json_same_key_twice": b'1, "a": 2',
}.items():
    strikes("call", _name)(_with_json(_value))
