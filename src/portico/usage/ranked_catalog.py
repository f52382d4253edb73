"""The tools of one snapshot ranked by use: the hot list, the categories, each server's. Pure.

Decided here once for agents (text), the REST API (JSON) and people. T0 is the hot list, T1 the
categories, T2 one category's or server's tools, T3 a tool itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from portico.catalog.categories import Category, resolve_category, to_category
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.lazy import lazy_property
from portico.usage.tiers import COLD_STANDING, Standing

HOT_LIST_SIZE = 15
POPULAR_SIZE = 3
HotListBasis = Literal["use", "pins", "one of each server"]


@dataclass(frozen=True)
class HotList:
    """The tools to start with, and the basis of the choice."""

    tools: tuple[Tool, ...]
    basis: HotListBasis


@dataclass(frozen=True)
class RankedCategory:
    """A category with its tools and servers, ranked."""

    category: Category
    tools: tuple[Tool, ...]
    """Hottest first."""
    servers: tuple[str, ...]
    """Servers with the most tools in it first."""

    @property
    def popular_tools(self) -> tuple[Tool, ...]:
        """The tools that represent it."""
        return self.tools[:POPULAR_SIZE]


@dataclass(frozen=True, eq=False)
class RankedCatalog:
    """A snapshot ranked by use and pins."""

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
        """Return the standing of a tool."""
        return self.standings.get(address, COLD_STANDING)

    @lazy_property
    def hot_list(self) -> HotList:
        """Pinned tools, then hot ones by score, then the most used; else one of each server."""
        pinned = [self.snapshot.tools[name] for name in self.pins if name in self.snapshot.tools]
        used = self._sort_by_use(
            self.snapshot.tools[name]
            for name in self.standings
            if name in self.snapshot.tools and name not in self.pins
        )
        if used:
            return HotList((*pinned, *used)[: max(HOT_LIST_SIZE, len(pinned))], "use")
        if pinned:
            return HotList(tuple(pinned), "pins")
        servers = (self.snapshot.servers[name] for name in sorted(self.snapshot.servers))
        return HotList(
            tuple(next(iter(entry.tools.values())) for entry in servers if entry.tools)[
                :HOT_LIST_SIZE
            ],
            "one of each server",
        )

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
        """Every tool, hottest first."""
        return self._sort_by_use(self.snapshot.tools.values())

    def _sort_by_use(self, tools: Iterable[Tool]) -> tuple[Tool, ...]:
        """Sort the hot tier first, then by use; unused tools keep their order."""
        members = tuple(tools)
        # Few of possibly 100,000 tools are ever used: only those are sorted.
        if self.standings:
            used = [tool for tool in members if tool.address in self.standings]
        else:
            used = []
        if not used:
            return members

        def get_sort_key(tool: Tool) -> tuple[bool, int, float]:
            standing = self.get_standing(tool.address)
            return standing.tier != "hot", -self.monthly_calls.get(tool.address, 0), -standing.score

        rest = (tool for tool in members if tool.address not in self.standings)
        return (*sorted(used, key=get_sort_key), *rest)
