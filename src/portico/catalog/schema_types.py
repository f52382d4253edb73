"""References, types and constraints of a JSON Schema in a few characters each. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from portico.catalog.tool import sanitize_text, to_literal
from portico.json_text.json_codec import to_list

ABSENT: Final = object()
"""Marks a missing default, as `None` is a valid one."""

_STEP_IN_PLACE = re.compile(
    r"/properties/([^/]*)|/(items|additionalProperties)(?=/|$)|/(?:any|one|all)Of/\d+"
)
_SCALARS = frozenset(("string", "integer", "number", "boolean", "null"))
ANNOTATION_KEYS = frozenset(
    ("title", "description", "default", "examples", "example", "enum", "const", "deprecated")
)
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_TYPE_HINTS = {
    "object": {"properties", "patternProperties", "additionalProperties", "required"},
    "array": {"items", "prefixItems"},
    "string": {"pattern", "minLength", "maxLength"},
    "number": {"minimum", "maximum"},
}
_SAFE_INTEGER = 2**53 - 1
"""The bound that schema generators write for any integer; it carries no information."""

_RANGES = (
    (("integer", "number", "any"), "minimum", "maximum", ""),
    (("string", "any"), "minLength", "maxLength", " chars"),
    (("array", "any"), "minItems", "maxItems", " items"),
    (("object", "any"), "minProperties", "maxProperties", " keys"),
)
_LABELLED = {"exclusiveMinimum": ">{}", "exclusiveMaximum": "<{}", "multipleOf": "multiple of {}"}
_FLAGS = {"uniqueItems": "unique", "deprecated": "deprecated"}
_RAW = ("not", "contains", "dependentRequired", "dependentSchemas", "dependencies")


def resolve_pointer(pointer: str, root: Any) -> Any:
    """Return what `#/a/b` points to in `root`, or ABSENT."""
    if pointer != "#" and not pointer.startswith("#/"):
        return ABSENT
    node = root
    for step in pointer.split("/")[1:]:
        step = unescape_step(step)
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        else:
            return ABSENT
    return node


def to_parameter_path(pointer: str) -> str:
    """Render a pointer into the parameters as a path (`filter.items[].name`); "" for any other."""
    path = _STEP_IN_PLACE.sub(_render_step, pointer[1:])
    if "/" in path:
        return ""
    return " ".join(sanitize_text(path).split()).lstrip(".") or "root"


def _render_step(match: re.Match[str]) -> str:
    if match[1]:
        return f".{unescape_step(match[1])}"
    return "[]" if match[2] else ""


def unescape_step(step: str) -> str:
    if "%" not in step and "~" not in step:
        return step
    return unquote(step).replace("~1", "/").replace("~0", "~")


def count_references(root: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(ref := node.get("$ref"), str):
                counts[ref] = counts.get(ref, 0) + 1
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return counts


def describe_constraints(schema: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield formats, ranges, patterns and rules of a schema of this kind."""
    for key in ("format", "contentEncoding", "contentMediaType"):
        if isinstance(schema.get(key), str):
            yield sanitize_text(schema[key])
    for kinds, low_key, high_key, unit in _RANGES:
        if kind in kinds and (bounds := _describe_range(schema.get(low_key), schema.get(high_key))):
            yield f"{bounds}{unit}"
    for key, form in _LABELLED.items():
        # In draft 4 exclusiveness is a flag beside the bound.
        value = schema.get(key)
        if value is True:
            value = schema.get(key[9:].lower())
        if value is not None and value is not False:
            yield form.format(to_literal(value))
    if isinstance(schema.get("pattern"), str):
        yield f"/{sanitize_text(schema['pattern'])}/"
    yield from (word for key, word in _FLAGS.items() if schema.get(key) is True)
    if schema.get("enum") == []:
        yield "enum []"
    yield from (f"{key} {to_literal(schema[key])}" for key in _RAW if key in schema)
    for rule in (schema, *to_list(schema.get("allOf"))):
        if isinstance(rule, dict) and "if" in rule:
            parts = [key for key in ("if", "then", "else") if key in rule]
            yield " ".join(f"{key} {to_literal(rule[key])}" for key in parts)


def _describe_range(low: Any, high: Any) -> str:
    if low == -_SAFE_INTEGER:
        low = None
    if high == _SAFE_INTEGER:
        high = None
    if low is None and high is None:
        return ""
    if high is None:
        return f"≥{to_literal(low)}"
    if low is None:
        return f"≤{to_literal(high)}"
    if low == high:
        return to_literal(low)
    return f"{to_literal(low)}..{to_literal(high)}"


def get_json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "any")


def list_values(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values a schema allows by `const` or `enum`; empty if it has neither."""
    if "const" in schema:
        return [schema["const"]]
    return to_list(schema.get("enum"))


def detect_type(schema: Mapping[str, Any]) -> tuple[str, bool]:
    declared = schema.get("type")
    listed = list_types(schema)
    nullable = schema.get("nullable") is True or (
        isinstance(declared, list) and "null" in declared and bool(listed)
    )
    if len(listed) > 1 and not ("enum" in schema or "const" in schema):
        return "union", nullable
    if listed:
        return listed[0], nullable
    values = list_values(schema)
    if values:
        return get_json_type(values[0]), nullable
    hinted = (kind for kind, keys in _TYPE_HINTS.items() if not keys.isdisjoint(schema))
    return next(hinted, "any"), nullable


def list_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the declared types; null only if it is the only one."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared if declared.isidentifier() else to_one_line(declared)]
    names = [to_one_line(name) for name in to_list(declared) if isinstance(name, str)]
    return [name for name in names if name != "null"] or names[:1]


def summarize_type(schema: Any, root: Any, hops: int = 0) -> str:
    """Return a type in a word or two, for a one-line summary."""
    if not isinstance(schema, dict) or hops > 6:
        return "any"
    if isinstance(schema.get("$ref"), str):
        return summarize_type(resolve_pointer(schema["$ref"], root), root, hops + 1)
    values = list_values(schema)
    if values:
        text = "|".join(map(to_literal, values[:5]))
        if len(values) <= 4 and len(text) <= 36:
            return text
        return "enum"
    parts = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if isinstance(parts, list) and parts and "properties" not in schema:
        types = dict.fromkeys(
            summarize_type(part, root, hops + 1) for part in parts if part != {"type": "null"}
        )
        if len(types) <= 3 and "any" not in types:
            return "|".join(types)
        return "any"
    kind = detect_type(schema)[0]
    if kind == "array":
        inner = summarize_type(schema.get("items"), root, hops + 1)
        if inner == "any":
            return "array"
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if kind == "union":
        return "|".join(list_types(schema))
    return kind


def to_one_line(text: str) -> str:
    return " ".join(sanitize_text(text).split())


def to_names(value: Any) -> dict[str, None]:
    """Return the texts of a list, in order, without repetitions."""
    return dict.fromkeys(name for name in to_list(value) if isinstance(name, str))


def unwrap_reference(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a reference wrapped in `allOf` to describe it; it keeps its name."""
    parts = to_list(schema.get("allOf"))
    if (
        len(parts) != 1
        or not isinstance(parts[0], dict)
        or "$ref" not in parts[0]
        or schema.keys() - ANNOTATION_KEYS - {"allOf"}
    ):
        return None
    return {**parts[0], **{key: value for key, value in schema.items() if key != "allOf"}}


def is_plain(schema: Mapping[str, Any]) -> bool:
    """Return whether it is a scalar or an array of scalars, which is shorter than a type name."""
    items = schema.get("items")
    if isinstance(items, dict) and schema.get("type") == "array":
        schema = items
    kind = schema.get("type")
    return (
        isinstance(kind, str)
        and kind in _SCALARS
        and schema.keys().isdisjoint(("anyOf", "oneOf", "allOf", "$ref"))
    )


def merge_schemas(into: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the keys of `other` to a schema; properties and required names are joined."""
    for key, value in other.items():
        if key == "properties" and isinstance(value, dict) and isinstance(into.get(key), dict):
            into[key] = {**into[key], **value}
        elif key in ("required", "allOf"):
            into[key] = [*to_list(into.get(key)), *to_list(value)]
        else:
            into[key] = value
    return into
