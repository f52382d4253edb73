"""Facts about a tool beside its definition: category, tags, use and examples. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.catalog.tool import Tool
from portico.catalog.visible_text import sanitize_text
from portico.profiles.cards import make_usage_card, to_iso_time
from portico.profiles.profile_state import ProfileState
from portico.rendering.script_example import make_script_example
from portico.rendering.token_count import count_tokens

_MAX_SHAPE_TOKENS = 200


def collect_tool_details(profile_state: ProfileState, tool: Tool) -> Mapping[str, Any]:
    """Return the facts for the full form; empty ones are left out."""
    snapshot = profile_state.snapshot
    entry = snapshot.servers[tool.server]
    details: dict[str, Any] = {
        "category": snapshot.get_category(tool.address),
        "tags": [sanitize_text(tag) for tag in dict.fromkeys((*entry.tags, *tool.tags))],
        "usage": make_usage_card(
            profile_state.get_statistics(tool.address),
            profile_state.ranked_catalog.get_standing(tool.address),
        ),
        "listed": to_iso_time(entry.listed_at) if entry.is_listed else "",
        "answers": _describe_learned_shape(profile_state, tool),
        "script": make_script_example(tool, snapshot),
    }
    return {key: value for key, value in details.items() if value}


def _describe_learned_shape(profile_state: ProfileState, tool: Tool) -> str:
    """Render the shape of past results, for a tool without an output schema."""
    if profile_state.usage_data is None or isinstance(tool.definition.get("outputSchema"), dict):
        return ""
    return profile_state.usage_data.shapes.render_line(tool, _MAX_SHAPE_TOKENS, count_tokens)
