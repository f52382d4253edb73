"""Description of the differences between two definitions of a tool. Pure; input size is limited."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.catalog.visible_text import quote_text
from portico.json_text import json_codec

MAX_COMPARED_BYTES = 64 * 1024
"""Largest definition that is compared; a larger one is only reported as changed."""
MAX_NAMES_SHOWN = 5
"""Parameters named for each kind of change."""
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
    """Differences between two definitions."""

    notes: tuple[str, ...]
    is_text_only: bool = False
    """Only descriptive text differs, not parameters, results or annotated effects."""
    is_riskier: bool = False
    """It is no longer annotated as read-only, or is now annotated as destructive."""

    def __str__(self) -> str:
        return "; ".join(self.notes)


UNKNOWN_DIFFERENCE = DefinitionDifference(
    ("its earlier definition is not kept, or too large to be compared",)
)


def compare_definitions(before: bytes | None, after: bytes) -> DefinitionDifference:
    """Compare two definitions in JSON; `before` is None if it is not stored."""
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
    old_properties = _get_object(old, "properties")
    new_properties = _get_object(new, "properties")
    required = [
        name
        for name in _filter_strings(new.get("required"))
        if name not in _filter_strings(old.get("required"))
    ]
    names_by_change = {
        "parameters added": [name for name in new_properties if name not in old_properties],
        "parameters removed": [name for name in old_properties if name not in new_properties],
        "parameters changed": [
            name
            for name in new_properties
            if name in old_properties and new_properties[name] != old_properties[name]
        ],
        "parameters now required": [name for name in required if name in old_properties],
    }
    notes = [
        f"{change}: {_format_names(names)}" for change, names in names_by_change.items() if names
    ]
    yield from notes or ["the schema of its parameters"]


def _list_hint_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[str]:
    for hint, words in _HINTS.items():
        old_value = _format_hint(old.get(hint))
        new_value = _format_hint(new.get(hint))
        if old_value != new_value:
            yield f"{words}: {old_value} → {new_value}"


def _is_riskier(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    old_hints = _get_object(old, "annotations")
    new_hints = _get_object(new, "annotations")
    no_longer_safe = (
        old_hints.get("readOnlyHint") is True and new_hints.get("readOnlyHint") is not True
    )
    return no_longer_safe or (
        new_hints.get("destructiveHint") is True and old_hints.get("destructiveHint") is not True
    )


def _format_hint(value: Any) -> str:
    if isinstance(value, bool):
        return _HINT_VALUES[value]
    return "not said"


def _format_names(names: list[str]) -> str:
    shown = ", ".join(quote_text(name, _NAME_CHARS) for name in names[:MAX_NAMES_SHOWN])
    if len(names) <= MAX_NAMES_SHOWN:
        return shown
    return f"{shown} and {len(names) - MAX_NAMES_SHOWN} more"


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
