"""JSON text of a script is decoded in short steps, and not where it cannot be encoded again."""

import json
from typing import Any

import pytest

from portico.json_text import chunked_decoder
from portico.scripts.sandbox.python import script_io

LARGE = ["x" * 300_000]


@pytest.mark.parametrize(
    "value", [[*LARGE, 2**63, 1e25, 2.5, None], {"a": LARGE, "b": [[]] * 1_000}, [[]] * 150_000]
)
def test_a_large_value_is_read_as_it_is(value: Any):
    assert script_io.parse_json_text(json.dumps(value)) == value


def test_integers_beyond_64_bits_become_floats_in_a_large_value_too():
    text = json.dumps([*LARGE, 10**25, {"a": [-(10**30)]}])
    read = script_io.parse_json_text(text)
    assert [type(read[1]), type(read[2]["a"][0])] == [float, float]


def test_no_step_of_a_large_value_reads_more_than_a_window(monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    loads = chunked_decoder.json_codec.loads

    def record(text: bytes) -> Any:
        read.append(len(text))
        return loads(text)

    monkeypatch.setattr(chunked_decoder.json_codec, "loads", record)
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was read at once"))
    assert len(script_io.parse_json_text("[" + "[]," * 400_000 + "[]]")) == 400_001
    assert read
    assert max(read) <= chunked_decoder.WINDOW_CHARS + 2


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300 + "]" * 300 + " " * 300_000,
        "[" + "[" * 300 + "]" * 300 + ",1" * 200_000 + "]",
        "[" * 300 + "1,1" * 100_000 + "]" * 300,
        "[NaN" + ",1" * 200_000 + "]",
        "[1" * 200_000,
    ],
)
def test_a_large_value_that_cannot_be_encoded_again_is_refused(text: str):
    with pytest.raises(ValueError):
        script_io.parse_json_text(text)
