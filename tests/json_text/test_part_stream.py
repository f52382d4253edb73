"""Large JSON in parts: whatever way it goes, it is the same JSON again."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.json_text import chunked_decoder
from portico.json_text.part_stream import (
    build_value,
    decode_parts,
    dismantle,
    encode_lines,
    estimate_size,
    to_parts,
)
from portico.results.shape import (
    MAX_SAMPLED_CHILDREN,
    SampledList,
    ValueSampler,
    count_children,
)
from tests.results.json_values import VALUES, issues, nested

HEAVY = VALUES.map(lambda value: [value, "x" * 700, {"again": value, "long": ["y" * 300] * 3}])


@given(VALUES | HEAVY)
def test_parts_of_a_value_are_the_value_again(value: Any):
    assert build_value(to_parts(value)) == value


@given(VALUES | HEAVY)
def test_lines_joined_are_the_json_again(value: Any):
    assert json.loads("".join(encode_lines(to_parts(value)))) == value


@given(VALUES | HEAVY, st.sampled_from([None, 1, 3]))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_text_however_it_is_written_is_read_as_the_same_value(value: Any, indent: int | None):
    text = json.dumps(value, indent=indent)
    assert build_value(decode_parts(text)) == value
    assert build_value(decode_parts(f" \n{text}\t")) == value


@pytest.mark.parametrize("window", [1, 7, 64, 1_000])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_that_is_larger_than_what_is_decoded_at_once_is_read_the_same(
    window: int, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
):
    numbers = [1.5, -3e10, True, None, 12345678901234567890123]
    value = {"a": issues(30), "näme 😀": numbers, "deep": nested(22), "e": [[], {}]}
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", window)
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json.dumps(build_value(decode_parts(text)), ensure_ascii=ascii_only) == text
    assert json.loads("".join(encode_lines(decode_parts(text)))) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "[", "{", '["a"', "[1,]", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", "[1 2]", "[1] [2]",
        "nul", "NaN",
     "[NaN]", '"open', "[2026-01-01] INFO started", '{"a":1}\n{"a":2}', "[" * 100_000,
         '{"a":' * 50_000,
     "[1,2" + " " * 9],
)  # fmt: skip
@pytest.mark.parametrize("window", [8, 256 * 1024])
def test_text_that_is_no_json_is_refused(text: str, window: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", window)
    with pytest.raises(ValueError):
        build_value(decode_parts(text))


def test_a_heavy_list_has_a_line_for_each_item():
    told = list(encode_lines(to_parts({"items": issues(100), "total": 100})))
    assert told[0] == "{\n"
    assert told[1] == ' "items": [\n'
    assert json.loads(told[2].rstrip(",\n")) == issues(1)[0]
    assert len(told) == 100 + 5


def test_a_value_of_any_depth_is_written():
    assert json.loads("".join(encode_lines(to_parts(nested(300))))) == nested(300)
    assert "".join(encode_lines(to_parts(nested(20_000)))).count("[") == 10_000


@given(VALUES)
def test_a_weight_is_near_the_length(value: Any):
    exact = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert estimate_size(value, 10**9) <= exact * 6 + 10
    assert estimate_size(value, 10**9) >= exact / 12 - 10


def test_a_size_estimate_stops_at_its_limit():
    class Counted(list[Any]):
        looked = 0

        def __iter__(self) -> Any:
            type(self).looked += 1
            return super().__iter__()

    many = Counted([1] * 1_000_000)
    assert estimate_size(many, 1_000) >= 1_000
    assert Counted.looked == 0


def sampled(value: Any) -> Any:
    sampler = ValueSampler()
    assert build_value(sampler.watch(to_parts(value))) == value
    return sampler.value


@given(VALUES | HEAVY)
def test_a_sample_of_what_is_not_long_is_all_of_it(value: Any):
    assert sampled(value) == value


def test_a_sample_of_what_is_long_has_the_first_of_it_and_the_count():
    found = sampled({"rows": issues(5_000), "by id": {str(n): n for n in range(700)}})
    assert found["rows"] == issues(MAX_SAMPLED_CHILDREN)
    assert count_children(found["rows"]) == 5_000
    assert isinstance(found["rows"], SampledList)
    assert (len(found["by id"]), count_children(found["by id"])) == (MAX_SAMPLED_CHILDREN, 700)


def test_shared_values_are_not_dismantled():
    row = [[1], [2]]
    wide = {str(number): [number] for number in range(10_000)}
    values: list[Any] = [{"rows": [row], "alone": [[3]]}, wide]
    dismantle(values, shared=False)
    assert values == []
    assert row == [[1], [2]]
    assert len(wide) == 10_000


def test_the_weight_of_very_many_is_that_of_each():
    some: list[Any] = [[1, 2], {"name": "value", "other": [[], 3]}, "text", []]
    each = estimate_size(some, 2**40) - estimate_size([], 2**40)
    many = some * 20_000
    assert estimate_size(many, 2**40) == estimate_size([], 2**40) + 20_000 * each
    assert (
        estimate_size({f"k{number}": one for number, one in enumerate(many)}, 2**40) > 20_000 * each
    )
    assert estimate_size(many, 200_000) >= 200_000


def test_a_value_is_taken_apart_to_the_last():
    value = {"rows": issues(10_000), "deep": nested(2_000)}
    rows = value["rows"]
    dismantle([value])
    assert value == {}
    assert rows == []
