"""Request params of each protocol era. Pure.

The modern era (2026-07-28) repeats version, client and capabilities in every request's `_meta`; the
handshake era must never see those keys. Of a client's own `_meta`, a server gets what the protocol
defines for servers and what its entry in the configuration names (`filter_for_server`).
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from portico import __version__
from portico.json_text.json_codec import to_object
from portico.upstream.backend import Raw
from portico.upstream.protocol.extensions import EXTENSIONS, OWN_EXTENSIONS, limit_extensions

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
"""Keys of a client's `_meta` that every server gets; `clientInfo` is not among them."""
_NEVER_FORWARDED = (VERSION_KEY, CLIENT_INFO_KEY, "portico/*")

CLIENT_INFO: Mapping[str, Any] = {"name": "portico", "title": "Portico", "version": __version__}
RELAYED_CAPABILITIES: Mapping[str, Any] = {
    "sampling": {"tools": {}, "context": {}},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": False},
    EXTENSIONS: OWN_EXTENSIONS,
}
"""Capabilities declared to handshake-era upstreams; requests are relayed to the calling client."""
OWN_CAPABILITIES: Mapping[str, Any] = {EXTENSIONS: OWN_EXTENSIONS}
"""Capabilities declared to modern upstreams with requests that no client made."""


def filter_for_server(params: Mapping[str, Any], allowed: Sequence[str] = ()) -> Raw:
    """Return a client's params with the part of its `_meta` that a server may see.

    `allowed` are globs of further keys, from the configuration. They never match keys that identify
    the client, or Portico's own.
    """
    forwarded = {
        key: value
        for key, value in to_object(params.get("_meta")).items()
        if key in _SERVER_META_KEYS or _is_allowed(key, allowed)
    }
    if isinstance(declared := forwarded.get(CLIENT_CAPABILITIES_KEY), dict):
        forwarded[CLIENT_CAPABILITIES_KEY] = limit_extensions(declared)
    return _replace_meta(params, forwarded)


def _replace_meta(params: Mapping[str, Any], meta: Mapping[str, Any]) -> Raw:
    replaced = {key: value for key, value in params.items() if key != "_meta"}
    if meta:
        replaced["_meta"] = meta
    return replaced


def _is_allowed(key: str, allowed: Sequence[str]) -> bool:
    if not allowed or any(fnmatchcase(key, glob) for glob in _NEVER_FORWARDED):
        return False
    return any(fnmatchcase(key, glob) for glob in allowed)


def to_modern_params(params: Mapping[str, Any] | None) -> Raw:
    """Add the modern envelope; client and capabilities already declared in `_meta` are kept.

    A request for which no client declared any is the gateway's own.
    """
    modern = dict(params or {})
    meta = dict(modern.get("_meta") or {})
    meta[VERSION_KEY] = MODERN_VERSION
    meta.setdefault(CLIENT_INFO_KEY, dict(CLIENT_INFO))
    meta.setdefault(CLIENT_CAPABILITIES_KEY, dict(OWN_CAPABILITIES))
    modern["_meta"] = meta
    return modern


def declare_capabilities(
    params: Mapping[str, Any], capabilities: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Add the client's capabilities to the params, unless they declare them already."""
    if not capabilities:
        return params
    meta = to_object(params.get("_meta"))
    if CLIENT_CAPABILITIES_KEY in meta:
        return params
    return {**params, "_meta": {**meta, CLIENT_CAPABILITIES_KEY: dict(capabilities)}}


def from_legacy_params(params: Mapping[str, Any], log_level: str | None) -> Raw:
    """Return the params of a handshake-era client as servers of both eras may get them.

    Fields by which only the modern era answers elicitations are removed. The log level, which such
    a client sets once, is added, because modern servers need it with each request.
    """
    stripped = {key: value for key, value in params.items() if key not in _MODERN_PARAMS}
    if log_level is not None:
        stripped["_meta"] = {**to_object(params.get("_meta")), LOG_LEVEL_KEY: log_level}
    return stripped


def to_legacy_params(params: Mapping[str, Any] | None) -> Raw | None:
    """Return params without the modern envelope and without responses to elicitations."""
    if params is None:
        return None
    meta = to_object(params.get("_meta"))
    stripped = {key: value for key, value in params.items() if key not in _MODERN_PARAMS}
    if _ENVELOPE_KEYS.isdisjoint(meta):
        return stripped
    remaining = {key: value for key, value in meta.items() if key not in _ENVELOPE_KEYS}
    return _replace_meta(stripped, remaining)


def replace_progress_token(
    params: Raw | None, token: str | int
) -> tuple[Raw | None, str | int | None]:
    """Replace the caller's progress token by `token`; return the params and the caller's token.

    Without a token the params are unchanged and the token is None. Two clients may both use `1`;
    towards one upstream the token must be unique.
    """
    meta = params.get("_meta") if params else None
    if params is None or not isinstance(meta, dict):
        return params, None
    client_token = meta.get("progressToken")
    if not isinstance(client_token, str | int):
        return params, None
    return {**params, "_meta": {**meta, "progressToken": token}}, client_token


def make_initialize_params() -> Raw:
    return {
        "protocolVersion": LATEST_LEGACY_VERSION,
        "capabilities": dict(RELAYED_CAPABILITIES),
        "clientInfo": dict(CLIENT_INFO),
    }


def make_subscription_params(
    capabilities: Mapping[str, Any], uris: Sequence[str] = ()
) -> Raw | None:
    """Return `subscriptions/listen` params for an upstream's lists and these resources.

    None if there is nothing to subscribe to.
    """
    wanted: Raw = {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if isinstance(declared := capabilities.get(kind), Mapping) and declared.get("listChanged")
    }
    if uris:
        wanted["resourceSubscriptions"] = list(uris)
    return {"notifications": wanted} if wanted else None


def strip_subscription_id(message: Raw) -> Raw:
    params = to_object(message.get("params"))
    meta = to_object(params.get("_meta"))
    if SUBSCRIPTION_KEY not in meta:
        return message
    remaining = {key: value for key, value in meta.items() if key != SUBSCRIPTION_KEY}
    return {**message, "params": _replace_meta(params, remaining)}
