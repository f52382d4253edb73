"""The four tiers as clients are served them: the answers themselves, at their largest.

T0 is the hot list, T1 the categories, T2 a page of summaries, T3 schemas. Meta-tools give T0 and T1 in one answer;
resources and the side door give each its own. The worst is asked for: the category whose first page costs most, and the
tools whose schemas do.
"""

import heapq
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from portico.catalog.tool import Tool
from portico.disclosure import metatools
from portico.disclosure.cost import Costs, Served, TierName, TierSize, tier_sizes
from portico.disclosure.render import schema
from portico.disclosure.tokens import Counter
from portico.disclosure.view import View
from portico.errors import PorticoError
from portico.execution.call import NOBODY
from portico.storage.record import Record

_ONWARDS = re.compile(r'browse_tools\(cursor="([^"]+)"\)')
_CANDIDATES = 100
"""Tools with the largest definitions, among which the largest schemas are looked for."""


@dataclass(frozen=True)
class Way:
    """One way to be served the tiers."""

    name: str
    sizes: tuple[TierSize, ...]


async def ways(view: View, record: Record, counter: Counter, costs: Costs) -> tuple[Way, ...]:
    """Every way that this view has, with what it serves at worst; none where there is no tool."""
    if not view.snapshot.tools:
        return ()
    largest = largest_tools(list(view.snapshot.tools.values()), counter, costs)
    measured = {
        "meta-tools": await _by_metatools(view, counter, largest),
        "resources": await _by_resources(view, counter, largest),
        "REST": await _by_rest(view, record, counter, largest),
    }
    return tuple(Way(name, tier_sizes(served)) for name, served in measured.items() if served)


def largest_tools(tools: Sequence[Tool], counter: Counter, costs: Costs) -> list[Tool]:
    """The tools whose schemas cost most, as many as one answer may describe."""
    candidates = heapq.nlargest(_CANDIDATES, tools, key=costs.of)
    return heapq.nlargest(metatools.MAX_NAMES, candidates, key=lambda tool: counter.count(schema(tool)))


async def _by_metatools(view: View, counter: Counter, largest: Sequence[Tool]) -> list[Served]:
    served = list[Served]()
    overview = await _called(view, metatools.BROWSE, {})
    if overview is not None:
        served.append(Served("T0", "browse_tools()", counter.count(overview)))
        served.append(await _categories(view, counter, overview))
    pages = {
        name: counter.count(page)
        for name in view.shelves.categories
        if (page := await _called(view, metatools.BROWSE, {"category": name})) is not None
    }
    if pages:
        worst = max(pages, key=lambda name: pages[name])
        served.append(Served("T2", f'browse_tools(category="{worst}")', pages[worst]))
    schemas = await _called(view, metatools.DESCRIBE, {"names": [tool.address for tool in largest]})
    if schemas is not None:
        asked = f"describe_tools of the {len(largest)} largest, {largest[0].address} first"
        served.append(Served("T3", asked, counter.count(schemas)))
    return served


async def _categories(view: View, counter: Counter, overview: str) -> Served:
    """T1: in the same answer as T0, and where not all categories fit there, in the one that goes on."""
    onwards = _ONWARDS.search(overview)
    if onwards is None or all(f"\n{name} (" in overview for name in view.shelves.categories):
        return Served("T1", "the same answer", 0)
    more = await _called(view, metatools.BROWSE, {"cursor": onwards[1]})
    return Served("T1", "browse_tools(cursor=…), which goes on", counter.count(more or ""))


async def _by_resources(view: View, counter: Counter, largest: Sequence[Tool]) -> list[Served]:
    asked: Mapping[TierName, Sequence[str]] = {
        "T0": ("portico://hot",),
        "T1": ("portico://categories",),
        "T2": tuple(f"portico://category/{quote(name, safe='')}" for name in view.shelves.categories),
        "T3": tuple(f"portico://tool/{quote(tool.address, safe='.')}" for tool in largest),
    }
    return await _worst(asked, lambda uri: _read(view, uri), counter)


async def _by_rest(view: View, record: Record, counter: Counter, largest: Sequence[Tool]) -> list[Served]:
    # What speaks HTTP takes half a second to load, and only this wants it.
    from httpx2 import ASGITransport, AsyncClient

    from portico.api.app import make_api
    from portico.api.fitting import segment
    from portico.api.params import MAX_PAGE_SIZE
    from portico.api.tiers import V1, tool_path

    asked: Mapping[TierName, Sequence[str]] = {
        "T0": (f"{V1}/tools/hot",),
        "T1": (f"{V1}/tools/categories",),
        "T2": tuple(
            f"{V1}/tools/category/{segment(name)}?page_size={MAX_PAGE_SIZE}" for name in view.shelves.categories
        ),
        "T3": tuple(map(tool_path, largest)),
    }
    inside = ASGITransport(make_api(view.sight, view.searching, record))
    async with AsyncClient(transport=inside, base_url="http://portico") as client:

        async def got(path: str) -> str | None:
            response = await client.get(path)
            return response.text if response.is_success else None

        return await _worst(asked, got, counter)


async def _worst(
    asked: Mapping[TierName, Sequence[str]], read: Callable[[str], Awaitable[str | None]], counter: Counter
) -> list[Served]:
    """Of each tier, the address that costs most; a tier that nothing answers for is left out."""
    served = list[Served]()
    for tier, addresses in asked.items():
        costs = {one: counter.count(text) for one in addresses if (text := await read(one)) is not None}
        if costs:
            worst = max(costs, key=lambda one: costs[one])
            served.append(Served(tier, worst, costs[worst]))
    return served


async def _called(view: View, name: str, arguments: Mapping[str, Any]) -> str | None:
    """What a meta-tool answers; None where it is switched off."""
    try:
        result = await view.handle("tools/call", {"name": name, "arguments": dict(arguments)}, NOBODY, "modern")
    except PorticoError:
        return None
    return None if result.get("isError") else _text(result.get("content"))


async def _read(view: View, uri: str) -> str | None:
    """What a resource says; None where this view has none of that name."""
    try:
        result = await view.handle("resources/read", {"uri": uri}, NOBODY, "modern")
    except PorticoError:
        return None
    return _text(result.get("contents"))


def _text(parts: Any) -> str:
    return "\n".join(part["text"] for part in parts or () if isinstance(part.get("text"), str))
