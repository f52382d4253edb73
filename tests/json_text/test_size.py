"""The JSON values of a request are counted, not decoded: never too few of them, and none that stand
in a text."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from portico.json_text.json_codec import has_more_values

TEXTS = st.text(st.sampled_from('a,[{"\\]}:\u00e9'))
JSON = st.recursive(
    st.one_of(st.none(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXTS, inner, max_size=5)),
    max_leaves=30,
)


def count_values(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count_values, value.values()))
    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


@settings(max_examples=500, deadline=None, derandomize=True)
@given(value=JSON, most=st.integers(1, 40), escaped=st.booleans())
def test_the_count_is_of_values_alone(value: Any, most: int, escaped: bool):
    body = json.dumps(value, ensure_ascii=escaped).encode()
    values = count_values(value)
    if has_more_values(body, most):
        assert 2 * values > most
    else:
        assert values <= most + 1


def test_punctuation_in_a_long_text_is_no_value():
    assert not has_more_values(json.dumps({"csv": "a,b,[c],{d}\n" * 100_000}).encode(), 100)
    assert not has_more_values(json.dumps({"code": 'x = ["\\", "a,b"]\n' * 100_000}).encode(), 100)


def test_a_million_empty_values_are_too_many():
    for one in (b"[]", b"{}", b'""', b"0"):
        assert has_more_values(b"[" + b",".join([one] * 1_000_000) + b"]", 25_000)
