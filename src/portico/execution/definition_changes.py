"""What of a tool's definition differs from an earlier one, in words of ours. Pure, and bounded before it begins."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.visible import quoted
from portico.upstream import jsontext

MAX_COMPARED = 64 * 1024
"""Bytes of a definition that is compared; of a larger one it is only said that it changed."""
MAX_NAMED = 5
"""Parameters that are named for each kind of change."""
_NAME_CHARS = 40
_HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}
_TEXTS = {"description": "its description text", "title": "its title"}
_SAID = {True: "yes", False: "no"}


@dataclass(frozen=True)
class Difference:
    """How a definition differs from an earlier one."""

    notes: tuple[str, ...]
    text_only: bool = False
    """Only the words about it differ, not what it takes, returns or says of its effects."""
    riskier: bool = False
    """It claimed to be read-only and no longer does, or now claims to be destructive."""

    def __str__(self) -> str:
        return "; ".join(self.notes)


UNKNOWN = Difference(("its earlier definition is not kept, or too large to be compared",))


def compare(before: bytes | None, after: bytes) -> Difference:
    """Compare two definitions, each the bytes of JSON."""
    if before is None or max(len(before), len(after)) > MAX_COMPARED:
        return UNKNOWN
    old, new = _parsed(before), _parsed(after)
    texts = [words for key, words in _TEXTS.items() if old.get(key) != new.get(key)]
    hints = [*_hint_changes(_inner(old, "annotations"), _inner(new, "annotations"))]
    others = [*_parameter_changes(_inner(old, "inputSchema"), _inner(new, "inputSchema"))]
    if old.get("outputSchema") != new.get("outputSchema"):
        others.append("the schema of its results")
    notes = (*others, *hints, *texts) or ("fields that are not shown",)
    return Difference(notes, text_only=not (others or hints), riskier=_is_riskier(old, new))


def _parameter_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    if old == new:
        return
    was, now = _inner(old, "properties"), _inner(new, "properties")
    required = [name for name in _names(new.get("required")) if name not in _names(old.get("required"))]
    kinds = {
        "parameters added": [name for name in now if name not in was],
        "parameters removed": [name for name in was if name not in now],
        "parameters changed": [name for name in now if name in was and now[name] != was[name]],
        "parameters now required": [name for name in required if name in was],
    }
    found = [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]
    yield from found or ["the schema of its parameters"]


def _hint_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    for hint, words in _HINTS.items():
        was, now = _said(old.get(hint)), _said(new.get(hint))
        if was != now:
            yield f"{words}: {was} → {now}"


def _is_riskier(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    was, now = _inner(old, "annotations"), _inner(new, "annotations")
    no_longer_safe = was.get("readOnlyHint") is True and now.get("readOnlyHint") is not True
    return no_longer_safe or (now.get("destructiveHint") is True and was.get("destructiveHint") is not True)


def _said(value: Any) -> str:
    return _SAID[value] if isinstance(value, bool) else "not said"


def _listed(names: list[str]) -> str:
    told = ", ".join(quoted(name, _NAME_CHARS) for name in names[:MAX_NAMED])
    return told if len(names) <= MAX_NAMED else f"{told} and {len(names) - MAX_NAMED} more"


def _names(value: Any) -> list[str]:
    return [name for name in cast("list[Any]", value) if isinstance(name, str)] if isinstance(value, list) else []


def _inner(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}


def _parsed(blob: bytes) -> Mapping[str, Any]:
    try:
        found = jsontext.loads(blob)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
