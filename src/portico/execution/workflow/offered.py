"""What is known, before anything runs, of the value that a reference will find. Pure, and silent where nothing is sure.

A tool's declared output says what there will be; a learned shape says what there has been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.references import resolve
from portico.catalog.schema import json_type
from portico.catalog.tool import Tool
from portico.catalog.visible import quoted, shown
from portico.execution.shape import Shape

UNKNOWN = "…"
_HOPS = 8
_NAMED = 8
_BRANCHES = ("anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef")


@dataclass(frozen=True)
class Offered:
    """What a reference will find."""

    kinds: frozenset[str] = frozenset()
    """JSON types; none where they are not known."""
    gap: str = ""
    """Why it will find nothing."""


_NOTHING_KNOWN = Offered()


def offered(tool: Tool, shape: Shape | None, way: tuple[str | int, ...], *, each: bool) -> Offered:
    """What lies at the end of a way through a step's value; with `each`, that is a list of the tool's values."""
    if each:
        if not way:
            return Offered(frozenset({"array"}))
        if isinstance(way[0], str):
            return Offered(gap=f"it runs for each element, so its value is a list: [0].{way[0]} or [*].{way[0]}")
        way = way[1:]
    schema = tool.definition.get("outputSchema")
    if isinstance(schema, dict):
        return _by_schema(cast("dict[str, Any]", schema), way)
    return _by_shape(shape, way) if shape is not None else _NOTHING_KNOWN


def kinds_of(schema: Any, root: Any, hops: int = 0) -> frozenset[str]:
    """The JSON types that a schema takes; none where that is not plain."""
    if not isinstance(schema, dict) or hops > _HOPS:
        return frozenset()
    node = cast("dict[str, Any]", schema)
    if isinstance(node.get("$ref"), str):
        return kinds_of(resolve(node["$ref"], root), root, hops + 1)
    branches = node.get("anyOf") or node.get("oneOf")
    if isinstance(branches, list) and "type" not in node:
        found = [kinds_of(branch, root, hops + 1) for branch in cast("list[Any]", branches)]
        return frozenset[str]().union(*found) if all(found) else frozenset()
    declared = node.get("type")
    types = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    if types and all(isinstance(one, str) for one in cast("list[Any]", types)):
        return frozenset((*cast("list[str]", types), *(("null",) if node.get("nullable") is True else ())))
    values = [node["const"]] if "const" in node else node.get("enum")
    return frozenset(map(json_type, cast("list[Any]", values))) if isinstance(values, list) else frozenset()


def _by_schema(root: Mapping[str, Any], way: tuple[str | int, ...]) -> Offered:
    node: Any = root
    for number, step in enumerate(way):
        node = _resolved(node, root)
        if not isinstance(node, dict) or any(key in node for key in _BRANCHES):
            return _NOTHING_KNOWN
        inner = cast("dict[str, Any]", node)
        kinds = kinds_of(inner, root)
        wanted = "object" if isinstance(step, str) else "array"
        if kinds and wanted not in kinds:
            return Offered(gap=_mismatch(way[:number], kinds, step))
        if isinstance(step, int):
            node = inner.get("items")
            if "prefixItems" in inner:
                return _NOTHING_KNOWN
            continue
        properties = inner.get("properties")
        fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        if step not in fields:
            if inner.get("additionalProperties") is False and "patternProperties" not in inner:
                return Offered(gap=_missing(way[:number], step, tuple(fields), "its output schema"))
            return _NOTHING_KNOWN
        node = fields[step]
    return Offered(kinds_of(node, root))


def _by_shape(shape: Shape, way: tuple[str | int, ...]) -> Offered:
    at: Shape | None = shape
    for number, step in enumerate(way):
        kinds = _kinds_seen(at)
        if at is None or not kinds or UNKNOWN in kinds:
            return _NOTHING_KNOWN
        wanted = "object" if isinstance(step, str) else "array"
        if wanted not in kinds:
            return Offered(gap=_mismatch(way[:number], kinds, step))
        if isinstance(step, int):
            at = at.items
        elif at.keys is not None or at.fields is None or UNKNOWN in at.fields:
            return _NOTHING_KNOWN
        elif step not in at.fields:
            return Offered(gap=_missing(way[:number], step, tuple(at.fields), "any result seen so far"))
        else:
            at = at.fields[step]
    kinds = _kinds_seen(at)
    return Offered(kinds if UNKNOWN not in kinds else frozenset())


def _kinds_seen(shape: Shape | None) -> frozenset[str]:
    if shape is None:
        return frozenset()
    found = set(shape.scalars)
    found |= {"object"} if shape.fields is not None or shape.keys is not None else set()
    found |= {"array"} if shape.length is not None else set()
    return frozenset(found)


def _resolved(node: Any, root: Any) -> Any:
    for _ in range(_HOPS):
        if not isinstance(node, dict) or not isinstance(pointer := cast("dict[str, Any]", node).get("$ref"), str):
            break
        node = resolve(pointer, root)
    return node


def _missing(before: tuple[str | int, ...], step: str, fields: tuple[str, ...], where: str) -> str:
    names = ", ".join(shown(name)[:40] for name in fields[:_NAMED]) + (" …" if len(fields) > _NAMED else "")
    place = f"{written(before)} in " if before else ""
    return f"there is no {quoted(step)} in {place}{where}" + (f", only {names}" if names else "")


def _mismatch(before: tuple[str | int, ...], kinds: frozenset[str], step: str | int) -> str:
    at = written(before) or "its value"
    return f"{at} is {'|'.join(sorted(kinds))}, so {written((step,))} finds nothing there"


def written(way: tuple[str | int, ...]) -> str:
    """A way as it is written in a reference."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{shown(step)[:60]}" for step in way).lstrip(".")
