"""What one profile sees now: the snapshot within its scope, how its tools are laid out, and how its servers are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portico.access import EVERYTHING, Scope
from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.config import Exposure
from portico.disclosure import metatools
from portico.disclosure.answer import unsecret
from portico.disclosure.lines import ServerState, States
from portico.disclosure.shelves import Shelves
from portico.execution.sandbox.script import LANGUAGES
from portico.observability.statistics import UNUSED, Statistics
from portico.search import Facts, Lift
from portico.upstream.supervisor import Upstream

if TYPE_CHECKING:
    from portico.disclosure.insight import Insight


@dataclass(frozen=True)
class Face:
    """What a profile's configuration says about its view."""

    exposure: Exposure = "meta"
    scope: Scope = EVERYTHING
    prefixed: bool = True
    discovery_budget: int = 2_000
    result_budget: int = 8_000
    metatools: frozenset[str] = frozenset(metatools.NAMES)
    languages: tuple[str, ...] = LANGUAGES
    """The languages of scripts that are run."""
    pins: tuple[str, ...] = field(default=())
    profile: str = ""
    intent: str = ""
    """What its clients want to do, where the exposure lists tools for that."""
    top_k: int = 10
    listing_budget: int = 4_000
    """Of the definitions that an intent, or a query in `tools/list`, brings."""
    unlisted: bool = True
    """Whether a transparent view passes calls of tools it does not list; not where some are left out on purpose."""

    @property
    def enabled(self) -> tuple[str, ...]:
        """The meta-tools its clients have, in their order; none where they see every tool."""
        every, few = metatools.NAMES, metatools.CODE_NAMES
        shown = {"meta": every, "semantic": every, "code": few}.get(self.exposure, ())
        # Who calls nothing has no result to read.
        does = self.metatools & {metatools.CALL, metatools.CODE, metatools.FLOW}
        pointless = set[str]() if does else {metatools.READ}
        return tuple(name for name in shown if name in self.metatools - pointless)

    @property
    def direct(self) -> bool:
        """Whether a tool can be called by its flat name: not where calling was taken away."""
        return self.exposure in ("full", "semantic") or metatools.CALL in self.metatools


class Sight:
    """One profile's eyes; what it sees is worked out anew only when something changed."""

    def __init__(
        self,
        face: Face,
        catalog: Catalog,
        upstreams: Mapping[str, Upstream],
        insight: "Insight | None" = None,
    ) -> None:
        self.face = face
        self.insight = insight
        self._catalog = catalog
        self._upstreams = upstreams
        self._whole: Snapshot | None = None
        self._seen: Snapshot = catalog.snapshot.within(face.scope)
        self._shelves: Shelves | None = None

    def wear(self, face: Face) -> None:
        """Look otherwise from now on."""
        self.face = face
        self._whole = self._shelves = None

    @property
    def snapshot(self) -> Snapshot:
        """What is seen now."""
        whole = self._catalog.snapshot
        if self._whole is not whole:
            # While vectors come in, only the index is another: what was worked out about a part of the servers stays.
            same = self._whole is not None and self._whole.servers is whole.servers and not self.face.scope.everything
            self._seen = self._seen.with_index(whole.index) if same else whole.within(self.face.scope)
            self._whole = whole
        return self._seen

    def lists_resource(self, server: str, uri: str) -> bool:
        """Whether a server lists an address or has a listed template for it, shown here or not."""
        entry = self._catalog.snapshot.servers.get(server)
        return entry is not None and entry.lists_resource(uri)

    @property
    def isolated(self) -> tuple[str, ...]:
        """The servers that run once for each client."""
        seen = self.snapshot.servers
        return tuple(name for name, upstream in self._upstreams.items() if upstream.isolated and name in seen)

    @property
    def sole(self) -> str | None:
        """The server this profile is transparent for, if it is."""
        if self.face.exposure != "full" or self.face.prefixed or len(self.snapshot.servers) != 1:
            return None
        return next(iter(self.snapshot.servers))

    @property
    def shelves(self) -> Shelves:
        """The tools as use and pins lay them out."""
        snapshot, computed_at = self.snapshot, self.insight.standings.computed_at if self.insight else 0.0
        made = self._shelves
        if made is None or made.snapshot.servers is not snapshot.servers or made.computed_at != computed_at:
            known = self.insight.standings if self.insight else None
            made = Shelves(
                snapshot,
                known.scores if known else {},
                known.month if known else {},
                self.face.pins,
                computed_at,
            )
            self._shelves = made
        return made

    def use(self, address: str) -> Statistics:
        """How a tool's calls went."""
        return self.insight.usage.statistics(address) if self.insight else UNUSED

    @property
    def used(self) -> Mapping[str, Statistics]:
        """Every tool of this profile that was called."""
        if self.insight is None:
            return {}
        return {address: use for address, use in self.insight.usage.used.items() if address in self.snapshot.tools}

    def facts(self) -> Mapping[str, Facts]:
        """How tools' calls went, for the filters of search."""
        return self.insight.usage.facts if self.insight else {}

    def popular(self) -> Mapping[str, Lift]:
        """What everybody's use adds to the scores of search."""
        return self.insight.standings.lifts if self.insight else {}

    def computed(self) -> str:
        """When everybody's use was last weighed."""
        return f"{self.insight.standings.computed_at:.3f}" if self.insight else ""

    def states(self) -> States:
        """How every server is."""
        return _States(self._upstreams)


class _States(Mapping[str, ServerState]):
    """How servers are, each looked at when it is asked for: an answer names a few of thousands."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __getitem__(self, name: str) -> ServerState:
        upstream = self._upstreams[name]
        return ServerState(upstream.state, unsecret(upstream.reason) if upstream.reason else "", upstream.since)

    def __contains__(self, name: object) -> bool:
        return name in self._upstreams

    def __iter__(self) -> Iterator[str]:
        return iter(self._upstreams)

    def __len__(self) -> int:
        return len(self._upstreams)
