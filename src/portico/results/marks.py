"""What we say of a result, in its `_meta`, beside what its server says. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.upstream.backend import Raw

CACHED = "portico/cached"
"""`{"age_s": 12.3}`: an earlier answer, given again."""
REPAIRED = "portico/repaired"
"""`["count: \\"5\\" read as 5"]`: what was done to the arguments so that they fit."""
CHANGED = "portico/changed"
"""`{"tool", "hash", "was", "changes": [text]}`: the definition is another than the one the caller saw. Told once.
"""
MISMATCH = "portico/output_mismatch"
"""`["n: \\"x\\" is not of type \\"integer\\""]`: how the structured content differs from the declared schema.
"""
_MARK_KEYS = frozenset({CACHED, REPAIRED, CHANGED, MISMATCH, "portico/error", "portico/session"})


def add_marks(result: Raw, marks: Mapping[str, Any]) -> Raw:
    """A result with these marks; a copy, because what a server answered is kept as it is."""
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), **marks}}


def get_marks(result: Raw) -> dict[str, Any]:
    """The marks of a result."""
    meta = result.get("_meta")
    if isinstance(meta, dict):
        return {key: meta[key] for key in meta if key in _MARK_KEYS}
    return {}


def strip_marks(result: Raw) -> Raw:
    """A result without our marks: what a server says of its own answers is not what we did with
    them."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or _MARK_KEYS.isdisjoint(meta):
        return result
    return {**result, "_meta": {key: value for key, value in meta.items() if key not in _MARK_KEYS}}


def without_mismatch(result: Raw) -> Raw:
    """A result as its server gave it, for who holds it against the declared schema itself."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or MISMATCH not in meta:
        return result
    rest = {key: value for key, value in meta.items() if key != MISMATCH}
    if rest:
        return {**result, "_meta": rest}
    return {key: value for key, value in result.items() if key != "_meta"}


def get_cache_age(result: Raw) -> float | None:
    """How old a kept answer is; None for a fresh one."""
    meta = result.get("_meta")
    if isinstance(meta, dict):
        mark = meta.get(CACHED)
    else:
        mark = None
    if isinstance(mark, dict):
        age = mark.get("age_s")
    else:
        age = None
    if isinstance(age, int | float):
        return float(age)
    return None
