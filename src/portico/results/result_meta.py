"""Marks: notes of the gateway in a result's `_meta`, in addition to its server's. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.upstream.backend import Raw

CACHED = "portico/cached"
"""`{"age_s": 12.3}`: the result is from the cache."""
REPAIRED = "portico/repaired"
"""`["count: \\"5\\" read as 5"]`: repairs of the arguments."""
CHANGED = "portico/changed"
"""`{"tool", "hash", "was", "changes": [text]}`: the definition differs from the one the caller saw.
Marked once."""
MISMATCH = "portico/output_mismatch"
"""`["n: \\"x\\" is not of type \\"integer\\""]`: differences from the declared output schema."""
_GATEWAY_KEYS = frozenset({CACHED, REPAIRED, CHANGED, MISMATCH, "portico/error", "portico/session"})


def add_gateway_meta(result: Raw, marks: Mapping[str, Any]) -> Raw:
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), **marks}}


def get_gateway_meta(result: Raw) -> dict[str, Any]:
    meta = result.get("_meta")
    if isinstance(meta, dict):
        return {key: meta[key] for key in meta if key in _GATEWAY_KEYS}
    return {}


def strip_gateway_meta(result: Raw) -> Raw:
    """Return a result without marks, so that a server cannot forge them."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or _GATEWAY_KEYS.isdisjoint(meta):
        return result
    return {
        **result,
        "_meta": {key: value for key, value in meta.items() if key not in _GATEWAY_KEYS},
    }


def without_mismatch(result: Raw) -> Raw:
    """Return a result without the mismatch mark, for callers that validate it themselves."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or MISMATCH not in meta:
        return result
    rest = {key: value for key, value in meta.items() if key != MISMATCH}
    if rest:
        return {**result, "_meta": rest}
    return {key: value for key, value in result.items() if key != "_meta"}


def get_cache_age(result: Raw) -> float | None:
    """Return the age of a cached result in seconds; None for a fresh one."""
    meta = result.get("_meta")
    mark = meta.get(CACHED) if isinstance(meta, dict) else None
    age = mark.get("age_s") if isinstance(mark, dict) else None
    return float(age) if isinstance(age, int | float) else None
