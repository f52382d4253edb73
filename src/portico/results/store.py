"""Large results that wait to be read: who may, for how long, and how many. The index is in memory,
the bodies on disk.

An id is as good as a key: 128 random bits, and another caller's is not found. Nothing is found
without its id: who has no session shares its token and name with others. What is over its time or
over the total goes, first the oldest of whoever holds most.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from portico.access import Caller
from portico.errors import UnknownName
from portico.fair_limiter import NO_LIMIT, FairLimiter, Limit
from portico.storage.result_files import ResultFiles

ResultKind = Literal["json", "text", "blob"]

RESULT_URI_PREFIX = "portico://result/"
TTL_S = 3_600.0
TOTAL_BYTES = 256 * 1024**2
RESULT_BYTES = 64 * 1024**2
MAX_CONCURRENT = 2
MAX_CONCURRENT_PER_CALLER = 1
"""Large results that are taken apart or read at the same time, in all and of one caller: each costs
memory and a thread. How many may wait is bounded where requests are admitted."""
HEAVY_CHARS = 256 * 1024
"""Characters or bytes from which work on a result needs a place: what is smaller is over at once.
"""
T = TypeVar("T")


@dataclass(frozen=True)
class StoredResult:
    """One result that can be read."""

    id: str
    owner: str
    tool: str
    kind: ResultKind
    size: int
    expires_at: float
    mime: str = ""
    member: str | None = None
    """The only field of the answer, whose text this is; None where it is the answer itself."""

    @property
    def uri(self) -> str:
        """The resource that is the whole of it."""
        return RESULT_URI_PREFIX + self.id


def get_owner_key(caller: Caller) -> str:
    """Whom what has an id is counted for, and who may use it, if it knows the id.

    A session where there is one, else a claim that others can make too: of use beside an id, never
    in place of one.
    """
    return f"{caller.profile}\n{caller.owner}"


class ResultStore:
    """Keeps bodies, and finds them again for whoever they belong to. One event loop's own, but for
    the sweep."""

    def __init__(
        self,
        files: ResultFiles,
        *,
        ttl_s: float = TTL_S,
        total_bytes: int = TOTAL_BYTES,
        result_bytes: int = RESULT_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self.ttl_s = ttl_s
        self._total_bytes = total_bytes
        self._result_bytes = min(result_bytes, total_bytes)
        self._clock = clock
        self._stored: dict[str, StoredResult] = {}
        """In the order they came."""
        self._size_bytes = 0
        self._lock = threading.Lock()
        waiting = NO_LIMIT.queue
        self._limiter = FairLimiter(
            Limit(MAX_CONCURRENT, queue=waiting), Limit(MAX_CONCURRENT_PER_CALLER, queue=waiting)
        )
        self._threads: dict[str, set[asyncio.Future[Any]]] = {}
        """What is at work in threads, by its caller."""

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def size_bytes(self) -> int:
        """How much is on disk."""
        return self._size_bytes

    @asynccontextmanager
    async def acquire_slot(self, caller: Caller, size: int) -> AsyncGenerator[None]:
        """Wait for a place for work on a result of about `size` characters, where callers take
        turns.

        The place is free again when the caller's threads have ended, also those that it no longer
        waits for.
        """
        if size < HEAVY_CHARS:
            yield
            return
        key = get_owner_key(caller)
        await self._limiter.acquire(key, None)
        try:
            yield
        finally:
            if threads := self._threads.get(key):
                ended = asyncio.gather(*threads, return_exceptions=True)
                ended.add_done_callback(lambda _: self._limiter.release(key))
            else:
                self._limiter.release(key)

    async def run_in_thread(self, caller: Caller, function: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread, for a caller that may have a place; cancelled, it goes on to
        its end."""
        work = asyncio.create_task(asyncio.to_thread(function, *args), name="work on a result")
        self._track_thread(caller, work)
        try:
            return await asyncio.shield(work)
        finally:
            del (
                work
            )  # its error holds this frame: together they would wait for the garbage collector

    def _track_thread(self, caller: Caller, work: asyncio.Task[Any]) -> None:
        key = get_owner_key(caller)
        self._threads.setdefault(key, set()).add(work)

        def untrack(task: asyncio.Task[Any]) -> None:
            if not task.cancelled():
                task.exception()  # nobody may be waiting for it any more
            self._threads[key].discard(task)
            if not self._threads[key]:
                del self._threads[key]

        work.add_done_callback(untrack)

    async def save(
        self,
        caller: Caller,
        tool: str,
        kind: ResultKind,
        texts: Iterable[str],
        mime: str = "",
        member: str | None = None,
    ) -> StoredResult:
        """Write a body, in a thread; raises TooLarge, OSError, and whatever `texts` raises, leaving
        nothing behind."""
        name = secrets.token_urlsafe(16)
        expires = self._clock() + self.ttl_s
        writing = asyncio.create_task(
            asyncio.to_thread(self.files.write, name, texts, expires, self._result_bytes),
            name="keep a result",
        )
        self._track_thread(caller, writing)
        try:
            size = await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(lambda done: self._delete_abandoned(name, done))
            raise
        stored = StoredResult(name, get_owner_key(caller), tool, kind, size, expires, mime, member)
        with self._lock:
            self._stored[name] = stored
            self._size_bytes += size
        self._evict(stored)
        return stored

    def find(self, caller: Caller, result_id: str) -> StoredResult:
        """A result by its id or URI; raises UnknownName, also for another caller's."""
        name = result_id.strip().removeprefix(RESULT_URI_PREFIX)
        stored = self._stored.get(name)
        if (
            stored is None
            or stored.owner != get_owner_key(caller)
            or stored.expires_at <= self._clock()
        ):
            raise UnknownName(
                "there is no such result",
                advice=f"Results are kept for {round(self.ttl_s / 60)} minutes; call the tool again for a new one.",
            )
        return stored

    def sweep(self) -> None:
        """Let go of what is over its time. Blocks on the disk for a moment; for start and
        housekeeping."""
        self._expire()
        self.files.sweep()

    def drop(self, stored: StoredResult) -> None:
        """Let go of one."""
        with self._lock:
            if self._stored.pop(stored.id, None) is None:
                return
            self._size_bytes -= stored.size
        self.files.delete(stored.id)

    def close(self) -> None:
        """Let go of everything."""
        for stored in self._list_stored():
            self.drop(stored)
        self.files.close()

    def _evict(self, newest: StoredResult) -> None:
        self._expire()
        while self._size_bytes > self._total_bytes and (
            others := [one for one in self._list_stored() if one is not newest]
        ):
            held: dict[str, int] = {}
            for one in (*others, newest):
                held[one.owner] = held.get(one.owner, 0) + one.size
            most = max(held, key=lambda owner: held[owner])
            self.drop(next((one for one in others if one.owner == most), others[0]))

    def _expire(self) -> None:
        now = self._clock()
        for stored in self._list_stored():
            if stored.expires_at <= now:
                self.drop(stored)

    def _list_stored(self) -> list[StoredResult]:
        """A copy, for the sweep in its thread and for the loop beside it."""
        with self._lock:
            return list(self._stored.values())

    def _delete_abandoned(self, name: str, writing: asyncio.Task[int]) -> None:
        if not writing.cancelled():
            writing.exception()
        self.files.delete(name)
