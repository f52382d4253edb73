"""Shapes as JSON text, to be kept, and back. Pure.

Only what is about the structure is written: samples of items and the keys of maps are somebody's
data.
"""

from collections.abc import Mapping
from typing import Any, cast

from portico.json_text import json_codec
from portico.results.shape import MAX_DEPTH, MAX_FIELDS, Range, Shape

MAX_CHARS = 64 * 1024
_UNKNOWN_KEY = "…"
_SCALARS = frozenset({"null", "boolean", "integer", "number", "string", "…"})


def dump_shape(shape: Shape) -> str | None:
    """A shape as text; None for one that is too large to be kept."""
    try:
        text = json_codec.dumps(_to_dict(shape)).decode()
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) <= MAX_CHARS:
        return text
    return None


def load_shape(text: str) -> Shape | None:
    """The shape that a text is of; None where it is none."""
    try:
        return _from_dict(json_codec.loads(text.encode(errors="surrogatepass")), 0)
    except (TypeError, ValueError, KeyError, RecursionError):
        return None


def _to_dict(shape: Shape) -> dict[str, Any]:
    told: dict[str, Any] = {"n": shape.seen_count}
    if shape.scalars:
        told["is"] = sorted(shape.scalars)
    for key, span in (("chars", shape.chars), ("length", shape.length), ("keys", shape.keys)):
        if span is not None:
            told[key] = list(span)
    if shape.fields is not None:
        told["fields"] = {name: _to_dict(one) for name, one in shape.fields.items()}
        told["objects"] = shape.object_count
    if shape.items is not None:
        told["items"] = _to_dict(shape.items)
    if shape.values is not None:
        told["values"] = _to_dict(shape.values)
    return told


def _from_dict(data: Any, depth: int) -> Shape:
    if not isinstance(data, dict) or depth > 2 * MAX_DEPTH:
        raise ValueError("that is no shape")
    plain = cast("dict[str, Any]", data)
    fields = plain.get("fields")
    if fields is not None and (
        not isinstance(fields, dict) or len(cast("dict[str, Any]", fields)) > 2 * MAX_FIELDS
    ):
        raise ValueError("those are no fields")
    given = cast("Mapping[str, Any] | None", fields)
    keys = _parse_range(plain.get("keys"))
    return Shape(
        seen_count=int(plain["n"]),
        scalars=frozenset(cast("list[str]", plain.get("is", ()))) & _SCALARS,
        chars=_parse_range(plain.get("chars")),
        fields=None
        if given is None
        else {name: _from_dict(one, depth + 1) for name, one in given.items()},
        object_count=int(plain.get("objects", 0)),
        items=_from_dict(plain["items"], depth + 1) if "items" in plain else None,
        length=_parse_range(plain.get("length")),
        keys=keys,
        values=_from_dict(plain["values"], depth + 1) if "values" in plain else None,
        sample_key=_UNKNOWN_KEY if keys is not None else "",
    )


def _parse_range(data: Any) -> Range | None:
    if data is None:
        return None
    low, high = data
    return int(low), int(high)
