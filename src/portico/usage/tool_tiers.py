"""Tiers of all tools, computed daily from use and stored, and tools ranked by them."""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal

from portico.catalog.categories import Category, resolve_category, to_category
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.lazy_attribute import lazy_property
from portico.results.learned_shapes import LearnedShapes
from portico.search import Boost
from portico.search.usage_patterns import MAX_POPULARITY_BOOST, POPULARITY_REASON
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import TierRow, UsageReader
from portico.usage.statistics import DAY_S, Statistics, split_address
from portico.usage.token_ledger import TokenLedger
from portico.usage.tool_usage import ToolUsage

Tier = Literal["hot", "warm", "standard", "cold"]
TIERS: tuple[Tier, ...] = ("hot", "warm", "standard", "cold")

_POPULARITY = 0.4
_RELIABILITY = 0.3
_SPEED = 0.2
_RECENCY = 0.1
_MANY_CALLS = 10_000
_SLOW_MS = 1_000
_MIN_SCORES: Mapping[Tier, float] = {"hot": 0.8, "warm": 0.6, "standard": 0.3}
HOT_LIST_SIZE = 15
MIN_HOT_LIST_SIZE = 10
"""Size up to which servers fill it with more than one tool each."""
POPULAR_SIZE = 3
HotListBasis = Literal["use", "pins", "some of each server"]


@dataclass(frozen=True, slots=True)
class Standing:
    score: float = 0.0
    tier: Tier = "cold"


COLD_STANDING = Standing()


def compute_tier_score(statistics: Statistics) -> float:
    """Return 0 to 1 from popularity, reliability, speed and recency; 0 for an unused tool."""
    if not statistics.calls:
        return 0.0
    popularity = min(statistics.calls / _MANY_CALLS, 1.0)
    # Without a success there is no meaningful latency.
    speed = max(0.0, 1 - statistics.mean_ms / _SLOW_MS) if statistics.successes else 0.0
    recency = statistics.calls_7d / max(statistics.calls_30d, 1)
    score = (
        _POPULARITY * popularity
        + _RELIABILITY * statistics.success_rate
        + _SPEED * speed
        + _RECENCY * recency
    )
    return round(score, 2)


def to_tier(score: float) -> Tier:
    for tier, min_score in _MIN_SCORES.items():
        if score >= min_score:
            return tier
    return "cold"


def compute_standing(statistics: Statistics) -> Standing:
    score = compute_tier_score(statistics)
    return Standing(score, to_tier(score))


_OFTEN_CALLS = 100
"""Monthly calls at which a tool is as popular as its standing allows."""
MAX_TOOLS = 500
"""Maximum number of boosted tools, the best: every search examines each."""


def compute_popularity_boosts(
    standings: Mapping[str, Standing], monthly_calls: Mapping[str, int]
) -> dict[str, Boost]:
    """Return what each tool's standing and monthly calls add to its score."""
    amounts = {
        tool: _compute_amount(standing.score, monthly_calls.get(tool, 0))
        for tool, standing in standings.items()
    }
    best = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))[:MAX_TOOLS]
    return {tool: _make_boost(amount) for tool, amount in best if amount > 0}


def merge_popularity_boosts(
    caller_boosts: Mapping[str, Boost], shared_boosts: Mapping[str, Boost]
) -> Mapping[str, Boost]:
    """Merge a caller's boosts with everybody's; of two popularity parts the larger counts."""
    if not shared_boosts:
        return caller_boosts
    merged = dict(shared_boosts)
    for tool, boost in caller_boosts.items():
        merged[tool] = _merge_boost(boost, shared_boosts.get(tool))
    return merged


def _merge_boost(caller_boost: Boost, shared_boost: Boost | None) -> Boost:
    if shared_boost is None or shared_boost.popularity <= caller_boost.popularity:
        return caller_boost
    reasons = caller_boost.reasons
    others = tuple(reason for reason in reasons if not reason.startswith(POPULARITY_REASON))
    amount = caller_boost.amount - caller_boost.popularity + shared_boost.popularity
    return Boost(amount, (*others, *shared_boost.reasons), shared_boost.popularity)


def _compute_amount(score: float, calls: int) -> float:
    # A standing says little about frequency: one good call makes a tool as warm as a hundred.
    if not calls:
        return 0.0
    frequency = min(1.0, math.log1p(calls) / math.log1p(_OFTEN_CALLS))
    return MAX_POPULARITY_BOOST * min(score, 1.0) * (1 + frequency) / 2


def _make_boost(amount: float) -> Boost:
    return Boost(amount, (f"used often here (+{amount:.3f})",), amount)


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

    async def restore(self, source: UsageReader) -> None:
        """Load the standings from a source, for the first answers; compute them if they are due."""
        await self.load(source)
        if self.is_due():
            used = self._usage.statistics_by_tool
            self._replace(
                {tool: compute_standing(use) for tool, use in used.items()}, self._clock()
            )
            self._known_calls = 0  # still due: only `recompute` stores them

    async def load(self, source: UsageReader | None = None) -> None:
        """Load the stored standings, unless ours are newer; `source` instead of the store."""
        async with self._lock:
            at, rows = await (source or self._store).load_tiers()
            # Ours may be dated ahead by a wrong clock: then any others are preferred.
            if at > self.computed_at or (
                at and at != self.computed_at and self.computed_at > self._clock()
            ):
                self._replace({f"{row.server}.{row.tool}": _to_standing(row) for row in rows}, at)

    async def recompute(self) -> Mapping[str, Standing]:
        async with self._lock:
            self._compute()
            rows = [
                TierRow(*split_address(tool), standing.score, standing.tier)
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

    def _compute(self) -> None:
        used = self._usage.statistics_by_tool
        self._replace({tool: compute_standing(it) for tool, it in used.items()}, self._clock())

    def _replace(self, by_address: Mapping[str, Standing], computed_at: float) -> None:
        used = self._usage.statistics_by_tool
        self.by_address = by_address
        self.monthly_calls = {tool: used[tool].calls_30d for tool in by_address if tool in used}
        self.popularity_boosts = compute_popularity_boosts(by_address, self.monthly_calls)
        self.computed_at = computed_at
        self._known_calls = _count_calls(self._usage)


def _count_calls(usage: ToolUsage) -> int:
    return sum(use.calls for use in usage.statistics_by_tool.values())


def _to_standing(row: TierRow) -> Standing:
    known: dict[str, Tier] = {tier: tier for tier in TIERS}
    return Standing(row.score, known.get(row.tier, COLD_STANDING.tier))


@dataclass(frozen=True)
class UsageData:
    tool_usage: ToolUsage
    standings: Standings
    ledger: TokenLedger
    shapes: LearnedShapes = field(default_factory=LearnedShapes)
    """Shapes of past results, by tool."""
    restored: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when use on record has been read, so that the first answers know it."""

    def __post_init__(self) -> None:
        self.restored.set()

    def start_restoring(self, source: UsageReader | None) -> Coroutine[Any, Any, None]:
        """Return the work that reads use on record before the store is opened; `restored` is set
        when it is done."""
        self.restored.clear()
        return self._restore(source)

    async def _restore(self, source: UsageReader | None) -> None:
        try:
            if source is not None:
                await self.tool_usage.load(source)
                await self.standings.restore(source)
        finally:
            self.restored.set()


@dataclass(frozen=True)
class HotList:
    tools: tuple[Tool, ...]
    basis: HotListBasis


@dataclass(frozen=True)
class RankedCategory:
    category: Category
    tools: tuple[Tool, ...]
    """Hottest first."""
    servers: tuple[str, ...]
    """Servers with the most tools in it first."""

    @property
    def popular_tools(self) -> tuple[Tool, ...]:
        return self.tools[:POPULAR_SIZE]


@dataclass(frozen=True, eq=False)
class RankedCatalog:
    snapshot: Snapshot
    standings: Mapping[str, Standing] = field(default_factory=dict)
    """By address, as last computed; unused tools are absent."""
    monthly_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls of the last 30 days when the standings were computed."""
    pins: tuple[str, ...] = ()
    computed_at: float = 0.0

    @property
    def version(self) -> str:
        """Changes whenever the order of anything here may."""
        return f"{self.snapshot.version}-{self.computed_at:.3f}"

    def get_standing(self, address: str) -> Standing:
        return self.standings.get(address, COLD_STANDING)

    @lazy_property
    def hot_list(self) -> HotList:
        """Pinned tools, then hot ones by score, then the most used, then some of each server.

        It has 10 to 15 tools where there are as many, and every pin.
        """
        tools = self.snapshot.tools
        pinned = [tools[name] for name in self.pins if name in tools]
        used = self._sort_by_use(
            tools[name] for name in self.standings if name in tools and name not in self.pins
        )
        basis: HotListBasis = "some of each server"
        if pinned or used:
            basis = "use" if used else "pins"
        size = max(HOT_LIST_SIZE, len(pinned))
        return HotList(self._fill_up([*pinned, *used][:size]), basis)

    def _fill_up(self, chosen: list[Tool]) -> tuple[Tool, ...]:
        """Add the first tool of each server, and further ones until the list is long enough."""
        addresses = {tool.address for tool in chosen}
        place = 0
        size = HOT_LIST_SIZE
        while len(chosen) < size and (tools := self._list_round(place)):
            added = [tool for tool in tools if tool.address not in addresses]
            chosen += added[: size - len(chosen)]
            place += 1
            size = MIN_HOT_LIST_SIZE
        return tuple(chosen)

    def _list_round(self, place: int) -> tuple[Tool, ...]:
        """Return the tool at a place of each server's listing, by server."""
        servers = (self.snapshot.servers[name].tools for name in sorted(self.snapshot.servers))
        chosen = (islice(tools.values(), place, place + 1) for tools in servers)
        return tuple(chain.from_iterable(chosen))

    @lazy_property
    def categories(self) -> Mapping[str, RankedCategory]:
        """Every category that has a tool, the largest first."""
        categories = {
            key: RankedCategory(
                to_category(key),
                self._sort_by_use(chain.from_iterable(servers.values())),
                tuple(sorted(servers, key=lambda name: -len(servers[name]))),
            )
            for key, servers in self.snapshot.tools_by_category.items()
        }
        return dict(sorted(categories.items(), key=lambda item: (-len(item[1].tools), item[0])))

    def find_category(self, name: str) -> RankedCategory:
        """Return a category by its name, leniently matched; raises UnknownName with the nearest."""
        return self.categories[resolve_category(name, self.categories)]

    def list_server_tools(self, name: str) -> tuple[Tool, ...]:
        """Return a server's tools, hottest first; in its own order while none was used."""
        if name not in self._tools_by_server:
            self._tools_by_server[name] = self._sort_by_use(
                self.snapshot.resolve_server(name).tools.values()
            )
        return self._tools_by_server[name]

    @lazy_property
    def _tools_by_server(self) -> dict[str, tuple[Tool, ...]]:
        return {}

    @lazy_property
    def all_tools(self) -> tuple[Tool, ...]:
        return self._sort_by_use(self.snapshot.tools.values())

    def _sort_by_use(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Sort the hot tier first, then by use; unused tools keep their order."""
        members = tuple(tools)
        if not self.standings:
            return members
        # Few of possibly 100,000 tools are ever used: only those are sorted.
        used = [tool for tool in members if tool.address in self.standings]

        def get_sort_key(tool: Tool) -> tuple[bool, int, float]:
            standing = self.get_standing(tool.address)
            return standing.tier != "hot", -self.monthly_calls.get(tool.address, 0), -standing.score

        rest = (tool for tool in members if tool.address not in self.standings)
        return (*sorted(used, key=get_sort_key), *rest)
