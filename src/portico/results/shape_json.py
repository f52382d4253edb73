"""Shapes as JSON text for storage, and back. Pure.

Only structure is written: samples of items and keys of maps are user data.
"""

from collections.abc import Mapping
from typing import Any, cast

from portico.json_text import json_codec
from portico.results.shape import MAX_DEPTH, MAX_FIELDS, Range, Shape

MAX_CHARS = 64 * 1024
_UNKNOWN_KEY = "…"
_SCALARS = frozenset({"null", "boolean", "integer", "number", "string", "…"})


def dump_shape(shape: Shape) -> str | None:
    """Return a shape as text; None if it is too large to store."""
    try:
        text = json_codec.dumps(_to_dict(shape)).decode()
    except (TypeError, ValueError, RecursionError):
        return None
    if len(text) <= MAX_CHARS:
        return text
    return None


def load_shape(text: str) -> Shape | None:
    """Return the shape of a text; None if the text is invalid."""
    try:
        return _from_dict(json_codec.loads(text.encode(errors="surrogatepass")), 0)
    except (TypeError, ValueError, KeyError, RecursionError):
        return None


def _to_dict(shape: Shape) -> dict[str, Any]:
    data: dict[str, Any] = {"n": shape.seen_count}
    if shape.scalars:
        data["is"] = sorted(shape.scalars)
    for key, span in (("chars", shape.chars), ("length", shape.length), ("keys", shape.keys)):
        if span is not None:
            data[key] = list(span)
    if shape.fields is not None:
        data["fields"] = {name: _to_dict(field) for name, field in shape.fields.items()}
        data["objects"] = shape.object_count
    if shape.items is not None:
        data["items"] = _to_dict(shape.items)
    if shape.values is not None:
        data["values"] = _to_dict(shape.values)
    return data


def _from_dict(data: Any, depth: int) -> Shape:
    if not isinstance(data, dict) or depth > 2 * MAX_DEPTH:
        raise ValueError("that is no shape")
    members = cast("dict[str, Any]", data)
    fields = members.get("fields")
    if fields is not None and (
        not isinstance(fields, dict) or len(cast("dict[str, Any]", fields)) > 2 * MAX_FIELDS
    ):
        raise ValueError("those are no fields")
    field_data = cast("Mapping[str, Any] | None", fields)
    shapes = None
    if field_data is not None:
        shapes = {name: _from_dict(field, depth + 1) for name, field in field_data.items()}
    keys = _parse_range(members.get("keys"))
    return Shape(
        seen_count=int(members["n"]),
        scalars=frozenset(cast("list[str]", members.get("is", ()))) & _SCALARS,
        chars=_parse_range(members.get("chars")),
        fields=shapes,
        object_count=int(members.get("objects", 0)),
        items=_from_dict(members["items"], depth + 1) if "items" in members else None,
        length=_parse_range(members.get("length")),
        keys=keys,
        values=_from_dict(members["values"], depth + 1) if "values" in members else None,
        sample_key=_UNKNOWN_KEY if keys is not None else "",
    )


def _parse_range(data: Any) -> Range | None:
    if data is None:
        return None
    low, high = data
    return int(low), int(high)
