"""JSON as it is: nothing read or written otherwise than it was said."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.json_text import chunked_decoder, json_codec
from portico.json_text.json_codec import (
    LARGE_CHARS,
    MAX_DEPTH,
    TooDeep,
    encode,
    encode_chunks,
    is_large,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**90)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(values)
def test_what_is_written_is_read_back_the_same(value: Any):
    again = json_codec.loads(json_codec.dumps(value))
    assert again == value
    assert repr(again) == repr(value)


@given(values)
def test_what_the_standard_library_writes_is_read_the_same(value: Any):
    for text in (
        json.dumps(value),
        json.dumps(value, indent=3),
        json.dumps(value, ensure_ascii=False),
    ):
        assert json_codec.loads(text.encode()) == value


@pytest.mark.parametrize("before", range(0, 45, 7))
def test_long_integers_are_exact_wherever_they_stand(before: int):
    for digits in range(15, 45):
        assert_exact(int("9" * digits), before)
        if digits != 19:
            assert_exact(-int("9" * digits), before)


def test_the_shortest_integers_below_64_bits_are_exact():
    assert_exact(-9_999_999_999_999_999_999, 0)
    assert_exact(-(2**63) - 1, 0)


def assert_exact(number: int, before: int) -> None:
    text = b'{"%s":%d}' % (b"k" * before, number)
    read = json_codec.loads(text)["k" * before]
    assert (type(read), read) == (int, number)
    assert json_codec.dumps({"n": number}) == b'{"n":%d}' % number


def test_the_order_of_keys_is_kept():
    assert list(json_codec.loads(b'{"z":1,"a":2,"m":3}')) == ["z", "a", "m"]
    assert json_codec.dumps({"z": 1, "a": 2}) == b'{"z":1,"a":2}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nul",
        b"\xff",
        b"{'a': 1}",
        b"[1,]",
        b"NaN",
        b"1 2",
        b'{"a":99999999999999999999',
    ],
)
def test_what_is_no_json_is_a_value_error(text: bytes):
    with pytest.raises(ValueError, match=r".*"):
        json_codec.loads(text)


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, {"a": object()}, {("a", 1): 2}])
def test_what_json_cannot_say_is_a_type_or_value_error(value: Any):
    with pytest.raises((TypeError, ValueError)):
        json_codec.dumps(value)


def test_characters_beyond_the_basic_plane_pass():
    assert json_codec.loads(json_codec.dumps({"😀": "𒀀"})) == {"😀": "𒀀"}
    assert json_codec.loads(rb'"\ud83d\ude00"') == "😀"


def test_text_that_is_nested_too_deeply_is_a_value_error():
    with pytest.raises(ValueError):
        json_codec.loads(b"[" * 100_000 + b"1" * 30 + b"]" * 100_000)


def test_half_a_surrogate_pair_beside_a_long_number_can_be_sent_on():
    read = json_codec.loads(b'{"text":"\\ud800","n":123456789012345678901234567890}')
    assert read == {"text": "\ufffd", "n": 123456789012345678901234567890}


@given(st.text(st.sampled_from(["a", "\U0001f600", "\ud800", "\ud83d", "\ude00", "\udfff"])))
def test_halves_of_pairs_are_replaced_and_halves_side_by_side_are_joined(text: str):
    wanted = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert json_codec.replace_lone_surrogates(text) == wanted


# --- large values in pieces

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
        b"".join(json_codec.encode_chunks(["\ud800" * LARGE_CHARS], dumps))
        == b'["' + b"\\ud800" * LARGE_CHARS + b'"]'
    )
