"""What is known, before anything runs, of the value that a reference will find. Pure, and silent
where nothing is sure.

A tool's declared output says what there will be; a learned shape says what there has been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.schema_outline import get_json_type
from portico.catalog.schema_references import resolve_pointer
from portico.catalog.tool import Tool
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.results.shape import Shape

UNKNOWN = "…"
_MAX_REF_HOPS = 8
_MAX_NAMED_FIELDS = 8
_BRANCH_KEYWORDS = ("anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef")


@dataclass(frozen=True)
class ExpectedValue:
    """What a reference will find."""

    json_types: frozenset[str] = frozenset()
    """JSON types; none where they are not known."""
    missing_reason: str = ""
    """Why it will find nothing."""


_UNKNOWN_VALUE = ExpectedValue()


def infer_value(
    tool: Tool, shape: Shape | None, path: tuple[str | int, ...], *, for_each: bool
) -> ExpectedValue:
    """What lies at the end of a way through a step's value; with `each`, that is a list of the
    tool's values."""
    if for_each:
        if not path:
            return ExpectedValue(frozenset({"array"}))
        if isinstance(path[0], str):
            return ExpectedValue(
                missing_reason=f"it runs for each element, so its value is a list: [0].{path[0]} or [*].{path[0]}"
            )
        path = path[1:]
    schema = tool.definition.get("outputSchema")
    if isinstance(schema, dict):
        return _infer_from_schema(cast("dict[str, Any]", schema), path)
    if shape is not None:
        return _infer_from_shape(shape, path)
    return _UNKNOWN_VALUE


def get_json_types(schema: Any, root: Any, hops: int = 0) -> frozenset[str]:
    """The JSON types that a schema takes; none where that is not plain."""
    if not isinstance(schema, dict) or hops > _MAX_REF_HOPS:
        return frozenset()
    node = cast("dict[str, Any]", schema)
    if isinstance(node.get("$ref"), str):
        return get_json_types(resolve_pointer(node["$ref"], root), root, hops + 1)
    branches = node.get("anyOf") or node.get("oneOf")
    if isinstance(branches, list) and "type" not in node:
        found = [get_json_types(branch, root, hops + 1) for branch in cast("list[Any]", branches)]
        if all(found):
            return frozenset[str]().union(*found)
        return frozenset()
    declared = node.get("type")
    if isinstance(declared, str):
        types = [declared]
    elif isinstance(declared, list):
        types = declared
    else:
        types = []
    if types and all(isinstance(one, str) for one in cast("list[Any]", types)):
        return frozenset(
            (*cast("list[str]", types), *(("null",) if node.get("nullable") is True else ()))
        )
    if "const" in node:
        values = [node["const"]]
    else:
        values = node.get("enum")
    if isinstance(values, list):
        return frozenset(map(get_json_type, cast("list[Any]", values)))
    return frozenset()


def _infer_from_schema(root: Mapping[str, Any], path: tuple[str | int, ...]) -> ExpectedValue:
    node: Any = root
    for number, step in enumerate(path):
        node = _resolve_ref(node, root)
        if not isinstance(node, dict) or any(key in node for key in _BRANCH_KEYWORDS):
            return _UNKNOWN_VALUE
        inner = cast("dict[str, Any]", node)
        kinds = get_json_types(inner, root)
        if isinstance(step, str):
            wanted = "object"
        else:
            wanted = "array"
        if kinds and wanted not in kinds:
            return ExpectedValue(missing_reason=_describe_mismatch(path[:number], kinds, step))
        if isinstance(step, int):
            node = inner.get("items")
            if "prefixItems" in inner:
                return _UNKNOWN_VALUE
            continue
        properties = inner.get("properties")
        if isinstance(properties, dict):
            fields = cast("dict[str, Any]", properties)
        else:
            fields = {}
        if step not in fields:
            if inner.get("additionalProperties") is False and "patternProperties" not in inner:
                return ExpectedValue(
                    missing_reason=_describe_missing_field(
                        path[:number], step, tuple(fields), "its output schema"
                    )
                )
            return _UNKNOWN_VALUE
        node = fields[step]
    return ExpectedValue(get_json_types(node, root))


def _infer_from_shape(shape: Shape, path: tuple[str | int, ...]) -> ExpectedValue:
    at: Shape | None = shape
    for number, step in enumerate(path):
        kinds = _get_seen_types(at)
        if at is None or not kinds or UNKNOWN in kinds:
            return _UNKNOWN_VALUE
        if isinstance(step, str):
            wanted = "object"
        else:
            wanted = "array"
        if wanted not in kinds:
            return ExpectedValue(missing_reason=_describe_mismatch(path[:number], kinds, step))
        if isinstance(step, int):
            at = at.items
        elif at.keys is not None or at.fields is None or UNKNOWN in at.fields:
            return _UNKNOWN_VALUE
        elif step not in at.fields:
            return ExpectedValue(
                missing_reason=_describe_missing_field(
                    path[:number], step, tuple(at.fields), "any result seen so far"
                )
            )
        else:
            at = at.fields[step]
    kinds = _get_seen_types(at)
    return ExpectedValue(kinds if UNKNOWN not in kinds else frozenset())


def _get_seen_types(shape: Shape | None) -> frozenset[str]:
    if shape is None:
        return frozenset()
    found = set(shape.scalars)
    found |= {"object"} if shape.fields is not None or shape.keys is not None else set()
    found |= {"array"} if shape.length is not None else set()
    return frozenset(found)


def _resolve_ref(node: Any, root: Any) -> Any:
    for _ in range(_MAX_REF_HOPS):
        if not isinstance(node, dict) or not isinstance(
            pointer := cast("dict[str, Any]", node).get("$ref"), str
        ):
            break
        node = resolve_pointer(pointer, root)
    return node


def _describe_missing_field(
    before: tuple[str | int, ...], step: str, fields: tuple[str, ...], where: str
) -> str:
    names = ", ".join(sanitize_text(name)[:40] for name in fields[:_MAX_NAMED_FIELDS]) + (
        " …" if len(fields) > _MAX_NAMED_FIELDS else ""
    )
    if before:
        place = f"{format_path(before)} in "
    else:
        place = ""
    return f"there is no {quote_text(step)} in {place}{where}" + (
        f", only {names}" if names else ""
    )


def _describe_mismatch(
    before: tuple[str | int, ...], kinds: frozenset[str], step: str | int
) -> str:
    at = format_path(before) or "its value"
    return f"{at} is {'|'.join(sorted(kinds))}, so {format_path((step,))} finds nothing there"


def format_path(path: tuple[str | int, ...]) -> str:
    """A way as it is written in a reference."""
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{sanitize_text(step)[:60]}" for step in path
    ).lstrip(".")
