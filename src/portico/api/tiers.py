"""T0 to T3 as data: the hot list, the categories, a category's tools, a tool. Pure, each within its tokens."""

from collections.abc import Mapping
from typing import Any

from portico.api.fitting import EVERYTHING, List, Place, fitted, fitting, paged, segment, text_of
from portico.catalog.tool import Tool
from portico.catalog.visible import shown
from portico.disclosure.cards import Card, category_card, iso, tool_card, use_card
from portico.disclosure.example import example
from portico.disclosure.lines import room
from portico.disclosure.prose import first_sentence, prose
from portico.disclosure.render import schema, signature
from portico.disclosure.shelves import Shelf
from portico.disclosure.sight import Sight

V1 = "/api/v1"
HOT_TOKENS = 2_000
CATEGORIES_TOKENS = 2_000
"""Together with the hot list 4,000."""
_DEFINED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_BRIEF = ("category", "tools", "servers")


def card_of(sight: Sight, tool: Tool) -> Card:
    """A tool in a line."""
    return tool_card(tool, sight.use(tool.address), sight.shelves.standing(tool.address))


def hot(sight: Sight) -> Card:
    """T0."""
    found = sight.shelves.hot
    around: Card = {"tools": [], "grounds": found.grounds, "left_out": 1_000, "version": sight.shelves.version}
    cards = fitting((card_of(sight, tool) for tool in found.tools), room(HOT_TOKENS, text_of(around)))
    left_out = len(found.tools) - len(cards)
    return {
        "tools": cards,
        "grounds": found.grounds,
        **({"left_out": left_out} if left_out else {}),
        "version": sight.shelves.version,
    }


def categories(sight: Sight, offset: int = 0) -> Card:
    """T1: as much of each as lets all of them fit; where even the least does not, the others are on another page."""
    shelves = list(sight.shelves.categories.values())[offset:]
    version, total = sight.shelves.version, len(sight.shelves.categories)
    path = f"{V1}/tools/categories?offset={offset + len(shelves)}&version={version}"
    around: Card = {"categories": [], "total_count": total, "left_out": total, "next": path, "version": version}
    left = room(CATEGORIES_TOKENS, text_of(around))
    cards: list[Card] = []
    for detail in (5, 3, 1, 0):
        cards = fitting((_category(shelf, detail) for shelf in shelves), left)
        if len(cards) == len(shelves):
            break
    body: Card = {"categories": cards, "total_count": total}
    if len(cards) < len(shelves):
        after = f"{V1}/tools/categories?offset={offset + len(cards)}&version={version}"
        body |= {"left_out": len(shelves) - len(cards), "next": after}
    return {**body, "version": version}


def _category(shelf: Shelf, detail: int) -> Card:
    card = category_card(shelf, detail)
    return card if detail else {key: card[key] for key in _BRIEF}


def category_list(sight: Sight, shelf: Shelf, place: Place) -> List:
    """The list that T2 is."""
    path = f"{V1}/tools/category/{segment(shelf.category.key)}"
    return List(path, sight.shelves.version, {"page_size": place.size})


def category(sight: Sight, shelf: Shelf, place: Place) -> Card:
    """T2."""
    head = {"category": shelf.category.key, "title": shelf.category.title}
    listing = category_list(sight, shelf, place)
    return paged("tools", shelf.tools, lambda tool: card_of(sight, tool), place, listing, head)


def tool_path(tool: Tool) -> str:
    """The address of T3."""
    # `tools/category/…` is T2: a server of that name is known by another spelling.
    server = "Category" if tool.server == "category" else tool.server
    return f"{V1}/tools/{segment(server)}/{segment(tool.name)}"


def whole_tool(sight: Sight, tool: Tool, tokens: int) -> Card:
    """T3: in the order in which a caller needs it."""
    entry, standing = sight.snapshot.servers[tool.server], sight.shelves.standing(tool.address)
    state = sight.states().get(tool.server)
    always: Card = {
        "tool": shown(tool.address),
        "server": tool.server,
        "name": shown(tool.name),
        "category": sight.snapshot.category(tool.address),
        "tier": standing.tier,
        "usage": use_card(sight.use(tool.address), standing),
        "hash": tool.hash,
        **({"listed": iso(entry.listed_at)} if entry.known else {}),
        "state": state.state if state else "configured",
    }
    parts: Mapping[str, Any] = {
        "schema": schema(tool),
        "annotations": dict(tool.annotations),
        "title": shown(tool.title),
        "example": example(tool),
        "tags": [shown(tag) for tag in dict.fromkeys((*entry.tags, *tool.tags))],
        "warnings": [shown(warning) for warning in tool.warnings],
        "description": prose(tool.description),
        "input_schema": tool.definition.get("inputSchema"),
        "output_schema": tool.definition.get("outputSchema"),
        "more": {key: value for key, value in tool.definition.items() if key not in _DEFINED},
    }
    body = fitted(always, parts, tokens, f"{tool_path(tool)}?max_tokens={EVERYTHING}")
    if "schema" not in body:
        body |= {"params": signature(tool), "summary": first_sentence(tool.description) or first_sentence(tool.title)}
    return body
