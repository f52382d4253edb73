"""Infers, before anything runs, the value that a reference will find. Pure.

A tool's output schema tells what there will be; a learned shape tells what there has been. Nothing
is reported where neither is certain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.schema_types import get_json_type, resolve_pointer
from portico.catalog.tool import Tool, quote_text, sanitize_text
from portico.results.shape import Shape

UNKNOWN = "…"
_MAX_REF_HOPS = 8
_MAX_NAMED_FIELDS = 8
_BRANCH_KEYWORDS = ("anyOf", "oneOf", "allOf", "not", "if", "$dynamicRef")


@dataclass(frozen=True)
class ExpectedValue:
    json_types: frozenset[str] = frozenset()
    """Possible JSON types; empty if unknown."""
    missing_reason: str = ""
    """Why the reference will find nothing."""


_UNKNOWN_VALUE = ExpectedValue()


def infer_value(
    tool: Tool, shape: Shape | None, path: tuple[str | int, ...], *, for_each: bool
) -> ExpectedValue:
    """Infer the value at a path of a step's value; with `for_each` that is a list."""
    if for_each:
        if not path:
            return ExpectedValue(frozenset({"array"}))
        if isinstance(path[0], str):
            field = path[0]
            return ExpectedValue(
                missing_reason="it runs for each element, so its value is a list:"
                f" [0].{field} or [*].{field}"
            )
        path = path[1:]
    schema = tool.definition.get("outputSchema")
    if isinstance(schema, dict):
        return _infer_from_schema(cast("dict[str, Any]", schema), path)
    if shape is not None:
        return _infer_from_shape(shape, path)
    return _UNKNOWN_VALUE


def get_json_types(schema: Any, root: Any, hops: int = 0) -> frozenset[str]:
    """Return the JSON types that a schema accepts; empty if that is not simple to tell."""
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
    declared: Any = node.get("type") or []
    types = [declared] if isinstance(declared, str) else declared
    if isinstance(types, list) and types and all(isinstance(name, str) for name in types):
        found_types = frozenset(cast("list[str]", types))
        if node.get("nullable") is True:
            return found_types | {"null"}
        return found_types
    values = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(values, list):
        return frozenset(map(get_json_type, cast("list[Any]", values)))
    return frozenset()


def get_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a schema; empty if they are not an object."""
    found = schema.get("properties")
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {}


def is_closed(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _infer_from_schema(root: Mapping[str, Any], path: tuple[str | int, ...]) -> ExpectedValue:
    node: Any = root
    for number, step in enumerate(path):
        node = _resolve_ref(node, root)
        if not isinstance(node, dict) or any(key in node for key in _BRANCH_KEYWORDS):
            return _UNKNOWN_VALUE
        inner = cast("dict[str, Any]", node)
        kinds = get_json_types(inner, root)
        wanted = "object" if isinstance(step, str) else "array"
        if kinds and wanted not in kinds:
            return ExpectedValue(missing_reason=_describe_mismatch(path[:number], kinds, step))
        if isinstance(step, int):
            node = inner.get("items")
            if "prefixItems" in inner:
                return _UNKNOWN_VALUE
            continue
        fields = get_properties(inner)
        if step not in fields:
            if is_closed(inner):
                return ExpectedValue(
                    missing_reason=_describe_missing_field(
                        path[:number], step, tuple(fields), "its output schema"
                    )
                )
            return _UNKNOWN_VALUE
        node = fields[step]
    return ExpectedValue(get_json_types(node, root))


def _infer_from_shape(shape: Shape, path: tuple[str | int, ...]) -> ExpectedValue:
    current: Shape | None = shape
    for number, step in enumerate(path):
        kinds = _get_seen_types(current)
        if current is None or not kinds or UNKNOWN in kinds:
            return _UNKNOWN_VALUE
        wanted = "object" if isinstance(step, str) else "array"
        if wanted not in kinds:
            return ExpectedValue(missing_reason=_describe_mismatch(path[:number], kinds, step))
        if isinstance(step, int):
            current = current.items
        elif current.keys is not None or current.fields is None or UNKNOWN in current.fields:
            return _UNKNOWN_VALUE
        elif step not in current.fields:
            return ExpectedValue(
                missing_reason=_describe_missing_field(
                    path[:number], step, tuple(current.fields), "any result seen so far"
                )
            )
        else:
            current = current.fields[step]
    kinds = _get_seen_types(current)
    return ExpectedValue(kinds if UNKNOWN not in kinds else frozenset())


def _get_seen_types(shape: Shape | None) -> frozenset[str]:
    if shape is None:
        return frozenset()
    found = set(shape.scalars)
    if shape.fields is not None or shape.keys is not None:
        found.add("object")
    if shape.length is not None:
        found.add("array")
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
    names = ", ".join(sanitize_text(name)[:40] for name in fields[:_MAX_NAMED_FIELDS])
    if len(fields) > _MAX_NAMED_FIELDS:
        names += " …"
    place = f"{format_path(before)} in " if before else ""
    known = f", only {names}" if names else ""
    return f"there is no {quote_text(step)} in {place}{where}{known}"


def _describe_mismatch(
    before: tuple[str | int, ...], kinds: frozenset[str], step: str | int
) -> str:
    at = format_path(before) or "its value"
    return f"{at} is {'|'.join(sorted(kinds))}, so {format_path((step,))} finds nothing there"


def format_path(path: tuple[str | int, ...]) -> str:
    return "".join(
        f"[{step}]" if isinstance(step, int) else f".{sanitize_text(step)[:60]}" for step in path
    ).lstrip(".")
