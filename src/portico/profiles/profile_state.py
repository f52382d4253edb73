"""State of one profile: the snapshot within its scope, its ranked tools and its server states."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portico.access import UNRESTRICTED_SCOPE, Scope
from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.config import Exposure
from portico.meta_tools import tool_definitions
from portico.rendering.lines import ServerState, ServerStates
from portico.rendering.tool_result import mask_secrets
from portico.scripts.sandbox.script import LANGUAGES
from portico.search import Boost, UsageFacts
from portico.upstream.lifecycle.supervisor import Upstream
from portico.usage.ranked_catalog import RankedCatalog
from portico.usage.statistics import UNUSED, Statistics

if TYPE_CHECKING:
    from portico.usage.usage_data import UsageData


@dataclass(frozen=True)
class ProfileSettings:
    """Settings of a profile's view, taken from its configuration."""

    exposure: Exposure = "meta"
    scope: Scope = UNRESTRICTED_SCOPE
    prefixed: bool = True
    discovery_budget: int = 2_000
    result_budget: int = 8_000
    meta_tools: frozenset[str] = frozenset(tool_definitions.META_TOOL_NAMES)
    languages: tuple[str, ...] = LANGUAGES
    """Script languages that may be run."""
    pins: tuple[str, ...] = field(default=())
    profile: str = ""
    intent: str = ""
    """Task description by which the `semantic` exposure selects tools."""
    top_k: int = 10
    listing_budget: int = 4_000
    """Tokens for the definitions selected by an intent, or by a query in `tools/list`."""
    allows_unlisted: bool = True
    """Whether a transparent view forwards calls of unlisted tools; false if some are hidden."""

    @property
    def enabled_meta_tools(self) -> tuple[str, ...]:
        """The meta-tools that clients see, in fixed order; none where every tool is exposed."""
        all_names = tool_definitions.META_TOOL_NAMES
        code_names = tool_definitions.CODE_EXPOSURE_NAMES
        shown = {"meta": all_names, "semantic": all_names, "code": code_names}.get(
            self.exposure, ()
        )
        # Without a tool that makes calls there is no result to read.
        callers = self.meta_tools & {
            tool_definitions.CALL_TOOL,
            tool_definitions.RUN_CODE,
            tool_definitions.RUN_WORKFLOW,
        }
        if callers:
            pointless = set[str]()
        else:
            pointless = {tool_definitions.READ_RESULT}
        return tuple(name for name in shown if name in self.meta_tools - pointless)

    @property
    def can_call_flat_names(self) -> bool:
        """Whether a tool can be called by its flat name; false where calling is disabled."""
        return (
            self.exposure in ("full", "semantic") or tool_definitions.CALL_TOOL in self.meta_tools
        )


class ProfileState:
    """Cached view of the catalog for one profile, recomputed only after a change."""

    def __init__(
        self,
        settings: ProfileSettings,
        catalog: Catalog,
        upstreams: Mapping[str, Upstream],
        usage_data: "UsageData | None" = None,
    ) -> None:
        self.settings = settings
        self.usage_data = usage_data
        self._catalog = catalog
        self._upstreams = upstreams
        self._full_snapshot: Snapshot | None = None
        self._visible_snapshot: Snapshot = catalog.snapshot.restrict_to(settings.scope)
        self._ranked_catalog: RankedCatalog | None = None

    def apply(self, settings: ProfileSettings) -> None:
        """Replace the settings and drop everything derived from the old ones."""
        self.settings = settings
        self._full_snapshot = self._ranked_catalog = None

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot, restricted to the profile's scope."""
        full = self._catalog.snapshot
        if self._full_snapshot is not full:
            # While embeddings arrive only the index changes: the restricted server data is reused.
            same_servers = (
                self._full_snapshot is not None
                and self._full_snapshot.servers is full.servers
                and not self.settings.scope.is_unrestricted
            )
            if same_servers:
                self._visible_snapshot = self._visible_snapshot.with_index(full.index)
            else:
                self._visible_snapshot = full.restrict_to(self.settings.scope)
            self._full_snapshot = full
        return self._visible_snapshot

    def is_resource_listed(self, server: str, uri: str) -> bool:
        """Return whether a server lists a URI or a matching template, hidden ones included."""
        entry = self._catalog.snapshot.servers.get(server)
        return entry is not None and entry.has_resource(uri)

    @property
    def isolated_servers(self) -> tuple[str, ...]:
        """The visible servers that run one instance per client."""
        visible = self.snapshot.servers
        return tuple(
            name
            for name, upstream in self._upstreams.items()
            if upstream.isolated and name in visible
        )

    @property
    def transparent_server(self) -> str | None:
        """The server that this profile is transparent for, or None."""
        if (
            self.settings.exposure != "full"
            or self.settings.prefixed
            or len(self.snapshot.servers) != 1
        ):
            return None
        return next(iter(self.snapshot.servers))

    @property
    def ranked_catalog(self) -> RankedCatalog:
        """The visible tools, ranked by use and pins."""
        snapshot = self.snapshot
        standings = self.usage_data.standings if self.usage_data else None
        computed_at = standings.computed_at if standings else 0.0
        ranked = self._ranked_catalog
        if (
            ranked is None
            or ranked.snapshot.servers is not snapshot.servers
            or ranked.computed_at != computed_at
        ):
            ranked = RankedCatalog(
                snapshot,
                standings.by_address if standings else {},
                standings.monthly_calls if standings else {},
                self.settings.pins,
                computed_at,
            )
            self._ranked_catalog = ranked
        return ranked

    def get_statistics(self, address: str) -> Statistics:
        """Return the call statistics of a tool."""
        if self.usage_data:
            return self.usage_data.tool_usage.get_statistics(address)
        return UNUSED

    @property
    def statistics_by_tool(self) -> Mapping[str, Statistics]:
        """Call statistics of every visible tool that was called."""
        if self.usage_data is None:
            return {}
        return {
            address: use
            for address, use in self.usage_data.tool_usage.statistics_by_tool.items()
            if address in self.snapshot.tools
        }

    def get_facts(self) -> Mapping[str, UsageFacts]:
        """Return latency and success facts per tool, for the search filters."""
        if self.usage_data:
            return self.usage_data.tool_usage.facts
        return {}

    def get_popularity_boosts(self) -> Mapping[str, Boost]:
        """Return the score boosts that come from everybody's use."""
        if self.usage_data:
            return self.usage_data.standings.popularity_boosts
        return {}

    def get_standings_version(self) -> str:
        """Return the time at which the standings were last computed, as text."""
        if self.usage_data:
            return f"{self.usage_data.standings.computed_at:.3f}"
        return ""

    def get_server_states(self) -> ServerStates:
        """Return the live states of all servers."""
        return _LiveServerStates(self._upstreams)


class _LiveServerStates(Mapping[str, ServerState]):
    """Server states, each read on access: a response names a few of possibly thousands."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __getitem__(self, name: str) -> ServerState:
        upstream = self._upstreams[name]
        return ServerState(
            upstream.state,
            mask_secrets(upstream.reason) if upstream.reason else "",
            upstream.state_since,
        )

    def __contains__(self, name: object) -> bool:
        return name in self._upstreams

    def __iter__(self) -> Iterator[str]:
        return iter(self._upstreams)

    def __len__(self) -> int:
        return len(self._upstreams)
