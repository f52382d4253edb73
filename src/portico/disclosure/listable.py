"""A definition as strict clients take it: of a tool, a resource, a template or a prompt. Pure.

One field of the wrong kind makes such a client lose the whole list. So a field that the protocol names and whose value
it does not allow is left out, and a schema is given the form it asks for where that says the same. All else is as it
came.
"""

from collections.abc import Mapping
from typing import Any, cast

from portico.upstream.backend import Raw

_KINDS: Mapping[str, type] = {
    "title": str,
    "description": str,
    "annotations": dict,
    "icons": list,
    "outputSchema": dict,
    "_meta": dict,
    "execution": dict,
}
_HINTS: Mapping[str, type] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}
_OFFERED: Mapping[str, type] = {
    "title": str,
    "description": str,
    "mimeType": str,
    "size": int,
    "annotations": dict,
    "arguments": list,
    "icons": list,
    "_meta": dict,
}
_ARGUMENT: Mapping[str, type] = {"title": str, "description": str, "required": bool}
_AUDIENCE = ("user", "assistant")
_TASK_SUPPORT = ("forbidden", "optional", "required")


def listable(definition: Mapping[str, Any], name: str) -> Raw:
    """A definition under the name it is listed by."""
    listed: Raw = {**definition, "name": name}
    for key, kind in _KINDS.items():
        if key in listed and not isinstance(listed[key], kind):
            del listed[key]
    if "annotations" in listed:
        listed["annotations"] = _of_kinds(listed["annotations"], _HINTS)
    if "icons" in listed:
        listed["icons"] = [icon for icon in listed["icons"] if _is_icon(icon)]
    if listed.get("execution", {}).get("taskSupport", "optional") not in _TASK_SUPPORT:
        del listed["execution"]
    listed["inputSchema"] = _input_schema(listed.get("inputSchema"))
    if "outputSchema" in listed and not _is_schema(listed["outputSchema"]):
        del listed["outputSchema"]
    return listed


def listable_offer(definition: Mapping[str, Any]) -> Raw:
    """A resource, a template or a prompt; one without a name is called by its address."""
    listed = dict(_of_kinds(dict(definition), _OFFERED))
    if not isinstance(listed.get("name"), str):
        listed["name"] = listed.get("uri") or listed.get("uriTemplate") or ""
    if "annotations" in listed:
        listed["annotations"] = {key: value for key, value in listed["annotations"].items() if _is_remark(key, value)}
    if "arguments" in listed:
        named = (one for one in listed["arguments"] if isinstance(one, dict) and isinstance(one.get("name"), str))
        listed["arguments"] = [_of_kinds(cast(Raw, one), _ARGUMENT) for one in named]
    if "icons" in listed:
        listed["icons"] = [icon for icon in listed["icons"] if _is_icon(icon)]
    return listed


def _is_remark(key: str, value: Any) -> bool:
    if key == "audience":
        return isinstance(value, list) and all(one in _AUDIENCE for one in cast("list[Any]", value))
    if key == "priority":
        return isinstance(value, int | float) and 0 <= value <= 1
    return key != "lastModified" or isinstance(value, str)


def _of_kinds(value: Raw, kinds: Mapping[str, type]) -> Raw:
    if all(isinstance(value[key], kind) for key, kind in kinds.items() if key in value):
        return value
    return {key: item for key, item in value.items() if isinstance(item, kinds.get(key, object))}


def _is_icon(icon: Any) -> bool:
    if not isinstance(icon, dict):
        return False
    given = cast(Raw, icon)
    sizes = given.get("sizes", [])
    return (
        isinstance(given.get("src"), str)
        and isinstance(given.get("mimeType", ""), str)
        and isinstance(sizes, list)
        and all(isinstance(size, str) for size in cast("list[Any]", sizes))
        and given.get("theme", "light") in ("light", "dark")
    )


def _input_schema(schema: Any) -> Raw:
    if not isinstance(schema, dict):
        return {"type": "object"}
    allowed = {key: value for key, value in cast(Raw, schema).items() if _allowed(key, value)}
    allowed["type"] = "object"
    if "properties" in allowed and not all(isinstance(value, dict) for value in allowed["properties"].values()):
        allowed["properties"] = {key: _property(value) for key, value in allowed["properties"].items()}
    return allowed


def _is_schema(schema: Raw) -> bool:
    """Whether a client can tell what is promised. Of a promise that is in part unreadable, nothing can be kept."""
    properties: Raw = schema.get("properties", {})
    return all(_allowed(key, value) for key, value in schema.items()) and all(
        isinstance(value, dict | bool) for value in properties.values()
    )


def _allowed(keyword: str, value: Any) -> bool:
    if keyword == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))
    return isinstance(value, {"properties": dict, "$schema": str}.get(keyword, object))


def _property(schema: Any) -> Any:
    """A property's schema as an object: `true` allows everything, `false` nothing."""
    if isinstance(schema, dict):
        return cast(Raw, schema)
    return {"not": {}} if schema is False else {}
