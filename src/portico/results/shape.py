"""The structure of a value: types, sizes, and one sample of each array; of several values, what
they have in common.

Pure, and bounded whatever the value: so many nodes are looked at, and the text fits its tokens by
telling less of what lies deep and wide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from portico.catalog.visible_text import sanitize_text, to_literal
from portico.results.value_sample import count_children

CountTokens = Callable[[str], int]

MAX_NODES = 3_000
MAX_DEPTH = 12
MAX_FIELDS = 60
MIN_MAP_FIELDS = 25
"""Fields from which an object whose values are alike is taken for a map: its keys are data, not
names."""
SAMPLE_CHARS = 120
_ITEMS_BY_DEPTH = (20, 8, 4, 2)
"""Items of an array that are looked at, by depth."""
_DETAIL_LEVELS = ((8, 40), (6, 24), (5, 16), (4, 12), (3, 8), (2, 6), (2, 3), (1, 2), (0, 0))
"""Depth and fields that a text tells of, from all to next to nothing."""

Range = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """What is known of the values at one place."""

    seen_count: int = 1
    scalars: frozenset[str] = frozenset()
    """`null`, `boolean`, `integer`, `number`, `string`; `…` for what was not looked at."""
    chars: Range | None = None
    fields: Mapping[str, "Shape"] | None = None
    object_count: int = 0
    """How many of the values had fields; a field that was seen less often is optional."""
    items: "Shape | None" = None
    length: Range | None = None
    """How many items, where an array was seen."""
    keys: Range | None = None
    """How many keys, where a map was seen; `values` is then what they lead to."""
    values: "Shape | None" = None
    sample_key: str = ""
    """One key of the map."""
    sample: str = field(default="", compare=False)
    """The first item of an array, as JSON, clipped."""


def infer_shape(value: Any) -> Shape:
    """The shape of one value."""
    return _ShapeBuilder().build(value, 0)


class _ShapeBuilder:
    def __init__(self) -> None:
        self._left = MAX_NODES

    def build(self, value: Any, depth: int) -> Shape:
        self._left -= 1
        if isinstance(value, dict | list) and (self._left <= 0 or depth >= MAX_DEPTH):
            return Shape(scalars=frozenset({"…"}))
        if isinstance(value, dict):
            return self._build_object(value, depth)
        if isinstance(value, list):
            return self._build_array(value, depth)
        if isinstance(value, str):
            return Shape(scalars=frozenset({"string"}), chars=(len(value), len(value)))
        return Shape(scalars=frozenset({_get_scalar_type(value)}))

    def _build_array(self, value: list[Any], depth: int) -> Shape:
        looked = _ITEMS_BY_DEPTH[min(depth, len(_ITEMS_BY_DEPTH) - 1)]
        size = count_children(value)
        if len(value) <= looked:
            some = value
        else:
            some = [*value[: looked - looked // 4], *value[-(looked // 4) :]]
        items = [self.build(item, depth + 1) for item in some]
        if value:
            sample = _render_sample(value[0])
        else:
            sample = ""
        return Shape(
            items=reduce(merge_shapes, items) if items else None, length=(size, size), sample=sample
        )

    def _build_object(self, value: dict[str, Any], depth: int) -> Shape:
        names = [name for name, _ in zip(value, range(MAX_FIELDS), strict=False)]
        found = {name: self.build(value[name], depth + 1) for name in names}
        if (
            count_children(value) >= MIN_MAP_FIELDS
            and len({_get_kind(shape) for shape in found.values()}) == 1
        ):
            size = count_children(value)
            return Shape(
                keys=(size, size), values=reduce(merge_shapes, found.values()), sample_key=names[0]
            )
        if count_children(value) > len(names):
            found["…"] = Shape(scalars=frozenset({"…"}))
        return Shape(fields=found, object_count=1)


def _get_kind(shape: Shape) -> object:
    """Two values of one kind could be values of one map."""
    if shape.fields is not None:
        return tuple(sorted(shape.fields))
    if shape.keys is not None:
        return "map"
    if shape.length is not None:
        return "array"
    if shape.scalars <= {"integer", "number"}:
        return "number"
    return shape.scalars


def merge_shapes(one: Shape, other: Shape) -> Shape:
    """What holds for the values of both."""
    first = _convert_to_map(one, other)
    second = _convert_to_map(other, one)
    if second.fields is None:
        fields = first.fields
    else:
        fields = second.fields
    if first.fields is not None and second.fields is not None:
        fields = {
            name: _merge_or_empty(first.fields.get(name), second.fields.get(name))
            for name in [
                *first.fields,
                *(name for name in second.fields if name not in first.fields),
            ][:MAX_FIELDS]
        }
    return Shape(
        seen_count=one.seen_count + other.seen_count,
        scalars=one.scalars | other.scalars,
        chars=_merge_ranges(one.chars, other.chars),
        fields=fields,
        object_count=first.object_count + second.object_count,
        items=_merge_optional(first.items, second.items),
        length=_merge_ranges(first.length, second.length),
        keys=_merge_ranges(first.keys, second.keys),
        values=_merge_optional(first.values, second.values),
        sample_key=first.sample_key or second.sample_key,
        sample=one.sample or other.sample,
    )


def _convert_to_map(one: Shape, other: Shape) -> Shape:
    """An object beside a map is one of its small ones."""
    if one.fields is None or other.keys is None:
        return one
    shapes = list(one.fields.values())
    size = len(shapes)
    return replace(
        one,
        fields=None,
        object_count=0,
        keys=(size, size),
        values=reduce(merge_shapes, shapes) if shapes else None,
    )


def _merge_or_empty(one: Shape | None, other: Shape | None) -> Shape:
    both = _merge_optional(one, other)
    if both is not None:
        return both
    return Shape(0)


def _merge_optional(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is not None and other is not None:
        return merge_shapes(one, other)
    return one or other


def _merge_ranges(one: Range | None, other: Range | None) -> Range | None:
    if one and other:
        return (min(one[0], other[0]), max(one[1], other[1]))
    return one or other


# --- as text


def render_shape(shape: Shape, tokens: int, count: CountTokens) -> str:
    """A shape on one line of at most so many tokens."""
    text = "…"
    for depth, width in _DETAIL_LEVELS:
        text = _render(shape, depth, width)
        # Nobody counts what is plainly too long.
        if len(text) <= tokens * 8 and count(text) <= tokens:
            return text
    if count(text) > tokens:
        return "…"
    return text


def render_samples(shape: Shape, tokens: int, count: CountTokens, path: str = "") -> list[str]:
    """One sample of each array, outermost first, as `path: value` lines that fit."""
    lines: list[str] = []
    spent = 0
    level = [(path, shape)]
    while level:
        below: list[tuple[str, Shape]] = []
        for place, one in level:
            if one.length is not None and one.sample:
                line = f"{place}[0]: {one.sample}"
                spent += count(line) + 1
                if spent > tokens:
                    return lines
                lines.append(line)
            below += _list_children(place, one)
        level = below[:MAX_FIELDS]
    return lines


def _list_children(path: str, shape: Shape) -> list[tuple[str, Shape]]:
    found = [
        (f"{path}.{_format_name(name)}" if path else _format_name(name), one)
        for name, one in (shape.fields or {}).items()
    ]
    if shape.items is not None:
        found.append((f"{path}[0]", shape.items))
    if shape.values is not None:
        found.append(
            (
                f"{path}.{_format_name(shape.sample_key)}"
                if path
                else _format_name(shape.sample_key),
                shape.values,
            )
        )
    return found


def _render(shape: Shape, depth: int, width: int) -> str:
    kinds: list[str] = []
    if shape.fields is not None:
        kinds.append(_render_object(shape, depth, width) if depth and shape.fields else "object")
    if shape.keys is not None:
        if depth and shape.values:
            inner = f": {_render(shape.values, depth - 1, width)}"
        else:
            inner = ""
        kinds.append(
            f"{{{_format_range(shape.keys)} keys like {_format_name(shape.sample_key)}{inner}}}"
        )
    if shape.length is not None:
        if depth and shape.items:
            inner = _render(shape.items, depth - 1, width)
        else:
            inner = "…"
        kinds.append(f"[{_format_range(shape.length)} × {inner}]" if shape.length[1] else "[]")
    plain = shape.scalars - ({"integer"} if "number" in shape.scalars else set())
    for scalar in sorted(plain, key=lambda kind: (kind == "null", kind)):
        long = scalar == "string" and shape.chars is not None and shape.chars[1] > 40
        kinds.append(f"string({_format_range(shape.chars)})" if long and shape.chars else scalar)
    return " | ".join(kinds) or "any"


def _render_object(shape: Shape, depth: int, width: int) -> str:
    fields = shape.fields or {}
    told: list[str] = []
    for name, one in list(fields.items())[:width]:
        if name == "…":
            told.append("…")
            continue
        if one.seen_count < shape.object_count:
            mark = "?"
        else:
            mark = ""
        told.append(f"{_format_name(name)}{mark}: {_render(one, depth - 1, width)}")
    if len(fields) > width:
        told.append(f"… {len(fields) - width} more")
    return "{" + ", ".join(told) + "}"


def _format_range(bounds: Range) -> str:
    low, high = bounds
    if low == high:
        return f"{low:,}"
    return f"{low:,}–{high:,}"


def _format_name(name: str) -> str:
    plain = sanitize_text(name)
    if len(plain) <= 40:
        plain = plain
    else:
        plain = plain[:39] + "…"
    if plain.replace("_", "a").isalnum() and plain.isascii():
        return plain
    return to_literal(plain)


def _get_scalar_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "…"


def _render_sample(value: Any) -> str:
    """A value as short JSON: long texts and lists inside it are cut, so that what lies beside them
    is seen."""
    text = to_literal(_shrink_value(value, 2))
    if len(text) <= SAMPLE_CHARS * 3:
        return text
    return text[: SAMPLE_CHARS * 3] + "…"


def _shrink_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        plain = sanitize_text(value[: SAMPLE_CHARS // 2])
        if len(value) <= SAMPLE_CHARS // 2:
            return plain
        return plain[: SAMPLE_CHARS // 3] + "…"
    if isinstance(value, dict):
        if not depth:
            if value:
                return "{…}"
            return {}
        return {
            name[:40]: _shrink_value(one, depth - 1)
            for (name, one), _ in zip(value.items(), range(12), strict=False)
        }
    if isinstance(value, list):
        if not depth:
            if value:
                return "[…]"
            return []
        return [_shrink_value(one, depth - 1) for one in value[:2]] + (
            ["…"] if count_children(value) > 2 else []
        )
    if not isinstance(value, int) or abs(value) < 10**30:
        return value
    return "…"
