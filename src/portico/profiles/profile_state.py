"""What one profile sees now: the snapshot within its scope, how its tools are laid out, and how its
servers are."""

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
    """What a profile's configuration says about its view."""

    exposure: Exposure = "meta"
    scope: Scope = UNRESTRICTED_SCOPE
    prefixed: bool = True
    discovery_budget: int = 2_000
    result_budget: int = 8_000
    meta_tools: frozenset[str] = frozenset(tool_definitions.META_TOOL_NAMES)
    languages: tuple[str, ...] = LANGUAGES
    """The languages of scripts that are run."""
    pins: tuple[str, ...] = field(default=())
    profile: str = ""
    intent: str = ""
    """What its clients want to do, where the exposure lists tools for that."""
    top_k: int = 10
    listing_budget: int = 4_000
    """Of the definitions that an intent, or a query in `tools/list`, brings."""
    allows_unlisted: bool = True
    """Whether a transparent view passes calls of tools it does not list; not where some are left
    out on purpose."""

    @property
    def enabled_meta_tools(self) -> tuple[str, ...]:
        """The meta-tools its clients have, in their order; none where they see every tool."""
        every = tool_definitions.META_TOOL_NAMES
        few = tool_definitions.CODE_EXPOSURE_NAMES
        shown = {"meta": every, "semantic": every, "code": few}.get(self.exposure, ())
        # Who calls nothing has no result to read.
        does = self.meta_tools & {
            tool_definitions.CALL_TOOL,
            tool_definitions.RUN_CODE,
            tool_definitions.RUN_WORKFLOW,
        }
        if does:
            pointless = set[str]()
        else:
            pointless = {tool_definitions.READ_RESULT}
        return tuple(name for name in shown if name in self.meta_tools - pointless)

    @property
    def can_call_flat_names(self) -> bool:
        """Whether a tool can be called by its flat name: not where calling was taken away."""
        return (
            self.exposure in ("full", "semantic") or tool_definitions.CALL_TOOL in self.meta_tools
        )


class ProfileState:
    """One profile's eyes; what it sees is worked out anew only when something changed."""

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
        """Look otherwise from now on."""
        self.settings = settings
        self._full_snapshot = self._ranked_catalog = None

    @property
    def snapshot(self) -> Snapshot:
        """What is seen now."""
        whole = self._catalog.snapshot
        if self._full_snapshot is not whole:
            # While vectors come in, only the index is another: what was worked out about a part of
            # the servers stays.
            same = (
                self._full_snapshot is not None
                and self._full_snapshot.servers is whole.servers
                and not self.settings.scope.is_unrestricted
            )
            if same:
                self._visible_snapshot = self._visible_snapshot.with_index(whole.index)
            else:
                self._visible_snapshot = whole.restrict_to(self.settings.scope)
            self._full_snapshot = whole
        return self._visible_snapshot

    def is_resource_listed(self, server: str, uri: str) -> bool:
        """Whether a server lists an address or has a listed template for it, shown here or not."""
        entry = self._catalog.snapshot.servers.get(server)
        return entry is not None and entry.has_resource(uri)

    @property
    def isolated_servers(self) -> tuple[str, ...]:
        """The servers that run once for each client."""
        seen = self.snapshot.servers
        return tuple(
            name for name, upstream in self._upstreams.items() if upstream.isolated and name in seen
        )

    @property
    def transparent_server(self) -> str | None:
        """The server this profile is transparent for, if it is."""
        if (
            self.settings.exposure != "full"
            or self.settings.prefixed
            or len(self.snapshot.servers) != 1
        ):
            return None
        return next(iter(self.snapshot.servers))

    @property
    def ranked_catalog(self) -> RankedCatalog:
        """The tools as use and pins lay them out."""
        snapshot = self.snapshot
        if self.usage_data:
            computed_at = self.usage_data.standings.computed_at
        else:
            computed_at = 0.0
        made = self._ranked_catalog
        if (
            made is None
            or made.snapshot.servers is not snapshot.servers
            or made.computed_at != computed_at
        ):
            if self.usage_data:
                known = self.usage_data.standings
            else:
                known = None
            made = RankedCatalog(
                snapshot,
                known.by_address if known else {},
                known.monthly_calls if known else {},
                self.settings.pins,
                computed_at,
            )
            self._ranked_catalog = made
        return made

    def get_statistics(self, address: str) -> Statistics:
        """How a tool's calls went."""
        if self.usage_data:
            return self.usage_data.tool_usage.get_statistics(address)
        return UNUSED

    @property
    def statistics_by_tool(self) -> Mapping[str, Statistics]:
        """Every tool of this profile that was called."""
        if self.usage_data is None:
            return {}
        return {
            address: use
            for address, use in self.usage_data.tool_usage.statistics_by_tool.items()
            if address in self.snapshot.tools
        }

    def get_facts(self) -> Mapping[str, UsageFacts]:
        """How tools' calls went, for the filters of search."""
        if self.usage_data:
            return self.usage_data.tool_usage.facts
        return {}

    def get_popularity_boosts(self) -> Mapping[str, Boost]:
        """What everybody's use adds to the scores of search."""
        if self.usage_data:
            return self.usage_data.standings.popularity_boosts
        return {}

    def get_standings_version(self) -> str:
        """When everybody's use was last weighed."""
        if self.usage_data:
            return f"{self.usage_data.standings.computed_at:.3f}"
        return ""

    def get_server_states(self) -> ServerStates:
        """How every server is."""
        return _LiveServerStates(self._upstreams)


class _LiveServerStates(Mapping[str, ServerState]):
    """How servers are, each looked at when it is asked for: an answer names a few of thousands."""

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
