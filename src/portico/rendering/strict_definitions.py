"""Definitions of tools, resources, templates and prompts, made valid for strict clients. Pure.

One field of the wrong type makes such a client reject the whole list. So a standard field with an
invalid value is left out, and a schema is given the required form where that means the same.
Everything else is unchanged.
"""

from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw

_TOOL_FIELDS: Mapping[str, type] = {
    "title": str, "description": str, "annotations": dict, "icons": list, "outputSchema": dict,
    "_meta": dict, "execution": dict,
}  # fmt: skip
_HINT_FIELDS: Mapping[str, type] = {
    "title": str, "readOnlyHint": bool, "destructiveHint": bool, "idempotentHint": bool,
    "openWorldHint": bool,
}  # fmt: skip
_OFFER_FIELDS: Mapping[str, type] = {
    "title": str, "description": str, "mimeType": str, "size": int, "annotations": dict,
    "arguments": list, "icons": list, "_meta": dict,
}  # fmt: skip
_ARGUMENT_FIELDS: Mapping[str, type] = {"title": str, "description": str, "required": bool}
_KEYWORDS: Mapping[str, type] = {"properties": dict, "$schema": str}
_AUDIENCE = ("user", "assistant")
_TASK_SUPPORT = ("forbidden", "optional", "required")


def to_strict_tool(definition: Mapping[str, Any], name: str) -> Raw:
    """Return a valid tool definition under the name that it is listed by."""
    listed: Raw = {**_keep_typed(dict(definition), _TOOL_FIELDS), "name": name}
    if "annotations" in listed:
        listed["annotations"] = _keep_typed(listed["annotations"], _HINT_FIELDS)
    if "icons" in listed:
        listed["icons"] = [icon for icon in listed["icons"] if _is_valid_icon(icon)]
    if listed.get("execution", {}).get("taskSupport", "optional") not in _TASK_SUPPORT:
        del listed["execution"]
    listed["inputSchema"] = _to_object_schema(listed.get("inputSchema"))
    if "outputSchema" in listed and not _is_valid_schema(listed["outputSchema"]):
        del listed["outputSchema"]
    return listed


def to_strict_offer(definition: Mapping[str, Any]) -> Raw:
    """Return a valid resource, template or prompt; one without a name gets its URI."""
    listed = dict(_keep_typed(dict(definition), _OFFER_FIELDS))
    if not isinstance(listed.get("name"), str):
        listed["name"] = listed.get("uri") or listed.get("uriTemplate") or ""
    if "annotations" in listed:
        annotations: Raw = listed["annotations"]
        listed["annotations"] = {
            key: value for key, value in annotations.items() if _is_valid_annotation(key, value)
        }
    if "arguments" in listed:
        listed["arguments"] = [
            _keep_typed(cast(Raw, argument), _ARGUMENT_FIELDS)
            for argument in listed["arguments"]
            if isinstance(argument, dict) and isinstance(argument.get("name"), str)
        ]
    if "icons" in listed:
        listed["icons"] = [icon for icon in listed["icons"] if _is_valid_icon(icon)]
    return listed


def _is_valid_annotation(key: str, value: Any) -> bool:
    if key == "audience":
        return isinstance(value, list) and all(
            audience in _AUDIENCE for audience in cast("list[Any]", value)
        )
    if key == "priority":
        return isinstance(value, int | float) and 0 <= value <= 1
    return key != "lastModified" or isinstance(value, str)


def _keep_typed(value: Raw, types: Mapping[str, type]) -> Raw:
    if all(isinstance(value[key], kind) for key, kind in types.items() if key in value):
        return value
    return {key: item for key, item in value.items() if isinstance(item, types.get(key, object))}


def _is_valid_icon(icon: Any) -> bool:
    if not isinstance(icon, dict):
        return False
    fields = cast(Raw, icon)
    sizes = fields.get("sizes", [])
    return (
        isinstance(fields.get("src"), str)
        and isinstance(fields.get("mimeType", ""), str)
        and isinstance(sizes, list)
        and all(isinstance(size, str) for size in cast("list[Any]", sizes))
        and fields.get("theme", "light") in ("light", "dark")
    )


def _to_object_schema(schema: Any) -> Raw:
    if not isinstance(schema, dict):
        return {"type": "object"}
    allowed = {
        key: value for key, value in cast(Raw, schema).items() if _is_valid_keyword(key, value)
    }
    allowed["type"] = "object"
    if "properties" in allowed:
        allowed["properties"] = {
            key: _to_property_schema(value) for key, value in allowed["properties"].items()
        }
    return allowed


def _is_valid_schema(schema: Raw) -> bool:
    """Return whether an output schema is readable; a partly invalid one is dropped as a whole."""
    properties: Raw = schema.get("properties", {})
    return all(_is_valid_keyword(key, value) for key, value in schema.items()) and all(
        isinstance(value, dict | bool) for value in properties.values()
    )


def _is_valid_keyword(keyword: str, value: Any) -> bool:
    if keyword == "required":
        return isinstance(value, list) and all(
            isinstance(name, str) for name in cast("list[Any]", value)
        )
    return isinstance(value, _KEYWORDS.get(keyword, object))


def _to_property_schema(schema: Any) -> Any:
    """Return a property's schema as an object: `true` allows everything, `false` nothing."""
    if isinstance(schema, dict):
        return cast(Raw, schema)
    if schema is False:
        return {"not": {}}
    return {}
