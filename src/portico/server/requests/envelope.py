"""Fields that each protocol era requires around a result. Pure; never changes its argument."""

from collections.abc import Mapping
from typing import Any

from portico.errors import INVALID_REQUEST, RemoteError
from portico.upstream.backend import Era, Raw
from portico.upstream.protocol.envelope import SERVER_INFO_KEY

LIST_TTL_MS = 60_000
_TTL_BY_METHOD = {
    "server/discover": LIST_TTL_MS,
    "tools/list": LIST_TTL_MS,
    "prompts/list": LIST_TTL_MS,
    "resources/list": LIST_TTL_MS,
    "resources/templates/list": LIST_TTL_MS,
    "resources/read": 0,
}
_MODERN_ONLY_KEYS = ("resultType", "ttlMs", "cacheScope")


def wrap_result(
    result: Mapping[str, Any], method: str, era: Era, server_info: Mapping[str, Any]
) -> Raw:
    """Return a result with the fields of the client's era and without those it does not know."""
    if era == "modern":
        return _wrap_modern(result, method, server_info)
    return _wrap_legacy(result, method)


def _wrap_modern(result: Mapping[str, Any], method: str, server_info: Mapping[str, Any]) -> Raw:
    wrapped = dict(result)
    wrapped.setdefault("resultType", "complete")
    if method in _TTL_BY_METHOD and wrapped["resultType"] == "complete":
        wrapped.setdefault("ttlMs", _TTL_BY_METHOD[method])
        wrapped.setdefault("cacheScope", "private")
    meta = wrapped.get("_meta")
    if meta is None or (isinstance(meta, Mapping) and meta.get(SERVER_INFO_KEY) is None):
        wrapped["_meta"] = {**(meta or {}), SERVER_INFO_KEY: dict(server_info)}
    return wrapped


def _wrap_legacy(result: Mapping[str, Any], method: str) -> Raw:
    if (kind := result.get("resultType", "complete")) != "complete":
        what = f"answered with a result of the type {kind!r}"
        if kind == "input_required":
            what = "needs an answer from the user in the middle of this call"
        raise RemoteError(
            INVALID_REQUEST, f"the server {what}, which this client's protocol version cannot carry"
        )
    wrapped = {key: value for key, value in result.items() if key not in _MODERN_ONLY_KEYS}
    meta = wrapped.get("_meta")
    if isinstance(meta, Mapping) and SERVER_INFO_KEY in meta:
        other_meta = {key: value for key, value in meta.items() if key != SERVER_INFO_KEY}
        if other_meta:
            wrapped["_meta"] = other_meta
        else:
            del wrapped["_meta"]
    if method == "tools/list":
        wrapped["tools"] = [_to_legacy_tool(tool) for tool in wrapped["tools"]]
    return wrapped


def _to_legacy_tool(tool: Raw) -> Raw:
    """Drop an output schema that is not an object: a strict legacy client would reject the list."""
    schema = tool.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}
