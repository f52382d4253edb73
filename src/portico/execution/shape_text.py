"""Shapes as JSON text, to be kept, and back. Pure.

Only what is about the structure is written: samples of items and the keys of maps are somebody's data.
"""

from collections.abc import Mapping
from typing import Any, cast

from portico.execution.shape import MAX_DEPTH, MAX_FIELDS, Shape, Span
from portico.upstream import jsontext

MAX_CHARS = 64 * 1024
_KEY = "…"
_SCALARS = frozenset({"null", "boolean", "integer", "number", "string", "…"})


def dumped(shape: Shape) -> str | None:
    """A shape as text; None for one that is too large to be kept."""
    try:
        text = jsontext.dumps(_plain(shape)).decode()
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= MAX_CHARS else None


def loaded(text: str) -> Shape | None:
    """The shape that a text is of; None where it is none."""
    try:
        return _shape(jsontext.loads(text.encode(errors="surrogatepass")), 0)
    except (TypeError, ValueError, KeyError, RecursionError):
        return None


def _plain(shape: Shape) -> dict[str, Any]:
    told: dict[str, Any] = {"n": shape.seen}
    if shape.scalars:
        told["is"] = sorted(shape.scalars)
    for key, span in (("chars", shape.chars), ("length", shape.length), ("keys", shape.keys)):
        if span is not None:
            told[key] = list(span)
    if shape.fields is not None:
        told["fields"] = {name: _plain(one) for name, one in shape.fields.items()}
        told["objects"] = shape.objects
    if shape.items is not None:
        told["items"] = _plain(shape.items)
    if shape.values is not None:
        told["values"] = _plain(shape.values)
    return told


def _shape(told: Any, depth: int) -> Shape:
    if not isinstance(told, dict) or depth > 2 * MAX_DEPTH:
        raise ValueError("that is no shape")
    plain = cast("dict[str, Any]", told)
    fields = plain.get("fields")
    if fields is not None and (not isinstance(fields, dict) or len(cast("dict[str, Any]", fields)) > 2 * MAX_FIELDS):
        raise ValueError("those are no fields")
    given = cast("Mapping[str, Any] | None", fields)
    keys = _span(plain.get("keys"))
    return Shape(
        seen=int(plain["n"]),
        scalars=frozenset(cast("list[str]", plain.get("is", ()))) & _SCALARS,
        chars=_span(plain.get("chars")),
        fields=None if given is None else {name: _shape(one, depth + 1) for name, one in given.items()},
        objects=int(plain.get("objects", 0)),
        items=_shape(plain["items"], depth + 1) if "items" in plain else None,
        length=_span(plain.get("length")),
        keys=keys,
        values=_shape(plain["values"], depth + 1) if "values" in plain else None,
        key=_KEY if keys is not None else "",
    )


def _span(told: Any) -> Span | None:
    if told is None:
        return None
    low, high = told
    return int(low), int(high)
