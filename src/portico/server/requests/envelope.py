"""What each protocol era wants around a result. Pure; never changes the object it is given."""

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
    """A result with what the client's era requires and without what it does not know."""
    if era == "modern":
        return _wrap_modern(result, method, server_info)
    return _wrap_legacy(result, method)


def _wrap_modern(result: Mapping[str, Any], method: str, server_info: Mapping[str, Any]) -> Raw:
    finished = dict(result)
    finished.setdefault("resultType", "complete")
    if method in _TTL_BY_METHOD and finished["resultType"] == "complete":
        finished.setdefault("ttlMs", _TTL_BY_METHOD[method])
        finished.setdefault("cacheScope", "private")
    meta = finished.get("_meta")
    if meta is None or (isinstance(meta, Mapping) and meta.get(SERVER_INFO_KEY) is None):
        finished["_meta"] = {**(meta or {}), SERVER_INFO_KEY: dict(server_info)}
    return finished


def _wrap_legacy(result: Mapping[str, Any], method: str) -> Raw:
    if (kind := result.get("resultType", "complete")) != "complete":
        asks = "needs an answer from the user in the middle of this call"
        if kind == "input_required":
            what = asks
        else:
            what = f"answered with a result of the type {kind!r}"
        raise RemoteError(
            INVALID_REQUEST, f"the server {what}, which this client's protocol version cannot carry"
        )
    finished = {key: value for key, value in result.items() if key not in _MODERN_ONLY_KEYS}
    meta = finished.get("_meta")
    if isinstance(meta, Mapping) and SERVER_INFO_KEY in meta:
        kept = {key: value for key, value in meta.items() if key != SERVER_INFO_KEY}
        if kept:
            finished["_meta"] = kept
        else:
            del finished["_meta"]
    if method == "tools/list":
        finished["tools"] = [_to_legacy_tool(tool) for tool in finished["tools"]]
    return finished


def _to_legacy_tool(tool: Raw) -> Raw:
    """A definition whose output is an object, or unsaid: a strict client of that era loses the list
    over another."""
    schema = tool.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}
