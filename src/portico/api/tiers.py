"""Content of the tiers T0 to T3: hot list, categories, a category's tools, a tool. Pure; each
within its token budget."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from portico.api.params import (
    UNLIMITED_TOKENS,
    PagedList,
    PageRequest,
    fit_parts,
    quote_path_segment,
    render_list_page,
    take_fitting_cards,
    to_json_text,
)
from portico.catalog.tool import Tool, sanitize_text
from portico.profiles.json_objects import (
    JsonObject,
    make_author_notes,
    make_category_object,
    make_tool_object,
    make_usage_object,
    to_iso_time,
)
from portico.profiles.profile_state import ProfileState
from portico.rendering.examples import make_example, make_examples
from portico.rendering.one_line_tool import render_signature
from portico.rendering.prose import extract_first_sentence, normalize_prose
from portico.rendering.token_budget import compute_remaining_tokens
from portico.rendering.tool import render_schema
from portico.usage.tool_tiers import RankedCategory

V1 = "/api/v1"
HOT_TOKENS = 2_000
CATEGORIES_TOKENS = 2_000
"""Together with the hot list 4,000."""
_RENDERED_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_BRIEF_KEYS = ("category", "tools", "servers")


def render_hot_tools(profile_state: ProfileState) -> JsonObject:
    """Render T0, the hot list."""
    hot_list = profile_state.ranked_catalog.hot_list
    version = profile_state.ranked_catalog.version
    body: JsonObject = {
        "tools": [],
        "grounds": hot_list.basis,
        "left_out": 1_000,
        "version": version,
    }
    body["tools"] = take_fitting_cards(
        (make_tool_object(profile_state, tool, is_summary=False) for tool in hot_list.tools),
        compute_remaining_tokens(HOT_TOKENS, to_json_text(body)),
    )
    body["left_out"] = len(hot_list.tools) - len(body["tools"])
    if not body["left_out"]:
        del body["left_out"]
    return body


def render_categories(profile_state: ProfileState, offset: int = 0) -> JsonObject:
    """Render T1, with the most detail in which all categories fit.

    If they do not fit even in brief, the rest is on the next page.
    """
    categories = list(profile_state.ranked_catalog.categories.values())[offset:]
    version = profile_state.ranked_catalog.version
    total = len(profile_state.ranked_catalog.categories)
    path = f"{V1}/tools/categories?offset={offset + len(categories)}&version={version}"
    frame: JsonObject = {
        "categories": [],
        "total_count": total,
        "left_out": total,
        "next": path,
        "version": version,
    }
    remaining = compute_remaining_tokens(CATEGORIES_TOKENS, to_json_text(frame))
    cards: list[JsonObject] = []
    for detail in (5, 3, 1, 0):
        cards = take_fitting_cards(
            (_render_category_summary(category, detail) for category in categories), remaining
        )
        if len(cards) == len(categories):
            break
    body: JsonObject = {"categories": cards, "total_count": total}
    if len(cards) < len(categories):
        next_path = f"{V1}/tools/categories?offset={offset + len(cards)}&version={version}"
        body |= {"left_out": len(categories) - len(cards), "next": next_path}
    return {**body, "version": version}


def _render_category_summary(ranked: RankedCategory, detail: int) -> JsonObject:
    card = make_category_object(ranked, detail)
    if detail:
        return card
    return {key: card[key] for key in _BRIEF_KEYS}


def make_category_list(
    profile_state: ProfileState, ranked: RankedCategory, page_request: PageRequest
) -> PagedList:
    """Return the paged list of T2."""
    path = f"{V1}/tools/category/{quote_path_segment(ranked.category.key)}"
    return PagedList(path, profile_state.ranked_catalog.version, {"page_size": page_request.size})


def render_category_page(
    profile_state: ProfileState, ranked: RankedCategory, page_request: PageRequest
) -> JsonObject:
    """Render T2, a page of a category's tools."""
    head = {"category": ranked.category.key, "title": ranked.category.title}
    listing = make_category_list(profile_state, ranked, page_request)
    return render_list_page(
        "tools",
        ranked.tools,
        partial(make_tool_object, profile_state),
        page_request,
        listing,
        head,
    )


def build_tool_path(tool: Tool) -> str:
    """Return the path of T3."""
    # `tools/category/…` is T2: a server of that name is addressed by another spelling.
    server = "Category" if tool.server == "category" else tool.server
    return f"{V1}/tools/{quote_path_segment(server)}/{quote_path_segment(tool.name)}"


def render_tool_details(profile_state: ProfileState, tool: Tool, tokens: int) -> JsonObject:
    """Render T3, a tool, its parts in the order in which a caller needs them."""
    entry = profile_state.snapshot.servers[tool.server]
    standing = profile_state.ranked_catalog.get_standing(tool.address)
    state = profile_state.get_server_states().get(tool.server)
    always: JsonObject = {
        "tool": sanitize_text(tool.address),
        "server": tool.server,
        "name": sanitize_text(tool.name),
        "category": profile_state.snapshot.get_category(tool.address),
        "tier": standing.tier,
        "usage": make_usage_object(profile_state.get_statistics(tool.address), standing),
        "hash": tool.hash,
        **({"listed": to_iso_time(entry.listed_at)} if entry.is_listed else {}),
        "state": state.state if state else "configured",
    }
    parts: Mapping[str, Any] = {
        "schema": render_schema(tool),
        "annotations": dict(tool.annotations),
        "title": sanitize_text(tool.title),
        "example": make_example(tool),
        "examples": make_examples(tool),
        "tags": [sanitize_text(tag) for tag in dict.fromkeys((*entry.tags, *tool.tags))],
        "warnings": [sanitize_text(warning) for warning in tool.warnings],
        **make_author_notes(entry, tool),
        "description": normalize_prose(tool.description),
        "input_schema": tool.definition.get("inputSchema"),
        "output_schema": tool.definition.get("outputSchema"),
        "more": {key: value for key, value in tool.definition.items() if key not in _RENDERED_KEYS},
    }
    body = fit_parts(
        always, parts, tokens, f"{build_tool_path(tool)}?max_tokens={UNLIMITED_TOKENS}"
    )
    if "schema" not in body:
        body |= {
            "params": render_signature(tool),
            "summary": extract_first_sentence(tool.description)
            or extract_first_sentence(tool.title),
        }
    return body
