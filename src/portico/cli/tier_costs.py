"""Measures the four tiers as clients receive them: the largest answers of each channel.

T0 is the hot list, T1 the categories, T2 a page of summaries, T3 schemas. Meta-tools return T0 and
T1 in one answer; resources and the REST API have one each. The worst case is measured: the category
whose first page costs most, and the tools with the largest schemas.
"""

import heapq
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from portico.calls.pipeline import DEFAULT_CONTEXT
from portico.catalog.tool import Tool
from portico.errors import PorticoError
from portico.meta_tools import tool_definitions
from portico.profiles.view import ProfileView
from portico.rendering.listing_cost import (
    DefinitionCosts,
    TierName,
    TierResponse,
    TierSize,
    compute_tier_sizes,
)
from portico.rendering.token_budget import TokenCounter
from portico.rendering.tool import render_schema
from portico.storage.gateway_store import GatewayStore

_NEXT_CURSOR = re.compile(r'browse_tools\(cursor="([^"]+)"\)')
_CANDIDATES = 100
"""Number of largest definitions among which the largest schemas are searched."""


@dataclass(frozen=True)
class TierChannel:
    """A channel through which clients receive the tiers, with their sizes."""

    name: str
    sizes: tuple[TierSize, ...]


async def measure_channels(
    view: ProfileView, store: GatewayStore, counter: TokenCounter, costs: DefinitionCosts
) -> tuple[TierChannel, ...]:
    """Measure the worst case of every channel of this view; empty if there is no tool."""
    if not view.snapshot.tools:
        return ()
    largest = find_largest_tools(list(view.snapshot.tools.values()), counter, costs)
    measured = {
        "meta-tools": await _measure_meta_tools(view, counter, largest),
        "resources": await _measure_resources(view, counter, largest),
        "REST": await _measure_rest_api(view, store, counter, largest),
    }
    return tuple(
        TierChannel(name, compute_tier_sizes(served)) for name, served in measured.items() if served
    )


def find_largest_tools(
    tools: Sequence[Tool], counter: TokenCounter, costs: DefinitionCosts
) -> list[Tool]:
    """Return the tools with the most expensive schemas, as many as one answer may describe."""
    candidates = heapq.nlargest(_CANDIDATES, tools, key=costs.measure)
    return heapq.nlargest(
        tool_definitions.MAX_NAMES, candidates, key=lambda tool: counter.count(render_schema(tool))
    )


async def _measure_meta_tools(
    view: ProfileView, counter: TokenCounter, largest: Sequence[Tool]
) -> list[TierResponse]:
    async def browse(arguments: dict[str, Any]) -> str | None:
        return await _call_meta_tool(view, tool_definitions.BROWSE_TOOLS, arguments)

    served = list[TierResponse]()
    overview = await browse({})
    if overview is not None:
        served.append(TierResponse("T0", "browse_tools()", counter.count(overview)))
        # T1 is part of that answer, or its continuation if not all categories fit.
        next_cursor = _NEXT_CURSOR.search(overview)
        categories = view.ranked_catalog.categories
        if next_cursor is None or all(f"\n{name} (" in overview for name in categories):
            served.append(TierResponse("T1", "the same answer", 0))
        else:
            rest = counter.count(await browse({"cursor": next_cursor[1]}) or "")
            served.append(TierResponse("T1", "browse_tools(cursor=…), which goes on", rest))
    pages: dict[str, int] = {}
    for name in view.ranked_catalog.categories:
        if (page := await browse({"category": name})) is not None:
            pages[name] = counter.count(page)
    if pages:
        worst = max(pages, key=lambda name: pages[name])
        served.append(TierResponse("T2", f'browse_tools(category="{worst}")', pages[worst]))
    schemas = await _call_meta_tool(
        view, tool_definitions.DESCRIBE_TOOLS, {"names": [tool.address for tool in largest]}
    )
    if schemas is not None:
        request = f"describe_tools of the {len(largest)} largest, {largest[0].address} first"
        served.append(TierResponse("T3", request, counter.count(schemas)))
    return served


async def _measure_resources(
    view: ProfileView, counter: TokenCounter, largest: Sequence[Tool]
) -> list[TierResponse]:
    uris: Mapping[TierName, Sequence[str]] = {
        "T0": ("portico://hot",),
        "T1": ("portico://categories",),
        "T2": tuple(
            f"portico://category/{quote(name, safe='')}" for name in view.ranked_catalog.categories
        ),
        "T3": tuple(f"portico://tool/{quote(tool.address, safe='.')}" for tool in largest),
    }
    return await _measure_worst(uris, lambda uri: _read_resource(view, uri), counter)


async def _measure_rest_api(
    view: ProfileView, store: GatewayStore, counter: TokenCounter, largest: Sequence[Tool]
) -> list[TierResponse]:
    # Loading an HTTP client takes half a second, and only this needs it.
    from httpx2 import ASGITransport, AsyncClient

    from portico.api.app import make_api
    from portico.api.params import MAX_PAGE_SIZE, quote_path_segment
    from portico.api.tiers import V1, build_tool_path

    paths: Mapping[TierName, Sequence[str]] = {
        "T0": (f"{V1}/tools/hot",),
        "T1": (f"{V1}/tools/categories",),
        "T2": tuple(
            f"{V1}/tools/category/{quote_path_segment(name)}?page_size={MAX_PAGE_SIZE}"
            for name in view.ranked_catalog.categories
        ),
        "T3": tuple(map(build_tool_path, largest)),
    }
    transport = ASGITransport(make_api(view.profile_state, view.search_service, store))
    async with AsyncClient(transport=transport, base_url="http://portico") as client:

        async def fetch(path: str) -> str | None:
            response = await client.get(path)
            if response.is_success:
                return response.text
            return None

        return await _measure_worst(paths, fetch, counter)


async def _measure_worst(
    addresses_by_tier: Mapping[TierName, Sequence[str]],
    read: Callable[[str], Awaitable[str | None]],
    counter: TokenCounter,
) -> list[TierResponse]:
    """Measure the most expensive address of each tier; tiers without an answer are left out."""
    served = list[TierResponse]()
    for tier, addresses in addresses_by_tier.items():
        costs = {
            one: counter.count(text) for one in addresses if (text := await read(one)) is not None
        }
        if costs:
            worst = max(costs, key=lambda one: costs[one])
            served.append(TierResponse(tier, worst, costs[worst]))
    return served


async def _call_meta_tool(view: ProfileView, name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the answer of a meta-tool; None if it is switched off."""
    try:
        result = await view.handle(
            "tools/call", {"name": name, "arguments": dict(arguments)}, DEFAULT_CONTEXT, "modern"
        )
    except PorticoError:
        return None
    if result.get("isError"):
        return None
    return _join_texts(result.get("content"))


async def _read_resource(view: ProfileView, uri: str) -> str | None:
    """Return the text of a resource; None if this view does not have it."""
    try:
        result = await view.handle("resources/read", {"uri": uri}, DEFAULT_CONTEXT, "modern")
    except PorticoError:
        return None
    return _join_texts(result.get("contents"))


def _join_texts(parts: Any) -> str:
    return "\n".join(part["text"] for part in parts or () if isinstance(part.get("text"), str))
