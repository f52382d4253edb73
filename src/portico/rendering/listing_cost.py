"""Token costs of listings, and the budgets of the tiers. Pure.

A client gives its model a tool's name, description and input schema; titles, annotations, icons,
output schemas and `_meta` stay with the client. So these three, as compact JSON, are the cost of a
listed tool, in every listing. The figures are lower than the bytes on the wire, and savings are not
overstated.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.catalog import Catalog
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.events import CatalogChanged, Event, EventBus
from portico.json_text import json_codec
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_budget import count_tokens
from portico.rendering.token_budget import count_tokens as estimated

CountTokens = Callable[[str], int]
TierName = Literal["T0", "T1", "T2", "T3"]
TIER_TITLES: Mapping[TierName, str] = {
    "T0": "hot list",
    "T1": "categories",
    "T2": "one category",
    "T3": "schemas",
}
"""The tiers in words, for people."""
TIER_BUDGETS: Mapping[TierName, int] = {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}
"""Token budget of each tier, including the tiers before it."""
_MODEL_FIELDS = ("name", "description", "inputSchema")


def count_listed_tokens(definition: Mapping[str, Any], count: CountTokens = estimated) -> int:
    """Return the tokens of one definition in a `tools/list` response."""
    shown = {key: definition[key] for key in _MODEL_FIELDS if key in definition}
    return count(json_codec.dumps(shown).decode("utf-8", "replace"))


def count_definition_tokens(tool: Tool, count: CountTokens = estimated) -> int:
    """Return the tokens of a tool as its own server lists it, made valid for strict clients."""
    return count_listed_tokens(to_strict_tool(tool.definition, tool.upstream_name), count)


class DefinitionCosts:
    """Token costs of definitions, each counted once. One thread may fill it while another reads."""

    def __init__(self, count: CountTokens = estimated) -> None:
        self._count = count
        self._tokens_by_hash: dict[str, int] = {}

    def measure(self, tool: Tool) -> int:
        """Return the cost of one tool, counting it if necessary."""
        found = self._tokens_by_hash.get(tool.hash)
        if found is None:
            found = self._tokens_by_hash[tool.hash] = count_definition_tokens(tool, self._count)
        return found

    def measure_all(self, tools: Iterable[Tool]) -> int:
        """Return the total cost of tools, counting those that were not counted before."""
        return sum(map(self.measure, tools))

    def get_known_total(self, tools: Iterable[Tool]) -> int:
        """Return the total cost, or 0 until every tool was counted. Never counts."""
        costs = [self._tokens_by_hash.get(tool.hash, 0) for tool in tools]
        if all(costs):
            return sum(costs)
        return 0

    def find_uncounted(self, tools: Iterable[Tool]) -> list[Tool]:
        """Return the tools that were not counted yet."""
        return [tool for tool in tools if tool.hash not in self._tokens_by_hash]

    def keep_only(self, tools: Iterable[Tool]) -> None:
        """Drop the costs of all other tools, so that old versions do not accumulate."""
        current = {tool.hash for tool in tools}
        self._tokens_by_hash = {
            hash_: cost for hash_, cost in self._tokens_by_hash.items() if hash_ in current
        }


@dataclass(frozen=True, slots=True)
class TierResponse:
    tier: TierName
    request: str
    """The client's request, in words."""
    tokens: int


@dataclass(frozen=True, slots=True)
class TierSize:
    """Size of a tier, including the tiers before it."""

    response: TierResponse
    cumulative_tokens: int

    @property
    def budget(self) -> int:
        """The tier's budget, including the tiers before it."""
        return TIER_BUDGETS[self.response.tier]

    @property
    def is_over_budget(self) -> bool:
        return self.cumulative_tokens > self.budget


def compute_tier_sizes(responses: Sequence[TierResponse]) -> tuple[TierSize, ...]:
    """Return the responses in tier order with cumulative tokens."""
    total = 0
    sizes = list[TierSize]()
    for response in sorted(responses, key=lambda response: response.tier):
        total += response.tokens
        sizes.append(TierSize(response, total))
    return tuple(sizes)


def compute_saved_share(direct_tokens: int, paid_tokens: int) -> float:
    """Return the share of the direct cost that is saved; negative if more is paid."""
    if direct_tokens:
        return 1 - paid_tokens / direct_tokens
    return 0.0


# --- counting in the background


START_DELAY_S = 3.0
BATCH_SIZE = 20
BATCH_PAUSE_S = 0.02
"""Delay before counting starts, definitions per batch, and pause between batches (seconds)."""


class ListingCostCounter:
    """Token cost of the definitions of a catalog."""

    def __init__(self, catalog: Catalog, bus: EventBus) -> None:
        self._catalog = catalog
        self._costs = DefinitionCosts(count_tokens)
        self._changed = asyncio.Event()
        bus.subscribe(self._on_catalog_changed, CatalogChanged)

    def get_listing_cost(self, snapshot: Snapshot) -> int:
        """Return the tokens of listing every visible tool; 0 until all are counted."""
        return self._costs.get_known_total(snapshot.tools.values())

    def get_server_costs(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the tokens of listing the visible tools of each server; 0 until they are
        counted."""
        return {
            entry.name: self._costs.get_known_total(entry.tools.values())
            for entry in snapshot.servers.values()
        }

    async def run(self) -> None:
        """Count all definitions, and changed ones after each catalog change, until cancelled."""
        await asyncio.sleep(START_DELAY_S)
        while True:
            tools = tuple(self._catalog.snapshot.tools.values())
            uncounted = self._costs.find_uncounted(tools)
            for start in range(0, len(uncounted), BATCH_SIZE):
                await asyncio.to_thread(
                    self._costs.measure_all, uncounted[start : start + BATCH_SIZE]
                )
                await asyncio.sleep(BATCH_PAUSE_S)
            self._costs.keep_only(tools)
            await self._changed.wait()
            self._changed.clear()

    async def finish_within(self, timeout_s: float) -> None:
        """Count the remaining definitions for at most `timeout_s` seconds.

        Called at shutdown, so that short sessions enter the ledger too.
        """
        deadline = time.monotonic() + timeout_s
        uncounted = self._costs.find_uncounted(tuple(self._catalog.snapshot.tools.values()))
        for start in range(0, len(uncounted), BATCH_SIZE):
            if time.monotonic() > deadline:
                return
            await asyncio.to_thread(self._costs.measure_all, uncounted[start : start + BATCH_SIZE])

    def _on_catalog_changed(self, _: Event) -> None:
        self._changed.set()
