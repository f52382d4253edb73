"""What clients were shown, in tokens, and what a listing of everything would have cost them.

A session is the client's own where it has one; a client without one has a session until it is silent for a while.
Hearing an answer only keeps it: it is counted in a thread, when what happened is written.
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
from portico.events import Bus, Event, Shown
from portico.storage.record import Record
from portico.storage.rows import LedgerRow, LedgerTotal
from portico.upstream.jsontext import dumps

SILENCE_S = 30 * 60.0
"""A client that has no session of its own begins another after so long."""
MAX_SESSIONS = 1_000
MAX_UNWRITTEN = 2_000
"""Sessions that wait for a database that is away."""
MAX_WAITING, MAX_WAITING_SIZE = 2_000, 16_000_000
"""Answers, and characters, that wait to be counted; beyond, they are estimated at once."""
_SIZE_OF_DATA = 65_536
"""What an answer that is no text counts for while it waits: how long it is, nobody knows before it is written out."""
_PER_TOKEN = 4
_WORTH_KEEPING = 2_000
"""Characters from which an answer's count is remembered: long ones are listings, which come again and again."""
_REMEMBERED = 128
_LONGEST_NAME = 80


def rough(text: str) -> int:
    """A guess from the length."""
    return len(text) // _PER_TOKEN


@dataclass(eq=False, slots=True)
class _Account:
    """One session."""

    session: str
    client: str
    profile: str
    started_at: float
    last_at: float
    listing: int = 0
    shown: int = 0
    answers: int = 0
    owes: int = 0
    """Lists of all tools that it would have been given, and that are still to be charged."""
    greeted: bool = False
    alone: bool = True
    """It is one session. Requests without one are many clients' that have one name: each list they ask for counts."""
    written: tuple[int, int] = (0, 0)
    """How much of `shown` and `answers` is on record."""

    def row(self) -> LedgerRow:
        """The account as it is."""
        return self._row(self.shown, self.answers)

    def unwritten(self) -> LedgerRow:
        """What is to be added to the record."""
        shown, answers = self.written
        return self._row(self.shown - shown, self.answers - answers)

    def _row(self, shown: int, answers: int) -> LedgerRow:
        return LedgerRow(
            self.session, self.client, self.profile, self.started_at, self.last_at, self.listing, shown, answers
        )


class Ledger:
    """The accounts of this process's sessions, and the sum of all on record."""

    def __init__(
        self,
        record: Record,
        bus: Bus,
        listing_cost: Callable[[str], int],
        *,
        count: Callable[[str], int] = rough,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`listing_cost`: what all tools of a profile cost in a listing, 0 while nobody knows. `count` may be slow."""
        self._record = record
        self._listing_cost = listing_cost
        self._counter = _Counter(count)
        self._clock = clock
        self._accounts: OrderedDict[tuple[str, str, str], _Account] = OrderedDict()
        self._unwritten: dict[str, _Account] = {}
        """Those with something to write, by session: among them some that have ended."""
        self._waiting: list[tuple[_Account, object]] = []
        self._size = 0
        self._counting: asyncio.Task[None] | None = None
        self._on_record = LedgerTotal()
        self._since = LedgerTotal()
        """What is not on record yet."""
        self._here = LedgerTotal()
        self._lock = asyncio.Lock()
        self._end = bus.subscribe(self._hear, Shown)

    # --- asking

    @property
    def total(self) -> LedgerTotal:
        """Every session together: those on record, and what was counted here since."""
        return _sum(self._on_record, self._since)

    @property
    def here(self) -> LedgerTotal:
        """What was counted in this process alone since it began: never less than a moment ago."""
        return self._here

    def session(self, caller: Caller) -> LedgerRow | None:
        """What this caller was shown in its session, as far as it was counted."""
        account = self._accounts.get(_key(caller))
        return account.row() if account is not None else None

    def sessions(self) -> list[LedgerRow]:
        """The accounts of this process, the latest first."""
        return [account.row() for account in reversed(self._accounts.values())]

    @property
    def waiting(self) -> bool:
        """Whether anything is to be counted or written."""
        return bool(self._waiting or self._counting or self._unwritten)

    # --- hearing

    def _hear(self, event: Event) -> None:
        if not isinstance(event, Shown):
            return
        account = self._account(event.caller)
        account.answers += 1
        # Whoever reads our answers has our tools in mind, if from an earlier list: without us it would have had all.
        if event.listing or (account.greeted and not account.listing and not account.owes):
            account.owes = 1 if account.alone else account.owes + 1
        account.greeted = True
        self._unwritten[account.session] = account
        self._add(LedgerTotal(answers=1))
        size = len(event.what) if isinstance(event.what, str) else _SIZE_OF_DATA
        if len(self._waiting) < MAX_WAITING and self._size + size <= MAX_WAITING_SIZE:
            self._waiting.append((account, event.what))
            self._size += size
        else:
            self._charge(account, rough(_text(event.what)))

    def _account(self, caller: Caller) -> _Account:
        key, now = _key(caller), self._clock()
        account = self._accounts.get(key)
        if account is not None and not caller.session and abs(now - account.last_at) > SILENCE_S:
            account = None
        if account is None:
            name = caller.name[:_LONGEST_NAME]
            account = _Account(
                caller.session or secrets.token_hex(8), name, caller.profile, now, now, alone=bool(caller.session)
            )
            self._accounts[key] = account
            self._add(LedgerTotal(sessions=1))
            if len(self._accounts) > MAX_SESSIONS:
                self._accounts.popitem(last=False)
        self._accounts.move_to_end(key)
        account.last_at = now
        return account

    def _charge(self, account: _Account, tokens: int) -> None:
        account.shown += tokens
        self._unwritten[account.session] = account
        self._add(LedgerTotal(shown=tokens))

    def _add(self, more: LedgerTotal) -> None:
        self._since, self._here = _sum(self._since, more), _sum(self._here, more)

    # --- counting and keeping

    async def load(self) -> None:
        """Know the sum of all that is on record, other gateways' sessions among it."""
        async with self._lock:
            self._on_record = await self._record.ledger_total()

    @asynccontextmanager
    async def handing_over(self, patience_s: float | None = None) -> AsyncGenerator[Sequence[LedgerRow]]:
        """What is to be written: whoever fails to, raises, and it waits on.

        What takes longer than `patience_s` to count is handed over another time.
        """
        async with self._lock:
            await self._all_counted(patience_s)
            self._charge_listings()
            accounts, self._unwritten = self._unwritten, {}
            rows = [one.unwritten() for one in accounts.values()]
            since, self._since = self._since, LedgerTotal()
            # Shown as written from here on: the sum must not drop while it is.
            before, self._on_record = self._on_record, _sum(self._on_record, since)
            try:
                yield rows
            except BaseException:
                self._on_record, self._since = before, _sum(since, self._since)
                self._put_back(accounts)
                raise
            for one, row in zip(accounts.values(), rows, strict=True):
                one.written = (one.written[0] + row.shown, one.written[1] + row.answers)

    def _put_back(self, accounts: Mapping[str, _Account]) -> None:
        self._unwritten = {**accounts, **self._unwritten}
        for session in list(self._unwritten)[:-MAX_UNWRITTEN]:
            del self._unwritten[session]

    async def _all_counted(self, patience_s: float | None) -> None:
        for _ in range(2):  # one round may be under way, and more wait for the next
            if self._counting is None and self._waiting:
                self._counting = asyncio.create_task(self._count(), name="count tokens")
            if self._counting is None:
                return
            done, _ = await asyncio.wait({self._counting}, timeout=patience_s)
            if not done:
                return
            counting, self._counting = self._counting, None
            counting.result()

    async def _count(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        counts = await asyncio.to_thread(self._counter.counts, [what for _, what in waiting])
        for (account, _), tokens in zip(waiting, counts, strict=True):
            self._charge(account, tokens)

    async def stop_counting(self) -> None:
        """Wait no longer for what is being counted."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.wait({self._counting})
            self._counting = None

    @property
    def owing(self) -> bool:
        """Whether there are conversations of which it is not known yet what listing every tool would have cost."""
        return any(account.owes for account in self._accounts.values())

    def _charge_listings(self) -> None:
        listing_cost = cache(self._listing_cost)  # which goes through every tool, and many sessions may ask
        for account in (*self._accounts.values(), *self._unwritten.values()):
            if account.owes and (cost := listing_cost(account.profile)):
                owed, account.owes = account.owes, 0
                listing = cost if account.alone else account.listing + owed * cost
                if listing > account.listing:
                    self._add(LedgerTotal(listing=listing - account.listing))
                    account.listing = listing
                    self._unwritten[account.session] = account

    async def flush(self) -> None:
        """Count and write what waits, where no keeper does."""
        async with self.handing_over() as rows:
            if rows:
                await self._record.add_use([], [], rows)

    def end(self) -> None:
        """Hear no more."""
        self._end()


class _Counter:
    """Counts tokens, long texts once."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._known: OrderedDict[bytes, int] = OrderedDict()

    def counts(self, answers: Sequence[object]) -> list[int]:
        """How many tokens each is."""
        return [self._counted(_text(answer)) for answer in answers]

    def _counted(self, text: str) -> int:
        if len(text) < _WORTH_KEEPING:
            return self._count(text)
        key = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        if key not in self._known:
            self._known[key] = self._count(text)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key]


def _key(caller: Caller) -> tuple[str, str, str]:
    return (caller.session, "", "") if caller.session else ("", caller.name, caller.profile)


def _text(what: object) -> str:
    """An answer as it goes over the wire."""
    if isinstance(what, str):
        return what
    try:
        return dumps(what).decode()
    except (TypeError, ValueError, RecursionError):
        return str(what)


def _sum(one: LedgerTotal, other: LedgerTotal) -> LedgerTotal:
    return LedgerTotal(
        one.sessions + other.sessions,
        one.listing + other.listing,
        one.shown + other.shown,
        one.answers + other.answers,
    )
