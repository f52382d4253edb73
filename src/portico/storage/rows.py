"""Row types of the gateway store. Free of SQL, so that they load no database."""

from dataclasses import dataclass

from portico.storage.manifests import Manifest


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call. Its arguments and its result are not stored."""

    at: float
    server: str
    tool: str
    """The tool's own name, without its server."""
    tool_hash: str
    ms: float
    ok: bool
    cancelled: bool = False
    client: str = ""
    profile: str = ""
    session: str = ""
    id: int = 0
    """Assigned by the database, ascending."""


@dataclass(frozen=True, slots=True)
class DailyRow:
    """Calls of a tool on one day in one latency bucket; rows of several gateways add up."""

    day: int
    """Days since 1970, UTC."""
    server: str
    tool: str
    bucket: int
    """Latency on a logarithmic scale; see `observability.statistics`."""
    calls: int
    successes: int
    last_at: float


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Tokens shown to one client session. Counts are increments."""

    session: str
    client: str
    profile: str
    started_at: float
    last_at: float
    listing: int
    """Tokens that listing every tool would have cost; the maximum is stored, not the sum."""
    shown: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class LedgerTotal:
    """Sums over all sessions."""

    sessions: int = 0
    listing: int = 0
    shown: int = 0
    answers: int = 0

    @property
    def saved_tokens(self) -> int:
        """Tokens saved; negative where answers cost more than the listing would have."""
        return self.listing - self.shown


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool in the current catalog."""

    name: str
    hash: str
    category: str


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server in the current catalog, with its manifest."""

    manifest: Manifest
    title: str
    category: str
    tools: tuple[KnownTool, ...]


@dataclass(frozen=True, slots=True)
class ToolHistory:
    """When a tool was first and last listed, and how often its definition changed."""

    server: str
    tool: str
    hash: str
    category: str
    first_seen: float
    last_seen: float
    gone: bool = False
    """Not in its server's latest listing."""
    changes: int = 0


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """A category with its number of tools and servers."""

    name: str
    title: str
    description: str
    tools: int = 0
    servers: int = 0


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tool's score and tier when tiers were last computed."""

    server: str
    tool: str
    score: float
    tier: str


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """The shape of the results of one tool definition; no result is stored."""

    hash: str
    results: int
    """Number of results it was learnt from."""
    shape: str
    """As JSON; see `shapes`."""
    seen_at: float


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention limits of usage data."""

    calls_days: float = 30
    max_calls: int = 100_000
    daily_days: float = 400
    sessions_days: float = 90


@dataclass(frozen=True, slots=True)
class ChangeNotification:
    """Another gateway changed shared data."""

    kind: str
    """`catalog` or `tiers`."""
    server: str = ""
