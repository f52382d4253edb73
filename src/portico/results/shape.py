"""The shape of a value: types, sizes and one sample per array; shapes can be merged.

Pure and bounded: a limited number of nodes is visited, and the rendered text fits its tokens by
omitting deep and wide parts.
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
"""Fields from which an object with values of one kind is taken for a map, whose keys are data."""
SAMPLE_CHARS = 120
_ITEMS_BY_DEPTH = (20, 8, 4, 2)
"""Items of an array that are visited, by depth."""
_DETAIL_LEVELS = ((8, 40), (6, 24), (5, 16), (4, 12), (3, 8), (2, 6), (2, 3), (1, 2), (0, 0))
"""Depth and number of fields that are rendered, from most to least detail."""

Range = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """The values seen at one position."""

    seen_count: int = 1
    scalars: frozenset[str] = frozenset()
    """`null`, `boolean`, `integer`, `number`, `string`; `…` for values that were not visited."""
    chars: Range | None = None
    fields: Mapping[str, "Shape"] | None = None
    object_count: int = 0
    """Number of values with fields; a field seen less often is optional."""
    items: "Shape | None" = None
    length: Range | None = None
    """Least and greatest number of items, if an array was seen."""
    keys: Range | None = None
    """Least and greatest number of keys, if a map was seen; `values` is the shape of its values."""
    values: "Shape | None" = None
    sample_key: str = ""
    """One key of the map."""
    sample: str = field(default="", compare=False)
    """The first item of an array as shortened JSON."""


def infer_shape(value: Any) -> Shape:
    """Return the shape of one value."""
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
        max_items = _ITEMS_BY_DEPTH[min(depth, len(_ITEMS_BY_DEPTH) - 1)]
        size = count_children(value)
        if len(value) <= max_items:
            items_seen = value
        else:
            items_seen = [*value[: max_items - max_items // 4], *value[-(max_items // 4) :]]
        items = [self.build(item, depth + 1) for item in items_seen]
        if value:
            sample = _render_sample(value[0])
        else:
            sample = ""
        return Shape(
            items=reduce(merge_shapes, items) if items else None, length=(size, size), sample=sample
        )

    def _build_object(self, value: dict[str, Any], depth: int) -> Shape:
        names = [name for name, _ in zip(value, range(MAX_FIELDS), strict=False)]
        fields = {name: self.build(value[name], depth + 1) for name in names}
        if (
            count_children(value) >= MIN_MAP_FIELDS
            and len({_get_kind(shape) for shape in fields.values()}) == 1
        ):
            size = count_children(value)
            return Shape(
                keys=(size, size), values=reduce(merge_shapes, fields.values()), sample_key=names[0]
            )
        if count_children(value) > len(names):
            fields["…"] = Shape(scalars=frozenset({"…"}))
        return Shape(fields=fields, object_count=1)


def _get_kind(shape: Shape) -> object:
    """Return a key that is equal for values that could be values of one map."""
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
    """Return the shape of the values of both."""
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
    """Return an object shape as a map if the other one is a map."""
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
    merged = _merge_optional(one, other)
    if merged is not None:
        return merged
    return Shape(0)


def _merge_optional(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is not None and other is not None:
        return merge_shapes(one, other)
    return one or other


def _merge_ranges(one: Range | None, other: Range | None) -> Range | None:
    if one and other:
        return (min(one[0], other[0]), max(one[1], other[1]))
    return one or other


# --- rendering


def render_shape(shape: Shape, tokens: int, count: CountTokens) -> str:
    """Render a shape on one line of at most so many tokens."""
    text = "…"
    for depth, width in _DETAIL_LEVELS:
        text = _render(shape, depth, width)
        # Text that is certainly too long is not counted.
        if len(text) <= tokens * 8 and count(text) <= tokens:
            return text
    if count(text) > tokens:
        return "…"
    return text


def render_samples(shape: Shape, tokens: int, count: CountTokens, path: str = "") -> list[str]:
    """Render one sample of each array, outermost first, as `path: value` lines that fit."""
    lines: list[str] = []
    spent = 0
    level = [(path, shape)]
    while level:
        below: list[tuple[str, Shape]] = []
        for current_path, current in level:
            if current.length is not None and current.sample:
                line = f"{current_path}[0]: {current.sample}"
                spent += count(line) + 1
                if spent > tokens:
                    return lines
                lines.append(line)
            below += _list_children(current_path, current)
        level = below[:MAX_FIELDS]
    return lines


def _list_children(path: str, shape: Shape) -> list[tuple[str, Shape]]:
    prefix = f"{path}." if path else ""
    children = [
        (f"{prefix}{_format_name(name)}", child) for name, child in (shape.fields or {}).items()
    ]
    if shape.items is not None:
        children.append((f"{path}[0]", shape.items))
    if shape.values is not None:
        children.append((f"{prefix}{_format_name(shape.sample_key)}", shape.values))
    return children


def _render(shape: Shape, depth: int, width: int) -> str:
    kinds: list[str] = []
    if shape.fields is not None:
        if depth and shape.fields:
            kinds.append(_render_object(shape, depth, width))
        else:
            kinds.append("object")
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
    scalars = shape.scalars - ({"integer"} if "number" in shape.scalars else set())
    for scalar in sorted(scalars, key=lambda kind: (kind == "null", kind)):
        if scalar == "string" and shape.chars is not None and shape.chars[1] > 40:
            kinds.append(f"string({_format_range(shape.chars)})")
        else:
            kinds.append(scalar)
    return " | ".join(kinds) or "any"


def _render_object(shape: Shape, depth: int, width: int) -> str:
    fields = shape.fields or {}
    parts: list[str] = []
    for name, child in list(fields.items())[:width]:
        if name == "…":
            parts.append("…")
            continue
        if child.seen_count < shape.object_count:
            mark = "?"
        else:
            mark = ""
        parts.append(f"{_format_name(name)}{mark}: {_render(child, depth - 1, width)}")
    if len(fields) > width:
        parts.append(f"… {len(fields) - width} more")
    return "{" + ", ".join(parts) + "}"


def _format_range(bounds: Range) -> str:
    low, high = bounds
    if low == high:
        return f"{low:,}"
    return f"{low:,}–{high:,}"


def _format_name(name: str) -> str:
    plain = sanitize_text(name)
    if len(plain) > 40:
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
    """Return a value as short JSON; long texts and lists in it are cut, so that their neighbours
    stay visible."""
    text = to_literal(_shrink_value(value, 2))
    if len(text) <= SAMPLE_CHARS * 3:
        return text
    return text[: SAMPLE_CHARS * 3] + "…"


def _shrink_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        text = sanitize_text(value[: SAMPLE_CHARS // 2])
        if len(value) <= SAMPLE_CHARS // 2:
            return text
        return text[: SAMPLE_CHARS // 3] + "…"
    if isinstance(value, dict):
        if not depth:
            if value:
                return "{…}"
            return {}
        return {
            name[:40]: _shrink_value(child, depth - 1)
            for (name, child), _ in zip(value.items(), range(12), strict=False)
        }
    if isinstance(value, list):
        if not depth:
            if value:
                return "[…]"
            return []
        return [_shrink_value(child, depth - 1) for child in value[:2]] + (
            ["…"] if count_children(value) > 2 else []
        )
    if not isinstance(value, int) or abs(value) < 10**30:
        return value
    return "…"
