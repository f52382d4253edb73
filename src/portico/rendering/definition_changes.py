"""What servers say differently than when they were trusted, for people and programs. Pure.

Everything of a server is its own words: control characters are removed, and long texts shortened.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from portico.catalog.pinning import list_fields
from portico.catalog.tool import sanitize_text
from portico.json_text import json_codec
from portico.policy.definition_change import DefinitionChange
from portico.policy.definition_scan import Finding
from portico.rendering.token_budget import format_count

MAX_VALUE_CHARS = 2_000
MAX_FIELDS_SHOWN = 40
_SEEN_CHARS = 12


def identify_changes(changes: Iterable[DefinitionChange]) -> str:
    """Return what stands for exactly these changes, so that a person trusts what was shown."""
    digests = sorted(f"{one.kind}\0{one.name}\0{one.digest}" for one in changes)
    text = "\n".join(digests).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text).hexdigest()[:_SEEN_CHARS]


def make_change_object(change: DefinitionChange) -> dict[str, Any]:
    """Return a change as JSON."""
    fields = list_fields(change)[:MAX_FIELDS_SHOWN]
    return {
        "kind": change.kind,
        "name": sanitize_text(change.name),
        "digest": change.digest,
        "held": change.is_held,
        "notes": [sanitize_text(note) for note in change.notes],
        "renamed_from": sanitize_text(change.renamed_from),
        "findings": [
            {
                "meaning": one.meaning,
                "path": sanitize_text(one.path),
                "excerpt": sanitize_text(one.excerpt),
            }
            for one in change.findings
        ],
        "fields": [
            {
                "path": sanitize_text(one.path),
                "before": _render_value(one.before),
                "after": _render_value(one.after),
                "harmless": one.is_harmless,
            }
            for one in fields
        ],
    }


def summarize_points(points: Sequence[DefinitionChange]) -> str:
    """Return what waits for a look in a few words; empty if nothing does."""
    held = sum(point.is_held for point in points)
    harmless = sum(not point.is_held and bool(point.notes) for point in points)
    suspicious = sum(bool(point.findings) for point in points)
    parts = [
        f"{format_count(held, 'definition')} held back" * bool(held),
        format_count(harmless, "harmless change") * bool(harmless),
        format_count(suspicious, "suspicious definition") * bool(suspicious),
    ]
    return ", ".join(filter(None, parts))


def render_change(change: DefinitionChange, *, with_fields: bool) -> Iterator[str]:
    """Render one change in lines, each field before and after."""
    label = sanitize_text(change.label)
    if change.is_held:
        label += " [held back]"
    elif change.notes:
        label += " [harmless]"
    notes = sanitize_text("; ".join(change.notes))
    yield f"{label}: {_join(notes)}" if notes else label
    for finding in change.findings:
        yield f"  suspicious: {render_finding(finding)}"
    if not with_fields:
        return
    fields = list_fields(change)
    for one in fields[:MAX_FIELDS_SHOWN]:
        yield f"  {_join(sanitize_text(one.path)) or 'definition'}"
        yield from (f"  - {line}" for line in _render_value(one.before).splitlines())
        yield from (f"  + {line}" for line in _render_value(one.after).splitlines())
    if len(fields) > MAX_FIELDS_SHOWN:
        yield f"  … and {len(fields) - MAX_FIELDS_SHOWN} more fields"


def render_finding(finding: Finding) -> str:
    """Render what the scan has found, where, and the words."""
    path = _join(sanitize_text(finding.path)) or "definition"
    return f"it {finding.meaning} ({path}): {_join(sanitize_text(finding.excerpt))}"


def _join(text: str) -> str:
    return " ".join(text.split())


def _render_value(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_codec.dumps(value).decode()
    text = sanitize_text(text)
    if len(text) <= MAX_VALUE_CHARS:
        return text
    return f"{text[:MAX_VALUE_CHARS]}… ({len(text):,} characters)"
