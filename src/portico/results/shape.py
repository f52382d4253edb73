"""The shape of a value: types, sizes and one sample per array; samples of large values.

Pure and bounded: a limited number of nodes is visited, and the rendered text fits its tokens by
omitting deep and wide parts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any

from portico.catalog.tool import sanitize_text, to_literal
from portico.json_text.part_stream import JsonPart

MAX_SAMPLED_CHILDREN = 200
"""Children kept in a sampled container."""
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

_SCALAR_TYPES = {type(None): "null", bool: "boolean", int: "integer", float: "number"}

Range = tuple[int, int]


class SampledList(list[Any]):
    """The first items of an array with `total` items."""

    total: int = 0


class SampledDict(dict[str, Any]):
    """The first fields of an object with `total` fields."""

    total: int = 0


def count_children(container: Any) -> int:
    """Return the number of children of a container, including those left out."""
    if isinstance(container, SampledList | SampledDict):
        return container.total
    return len(container)


class ValueSampler:
    """Builds a sample from a stream of parts."""

    def __init__(self) -> None:
        self._root = SampledList()
        self._opened: list[SampledList | SampledDict | None] = [self._root]
        """Open containers; None for one that is left out with everything in it."""

    @property
    def value(self) -> Any:
        """The sample; None before the first part."""
        return self._root[0] if self._root else None

    def watch(self, stream: Iterable[JsonPart]) -> Iterator[JsonPart]:
        """Yield the parts unchanged and sample them."""
        for part in stream:
            self._add_part(part)
            yield part

    def _add_part(self, part: JsonPart) -> None:
        kind, key, value = part
        if kind == "close":
            self._opened.pop()
            return
        parent = self._opened[-1]
        child = None
        if parent is not None:
            parent.total += 1
            if len(parent) < MAX_SAMPLED_CHILDREN:
                child = value
                if kind == "open":
                    child = SampledList() if value == "[" else SampledDict()
                if isinstance(parent, SampledDict):
                    parent[key or ""] = child
                else:
                    parent.append(child)
        if kind == "open":
            self._opened.append(child)


def sample_value(parts: Iterable[JsonPart]) -> Any:
    """Return a sample of the value of these parts; raises what iterating them raises."""
    sampler = ValueSampler()
    for _ in sampler.watch(parts):
        pass
    return sampler.value


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
        return Shape(scalars=frozenset({_SCALAR_TYPES.get(type(value), "…")}))

    def _build_array(self, value: list[Any], depth: int) -> Shape:
        size = count_children(value)
        if not value:
            return Shape(length=(size, size))
        max_items = _ITEMS_BY_DEPTH[min(depth, len(_ITEMS_BY_DEPTH) - 1)]
        visited = value
        if len(value) > max_items:
            visited = [*value[: max_items - max_items // 4], *value[-(max_items // 4) :]]
        items = reduce(merge_shapes, [self.build(item, depth + 1) for item in visited])
        return Shape(items=items, length=(size, size), sample=_render_sample(value[0]))

    def _build_object(self, value: dict[str, Any], depth: int) -> Shape:
        names = list(islice(value, MAX_FIELDS))
        fields = {name: self.build(value[name], depth + 1) for name in names}
        size = count_children(value)
        if size >= MIN_MAP_FIELDS and len({_get_kind(shape) for shape in fields.values()}) == 1:
            values = reduce(merge_shapes, fields.values())
            return Shape(keys=(size, size), values=values, sample_key=names[0])
        if size > len(names):
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
    fields = first.fields if second.fields is None else second.fields
    if first.fields is not None and second.fields is not None:
        names = list(dict.fromkeys((*first.fields, *second.fields)))[:MAX_FIELDS]
        fields = {
            name: _merge_optional(first.fields.get(name), second.fields.get(name)) or Shape(0)
            for name in names
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
    for depth, width in _DETAIL_LEVELS:
        text = _render(shape, depth, width)
        # Text that is certainly too long is not counted.
        if len(text) <= tokens * 8 and count(text) <= tokens:
            return text
    return "…"


def render_samples(shape: Shape, tokens: int, count: CountTokens) -> list[str]:
    """Render one sample of each array, outermost first, as `path: value` lines that fit."""
    lines: list[str] = []
    spent = 0
    level = [("", shape)]
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
        is_shown = bool(depth and shape.fields)
        kinds.append(_render_object(shape, depth, width) if is_shown else "object")
    if shape.keys is not None:
        keys = f"{_format_range(shape.keys)} keys like {_format_name(shape.sample_key)}"
        if depth and shape.values:
            keys += f": {_render(shape.values, depth - 1, width)}"
        kinds.append(f"{{{keys}}}")
    if shape.length is not None:
        items = "…"
        if depth and shape.items:
            items = _render(shape.items, depth - 1, width)
        kinds.append(f"[{_format_range(shape.length)} × {items}]" if shape.length[1] else "[]")
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
        mark = "?" * (child.seen_count < shape.object_count)
        parts.append(f"{_format_name(name)}{mark}: {_render(child, depth - 1, width)}")
    if len(fields) > width:
        parts.append(f"… {len(fields) - width} more")
    return "{" + ", ".join(parts) + "}"


def _format_range(bounds: Range) -> str:
    low, high = bounds
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _format_name(name: str) -> str:
    plain = sanitize_text(name)
    if len(plain) > 40:
        plain = plain[:39] + "…"
    if plain.replace("_", "a").isalnum() and plain.isascii():
        return plain
    return to_literal(plain)


def _render_sample(value: Any) -> str:
    """Return a value as short JSON; long texts and lists in it are cut, so that their neighbours
    stay visible."""
    text = to_literal(_shrink_value(value, 2))
    return text if len(text) <= SAMPLE_CHARS * 3 else text[: SAMPLE_CHARS * 3] + "…"


def _shrink_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        text = sanitize_text(value[: SAMPLE_CHARS // 2])
        if len(value) <= SAMPLE_CHARS // 2:
            return text
        return text[: SAMPLE_CHARS // 3] + "…"
    if isinstance(value, dict | list) and value and not depth:
        return "{…}" if isinstance(value, dict) else "[…]"
    if isinstance(value, dict):
        members = islice(value.items(), 12)
        return {name[:40]: _shrink_value(child, depth - 1) for name, child in members}
    if isinstance(value, list):
        items = [_shrink_value(child, depth - 1) for child in value[:2]]
        return [*items, "…"] if count_children(value) > 2 else items
    if not isinstance(value, int) or abs(value) < 10**30:
        return value
    return "…"
