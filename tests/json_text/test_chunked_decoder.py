"""Large JSON in windows reads as it would in one piece."""

import json
import random
from typing import Any

import pytest

from portico.json_text import chunked_decoder, json_codec

LETTERS = ["a", '"', "\\", "\n", "😀", "é", "\u2028", "/", "\x01"]
LENGTHS = [0, 3, 60, 61, 62, 63, 64, 65, 66, 130, 200]


def value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.random()
    if depth > 4 or kind < 0.4:
        return "".join(dice.choice(LETTERS) for _ in range(dice.choice(LENGTHS)))
    if kind < 0.5:
        return dice.choice([1, -2, 3.5, 1e300, 1e-7, 10**25, None, True, False])
    if kind < 0.75:
        return [value(dice, depth + 1) for _ in range(dice.randrange(5))]
    return {value(dice, 9)[:20]: value(dice, depth + 1) for _ in range(dice.randrange(5))}


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_values_cut_anywhere_are_read_as_they_are(
    monkeypatch: pytest.MonkeyPatch, ascii_only: bool, indent: int | None
) -> None:
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", 64)
    dice = random.Random(5)
    for _ in range(500):
        wanted = value(dice)
        text = json.dumps(wanted, ensure_ascii=ascii_only, indent=indent)
        assert chunked_decoder.decode_chunked(text.encode()) == wanted, text


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 1_000])
def test_white_space_longer_than_a_window_is_skipped(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", 64)
    space = " \n" * size
    text = f'{space}{{{space}"a"{space}:{space}[{space}1{space},{space}2{space}]{space}}}{space}'
    assert chunked_decoder.decode_chunked(text.encode()) == {"a": [1, 2]}


@pytest.mark.parametrize("size", range(50, 70))
def test_half_of_a_pair_is_replaced_and_a_pair_is_kept_wherever_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", 64)
    text = f'["{"a" * size}\\ud83d\\ud83d\\ude00{"x" * 100}"]'
    assert chunked_decoder.decode_chunked(text.encode()) == ["a" * size + "\ufffd😀" + "x" * 100]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100,
        " " * 200 + "x" * 100,
        '"' + "a" * 100,
        '["' + "a" * 100 + '\\"]',
        '"' + "a" * 100 + '\\u12"',
        '"' + "a" * 100 + '\n"',
        "[1," + " " * 100 + "]",
        "[" * 5_000,
        "[NaN, " + "1, " * 100 + "1]",
        "",
        "[1] [2]" + " " * 100,
    ],
)
def test_what_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", 64)
    with pytest.raises(ValueError):
        chunked_decoder.decode_chunked(text.encode())


def test_a_number_longer_than_the_limit_is_refused_unread() -> None:
    text = b'{"x":0.' + b"1" * chunked_decoder.MAX_NUMBER_CHARS + b"}"
    with pytest.raises(ValueError, match="a number has more than"):
        chunked_decoder.decode_chunked(text)


@pytest.mark.parametrize(
    "wanted",
    [
        [{"n": n, "in": {"n": n, "more": [{"n": n}]}, "say": "}, {"} for n in range(20_000)],
        {f"key {n}": {"a": [n, n / 3], "b": "x"} for n in range(20_000)},
        ['text, with "marks"' * (n % 5) for n in range(50_000)],
        [n * 10**17 for n in range(50_000)],
        [[n, [n]] if n % 2 else {"n": n} for n in range(50_000)],
        [{"n": n, "items": [{"a": i, "b": "x]},"} for i in range(4_000)]} for n in range(10)],
    ],
    ids=["rows", "map", "texts", "long numbers", "mixed", "items larger than a window"],
)
async def test_many_alike_are_read_in_runs_and_none_is_lost(wanted: Any) -> None:
    body = json_codec.dumps(wanted)
    assert len(body) > chunked_decoder.LARGE_BYTES
    assert await chunked_decoder.decode(body) == wanted
