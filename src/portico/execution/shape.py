"""The structure of a value: types, sizes, and one sample of each array; of several values, what they have in common.

Pure, and bounded whatever the value: so many nodes are looked at, and the text fits its tokens by telling less of what
lies deep and wide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from portico.catalog.visible import literal, shown
from portico.execution.sampling import total

Count = Callable[[str], int]

MAX_NODES = 3_000
MAX_DEPTH = 12
MAX_FIELDS = 60
MAP_FROM = 25
"""Fields from which an object whose values are alike is taken for a map: its keys are data, not names."""
SAMPLE_CHARS = 120
_LOOKED_AT = (20, 8, 4, 2)
"""Items of an array that are looked at, by depth."""
_DETAILS = ((8, 40), (6, 24), (5, 16), (4, 12), (3, 8), (2, 6), (2, 3), (1, 2), (0, 0))
"""Depth and fields that a text tells of, from all to next to nothing."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """What is known of the values at one place."""

    seen: int = 1
    scalars: frozenset[str] = frozenset()
    """`null`, `boolean`, `integer`, `number`, `string`; `…` for what was not looked at."""
    chars: Span | None = None
    fields: Mapping[str, "Shape"] | None = None
    objects: int = 0
    """How many of the values had fields; a field that was seen less often is optional."""
    items: "Shape | None" = None
    length: Span | None = None
    """How many items, where an array was seen."""
    keys: Span | None = None
    """How many keys, where a map was seen; `values` is then what they lead to."""
    values: "Shape | None" = None
    key: str = ""
    """One key of the map."""
    sample: str = field(default="", compare=False)
    """The first item of an array, as JSON, clipped."""


def infer(value: Any) -> Shape:
    """The shape of one value."""
    return _Looking().at(value, 0)


class _Looking:
    def __init__(self) -> None:
        self._left = MAX_NODES

    def at(self, value: Any, depth: int) -> Shape:
        self._left -= 1
        if isinstance(value, dict | list) and (self._left <= 0 or depth >= MAX_DEPTH):
            return Shape(scalars=frozenset({"…"}))
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._array(value, depth)
        if isinstance(value, str):
            return Shape(scalars=frozenset({"string"}), chars=(len(value), len(value)))
        return Shape(scalars=frozenset({_scalar(value)}))

    def _array(self, value: list[Any], depth: int) -> Shape:
        looked = _LOOKED_AT[min(depth, len(_LOOKED_AT) - 1)]
        size = total(value)
        some = value if len(value) <= looked else [*value[: looked - looked // 4], *value[-(looked // 4) :]]
        items = [self.at(item, depth + 1) for item in some]
        sample = _clipped(value[0]) if value else ""
        return Shape(items=reduce(merge, items) if items else None, length=(size, size), sample=sample)

    def _object(self, value: dict[str, Any], depth: int) -> Shape:
        names = [name for name, _ in zip(value, range(MAX_FIELDS), strict=False)]
        found = {name: self.at(value[name], depth + 1) for name in names}
        if total(value) >= MAP_FROM and len({_kind(shape) for shape in found.values()}) == 1:
            size = total(value)
            return Shape(keys=(size, size), values=reduce(merge, found.values()), key=names[0])
        if total(value) > len(names):
            found["…"] = Shape(scalars=frozenset({"…"}))
        return Shape(fields=found, objects=1)


def _kind(shape: Shape) -> object:
    """Two values of one kind could be values of one map."""
    if shape.fields is not None:
        return tuple(sorted(shape.fields))
    if shape.keys is not None:
        return "map"
    if shape.length is not None:
        return "array"
    return "number" if shape.scalars <= {"integer", "number"} else shape.scalars


def merge(one: Shape, other: Shape) -> Shape:
    """What holds for the values of both."""
    first, second = _compatible(one, other), _compatible(other, one)
    fields = first.fields if second.fields is None else second.fields
    if first.fields is not None and second.fields is not None:
        fields = {
            name: _either(first.fields.get(name), second.fields.get(name))
            for name in [*first.fields, *(name for name in second.fields if name not in first.fields)][:MAX_FIELDS]
        }
    return Shape(
        seen=one.seen + other.seen,
        scalars=one.scalars | other.scalars,
        chars=_span(one.chars, other.chars),
        fields=fields,
        objects=first.objects + second.objects,
        items=_both(first.items, second.items),
        length=_span(first.length, second.length),
        keys=_span(first.keys, second.keys),
        values=_both(first.values, second.values),
        key=first.key or second.key,
        sample=one.sample or other.sample,
    )


def _compatible(one: Shape, other: Shape) -> Shape:
    """An object beside a map is one of its small ones."""
    if one.fields is None or other.keys is None:
        return one
    shapes = list(one.fields.values())
    size = len(shapes)
    return replace(one, fields=None, objects=0, keys=(size, size), values=reduce(merge, shapes) if shapes else None)


def _either(one: Shape | None, other: Shape | None) -> Shape:
    both = _both(one, other)
    return both if both is not None else Shape(0)


def _both(one: Shape | None, other: Shape | None) -> Shape | None:
    return merge(one, other) if one is not None and other is not None else one or other


def _span(one: Span | None, other: Span | None) -> Span | None:
    return (min(one[0], other[0]), max(one[1], other[1])) if one and other else one or other


# --- as text


def described(shape: Shape, tokens: int, count: Count) -> str:
    """A shape on one line of at most so many tokens."""
    text = "…"
    for depth, width in _DETAILS:
        text = _text(shape, depth, width)
        # Nobody counts what is plainly too long.
        if len(text) <= tokens * 8 and count(text) <= tokens:
            return text
    return "…" if count(text) > tokens else text


def sampled(shape: Shape, tokens: int, count: Count, path: str = "") -> list[str]:
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
            below += _below(place, one)
        level = below[:MAX_FIELDS]
    return lines


def _below(place: str, shape: Shape) -> list[tuple[str, Shape]]:
    found = [(f"{place}.{_name(name)}" if place else _name(name), one) for name, one in (shape.fields or {}).items()]
    if shape.items is not None:
        found.append((f"{place}[0]", shape.items))
    if shape.values is not None:
        found.append((f"{place}.{_name(shape.key)}" if place else _name(shape.key), shape.values))
    return found


def _text(shape: Shape, depth: int, width: int) -> str:
    kinds: list[str] = []
    if shape.fields is not None:
        kinds.append(_object_text(shape, depth, width) if depth and shape.fields else "object")
    if shape.keys is not None:
        inner = f": {_text(shape.values, depth - 1, width)}" if depth and shape.values else ""
        kinds.append(f"{{{_range(shape.keys)} keys like {_name(shape.key)}{inner}}}")
    if shape.length is not None:
        inner = _text(shape.items, depth - 1, width) if depth and shape.items else "…"
        kinds.append(f"[{_range(shape.length)} × {inner}]" if shape.length[1] else "[]")
    plain = shape.scalars - ({"integer"} if "number" in shape.scalars else set())
    for scalar in sorted(plain, key=lambda kind: (kind == "null", kind)):
        long = scalar == "string" and shape.chars is not None and shape.chars[1] > 40
        kinds.append(f"string({_range(shape.chars)})" if long and shape.chars else scalar)
    return " | ".join(kinds) or "any"


def _object_text(shape: Shape, depth: int, width: int) -> str:
    fields = shape.fields or {}
    told: list[str] = []
    for name, one in list(fields.items())[:width]:
        if name == "…":
            told.append("…")
            continue
        mark = "?" if one.seen < shape.objects else ""
        told.append(f"{_name(name)}{mark}: {_text(one, depth - 1, width)}")
    if len(fields) > width:
        told.append(f"… {len(fields) - width} more")
    return "{" + ", ".join(told) + "}"


def _range(span: Span) -> str:
    low, high = span
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _name(name: str) -> str:
    plain = shown(name)
    plain = plain if len(plain) <= 40 else plain[:39] + "…"
    return plain if plain.replace("_", "a").isalnum() and plain.isascii() else literal(plain)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "…"


def _clipped(value: Any) -> str:
    """A value as short JSON: long texts and lists inside it are cut, so that what lies beside them is seen."""
    text = literal(_smaller(value, 2))
    return text if len(text) <= SAMPLE_CHARS * 3 else text[: SAMPLE_CHARS * 3] + "…"


def _smaller(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        plain = shown(value[: SAMPLE_CHARS // 2])
        return plain if len(value) <= SAMPLE_CHARS // 2 else plain[: SAMPLE_CHARS // 3] + "…"
    if isinstance(value, dict):
        if not depth:
            return "{…}" if value else {}
        return {name[:40]: _smaller(one, depth - 1) for (name, one), _ in zip(value.items(), range(12), strict=False)}
    if isinstance(value, list):
        if not depth:
            return "[…]" if value else []
        return [_smaller(one, depth - 1) for one in value[:2]] + (["…"] if total(value) > 2 else [])
    return value if not isinstance(value, int) or abs(value) < 10**30 else "…"
