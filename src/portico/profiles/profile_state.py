"""State of one profile: the snapshot within its scope, its ranked tools and its server states."""

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from portico.callers import Caller
from portico.catalog.catalog import Catalog
from portico.catalog.rule_filter import RuleFilter
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import ResolvedProfile
from portico.events import EventBus, ToolsShown
from portico.meta_tools import tool_definitions
from portico.policy.rules import CallerRules
from portico.policy.target import Target
from portico.rendering.server_lines import ServerState, ServerStates
from portico.rendering.tool_result import mask_secrets
from portico.results.reader import ResultServices
from portico.scripts.sandbox.script import LANGUAGES
from portico.search import Boost, UsageFacts
from portico.upstream.backend import Raw
from portico.upstream.lifecycle.supervisor import Upstream
from portico.usage.statistics import UNUSED, Statistics
from portico.usage.tool_tiers import RankedCatalog
from portico.visibility import UNRESTRICTED_SCOPE, Scope

if TYPE_CHECKING:
    from portico.usage.tool_tiers import UsageData

_CALLING_TOOLS = (
    tool_definitions.CALL_TOOL,
    tool_definitions.RUN_CODE,
    tool_definitions.RUN_WORKFLOW,
)


@dataclass(frozen=True)
class ProfileSettings(ResolvedProfile):
    """Settings of a profile's view: its configuration, and what it shares with the others."""

    scope: Scope = UNRESTRICTED_SCOPE
    prefixed: bool = True
    languages: tuple[str, ...] = LANGUAGES
    """Script languages that may be run."""
    pins: tuple[str, ...] = ()
    list_pins: bool = False
    """Whether the pinned tools are listed beside the meta-tools."""
    disabled_servers: tuple[str, ...] = field(default=(), compare=False)
    """Servers in the scope that the configuration switches off; no list of a client has them."""
    allows_unlisted: bool = True
    """Whether a transparent view forwards calls of unlisted tools; false if some are hidden."""

    @cached_property
    def enabled_meta_tools(self) -> tuple[str, ...]:
        """The meta-tools that clients see, in fixed order; none where every tool is exposed."""
        shown = {
            "full": (),
            "code": tool_definitions.CODE_EXPOSURE_NAMES,
        }.get(self.exposure, tool_definitions.META_TOOL_NAMES)
        enabled = tuple(name for name in shown if name in self.meta_tools)
        if self.splits_calls and tool_definitions.CALL_TOOL in enabled:
            place = enabled.index(tool_definitions.CALL_TOOL)
            split = tool_definitions.SPLIT_CALL_NAMES
            enabled = (*enabled[:place], *split, *enabled[place + 1 :])
        if self.meta_tools.isdisjoint(_CALLING_TOOLS):
            # Without a tool that makes calls there is no result to read.
            return tuple(name for name in enabled if name != tool_definitions.READ_RESULT)
        return enabled

    @property
    def can_call_flat_names(self) -> bool:
        """Whether a tool can be called by its flat name; false where calling is disabled."""
        return (
            self.exposure in ("full", "semantic") or tool_definitions.CALL_TOOL in self.meta_tools
        )


class FitResult(Protocol):
    def __call__(
        self, tool: Tool, result: Raw, caller: Caller, /, *, budget: int = ...
    ) -> Awaitable[Raw]: ...


async def _keep_result(_tool: Tool, result: Raw, _caller: Caller, /, *, budget: int = 0) -> Raw:
    return result


class ProfileState:
    """Cached view of the catalog for one profile, recomputed only after a change."""

    def __init__(
        self,
        settings: ProfileSettings,
        catalog: Catalog,
        upstreams: Mapping[str, Upstream],
        usage_data: "UsageData | None" = None,
        bus: EventBus | None = None,
        result_services: ResultServices | None = None,
    ) -> None:
        """Without `usage_data` there are no statistics, without `bus` nothing is published, and
        without `result_services` results are never shortened."""
        self.usage_data = usage_data
        self.result_services = result_services
        self.bus = bus
        self.catalog = catalog
        self.upstreams = upstreams
        self._scoped_snapshot: Snapshot = catalog.snapshot
        self._visible_snapshot: Snapshot = catalog.snapshot
        self.apply(settings)

    def apply(self, settings: ProfileSettings) -> None:
        """Replace the settings and drop everything derived from the old ones."""
        self.settings = settings
        self._full_snapshot: Snapshot | None = None
        self._ranked_catalog: RankedCatalog | None = None
        self.fit_result: FitResult = _keep_result
        """Returns a tool's result within the profile's budget; the rest is stored."""
        if self.result_services is not None:
            self.fit_result = partial(
                self.result_services.handles.fit_to_budget,
                budget=settings.result_budget,
                has_read_result=tool_definitions.READ_RESULT in settings.enabled_meta_tools,
            )

    @property
    def snapshot(self) -> Snapshot:
        """What models may see: the current snapshot within the profile's scope, without the tools
        that only apps may call. A transparent view has those too, as its server would show them."""
        self._update(self._get_source())
        return self._visible_snapshot

    @property
    def scoped_snapshot(self) -> Snapshot:
        """The current snapshot within the profile's scope, with the tools that only apps may
        call."""
        self._update(self._get_source())
        return self._scoped_snapshot

    def _get_source(self) -> Snapshot:
        """Return the snapshot that this view is made of."""
        return self.catalog.snapshot

    def _restrict(self, source: Snapshot) -> Snapshot:
        return source.restrict_to(self.settings.scope)

    def _update(self, source: Snapshot) -> None:
        if self._full_snapshot is not source:
            self._scoped_snapshot, self._visible_snapshot = self._compute(source)
            self._full_snapshot = source

    def _compute(self, source: Snapshot) -> tuple[Snapshot, Snapshot]:
        """Return what is in scope of a snapshot, and what models may see of that."""
        before = self._full_snapshot
        if before is None or before.servers is not source.servers:
            scoped = self._restrict(source)
            return scoped, scoped if self._is_transparent(scoped) else scoped.hide_app_tools()
        # While embeddings arrive only the index changes: the restricted server data is reused.
        scoped = source
        if self._scoped_snapshot is not before:
            scoped = self._scoped_snapshot.with_index(source.index)
        if self._visible_snapshot is self._scoped_snapshot:
            return scoped, scoped
        return scoped, self._visible_snapshot.with_index(source.index)

    def _is_transparent(self, snapshot: Snapshot) -> bool:
        is_bare = self.settings.exposure == "full" and not self.settings.prefixed
        return is_bare and len(snapshot.servers) == 1

    def publish_shown(self, caller: Caller, content: object, *, listing: bool = False) -> None:
        """Publish what a client was shown, for the token ledger."""
        if content and self.bus is not None and self.bus.has_subscribers(ToolsShown):
            self.bus.publish(ToolsShown(caller, content, listing))

    async def load_snapshot(self) -> None:
        """Compute the snapshot in a thread where that takes long."""

    def narrow(self, rules: CallerRules) -> "ProfileState":
        """Return what callers with these rules see of the profile, with its present settings."""
        return _NarrowedState(self, rules)

    def hides_server(self, server: str) -> bool:
        """Return whether a server of the profile does not exist for these callers."""
        return False

    def hides_tool(self, address: str) -> bool:
        """Return whether a tool of the profile does not exist for these callers."""
        return False

    def can_see_resource(self, server: str, uri: str, *, linked: bool = False) -> bool:
        """Return whether a resource may be known; see `Scope.can_see_resource`. A file of a skill
        is seen by who sees the skill."""
        if not self.settings.scope.can_see_resource(server, uri, linked=linked):
            return False
        entry = self.catalog.snapshot.servers.get(server)
        skill = entry.skills_by_uri.get(uri) if entry is not None else None
        if skill is None:
            return True
        tool = self.snapshot.tools.get(f"{server}.{skill}")
        return tool is not None and not tool.held

    def is_resource_listed(self, server: str, uri: str) -> bool:
        """Return whether a server lists a URI or a matching template, hidden ones included."""
        entry = self.catalog.snapshot.servers.get(server)
        return entry is not None and entry.has_resource(uri)

    @property
    def isolated_servers(self) -> tuple[str, ...]:
        """The visible servers that run one instance per client."""
        visible = self.snapshot.servers
        return tuple(
            name
            for name, upstream in self.upstreams.items()
            if upstream.isolated and not upstream.personal and name in visible
        )

    @property
    def transparent_server(self) -> str | None:
        servers = self.snapshot.servers
        return next(iter(servers)) if self._is_transparent(self.snapshot) else None

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
        return _LiveServerStates(self.upstreams)


class _NarrowedState(ProfileState):
    """What callers with the same rules see of a profile."""

    def __init__(self, profile: ProfileState, rules: CallerRules) -> None:
        self._profile = profile
        self._rules = rules
        self._filter = RuleFilter(rules)
        disabled = filter(rules.can_see_server, profile.settings.disabled_servers)
        settings = replace(
            profile.settings, disabled_servers=tuple(disabled), allows_unlisted=False
        )
        super().__init__(
            settings,
            profile.catalog,
            profile.upstreams,
            profile.usage_data,
            profile.bus,
            profile.result_services,
        )

    def _get_source(self) -> Snapshot:
        return self._profile.scoped_snapshot

    def _restrict(self, source: Snapshot) -> Snapshot:
        return self._filter.restrict(source)

    def _is_transparent(self, snapshot: Snapshot) -> bool:
        """Return whether this is the profile's transparent server: others that are hidden make
        none."""
        return self._profile.transparent_server in snapshot.servers

    async def load_snapshot(self) -> None:
        """Compute the snapshot in a thread where that takes long."""
        source = self._get_source()
        if self._full_snapshot is not source and source.is_large:
            computed = await asyncio.to_thread(self._compute, source)
            self._scoped_snapshot, self._visible_snapshot = computed
            self._full_snapshot = source

    def hides_server(self, server: str) -> bool:
        """Return whether a server of the profile does not exist for these callers."""
        if server in self._profile.snapshot.servers:
            return server not in self.snapshot.servers
        return not self._rules.can_see_server(server)

    def hides_tool(self, address: str) -> bool:
        """Return whether a tool of the profile does not exist for these callers."""
        if address in self._profile.snapshot.tools:
            return address not in self.snapshot.tools
        # It is gone, or not there yet.
        server, _, name = address.partition(".")
        return not self._rules.can_see(Target("tool", server, name, is_destructive=True))

    def can_see_resource(self, server: str, uri: str, *, linked: bool = False) -> bool:
        """Return whether a resource may be known: by the scope, and by the rules."""
        target = Target("resource", server, uri)
        return super().can_see_resource(server, uri, linked=linked) and self._rules.can_see(target)


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
