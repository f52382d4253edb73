"""Calls that outlive their request: answered with a ticket once their server has made a task of
them, and read by it later, after a restart of the gateway too.

A ticket is 128 random bits, bound to the principal and profile that it was given to: what is stored
is a digest of all three, so that another caller's ticket is not found, and the store gives nobody
a ticket. Bounded in number for each principal and in all, and in the size of what waits.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from portico.callers import Caller, choose_entry_to_drop
from portico.calls.call import CallContext
from portico.calls.running_task import MAX_TASK_S, RunningTask
from portico.calls.server_task import get_lifetime_s
from portico.errors import BackendUnavailable, Overloaded, UnknownName
from portico.json_text.json_codec import estimate_size
from portico.storage.gateway_store import GatewayStore, StoreUnavailable
from portico.storage.rows import TaskRow
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

TICKET_PREFIX = "task_"
_RANDOM_BYTES = 16
_MAX_TICKET_CHARS = 100
ANSWER_S = 45.0
MAX_HELD = 1_000
OWNER_SHARE = 4
"""One principal may hold a fourth of the places."""
MAX_HELD_CHARS = 64 * 1024**2
"""Size as JSON of all finished results that wait to be read; above it the oldest is forgotten, and
asked for again at its server."""
KEEP_S = 3_600.0
"""Seconds for which a result waits here."""
MIN_STORED_S = 3_600.0

Work = Callable[[CallContext], Coroutine[Any, Any, Raw]]


@dataclass(slots=True, eq=False)
class HeldTask:
    """A call that goes on without a request, or its result."""

    ticket: str
    owner: str
    task: RunningTask
    work: "asyncio.Task[Raw]"
    ended_at: float | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class TaskTicket:
    """Answer for a caller whose call goes on: what it is followed by."""

    held: HeldTask


def is_ticket(text: str) -> bool:
    return text.startswith(TICKET_PREFIX)


class TaskTickets:
    """The calls that go on. For one event loop."""

    def __init__(
        self,
        store: GatewayStore | None = None,
        get_fingerprint: Callable[[str], str] = lambda server: "",
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`get_fingerprint` identifies the server that a name stands for now; without `store` no
        ticket outlives the process."""
        self.answer_s = ANSWER_S
        """Seconds after which a caller that waits for a task gets a ticket."""
        self.max_held = MAX_HELD
        self._store = store
        self._get_fingerprint = get_fingerprint
        self._clock = clock
        self._held: dict[str, HeldTask] = {}
        self._closing = asyncio.Event()

    def configure(self, answer_s: float, max_held: int) -> None:
        """Set the seconds that a caller waits for a task, and how many calls may go on."""
        self.answer_s = answer_s
        self.max_held = max_held

    async def run(self, context: CallContext, work: Work) -> Raw | TaskTicket:
        """Make a caller's call, and return its result; a ticket where its server has made a task
        of it that takes longer than the caller may wait."""
        begun: asyncio.Future[RunningTask] = asyncio.get_running_loop().create_future()

        def note_task(task: RunningTask) -> None:
            if not begun.done():
                begun.set_result(task)

        asked_at = time.monotonic()
        working = asyncio.create_task(work(replace(context, on_task=note_task)), name="call")
        try:
            await asyncio.wait({working, begun}, return_when=asyncio.FIRST_COMPLETED)
            if begun.done() and context.task_mode == "await":
                await self._wait_patiently(working, begun.result(), asked_at)
            if working.done():
                return working.result()
            return TaskTicket(await self._hand_out(context, begun.result(), working))
        except BaseException:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            if not working.cancelled():
                working.exception()
            raise

    async def read(self, held: HeldTask, context: CallContext) -> Raw | None:
        """Return the result of a call that goes on, or None if it takes longer than its caller may
        wait; raises what the call raises."""
        meta = {"_meta": context.extra.get("_meta")}
        with held.task.attach(context.relay, meta):
            await self._wait_patiently(held.work, held.task, time.monotonic())
        return held.work.result() if held.work.done() else None

    async def find(self, ticket: str, caller: Caller) -> HeldTask | TaskRow:
        """Return the call of a ticket, or what is stored of it; raises UnknownName."""
        self._forget_old()
        key = _compute_key(ticket, caller)
        if (held := self._held.get(key)) is not None:
            return held
        row = await self._load(key)
        if row is None or row.fingerprint != self._get_fingerprint(row.server):
            raise UnknownName(
                "there is no such task: its ticket was not given to you here, or nobody has asked"
                " for too long",
                advice="It may have done its work: find out before you call the tool again.",
            )
        return row

    async def resume(self, ticket: str, context: CallContext, work: Work) -> HeldTask:
        """Go on with a call that an earlier process began; returns once its task is followed."""
        key = _compute_key(ticket, context.caller)
        begun: asyncio.Future[RunningTask] = asyncio.get_running_loop().create_future()
        context = replace(context, on_task=begun.set_result)
        working = asyncio.create_task(work(context), name="go on with a task")
        try:
            await asyncio.wait({working, begun}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._forget_unheld(working)
            raise
        if not begun.done():
            return working.result()  # pyright: ignore[reportReturnType]  # raises
        if (other := self._held.get(key)) is not None:  # asked for twice at once
            working.cancel()
            await asyncio.wait({working})
            return other
        return self._keep(key, ticket, context.caller, begun.result(), working)

    def _forget_unheld(self, working: "asyncio.Task[Raw]") -> None:
        """Stop following a task that nobody holds; its exception is nobody's either."""
        working.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        working.cancel()

    def begin_closing(self) -> None:
        """Give those who wait for a task their tickets now."""
        self._closing.set()

    async def close(self) -> None:
        """Stop following; the tasks go on at their servers."""
        self._closing.set()
        works = [held.work for held in self._held.values() if not held.work.done()]
        for work in works:
            work.cancel()
        if works:
            await asyncio.wait(works)
        self._held.clear()

    async def _wait_patiently(
        self, working: "asyncio.Task[Raw]", task: RunningTask, asked_at: float
    ) -> None:
        """Wait for the result as long as a caller may wait, and while a person is asked."""
        closing = asyncio.create_task(self._closing.wait())
        try:
            while not working.done() and not self._closing.is_set():
                remaining_s = asked_at + self.answer_s - time.monotonic()
                if remaining_s <= 0 and not task.is_asking:
                    return
                await asyncio.wait(
                    {working, closing},
                    timeout=max(0.1, remaining_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            closing.cancel()

    async def _hand_out(
        self, context: CallContext, task: RunningTask, working: "asyncio.Task[Raw]"
    ) -> HeldTask:
        caller = context.caller
        self._check_room(caller)
        ticket = TICKET_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
        key = _compute_key(ticket, caller)
        await self._save(key, caller, task)
        held = self._keep(key, ticket, caller, task, working)
        task.detach_first()
        return held

    def _keep(
        self,
        key: str,
        ticket: str,
        caller: Caller,
        task: RunningTask,
        working: "asyncio.Task[Raw]",
    ) -> HeldTask:
        held = self._held[key] = HeldTask(ticket, caller.principal.id, task, working)
        task.is_handed_out = True
        working.add_done_callback(lambda done: self._note_end(held, done))
        return held

    def _note_end(self, held: HeldTask, done: "asyncio.Task[Raw]") -> None:
        held.ended_at = time.monotonic()
        if not done.cancelled() and done.exception() is None:
            held.size = estimate_size(done.result(), MAX_HELD_CHARS)
        self._forget_old()

    def _forget_old(self) -> None:
        now = time.monotonic()
        ended = {key: held for key, held in self._held.items() if held.ended_at is not None}
        size = sum(held.size for held in ended.values())
        for key, held in ended.items():
            assert held.ended_at is not None
            if size > MAX_HELD_CHARS or now - held.ended_at > KEEP_S:
                size -= held.size
                del self._held[key]

    def _check_room(self, caller: Caller) -> None:
        """Forget a finished call if there are too many; raises Overloaded if none is finished."""
        self._forget_old()
        counts = Counter(held.owner for held in self._held.values())
        owner = caller.principal.id
        is_full = len(self._held) >= self.max_held
        has_share = counts[owner] >= max(1, self.max_held // OWNER_SHARE)
        if not is_full and not has_share:
            return
        ended = {
            key: held.owner
            for key, held in self._held.items()
            if held.ended_at is not None and (is_full or held.owner == owner)
        }
        if not ended:
            raise Overloaded(
                "too many calls go on in the background", advice="Wait for some to end."
            )
        del self._held[choose_entry_to_drop(ended)]

    async def _save(self, key: str, caller: Caller, task: RunningTask) -> None:
        if self._store is None:
            return
        call = task.call
        now = self._clock()
        lifetime_s = get_lifetime_s(task.state)
        kept_s = MAX_TASK_S if lifetime_s is None else max(MIN_STORED_S, lifetime_s)
        decision = call.decision
        row = TaskRow(
            key,
            caller.principal.id,
            call.server,
            self._get_fingerprint(call.server),
            call.tool.address,
            task.task_id,
            call.id,
            decision.rule if decision else "",
            " ".join(decision.mask) if decision else "",
            now,
            now + min(MAX_TASK_S, kept_s),
        )
        try:
            await self._store.save_task(row)
        except StoreUnavailable as error:
            logger.warning("a task cannot be followed after a restart: %s", error.message)

    async def _load(self, key: str) -> TaskRow | None:
        if self._store is None:
            return None
        try:
            return await self._store.load_task(key, self._clock())
        except StoreUnavailable as error:
            raise BackendUnavailable(
                f"what is stored of tasks cannot be read: {error.message}", advice=error.advice
            ) from error


def _compute_key(ticket: str, caller: Caller) -> str:
    text = "\n".join((ticket[:_MAX_TICKET_CHARS], caller.principal.id, caller.profile))
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=32).hexdigest()
