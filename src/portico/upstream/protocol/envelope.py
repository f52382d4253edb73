"""What each protocol era wraps around a request's params. Pure.

The modern era (2026-07-28) repeats version, client and capabilities in every request's `_meta`; the
handshake era must never see those keys. Of a client's own `_meta`, a server gets what the protocol
defines for servers and what its entry in the configuration names (`filter_for_server`).
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from portico import __version__
from portico.upstream.backend import Raw

MODERN_VERSION = "2026-07-28"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_LEGACY_VERSION = LEGACY_VERSIONS[-1]

_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = _PREFIX + "protocolVersion"
CLIENT_INFO_KEY = _PREFIX + "clientInfo"
CLIENT_CAPABILITIES_KEY = _PREFIX + "clientCapabilities"
LOG_LEVEL_KEY = _PREFIX + "logLevel"
SERVER_INFO_KEY = _PREFIX + "serverInfo"
SUBSCRIPTION_KEY = _PREFIX + "subscriptionId"
RELATED_TASK_KEY = _PREFIX + "related-task"
INPUT_RESPONSES = "inputResponses"
REQUEST_STATE = "requestState"
_MODERN_PARAMS = frozenset({INPUT_RESPONSES, REQUEST_STATE})
_ENVELOPE_KEYS = frozenset({VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY})
_SERVER_META_KEYS = frozenset(
    {
        "progressToken",
        "traceparent",
        "tracestate",
        LOG_LEVEL_KEY,
        CLIENT_CAPABILITIES_KEY,
        RELATED_TASK_KEY,
    }
)
"""Keys of a client's `_meta` that every server gets. Who the client is (`clientInfo`) is not among
them."""
_NEVER_FORWARDED = (VERSION_KEY, CLIENT_INFO_KEY, "portico/*")

CLIENT_INFO: Mapping[str, Any] = {"name": "portico", "title": "Portico", "version": __version__}
RELAYED_CAPABILITIES: Mapping[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": False},
}
"""What we offer a handshake-era upstream: it is relayed to the client whose call caused it, or
refused there."""


def filter_for_server(params: Mapping[str, Any], allowed: Sequence[str] = ()) -> Raw:
    """Return a client's params with the part of its `_meta` that a server may see.

    `allowed` are globs of further keys, from the configuration. They never reach keys that say who the client is, or
    that are Portico's own.
    """
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return {key: value for key, value in params.items() if key != "_meta"}
    given = cast("Mapping[str, Any]", meta)
    if _SERVER_META_KEYS.issuperset(given):
        return dict(params)
    kept = {
        key: value
        for key, value in given.items()
        if key in _SERVER_META_KEYS or _is_allowed(key, allowed)
    }
    rest = {key: value for key, value in params.items() if key != "_meta"}
    if kept:
        return {**rest, "_meta": kept}
    return rest


def _is_allowed(key: str, allowed: Sequence[str]) -> bool:
    if not allowed or any(fnmatchcase(key, glob) for glob in _NEVER_FORWARDED):
        return False
    return any(fnmatchcase(key, glob) for glob in allowed)


def to_modern_params(params: Mapping[str, Any] | None) -> Raw:
    """Params with the modern envelope; what the caller already declared wins, the version is ours."""
    if params:
        given = dict(params)
    else:
        given = {}
    meta = dict(given.get("_meta") or {})
    meta[VERSION_KEY] = MODERN_VERSION
    meta.setdefault(CLIENT_INFO_KEY, dict(CLIENT_INFO))
    meta.setdefault(CLIENT_CAPABILITIES_KEY, {})
    given["_meta"] = meta
    return given


def declare_capabilities(
    params: Mapping[str, Any], capabilities: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Params that say what the client they come from can be asked, unless it said so itself."""
    meta = params.get("_meta")
    if isinstance(meta, Mapping):
        given: Mapping[str, Any] = cast("Mapping[str, Any]", meta)
    else:
        given = {}
    if not capabilities or CLIENT_CAPABILITIES_KEY in given:
        return params
    return {**params, "_meta": {**given, CLIENT_CAPABILITIES_KEY: dict(capabilities)}}


def strip_input_responses(params: Mapping[str, Any]) -> Raw:
    """Params without answers to questions."""
    return {key: value for key, value in params.items() if key not in _MODERN_PARAMS}


def add_log_level(params: Raw, level: str | None) -> Raw:
    """Params that ask a modern server for log messages, as a client of the handshake era did once
    and for all."""
    if level is None:
        return params
    meta = params.get("_meta")
    if isinstance(meta, Mapping):
        given: Mapping[str, Any] = cast("Mapping[str, Any]", meta)
    else:
        given = {}
    return {**params, "_meta": {**given, LOG_LEVEL_KEY: level}}


def to_legacy_params(params: Mapping[str, Any] | None) -> Raw | None:
    """Params without the modern envelope, and without answers to questions: that era has other ways
    for those."""
    if not params:
        if params is None:
            return None
        return {}
    meta = params.get("_meta")
    if not isinstance(meta, Mapping) or _ENVELOPE_KEYS.isdisjoint(meta):
        return strip_input_responses(params)
    kept = {key: value for key, value in meta.items() if key not in _ENVELOPE_KEYS}
    stripped = {
        key: value for key, value in params.items() if key != "_meta" and key not in _MODERN_PARAMS
    }
    if kept:
        stripped["_meta"] = kept
    return stripped


def replace_progress_token(
    params: Raw | None, token: str | int
) -> tuple[Raw | None, str | int | None]:
    """Params that carry `token` in place of the caller's progress token, and that token; unchanged
    without one.

    Two clients may both say `1`; towards one upstream the token must be ours.
    """
    if params:
        meta = params.get("_meta")
    else:
        meta = None
    if isinstance(meta, Mapping):
        given = meta.get("progressToken")
    else:
        given = None
    if params is None or not isinstance(meta, Mapping) or not isinstance(given, str | int):
        return params, None
    return {**params, "_meta": {**meta, "progressToken": token}}, given


def make_discover_params() -> Raw:
    """Params of the `server/discover` probe."""
    return to_modern_params(None)


def make_initialize_params() -> Raw:
    """Params of the handshake."""
    return {
        "protocolVersion": LATEST_LEGACY_VERSION,
        "capabilities": dict(RELAYED_CAPABILITIES),
        "clientInfo": dict(CLIENT_INFO),
    }


def make_subscription_params(
    capabilities: Mapping[str, Any], uris: Sequence[str] = ()
) -> Raw | None:
    """The `subscriptions/listen` params that follow an upstream's lists and these resources; None
    without any."""
    wanted: Raw = {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if isinstance(declared := capabilities.get(kind), Mapping) and declared.get("listChanged")
    }
    if uris:
        wanted["resourceSubscriptions"] = list(uris)
    if wanted:
        return {"notifications": wanted}
    return None


def strip_subscription_id(message: Raw) -> Raw:
    """A change without the id of our subscription: that is ours, not the client's."""
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    meta = params.get("_meta")
    if not isinstance(meta, dict) or SUBSCRIPTION_KEY not in meta:
        return message
    rest = {key: value for key, value in meta.items() if key != SUBSCRIPTION_KEY}
    kept = {key: value for key, value in params.items() if key != "_meta"}
    return {**message, "params": {**kept, "_meta": rest} if rest else kept}
