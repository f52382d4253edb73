"""What clients were shown, in tokens, and what a listing of everything would have cost them.

A session is the client's own where it has one; a client without one has a session until it is
silent for a while. Hearing an answer only keeps it: it is counted in a thread, when what happened
is written.
"""

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

from portico.access import Caller
from portico.events import Event, EventBus, ToolsShown
from portico.json_text.json_codec import dumps
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import LedgerRow, LedgerTotal

SESSION_TIMEOUT_S = 30 * 60.0
"""A client that has no session of its own begins another after so long."""
MAX_SESSIONS = 1_000
MAX_UNWRITTEN = 2_000
"""Sessions that wait for a database that is away."""
MAX_UNCOUNTED = 2_000
MAX_UNCOUNTED_CHARS = 16_000_000
"""Answers, and characters, that wait to be counted; beyond, they are estimated at once."""
_ASSUMED_DATA_CHARS = 65_536
"""What an answer that is no text counts for while it waits: how long it is, nobody knows before it
is written out."""
_CHARS_PER_TOKEN = 4
_MIN_CACHED_CHARS = 2_000
"""Characters from which an answer's count is remembered: long ones are listings, which come again
and again."""
_MAX_CACHED_COUNTS = 128
_MAX_NAME_CHARS = 80


def estimate_tokens(text: str) -> int:
    """A guess from the length."""
    return len(text) // _CHARS_PER_TOKEN


@dataclass(eq=False, slots=True)
class _SessionAccount:
    """One session."""

    session: str
    client: str
    profile: str
    started_at: float
    last_at: float
    listing: int = 0
    shown: int = 0
    answers: int = 0
    uncharged_listings: int = 0
    """Lists of all tools that it would have been given, and that are still to be charged."""
    has_answers: bool = False
    is_single_session: bool = True
    """It is one session. Requests without one are many clients' that have one name: each list they
    ask for counts."""
    recorded_counts: tuple[int, int] = (0, 0)
    """How much of `shown` and `answers` is on record."""

    def to_row(self) -> LedgerRow:
        """The account as it is."""
        return self._make_row(self.shown, self.answers)

    def to_unwritten_row(self) -> LedgerRow:
        """What is to be added to the record."""
        shown, answers = self.recorded_counts
        return self._make_row(self.shown - shown, self.answers - answers)

    def _make_row(self, shown: int, answers: int) -> LedgerRow:
        return LedgerRow(
            self.session,
            self.client,
            self.profile,
            self.started_at,
            self.last_at,
            self.listing,
            shown,
            answers,
        )


class TokenLedger:
    """The accounts of this process's sessions, and the sum of all on record."""

    def __init__(
        self,
        store: GatewayStore,
        bus: EventBus,
        get_listing_cost: Callable[[str], int],
        *,
        count: Callable[[str], int] = estimate_tokens,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`listing_cost`: what all tools of a profile cost in a listing, 0 while nobody knows. `count` may be slow."""
        self._store = store
        self._get_listing_cost = get_listing_cost
        self._counter = _CachingTokenCounter(count)
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, str, str], _SessionAccount] = OrderedDict()
        self._unwritten: dict[str, _SessionAccount] = {}
        """Those with something to write, by session: among them some that have ended."""
        self._uncounted: list[tuple[_SessionAccount, object]] = []
        self._uncounted_chars = 0
        self._count_task: asyncio.Task[None] | None = None
        self._recorded_total = LedgerTotal()
        self._unrecorded_total = LedgerTotal()
        """What is not on record yet."""
        self._process_total = LedgerTotal()
        self._lock = asyncio.Lock()
        self._unsubscribe = bus.subscribe(self._on_shown, ToolsShown)

    # --- asking

    @property
    def total(self) -> LedgerTotal:
        """Every session together: those on record, and what was counted here since."""
        return _add_totals(self._recorded_total, self._unrecorded_total)

    @property
    def process_total(self) -> LedgerTotal:
        """What was counted in this process alone since it began: never less than a moment ago."""
        return self._process_total

    def get_session(self, caller: Caller) -> LedgerRow | None:
        """What this caller was shown in its session, as far as it was counted."""
        account = self._accounts.get(_make_account_key(caller))
        if account is not None:
            return account.to_row()
        return None

    def list_sessions(self) -> list[LedgerRow]:
        """The accounts of this process, the latest first."""
        return [account.to_row() for account in reversed(self._accounts.values())]

    @property
    def has_pending(self) -> bool:
        """Whether anything is to be counted or written."""
        return bool(self._uncounted or self._count_task or self._unwritten)

    # --- hearing

    def _on_shown(self, event: Event) -> None:
        if not isinstance(event, ToolsShown):
            return
        account = self._get_account(event.caller)
        account.answers += 1
        # Whoever reads our answers has our tools in mind, if from an earlier list: without us it
        # would have had all.
        if event.is_listing or (
            account.has_answers and not account.listing and not account.uncharged_listings
        ):
            if account.is_single_session:
                account.uncharged_listings = 1
            else:
                account.uncharged_listings = account.uncharged_listings + 1
        account.has_answers = True
        self._unwritten[account.session] = account
        self._add_to_totals(LedgerTotal(answers=1))
        if isinstance(event.content, str):
            size = len(event.content)
        else:
            size = _ASSUMED_DATA_CHARS
        if (
            len(self._uncounted) < MAX_UNCOUNTED
            and self._uncounted_chars + size <= MAX_UNCOUNTED_CHARS
        ):
            self._uncounted.append((account, event.content))
            self._uncounted_chars += size
        else:
            self._charge(account, estimate_tokens(_to_text(event.content)))

    def _get_account(self, caller: Caller) -> _SessionAccount:
        key = _make_account_key(caller)
        now = self._clock()
        account = self._accounts.get(key)
        if (
            account is not None
            and not caller.session
            and abs(now - account.last_at) > SESSION_TIMEOUT_S
        ):
            account = None
        if account is None:
            name = caller.name[:_MAX_NAME_CHARS]
            account = _SessionAccount(
                caller.session or secrets.token_hex(8),
                name,
                caller.profile,
                now,
                now,
                is_single_session=bool(caller.session),
            )
            self._accounts[key] = account
            self._add_to_totals(LedgerTotal(sessions=1))
            if len(self._accounts) > MAX_SESSIONS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(key)
        account.last_at = now
        return account

    def _charge(self, account: _SessionAccount, tokens: int) -> None:
        account.shown += tokens
        self._unwritten[account.session] = account
        self._add_to_totals(LedgerTotal(shown=tokens))

    def _add_to_totals(self, added: LedgerTotal) -> None:
        self._unrecorded_total = _add_totals(self._unrecorded_total, added)
        self._process_total = _add_totals(self._process_total, added)

    # --- counting and keeping

    async def load(self) -> None:
        """Know the sum of all that is on record, other gateways' sessions among it."""
        async with self._lock:
            self._recorded_total = await self._store.load_ledger_total()

    @asynccontextmanager
    async def take_pending(
        self, timeout_s: float | None = None
    ) -> AsyncGenerator[Sequence[LedgerRow]]:
        """What is to be written: whoever fails to, raises, and it waits on.

        What takes longer than `patience_s` to count is handed over another time.
        """
        async with self._lock:
            await self._wait_for_counts(timeout_s)
            self._charge_listings()
            accounts = self._unwritten
            self._unwritten = {}
            rows = [one.to_unwritten_row() for one in accounts.values()]
            since = self._unrecorded_total
            self._unrecorded_total = LedgerTotal()
            # Shown as written from here on: the sum must not drop while it is.
            before = self._recorded_total
            self._recorded_total = _add_totals(self._recorded_total, since)
            try:
                yield rows
            except BaseException:
                self._recorded_total = before
                self._unrecorded_total = _add_totals(since, self._unrecorded_total)
                self._restore_pending(accounts)
                raise
            for one, row in zip(accounts.values(), rows, strict=True):
                one.recorded_counts = (
                    one.recorded_counts[0] + row.shown,
                    one.recorded_counts[1] + row.answers,
                )

    def _restore_pending(self, accounts: Mapping[str, _SessionAccount]) -> None:
        self._unwritten = {**accounts, **self._unwritten}
        for session in list(self._unwritten)[:-MAX_UNWRITTEN]:
            del self._unwritten[session]

    async def _wait_for_counts(self, timeout_s: float | None) -> None:
        for _ in range(2):  # one round may be under way, and more wait for the next
            if self._count_task is None and self._uncounted:
                self._count_task = asyncio.create_task(self._count_pending(), name="count tokens")
            if self._count_task is None:
                return
            done, _ = await asyncio.wait({self._count_task}, timeout=timeout_s)
            if not done:
                return
            counting = self._count_task
            self._count_task = None
            counting.result()

    async def _count_pending(self) -> None:
        waiting = self._uncounted
        self._uncounted = []
        self._uncounted_chars = 0
        counts = await asyncio.to_thread(self._counter.count_all, [what for _, what in waiting])
        for (account, _), tokens in zip(waiting, counts, strict=True):
            self._charge(account, tokens)

    async def stop_counting(self) -> None:
        """Wait no longer for what is being counted."""
        if self._count_task is not None:
            self._count_task.cancel()
            await asyncio.wait({self._count_task})
            self._count_task = None

    @property
    def has_uncharged_listings(self) -> bool:
        """Whether there are conversations of which it is not known yet what listing every tool
        would have cost."""
        return any(account.uncharged_listings for account in self._accounts.values())

    def _charge_listings(self) -> None:
        listing_cost = cache(
            self._get_listing_cost
        )  # which goes through every tool, and many sessions may ask
        for account in (*self._accounts.values(), *self._unwritten.values()):
            if account.uncharged_listings and (cost := listing_cost(account.profile)):
                owed = account.uncharged_listings
                account.uncharged_listings = 0
                if account.is_single_session:
                    listing = cost
                else:
                    listing = account.listing + owed * cost
                if listing > account.listing:
                    self._add_to_totals(LedgerTotal(listing=listing - account.listing))
                    account.listing = listing
                    self._unwritten[account.session] = account

    async def flush(self) -> None:
        """Count and write what waits, where no keeper does."""
        async with self.take_pending() as rows:
            if rows:
                await self._store.add_usage([], [], rows)

    def unsubscribe(self) -> None:
        """Hear no more."""
        self._unsubscribe()


class _CachingTokenCounter:
    """Counts tokens, long texts once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._cache: OrderedDict[bytes, int] = OrderedDict()

    def count_all(self, answers: Sequence[object]) -> list[int]:
        """How many tokens each is."""
        return [self._count_cached(_to_text(answer)) for answer in answers]

    def _count_cached(self, text: str) -> int:
        if len(text) < _MIN_CACHED_CHARS:
            return self._count(text)
        key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        if key not in self._cache:
            self._cache[key] = self._count(text)
            if len(self._cache) > _MAX_CACHED_COUNTS:
                self._cache.popitem(last=False)
        return self._cache[key]


def _make_account_key(caller: Caller) -> tuple[str, str, str]:
    if caller.session:
        return (caller.session, "", "")
    return ("", caller.name, caller.profile)


def _to_text(content: object) -> str:
    """An answer as it goes over the wire."""
    if isinstance(content, str):
        return content
    try:
        return dumps(content).decode()
    except (TypeError, ValueError, RecursionError):
        return str(content)


def _add_totals(one: LedgerTotal, other: LedgerTotal) -> LedgerTotal:
    return LedgerTotal(
        one.sessions + other.sessions,
        one.listing + other.listing,
        one.shown + other.shown,
        one.answers + other.answers,
    )
