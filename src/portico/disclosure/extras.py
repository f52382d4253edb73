"""What is known of a tool beside its definition: where it belongs, how it is used, how fresh that is. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure.cards import iso, use_card
from portico.disclosure.script import script_example
from portico.disclosure.sight import Sight
from portico.disclosure.tokens import count

_SHAPE_TOKENS = 200


def extras(sight: Sight, tool: Tool) -> Mapping[str, Any]:
    """For the full form: category, tags, use, when its server was listed, and a call as scripts write it."""
    snapshot = sight.snapshot
    entry = snapshot.servers[tool.server]
    known: dict[str, Any] = {
        "category": snapshot.category(tool.address),
        "tags": [shown(tag) for tag in dict.fromkeys((*entry.tags, *tool.tags))],
        "usage": use_card(sight.use(tool.address), sight.shelves.standing(tool.address)),
        "listed": iso(entry.listed_at) if entry.known else "",
        "answers": _seen(sight, tool),
        "script": script_example(tool, snapshot),
    }
    return {key: value for key, value in known.items() if value}


def _seen(sight: Sight, tool: Tool) -> str:
    """What its results were made of so far, where it does not say itself."""
    if sight.insight is None or isinstance(tool.definition.get("outputSchema"), dict):
        return ""
    return sight.insight.shapes.told(tool, _SHAPE_TOKENS, count)
