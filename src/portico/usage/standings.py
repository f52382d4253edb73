"""Standings of all tools: computed daily from use, stored, and replaced as a whole."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from portico.search import Boost
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import TierRow
from portico.usage.popularity import compute_popularity_boosts
from portico.usage.statistics import DAY_S
from portico.usage.tiers import COLD_STANDING, TIERS, Standing, Tier, compute_standing
from portico.usage.tool_usage import ToolUsage

_RECOMPUTE_GROWTH = 2
"""Growth in calls since the last computation that triggers a new one, so that a new gateway need
not wait a day.
"""


class Standings:
    """The standings as last computed, here or by another gateway on the same store."""

    def __init__(
        self,
        usage: ToolUsage,
        store: GatewayStore,
        *,
        gateway_id: str = "",
        persistent: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create empty standings.

        `gateway_id` marks changes as this gateway's own, so that the others are notified. With
        `persistent` false nothing is written.
        """
        self.by_address: Mapping[str, Standing] = {}
        """By address; tools that were never called are absent."""
        self.monthly_calls: Mapping[str, int] = {}
        """Calls of the last 30 days per tool, at the time of computation."""
        self.popularity_boosts: Mapping[str, Boost] = {}
        """Score boosts in search."""
        self.computed_at = 0.0
        self._known_calls = 0
        """Total calls at the time of computation."""
        self._usage = usage
        self._store = store
        self._gateway_id = gateway_id
        self._persistent = persistent
        self._clock = clock
        self._lock = asyncio.Lock()
        """Serialises load and recompute: a read during a write would return the old standings."""

    async def load(self) -> None:
        """Load the stored standings, unless ours are newer."""
        async with self._lock:
            at, rows = await self._store.load_tiers()
            # Ours may be dated ahead by a wrong clock: then any others are preferred.
            if at > self.computed_at or (
                at and at != self.computed_at and self.computed_at > self._clock()
            ):
                self._replace({f"{row.server}.{row.tool}": _to_standing(row) for row in rows}, at)

    async def recompute(self) -> Mapping[str, Standing]:
        """Compute the standings from current statistics and store them."""
        async with self._lock:
            self._replace(
                {
                    tool: compute_standing(use)
                    for tool, use in self._usage.statistics_by_tool.items()
                },
                self._clock(),
            )
            rows = [
                TierRow(*_split_address(tool), standing.score, standing.tier)
                for tool, standing in self.by_address.items()
            ]
            if self._persistent:
                await self._store.save_tiers(rows, at=self.computed_at, origin=self._gateway_id)
            return self.by_address

    def is_due(self) -> bool:
        """Return whether a day has passed, or the number of calls changed considerably."""
        calls = _count_calls(self._usage)
        if not self.computed_at:
            return calls > 0
        # In both directions: a clock that ran ahead must not delay the next computation.
        aged = abs(self._clock() - self.computed_at) >= DAY_S
        return (
            aged
            or calls >= max(1, _RECOMPUTE_GROWTH * self._known_calls)
            or calls * _RECOMPUTE_GROWTH < self._known_calls
        )

    async def maintain(self) -> None:
        """Load other gateways' standings and recompute if due. Works without the store, too."""
        with contextlib.suppress(StoreUnavailable):
            await self.load()
        if self.is_due():
            with contextlib.suppress(StoreUnavailable):
                await self.recompute()

    def _replace(self, by_address: Mapping[str, Standing], computed_at: float) -> None:
        used = self._usage.statistics_by_tool
        self.by_address = by_address
        self.monthly_calls = {tool: used[tool].calls_30d for tool in by_address if tool in used}
        self.popularity_boosts = compute_popularity_boosts(by_address, self.monthly_calls)
        self.computed_at = computed_at
        self._known_calls = _count_calls(self._usage)


def _count_calls(usage: ToolUsage) -> int:
    return sum(use.calls for use in usage.statistics_by_tool.values())


def _split_address(address: str) -> tuple[str, str]:
    server, _, tool = address.partition(".")
    return server, tool


def _to_standing(row: TierRow) -> Standing:
    return Standing(row.score, _TIER_BY_NAME.get(row.tier, COLD_STANDING.tier))


_TIER_BY_NAME: Mapping[str, Tier] = {tier: tier for tier in TIERS}
