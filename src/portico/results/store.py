"""Store of large results: an index in memory, bodies on disk.

An id is a capability: 128 random bits, and it works for its owner only. Nothing is found without an
id, because clients without a session may share token and name. Expired results are removed; above
the total size the oldest result of the largest owner goes first.
"""

import asyncio
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from portico.callers import Caller
from portico.config import ResultsConfig
from portico.errors import UnknownName
from portico.fair_limiter import NO_LIMIT, FairLimiter, Limit
from portico.storage.data_files import ResultFiles

ResultKind = Literal["json", "text", "blob"]

RESULT_URI_PREFIX = "portico://result/"
MAX_CONCURRENT = 2
MAX_CONCURRENT_PER_CALLER = 1
"""Large results that are processed at the same time, in all and for one caller: each costs memory
and a thread. The queue is bounded by admission control."""
HEAVY_CHARS = 256 * 1024
"""Size in characters or bytes from which work on a result needs a slot."""
T = TypeVar("T")


@dataclass(frozen=True)
class StoredResult:
    """Index entry of a stored result."""

    id: str
    owner: str
    tool: str
    kind: ResultKind
    size: int
    expires_at: float
    mime: str = ""
    member: str | None = None
    """Name of the only field of the answer, if this is that field's text; else None."""

    @property
    def uri(self) -> str:
        """URI of the resource with the whole result."""
        return RESULT_URI_PREFIX + self.id


def get_owner_key(caller: Caller) -> str:
    """Return the key that stored items are counted and authorised by.

    It identifies a session, or else a claim that other clients can make too, so it only restricts
    an id and never replaces it.
    """
    return f"{caller.profile}\n{caller.owner}"


class ResultStore:
    """Stores results and finds them for their owners. Bound to one event loop, except `sweep`."""

    def __init__(
        self,
        files: ResultFiles,
        settings: ResultsConfig | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self.settings = settings or ResultsConfig()
        self._clock = clock
        self._stored: dict[str, StoredResult] = {}
        """In the order of arrival."""
        self.size_bytes = 0
        """Total size of the bodies."""
        self._lock = threading.Lock()
        waiting = NO_LIMIT.queue
        self._limiter = FairLimiter(
            Limit(MAX_CONCURRENT, queue=waiting), Limit(MAX_CONCURRENT_PER_CALLER, queue=waiting)
        )
        self._threads: dict[str, set[asyncio.Future[Any]]] = {}
        """Running threads by caller."""

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def ttl_minutes(self) -> int:
        return round(self.settings.ttl_s / 60)

    @asynccontextmanager
    async def acquire_slot(self, caller: Caller, size: int) -> AsyncGenerator[None]:
        """Hold a slot for work on a result of about `size` characters; slots are fair by caller.

        The slot is released when all threads of the caller have ended, including abandoned ones.
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
        """Run a function in a thread for a caller; it runs to its end even if this is
        cancelled."""
        task = asyncio.create_task(asyncio.to_thread(function, *args), name="work on a result")
        self._track_thread(caller, task)
        try:
            return await asyncio.shield(task)
        finally:
            # Its exception refers to this frame: the cycle would wait for the garbage collector.
            del task

    def _track_thread(self, caller: Caller, work: asyncio.Task[Any]) -> None:
        key = get_owner_key(caller)
        self._threads.setdefault(key, set()).add(work)

        def untrack(task: asyncio.Task[Any]) -> None:
            if not task.cancelled():
                task.exception()  # retrieved, because the caller may have been cancelled
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
        """Write a body in a thread; raises ResultBodyTooLarge, OSError and whatever `texts` raises.

        Nothing is left on disk after an error.
        """
        name = secrets.token_urlsafe(16)
        expires = self._clock() + self.settings.ttl_s
        max_bytes = min(self.settings.result_bytes, self.settings.total_bytes)
        writing = asyncio.create_task(
            asyncio.to_thread(self.files.write, name, texts, expires, max_bytes),
            name="store a result",
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
            self.size_bytes += size
        self._evict(stored)
        return stored

    def find(self, caller: Caller, result_id: str) -> StoredResult:
        """Return a result by id or URI; raises UnknownName, also for another caller's result."""
        name = result_id.strip().removeprefix(RESULT_URI_PREFIX)
        stored = self._stored.get(name)
        if (
            stored is None
            or stored.owner != get_owner_key(caller)
            or stored.expires_at <= self._clock()
        ):
            raise UnknownName(
                "there is no such result",
                advice=f"Results are kept for {self.ttl_minutes} minutes; "
                "call the tool again for a new one.",
            )
        return stored

    def sweep(self) -> None:
        """Remove expired results. Blocks on the disk briefly; run at start and periodically."""
        self._expire()
        self.files.sweep()

    def drop(self, stored: StoredResult) -> None:
        """Remove a result and its file."""
        with self._lock:
            if self._stored.pop(stored.id, None) is None:
                return
            self.size_bytes -= stored.size
        self.files.delete(stored.id)

    def close(self) -> None:
        """Remove all results."""
        for stored in self._list_stored():
            self.drop(stored)
        self.files.close()

    def _evict(self, newest: StoredResult) -> None:
        self._expire()
        while self.size_bytes > self.settings.total_bytes and (
            others := [result for result in self._list_stored() if result is not newest]
        ):
            bytes_by_owner = Counter[str]()
            for result in (*others, newest):
                bytes_by_owner[result.owner] += result.size
            [(largest_owner, _)] = bytes_by_owner.most_common(1)
            oldest = (result for result in others if result.owner == largest_owner)
            self.drop(next(oldest, others[0]))

    def _expire(self) -> None:
        now = self._clock()
        for stored in self._list_stored():
            if stored.expires_at <= now:
                self.drop(stored)

    def _list_stored(self) -> list[StoredResult]:
        """Return a copy, because `sweep` runs in a thread."""
        with self._lock:
            return list(self._stored.values())

    def _delete_abandoned(self, name: str, writing: asyncio.Task[int]) -> None:
        if not writing.cancelled():
            writing.exception()
        self.files.delete(name)
