"""What the record of the house holds, as rows. No SQL here: whoever only handles rows need not load
a database."""

from dataclasses import dataclass

from portico.storage.manifests import Manifest


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call that went through the pipeline. What it was given and what came of it is not kept."""

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
    """Given by the database: later calls have larger ones."""


@dataclass(frozen=True, slots=True)
class DailyRow:
    """How a tool's calls of one day went, those of about one latency together: rows add up, whoever
    wrote them."""

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
    """What one client session was shown, in tokens. The counts are what is to be added."""

    session: str
    client: str
    profile: str
    started_at: float
    last_at: float
    listing: int
    """What listing every tool would have cost it: the largest counts, not the sum."""
    shown: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class LedgerTotal:
    """Every session together."""

    sessions: int = 0
    listing: int = 0
    shown: int = 0
    answers: int = 0

    @property
    def saved_tokens(self) -> int:
        """What was not spent; less than nothing where answers cost more than the listing would
        have."""
        return self.listing - self.shown


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool as the catalog knows it now."""

    name: str
    hash: str
    category: str


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server as the catalog knows it now, with its offer."""

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
    """A category, and how much is in it."""

    name: str
    title: str
    description: str
    tools: int = 0
    servers: int = 0


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tool's standing when the tiers were last computed."""

    server: str
    tool: str
    score: float
    tier: str


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """What the results of one definition of a tool look like; none of them is kept."""

    hash: str
    results: int
    """How many results it was learnt from."""
    shape: str
    """As JSON; see `execution.shape_text`."""
    seen_at: float


@dataclass(frozen=True, slots=True)
class Retention:
    """How long use is kept."""

    calls_days: float = 30
    max_calls: int = 100_000
    daily_days: float = 400
    sessions_days: float = 90


@dataclass(frozen=True, slots=True)
class ChangeNotification:
    """Another gateway changed what is shared."""

    kind: str
    """`catalog` or `tiers`."""
    server: str = ""
