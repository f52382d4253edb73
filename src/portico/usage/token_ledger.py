"""Ledger of the tokens that clients were shown, against the cost of listing every tool.

A session is the client's own if it has one; otherwise it lasts until the client is silent for a
while. An event only stores the content: it is counted in a thread, when the ledger is written.
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

from portico.callers import Caller
from portico.events import Event, EventBus, ToolsShown
from portico.json_text.json_codec import dumps
from portico.storage.gateway_store import GatewayStore
from portico.storage.rows import LedgerRow, LedgerTotal

SESSION_TIMEOUT_S = 30 * 60.0
"""Silence in seconds after which a client without a session starts a new one."""
MAX_SESSIONS = 1_000
MAX_UNWRITTEN = 2_000
"""Sessions that may wait for an unavailable database."""
MAX_UNCOUNTED = 2_000
MAX_UNCOUNTED_CHARS = 16_000_000
"""Responses and characters that may wait to be counted; further ones are estimated at once."""
_ASSUMED_DATA_CHARS = 65_536
"""Characters assumed for a response that is not text: its length is unknown until it is encoded."""
_CHARS_PER_TOKEN = 4
_MIN_CACHED_CHARS = 2_000
"""Length in characters from which counts are cached: long responses are listings, which repeat."""
_MAX_CACHED_COUNTS = 128
_MAX_NAME_CHARS = 80


def estimate_tokens(text: str) -> int:
    return len(text) // _CHARS_PER_TOKEN


@dataclass(eq=False, slots=True)
class _SessionAccount:
    session: str
    client: str
    profile: str
    started_at: float
    last_at: float
    is_single_session: bool
    """Whether this is one session, not many clients of one name that each list separately."""
    listing: int = 0
    shown: int = 0
    answers: int = 0
    uncharged_listings: int = 0
    """Full listings that the client would have received, still to be charged."""
    recorded_shown: int = 0
    recorded_answers: int = 0
    """Portions of `shown` and `answers` that are stored."""

    def to_row(self, *, is_increment: bool = False) -> LedgerRow:
        shown = self.shown
        answers = self.answers
        if is_increment:
            shown -= self.recorded_shown
            answers -= self.recorded_answers
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
    """Accounts of this process's sessions, and the stored total."""

    def __init__(
        self,
        store: GatewayStore,
        bus: EventBus,
        get_listing_cost: Callable[[str], int],
        *,
        count: Callable[[str], int] = estimate_tokens,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Subscribe to ToolsShown.

        `get_listing_cost` returns the tokens of listing all tools of a profile, 0 while unknown.
        `count` may be slow.
        """
        self._store = store
        self._get_listing_cost = get_listing_cost
        self._count = count
        self._cached_counts: OrderedDict[bytes, int] = OrderedDict()
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, str, str], _SessionAccount] = OrderedDict()
        self._unwritten: dict[str, _SessionAccount] = {}
        """Accounts with unwritten figures by session, including ended ones."""
        self._uncounted: list[tuple[_SessionAccount, object]] = []
        self._uncounted_chars = 0
        self._count_task: asyncio.Task[None] | None = None
        self._recorded_total = LedgerTotal()
        self._unrecorded_total = LedgerTotal()
        """Figures that are not stored yet."""
        self.process_total = LedgerTotal()
        """Total counted by this process since it started; never decreases."""
        self._lock = asyncio.Lock()
        self._is_writing = False
        self.has_new = asyncio.Event()
        """Set when there is something to write."""
        self.unsubscribe = bus.subscribe(self._on_shown, ToolsShown)

    # --- queries

    @property
    def total(self) -> LedgerTotal:
        """Total of all sessions: the stored ones, and what was counted here since."""
        return self._recorded_total + self._unrecorded_total

    def get_session(self, caller: Caller) -> LedgerRow | None:
        """Return what this caller was shown in its session, as far as it was counted."""
        account = self._accounts.get(_make_account_key(caller))
        return None if account is None else account.to_row()

    def list_sessions(self) -> list[LedgerRow]:
        """Return the accounts of this process, the latest first."""
        return [account.to_row() for account in reversed(self._accounts.values())]

    @property
    def has_pending(self) -> bool:
        """Whether anything is not written yet."""
        return self._is_writing or bool(self._uncounted or self._count_task or self._unwritten)

    @property
    def has_uncharged_listings(self) -> bool:
        """Whether there are sessions whose full listing cost is not known yet."""
        return any(account.uncharged_listings for account in self._accounts.values())

    # --- events

    def _on_shown(self, event: Event) -> None:
        if not isinstance(event, ToolsShown):
            return
        account = self._get_account(event.caller)
        # A client that reads responses has seen a list before, perhaps an earlier one: without the
        # gateway that would have been the full list.
        has_list = account.listing or account.uncharged_listings
        if event.is_listing or (account.answers and not has_list):
            account.uncharged_listings += 1
        account.answers += 1
        self.has_new.set()
        self._unwritten[account.session] = account
        self._add_to_totals(LedgerTotal(answers=1))
        size = len(event.content) if isinstance(event.content, str) else _ASSUMED_DATA_CHARS
        is_full = len(self._uncounted) >= MAX_UNCOUNTED
        if is_full or self._uncounted_chars + size > MAX_UNCOUNTED_CHARS:
            self._charge(account, estimate_tokens(_to_text(event.content)))
        else:
            self._uncounted.append((account, event.content))
            self._uncounted_chars += size

    def _get_account(self, caller: Caller) -> _SessionAccount:
        key = _make_account_key(caller)
        now = self._clock()
        account = self._accounts.get(key)
        is_over = account is not None and abs(now - account.last_at) > SESSION_TIMEOUT_S
        if account is None or (is_over and not caller.session):
            session = caller.session or secrets.token_hex(8)
            name = caller.name[:_MAX_NAME_CHARS]
            account = _SessionAccount(
                session, name, caller.profile, now, now, is_single_session=bool(caller.session)
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
        self._unrecorded_total += added
        self.process_total += added

    # --- counting and storage

    async def load(self) -> None:
        """Load the stored total, including other gateways' sessions."""
        async with self._lock:
            self._recorded_total = await self._store.load_ledger_total()

    @asynccontextmanager
    async def take_pending(
        self, timeout_s: float | None = None
    ) -> AsyncGenerator[Sequence[LedgerRow]]:
        """Yield the rows to be written. If the block raises, they stay pending.

        What takes longer than `timeout_s` seconds to count is left for the next time.
        """
        async with self._lock:
            await self._wait_for_counts(timeout_s)
            self._charge_listings()
            accounts = self._unwritten
            self._unwritten = {}
            rows = [account.to_row(is_increment=True) for account in accounts.values()]
            unrecorded = self._unrecorded_total
            self._unrecorded_total = LedgerTotal()
            # Counted as stored from here on, so that the total does not drop during the write.
            previous_total = self._recorded_total
            self._recorded_total += unrecorded
            self._is_writing = True
            try:
                yield rows
            except BaseException:
                self._recorded_total = previous_total
                self._unrecorded_total += unrecorded
                self._restore_pending(accounts)
                raise
            finally:
                self._is_writing = False
            for account, row in zip(accounts.values(), rows, strict=True):
                account.recorded_shown += row.shown
                account.recorded_answers += row.answers

    def _restore_pending(self, accounts: Mapping[str, _SessionAccount]) -> None:
        self._unwritten = {**accounts, **self._unwritten}
        for session in list(self._unwritten)[:-MAX_UNWRITTEN]:
            del self._unwritten[session]

    async def _wait_for_counts(self, timeout_s: float | None) -> None:
        # Twice: one count may be in progress while more responses wait for the next.
        for _ in range(2):
            if self._count_task is None and self._uncounted:
                self._count_task = asyncio.create_task(self._count_pending(), name="count tokens")
            if self._count_task is None:
                return
            done, _ = await asyncio.wait({self._count_task}, timeout=timeout_s)
            if not done:
                return
            finished = self._count_task
            self._count_task = None
            finished.result()

    async def _count_pending(self) -> None:
        uncounted = self._uncounted
        self._uncounted = []
        self._uncounted_chars = 0
        contents = [content for _, content in uncounted]
        counts = await asyncio.to_thread(lambda: [*map(self._count_tokens, contents)])
        for (account, _), tokens in zip(uncounted, counts, strict=True):
            self._charge(account, tokens)

    def _count_tokens(self, content: object) -> int:
        """Return the tokens of a response; each long text is counted once."""
        text = _to_text(content)
        if len(text) < _MIN_CACHED_CHARS:
            return self._count(text)
        key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        if key not in self._cached_counts:
            self._cached_counts[key] = self._count(text)
            if len(self._cached_counts) > _MAX_CACHED_COUNTS:
                self._cached_counts.popitem(last=False)
        return self._cached_counts[key]

    async def stop_counting(self) -> None:
        if self._count_task is not None:
            self._count_task.cancel()
            await asyncio.wait({self._count_task})
            self._count_task = None

    def _charge_listings(self) -> None:
        # Cached, because it goes through every tool and many sessions share a profile.
        listing_cost = cache(self._get_listing_cost)
        for account in (*self._accounts.values(), *self._unwritten.values()):
            if account.uncharged_listings and (cost := listing_cost(account.profile)):
                listing = account.listing + account.uncharged_listings * cost
                if account.is_single_session:
                    listing = max(account.listing, cost)
                account.uncharged_listings = 0
                if listing > account.listing:
                    self._add_to_totals(LedgerTotal(listing=listing - account.listing))
                    account.listing = listing
                    self._unwritten[account.session] = account

    async def flush(self) -> None:
        """Count and write what is pending, for use without a recorder."""
        async with self.take_pending() as rows:
            await self._store.add_usage([], [], rows)


def _make_account_key(caller: Caller) -> tuple[str, str, str]:
    if caller.session:
        return (caller.session, "", "")
    return ("", caller.name, caller.profile)


def _to_text(content: object) -> str:
    if isinstance(content, str):
        return content
    try:
        return dumps(content).decode()
    except (TypeError, ValueError, RecursionError):
        return str(content)
