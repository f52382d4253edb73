"""Where every tool stands: computed daily from its use, kept on record, and replaced whole."""

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
"""So many times the calls of last time are worth computing anew at once: a new house is not stale
for a day."""


class Standings:
    """The standings as they were last computed, here or by another gateway on the same record."""

    def __init__(
        self,
        usage: ToolUsage,
        store: GatewayStore,
        *,
        gateway_id: str = "",
        persistent: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`origin` is who we are to the other gateways, which are told when the standings changed, if they are kept."""
        self.by_address: Mapping[str, Standing] = {}
        """By address; a tool that nobody has called is not in it."""
        self.monthly_calls: Mapping[str, int] = {}
        """Each tool's calls of the last 30 days, at that moment."""
        self.popularity_boosts: Mapping[str, Boost] = {}
        """What they add to scores in search."""
        self.computed_at = 0.0
        self._known_calls = 0
        """All calls that were known then."""
        self._usage = usage
        self._store = store
        self._gateway_id = gateway_id
        self._persistent = persistent
        self._clock = clock
        self._lock = asyncio.Lock()
        """What is read while it is written would be what was there before."""

    async def load(self) -> None:
        """Take over what is on record, unless ours are later."""
        async with self._lock:
            at, rows = await self._store.load_tiers()
            # Ours may be dated ahead by a clock that was wrong: then any others are better.
            if at > self.computed_at or (
                at and at != self.computed_at and self.computed_at > self._clock()
            ):
                self._replace({f"{row.server}.{row.tool}": _to_standing(row) for row in rows}, at)

    async def recompute(self) -> Mapping[str, Standing]:
        """Compute them from what is known now, and keep them."""
        async with self._lock:
            self._replace(
                {
                    tool: compute_standing(use)
                    for tool, use in self._usage.statistics_by_tool.items()
                },
                self._clock(),
            )
            rows = [
                TierRow(*_split_address(tool), one.score, one.tier)
                for tool, one in self.by_address.items()
            ]
            if self._persistent:
                await self._store.save_tiers(rows, at=self.computed_at, origin=self._gateway_id)
            return self.by_address

    def is_due(self) -> bool:
        """Whether a day has passed, or so much use came or was forgotten since that they say little
        of it."""
        calls = _count_calls(self._usage)
        if not self.computed_at:
            return calls > 0
        # Either way: a clock that ran ahead when they were computed does not keep them for as long.
        aged = abs(self._clock() - self.computed_at) >= DAY_S
        return (
            aged
            or calls >= max(1, _RECOMPUTE_GROWTH * self._known_calls)
            or calls * _RECOMPUTE_GROWTH < self._known_calls
        )

    async def maintain(self) -> None:
        """Take over what others computed; compute anew where that is due. Without a record, for
        ourselves."""
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
