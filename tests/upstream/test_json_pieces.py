"""Large values become JSON in pieces: put together, they say the same, and none is long."""

import json
from typing import Any

import pytest

from portico.json_text import chunked_decoder, chunked_encoder
from portico.json_text.chunked_encoder import (
    LARGE_CHARS,
    MAX_DEPTH,
    TooDeep,
    encode,
    encode_chunks,
    is_large,
)

LONG = "words and " * (LARGE_CHARS // 5)

VALUES: dict[str, Any] = {
    "a text": LONG,
    "umlauts": "ü" * 3 * LARGE_CHARS,
    "line ends": "\n" * 3 * LARGE_CHARS,
    "empty lists": [[]] * LARGE_CHARS,
    "names": {f"name {number}": number for number in range(LARGE_CHARS // 8)},
    "a long name": {LONG: [LONG, {"a": None}]},
    "one large among small": [
        {"id": number, "x": LONG if number == 3_000 else "x"} for number in range(6_000)
    ],
    "numbers beyond 64 bits": [10**30, -(10**19)] * LARGE_CHARS,
    "small": {"a": [1, 2.5, True, None, "text", {}]},
}


@pytest.mark.parametrize("name", VALUES)
def test_the_pieces_together_are_the_value(name: str) -> None:
    pieces = encode_chunks(VALUES[name])
    assert json.loads(b"".join(pieces)) == VALUES[name]
    assert max(map(len, pieces)) < 6 * LARGE_CHARS
    assert all(pieces)


async def test_a_small_value_is_one_piece() -> None:
    assert await encode({"a": [1]}) == [b'{"a":[1]}']
    assert not is_large(VALUES["small"])


async def test_what_was_read_in_windows_is_written_in_pieces() -> None:
    body = b"".join(await encode(VALUES["one large among small"]))
    assert chunked_decoder.decode_chunked(body) == VALUES["one large among small"]


def test_what_is_nested_too_deep_is_refused_before_the_stack_ends() -> None:
    value: Any = LONG
    for _ in range(20 * MAX_DEPTH):
        value = [value, 1]
    with pytest.raises(TooDeep):
        encode_chunks(value)


def test_pieces_are_written_by_the_encoder_that_is_asked_for() -> None:
    def dumps(value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":")).encode()

    assert (
        b"".join(chunked_encoder.encode_chunks(["\ud800" * LARGE_CHARS], dumps))
        == b'["' + b"\\ud800" * LARGE_CHARS + b'"]'
    )
