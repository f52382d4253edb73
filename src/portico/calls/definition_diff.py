"""What of a tool's definition differs from an earlier one, in words of ours. Pure, and bounded
before it begins."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.visible_text import quote_text
from portico.json_text import json_codec

MAX_COMPARED_BYTES = 64 * 1024
"""Bytes of a definition that is compared; of a larger one it is only said that it changed."""
MAX_NAMES_SHOWN = 5
"""Parameters that are named for each kind of change."""
_NAME_CHARS = 40
_HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open-world",
}
_TEXT_FIELDS = {"description": "its description text", "title": "its title"}
_HINT_VALUES = {True: "yes", False: "no"}


@dataclass(frozen=True)
class DefinitionDifference:
    """How a definition differs from an earlier one."""

    notes: tuple[str, ...]
    is_text_only: bool = False
    """Only the words about it differ, not what it takes, returns or says of its effects."""
    is_riskier: bool = False
    """It claimed to be read-only and no longer does, or now claims to be destructive."""

    def __str__(self) -> str:
        return "; ".join(self.notes)


UNKNOWN_DIFFERENCE = DefinitionDifference(
    ("its earlier definition is not kept, or too large to be compared",)
)


def compare_definitions(before: bytes | None, after: bytes) -> DefinitionDifference:
    """Compare two definitions, each the bytes of JSON."""
    if before is None or max(len(before), len(after)) > MAX_COMPARED_BYTES:
        return UNKNOWN_DIFFERENCE
    old = _parse_definition(before)
    new = _parse_definition(after)
    texts = [words for key, words in _TEXT_FIELDS.items() if old.get(key) != new.get(key)]
    hints = [*_list_hint_changes(_get_object(old, "annotations"), _get_object(new, "annotations"))]
    others = [
        *_list_parameter_changes(_get_object(old, "inputSchema"), _get_object(new, "inputSchema"))
    ]
    if old.get("outputSchema") != new.get("outputSchema"):
        others.append("the schema of its results")
    notes = (*others, *hints, *texts) or ("fields that are not shown",)
    return DefinitionDifference(
        notes, is_text_only=not (others or hints), is_riskier=_is_riskier(old, new)
    )


def _list_parameter_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    if old == new:
        return
    was = _get_object(old, "properties")
    now = _get_object(new, "properties")
    required = [
        name
        for name in _filter_strings(new.get("required"))
        if name not in _filter_strings(old.get("required"))
    ]
    kinds = {
        "parameters added": [name for name in now if name not in was],
        "parameters removed": [name for name in was if name not in now],
        "parameters changed": [name for name in now if name in was and now[name] != was[name]],
        "parameters now required": [name for name in required if name in was],
    }
    found = [f"{kind}: {_format_names(names)}" for kind, names in kinds.items() if names]
    yield from found or ["the schema of its parameters"]


def _list_hint_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    for hint, words in _HINTS.items():
        was = _format_hint(old.get(hint))
        now = _format_hint(new.get(hint))
        if was != now:
            yield f"{words}: {was} → {now}"


def _is_riskier(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    was = _get_object(old, "annotations")
    now = _get_object(new, "annotations")
    no_longer_safe = was.get("readOnlyHint") is True and now.get("readOnlyHint") is not True
    return no_longer_safe or (
        now.get("destructiveHint") is True and was.get("destructiveHint") is not True
    )


def _format_hint(value: Any) -> str:
    if isinstance(value, bool):
        return _HINT_VALUES[value]
    return "not said"


def _format_names(names: list[str]) -> str:
    told = ", ".join(quote_text(name, _NAME_CHARS) for name in names[:MAX_NAMES_SHOWN])
    if len(names) <= MAX_NAMES_SHOWN:
        return told
    return f"{told} and {len(names) - MAX_NAMES_SHOWN} more"


def _filter_strings(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for name in cast("list[Any]", value) if isinstance(name, str)]
    return []


def _get_object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    if isinstance(found, dict):
        return cast("Mapping[str, Any]", found)
    return {}


def _parse_definition(blob: bytes) -> Mapping[str, Any]:
    try:
        found = json_codec.loads(blob)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, dict):
        return cast("Mapping[str, Any]", found)
    return {}
