"""The work of checking a value is counted before it is done, and the count is never too low."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.schema_cost import MAX_PEAK, PeakCounter
from portico.json_text.json_codec import measure_value


def peak(schema: dict[str, Any], levels: int = 3) -> int:
    return PeakCounter(schema).count_peak(levels)


def shared_branches(depth: int) -> dict[str, Any]:
    """Two references to one definition on each of so many levels: no circle, and 2^depth ways
    through it."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, depth + 1):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [{"items": below}, {"items": below, "maxItems": 5}]}
    return {"$defs": definitions, "$ref": f"#/$defs/d{depth}"}


RECURSIVE: dict[str, Any] = {
    "anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "maxItems": 5}]
}
TREE: dict[str, Any] = {
    "properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}
}


def test_an_ordinary_object_applies_few_subschemas_to_each_value():
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(7)}}
    assert peak(schema) == 1


def test_branches_that_apply_to_the_same_value_add_up():
    assert peak({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 0) == 3


def test_shared_references_are_counted_once_for_each_way_to_them():
    assert peak(shared_branches(4)) >= 2**4
    assert peak(shared_branches(40)) >= MAX_PEAK


def test_a_recursive_schema_costs_by_the_levels_of_the_value():
    counter = PeakCounter(RECURSIVE)
    counts = [counter.count_peak(levels) for levels in (1, 2, 3, 4)]
    assert counts == sorted(counts)
    assert counts[-1] >= 2**4
    assert counter.count_peak(60) >= MAX_PEAK


class ReadSchema(dict[str, Any]):
    """A schema that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Iterator[str]:
        ReadSchema.reads += 1
        return super().__iter__()


def test_a_schema_that_is_too_much_to_count_is_counted_once_for_each_depth():
    below = {"$ref": "#"}
    counter = PeakCounter(
        ReadSchema({"anyOf": [ReadSchema({"items": below}), ReadSchema({"items": below})]})
    )
    assert counter.count_peak(60) >= MAX_PEAK
    reads = ReadSchema.reads
    assert reads
    assert counter.count_peak(60) >= MAX_PEAK
    assert ReadSchema.reads == reads


def test_recursion_without_branches_stays_cheap_however_deep():
    assert peak(TREE, 50) < 5


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
        {"$dynamicRef": "#a"},
        {"properties": {"a": {"$ref": "#anchor"}}},
        {"properties": {"a": {"$id": "other", "$ref": "#/properties/a"}}},
    ],
    ids=["itself", "itself in place", "dynamic", "anchor", "another base"],
)
def test_what_cannot_be_followed_counts_as_too_much(schema: dict[str, Any]):
    assert peak(schema) >= MAX_PEAK


@pytest.mark.parametrize(
    ("schema", "least"),
    [
        ({"enum": [[n] for n in range(500)]}, 500),
        ({"required": [str(n) for n in range(300)]}, 300),
        ({"multipleOf": 0.1}, 1_000),
        ({"not": {"enum": ["x" * 100_000]}}, 100),
        ({"unevaluatedProperties": False, "allOf": [{}] * 50}, 100),
    ],
    ids=[
        "compared one by one",
        "looked up one by one",
        "fractions",
        "copied into an error",
        "applied twice",
    ],
)
def test_keywords_that_take_longer_count_for_more(schema: dict[str, Any], least: int):
    assert peak(schema) >= least


def test_a_value_is_measured_without_walking_more_of_it_than_asked_for():
    assert measure_value([0] * 1_000_000, 100).values > 100
    size = measure_value({"ab": ["xyz", [1]], "c": None})
    assert (size.values, size.chars, size.levels) == (6, 6, 3)
    assert measure_value(10**4000).values > 10_000


class Evaluation:
    """Applies a schema as a validator without shortcuts would, and counts how often each value is
    checked."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.checks: dict[tuple[str, ...], int] = {}

    def apply(self, schema: Any, value: Any, path: tuple[str, ...] = ()) -> None:
        self.checks[path] = self.checks.get(path, 0) + 1
        if not isinstance(schema, dict):
            return
        for part in schema.get("anyOf", []):
            self.apply(part, value, path)
        if "$ref" in schema:
            self.apply(self.root["$defs"][schema["$ref"].rpartition("/")[2]], value, path)
        if isinstance(value, list) and "items" in schema:
            for number, item in enumerate(value):
                self.apply(schema["items"], item, (*path, str(number)))
        if isinstance(value, dict):
            for name, member in value.items():
                if name in schema.get("properties", {}):
                    self.apply(schema["properties"][name], member, (*path, name))


NAMES = st.sampled_from("ab")
SCHEMAS = st.recursive(
    st.one_of(st.just({}), st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, NAMES)),
    lambda inner: st.one_of(
        st.builds(lambda items: {"items": items}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda members: {"properties": members}, st.dictionaries(NAMES, inner, max_size=2)
        ),
    ),
    max_leaves=6,
)
VALUES = st.recursive(
    st.just(0),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner)),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(schema=SCHEMAS, a=SCHEMAS, b=SCHEMAS, value=VALUES)
def test_no_value_is_checked_more_often_than_was_counted(schema: Any, a: Any, b: Any, value: Any):
    root = {"$defs": {"a": a, "b": b}, "allOf": []} | schema
    counted = PeakCounter(root).count_peak(measure_value(value).levels)
    if counted >= MAX_PEAK:
        return  # such a schema is not used
    evaluation = Evaluation(root)
    evaluation.apply(root, value)
    assert max(evaluation.checks.values()) <= counted
