"""Estimate of the work that validating a value against a JSON Schema takes. Pure.

A validator holds the interpreter's lock until it has finished. A few lines of schema (nested
`anyOf`, shared references, recursion) can apply to one value millions of times, and both schema and
value may come from an attacker. The number of checks is at most the number of values times the
*peak*: the maximum number of subschemas that apply to one of them.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from portico.catalog.schema_types import resolve_pointer
from portico.json_text.json_codec import measure_value

MAX_PEAK = 10_000
"""Limit of counting: a schema with that peak is not used."""
MAX_STEPS = 4_000
"""Maximum number of subschemas counted for one peak."""
MAX_LEVELS = 64
"""Maximum nesting of a value that a recursive schema is followed through."""

_FRACTION_CHECKS = 1_000
"""Cost of a fractional `multipleOf`, in checks: it computes with big rationals."""


class PeakCounter:
    """Counts the maximum number of subschemas that apply to one value."""

    def __init__(self, schema: dict[str, Any], *, patterns_only: bool = False) -> None:
        """Create a counter; `patterns_only` counts regular expressions and formats alone."""
        self._root = schema
        self._patterns_only = patterns_only
        self._counts: dict[tuple[int, int], tuple[int, int] | None] = {}
        self._steps = 0
        self._peaks: dict[int, int] = {}
        """Peaks of a recursive schema by levels, cached because counting may be expensive."""
        self.fixed_peak: int | None = None
        """The peak for values of any depth; None if the schema is recursive."""
        with contextlib.suppress(_RecursiveSchemaError):
            self.fixed_peak = self._count(-1)

    def count_peak(self, levels: int) -> int:
        """Return the peak for values with so many levels; at least MAX_PEAK if it is too high."""
        if self.fixed_peak is not None:
            return self.fixed_peak
        if levels > MAX_LEVELS:
            return MAX_PEAK
        if levels not in self._peaks:
            self._peaks[levels] = self._count(levels)
        return self._peaks[levels]

    def _count(self, levels: int) -> int:
        self._steps = 0
        try:
            return max(self._count_node(self._root, levels))
        except (_TooCostlyError, RecursionError):
            return MAX_PEAK

    def _count_node(self, node: Any, levels: int) -> tuple[int, int]:
        """Count the subschemas that apply to the value itself, and at most to one value in it."""
        if not isinstance(node, dict):
            return (0 if self._patterns_only else 1), 0
        key = (id(node), levels)
        if key in self._counts:
            known = self._counts[key]
            if known is None:
                # Reached again through children it is recursive; in place it never ends.
                raise _RecursiveSchemaError if levels < 0 else _TooCostlyError
            return known
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooCostlyError
        self._counts[key] = None
        try:
            schema = cast("dict[str, Any]", node)
            own_count = self._count_own(schema)
            child_count = 0
            if not _CHILD_KEYWORDS.isdisjoint(schema):
                child_count = self._count_children(schema, levels)
            if not _IN_PLACE_KEYWORDS.isdisjoint(schema):
                for part in _iter_in_place_subschemas(schema, self._root):
                    part_own, part_child = self._count_node(part, levels)
                    own_count += part_own
                    child_count += part_child
            if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
                # These apply the other keywords of their schema again.
                own_count *= 2
                child_count *= 2
        except BaseException:
            del self._counts[key]
            raise
        if max(own_count, child_count) >= MAX_PEAK:
            raise _TooCostlyError
        self._counts[key] = own_count, child_count
        return own_count, child_count

    def _count_own(self, schema: dict[str, Any]) -> int:
        if self._patterns_only:
            names = schema.get("patternProperties")
            matched = ("pattern" in schema) + ("format" in schema)
            return matched + (len(names) if isinstance(names, dict) else 0)
        checks = 1
        if isinstance(names := schema.get("required"), list):
            checks += len(names)
        for key in _REQUIRING_KEYWORDS:
            checks += sum(
                len(names) for names in _get_values(schema.get(key)) if isinstance(names, list)
            )
        if isinstance(properties := schema.get("properties"), dict):
            checks += len(properties) // 8
        for key in _QUOTED_KEYWORDS:
            if key in schema:
                # Errors contain a copy of them; containers in `enum` are compared one by one.
                size = measure_value(schema[key])
                checks += size.values // 8 + size.chars // 1_000
        if isinstance(choices := schema.get("enum"), list):
            checks += sum(
                measure_value(choice).values
                for choice in choices
                if isinstance(choice, dict | list)
            )
        if isinstance(divisor := schema.get("multipleOf"), float) and not divisor.is_integer():
            checks += _FRACTION_CHECKS
        return checks

    def _count_children(self, schema: dict[str, Any], levels: int) -> int:
        if levels == 0:  # a scalar
            return 0

        def count_node_peak(node: Any) -> int:
            return max(self._count_node(node, max(levels - 1, -1)))

        def find_highest_peak(nodes: Any) -> int:
            return max(map(count_node_peak, nodes), default=0)

        def sum_peaks(nodes: Any) -> int:
            return sum(map(count_node_peak, nodes))

        members = max(
            find_highest_peak(_get_values(schema.get("properties"))),
            sum_peaks(schema[key] for key in _OTHER_MEMBERS if key in schema),
        )
        members += sum_peaks(_get_values(schema.get("patternProperties")))
        if "propertyNames" in schema:
            members += count_node_peak(schema["propertyNames"])
        items = max(
            find_highest_peak(_get_items(schema.get("prefixItems"))),
            find_highest_peak(_get_items(schema.get("items"))),
            sum_peaks(schema[key] for key in _OTHER_ITEMS if key in schema),
        )
        if "contains" in schema:
            items += count_node_peak(schema["contains"])
        return max(members, items)


class _RecursiveSchemaError(Exception):
    """A subschema contains itself."""


class _TooCostlyError(Exception):
    """The schema is too expensive to count or to check."""


_OTHER_MEMBERS = ("additionalProperties", "unevaluatedProperties")
_OTHER_ITEMS = ("additionalItems", "unevaluatedItems")
_MEMBERS = ("properties", "patternProperties", "propertyNames", *_OTHER_MEMBERS)
_CHILD_KEYWORDS = frozenset((*_MEMBERS, "prefixItems", "items", "contains", *_OTHER_ITEMS))
_DYNAMIC_REFERENCES = ("$dynamicRef", "$recursiveRef")
_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf")
_SINGLE_KEYWORDS = ("not", "if", "then", "else")
_MAP_KEYWORDS = ("dependentSchemas", "dependencies")
_REQUIRING_KEYWORDS = ("dependentRequired", "dependencies")
_IN_PLACE_KEYWORDS = frozenset(
    ("$ref", "$id", *_DYNAMIC_REFERENCES, *_LIST_KEYWORDS, *_SINGLE_KEYWORDS, *_MAP_KEYWORDS)
)
_QUOTED_KEYWORDS = ("enum", "const", "not")


def _iter_in_place_subschemas(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[Any]:
    """Yield the subschemas that apply to the same value; raises _TooCostlyError if unknown."""
    for key in _LIST_KEYWORDS:
        yield from _get_items(schema.get(key))
    yield from (schema[key] for key in _SINGLE_KEYWORDS if key in schema)
    for key in _MAP_KEYWORDS:
        yield from _get_values(schema.get(key))
    if any(key in schema for key in _DYNAMIC_REFERENCES) or (
        schema is not root and "$id" in schema
    ):
        raise _TooCostlyError  # their target depends on where they are evaluated
    if isinstance(pointer := schema.get("$ref"), str):
        if pointer != "#" and not pointer.startswith("#/"):
            raise _TooCostlyError
        yield resolve_pointer(pointer, root)


def _get_values(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(cast("dict[str, Any]", node).values())
    return []


def _get_items(node: Any) -> list[Any]:
    if isinstance(node, list):
        return cast("list[Any]", node)
    if isinstance(node, dict):
        return [node]
    return []


def find_patterns(schema: Any) -> Iterator[str]:
    """Yield every regular expression of a schema; may yield other strings too."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            known = cast("dict[str, Any]", node)
            if isinstance(pattern := known.get("pattern"), str):
                yield pattern
            if isinstance(names := known.get("patternProperties"), dict):
                yield from cast("dict[str, Any]", names)
            pending += known.values()
        elif isinstance(node, list):
            pending += cast("list[Any]", node)
