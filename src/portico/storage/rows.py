"""Row types and text of the gateway store and the learning store. Free of SQL.

`UsageReader` reads use from the gateway store's file without the SQL libraries, whose loading takes
as long as everything else before the first answer.
"""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_ESCAPE = "\x1a"
_REFUSED = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_READ_TIMEOUT_S = 0.2
"""Seconds to wait for a file that is being written."""


def escape_text(text: str) -> str:
    """Escape what databases refuse."""
    if text.isascii() and text.isprintable():  # the common case, several times as fast
        return text
    return _REFUSED.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape_text(text: str) -> str:
    """Reverse `escape_text`."""
    if _ESCAPE in text:
        return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    return text


@dataclass(frozen=True, slots=True)
class CallRow:
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
    person: str = ""
    """Id of the principal on whose behalf it was made."""
    call_id: str = ""
    """Its id in events and in the audit log."""
    via: str = ""
    """Origin: `call_tool`, `script`, `rest` …"""
    error: str = ""
    """Kind of failure; empty if none."""
    stages: str = ""
    """Milliseconds of its stages, separated by spaces, in the order of `CallStages`."""


@dataclass(frozen=True, slots=True)
class CallerUse:
    """What one person did with one client, by the calls on record."""

    person: str
    client: str
    calls: int
    failures: int
    first_at: float
    last_at: float


@dataclass(frozen=True, slots=True)
class CallQuery:
    """Which calls are wanted."""

    limit: int = 50
    before: int | None = None
    """The last id of the previous page."""
    server: str | None = None
    tool: str | None = None
    ok: bool | None = None
    client: str | None = None
    person: str | None = None
    since: float | None = None
    until: float | None = None
    run: str | None = None
    """The script or workflow that made them."""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key, of which only a digest is kept. Times are seconds since 1970."""

    id: str
    name: str
    """Name of the person or program; a rotated key keeps it."""
    digest: str
    created_at: float
    profiles: tuple[str, ...] = ()
    """Profiles it opens; empty: all."""
    is_read_only: bool = False
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None


@dataclass(frozen=True, slots=True)
class DailyRow:
    """Calls of a tool on one day in one latency bucket; rows of several gateways add up."""

    day: int
    """Days since 1970, UTC."""
    server: str
    tool: str
    bucket: int
    """Latency on a logarithmic scale; see `usage.statistics`."""
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
    sessions: int = 0
    listing: int = 0
    shown: int = 0
    answers: int = 0

    @property
    def saved_tokens(self) -> int:
        """Tokens saved; negative where answers cost more than the listing would have."""
        return self.listing - self.shown

    def __add__(self, other: "LedgerTotal") -> "LedgerTotal":
        return LedgerTotal(
            self.sessions + other.sessions,
            self.listing + other.listing,
            self.shown + other.shown,
            self.answers + other.answers,
        )


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
class ChangeNotification:
    """Another gateway changed shared data."""

    kind: str
    """`catalog`, `pins` or `tiers`."""
    server: str = ""


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan that ran to its end. Contains no user text: see `workflows.planning.templates`."""

    id: str
    """Hash of scope and steps."""
    scope: str
    """Scope that may be offered the plan."""
    intent: str
    """The intent as a base64 vector, empty if not computed; never its words."""
    words: str
    """Hashes of the intent's words, separated by spaces."""
    steps: str
    """Steps as JSON, as `run_workflow` takes them."""
    tools: str
    """JSON object: the address of each tool with its hash when the plan ran."""
    runs: int
    """Number of successful runs; of a row to be added, the increment."""
    used_at: float


@dataclass(frozen=True, slots=True)
class FollowedRow:
    """A tool that was called after a search."""

    terms: bytes
    """Sorted 64-bit hashes of the query's terms, made with the store's key."""
    tool: str
    weight: float
    at: float
    vector: bytes | None = None


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two tools that were called in one session, in alphabetical order."""

    one: str
    other: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class UsedRow:
    tool: str
    weight: float
    at: float


@dataclass(frozen=True, slots=True)
class LearnedRows:
    followed: tuple[FollowedRow, ...] = ()
    together: tuple[PairRow, ...] = ()
    used: tuple[UsedRow, ...] = ()


class UsageReader:
    """Reads counts and tiers from the file of a gateway store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load_daily_usage(self, since_day: int) -> list[DailyRow]:
        rows = await self._read(
            "select day, server, tool, bucket, calls, successes, last_at "
            "from portico_daily_usage where day >= ? order by day, key, bucket",
            since_day,
        )
        return [
            DailyRow(day, unescape_text(server), unescape_text(tool), *counts)
            for day, server, tool, *counts in rows
        ]

    async def load_tiers(self) -> tuple[float, list[TierRow]]:
        """Return when tiers were last computed (0.0: never), and the tiers, the best first."""
        computed = await self._read("select at from portico_computed where name = 'tiers'")
        rows = await self._read(
            "select server, tool, score, tier from portico_tiers order by score desc, key"
        )
        at = computed[0][0] if computed else 0.0
        return at, [TierRow(unescape_text(row[0]), unescape_text(row[1]), *row[2:]) for row in rows]

    async def _read(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return await asyncio.to_thread(self._read_rows, statement, values)

    def _read_rows(self, statement: str, values: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        try:
            place = f"{self._path.absolute().as_uri()}?mode=ro"
            with contextlib.closing(
                sqlite3.connect(place, uri=True, timeout=_READ_TIMEOUT_S)
            ) as database:
                return database.execute(statement, values).fetchall()
        except sqlite3.Error:  # not there yet, of another version, locked or damaged
            return ()


ApprovalState = Literal["pending", "approved", "denied", "used"]


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """A request for approval of one call, and what came of it. Times are seconds since 1970."""

    id: str
    binding: str
    """Digest of everything that the approval is for: caller, tool, definition, arguments."""
    person: str
    """Principal on whose behalf the call is made."""
    client: str
    profile: str
    method: str
    """`tools/call`, `resources/read`, `prompts/get` …"""
    target: str
    """`server.tool`, `server.uri` or `server.prompt`."""
    definition: str
    """Hash of the tool's definition; empty where there is none."""
    arguments: str
    """As JSON, with invisible characters escaped."""
    rule: str
    say: str
    via: str
    created_at: float
    expires_at: float
    """When it is worth nothing any more, whatever its state."""
    state: ApprovalState = "pending"
    decided_by: str = ""
    """Principal that approved or denied it."""
    decided_via: str = ""
    """`elicitation`, `rest`, `cli`."""
    reason: str = ""
    """What the person who decided said of it."""
    decided_at: float | None = None
    used_at: float | None = None


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What it takes to go on with a call that its server has made a task of. Times are seconds
    since 1970."""

    key: str
    """Digest of the ticket and of whom it was given to."""
    person: str
    """Principal on whose behalf the call was made."""
    server: str
    fingerprint: str
    """What the server's name stood for."""
    tool: str
    """Address of the tool."""
    task_id: str
    """The server's id of the task."""
    call_id: str
    rule: str
    """The rule that decided on the call."""
    mask: str
    """What it masks in the answer, separated by spaces."""
    created_at: float
    expires_at: float
