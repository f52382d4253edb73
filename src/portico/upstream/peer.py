"""Request and answer over a duplex pipe: correlation, cancellation, progress, and the requests of the other side.

Deliberately not MCP-aware beyond the notifications it must correlate. Frames are dicts; the transport turns them into
bytes. A request or log message that an upstream sends on its own belongs to the call it is working on; a duplex pipe
does not say which, so it is relayed only while every call in flight comes from one and the same client.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.errors import (
    INTERNAL_ERROR,
    BackendUnavailable,
    PorticoError,
    RemoteError,
)
from portico.upstream import jsonrpc
from portico.upstream.backend import NO_OPTIONS, Ask, CallOver, Listener, Raw, Relay
from portico.upstream.elicited import COMPLETE, Elicited
from portico.upstream.envelope import with_progress_token
from portico.upstream.patience import Patience

Work = Coroutine[Any, Any, None]
Send = Callable[[Raw], Work]

MAX_UNTOLD = 100
"""Progress that waits for a caller who does not take it; of more, the oldest is dropped."""
MAX_TELLING = 500
"""Log messages on their way to callers: one that takes none must leave room for the questions of others."""
MAX_TASKS = 1_000
"""Everything under way at one time; log messages and requests of the other side beyond that are dropped."""


@dataclass(slots=True)
class _Waiting:
    answer: "asyncio.Future[Raw]"
    relay: Relay | None
    progress_token: str | int | None
    patience: Patience
    untold: deque[Raw] = field(default_factory=lambda: deque(maxlen=MAX_UNTOLD))
    telling: asyncio.Task[None] | None = None
    """Progress on its way to the caller, in order; the answer waits for it."""


@dataclass(slots=True, eq=False)
class _Question:
    """A request of the other side that a client is asked."""

    origin: str
    task: "asyncio.Task[None] | None" = None
    withdrawn: bool = False

    def drop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Peer:
    """One end of a JSON-RPC conversation."""

    def __init__(self, name: str, send: Send, listener: Listener, roots: tuple[Raw, ...] = ()) -> None:
        self._name = name
        self._send = send
        self._listener = listener
        self._roots = roots
        self._waiting: dict[int, _Waiting] = {}
        self._last_id = 0
        self._ended: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions = 0
        self._telling = 0
        self._asking: dict[str, _Question] = {}
        self._elicited = Elicited()
        self.noise = 0

    async def request(self, method: str, params: Raw | None, ask: Ask = NO_OPTIONS) -> Raw:
        """Send a request and wait for its raw result."""
        if self._ended is not None:
            raise BackendUnavailable(f"{self._name}: {self._ended}")
        self._last_id += 1
        request_id = self._last_id
        params, token = with_progress_token(params, request_id) if ask.relay else (params, None)
        patience = Patience(ask)
        waiting = _Waiting(asyncio.get_running_loop().create_future(), ask.relay, token, patience)
        self._waiting[request_id] = waiting
        try:
            async with patience.clock:
                await self._send(jsonrpc.frame(method, params, request_id))
                return await waiting.answer
        except TimeoutError:
            self._abandon(request_id, method, "timed out")
            raise jsonrpc.timed_out(self._name, method, ask, patience.waited) from None
        except asyncio.CancelledError:
            self._abandon(request_id, method, "cancelled by the caller")
            raise
        finally:
            self._waiting.pop(request_id, None)
            if waiting.answer.done() and not waiting.answer.cancelled():
                waiting.answer.exception()  # whoever was still sending has not heard it, and need not
            if self._asking and ask.relay is not None:
                self._over(ask.relay.origin)

    async def notify(self, method: str, params: Raw | None) -> None:
        """Send a notification."""
        if self._ended is None:
            await self._send(jsonrpc.frame(method, params))

    def receive(self, message: object) -> None:
        """Take one decoded message; whatever is not JSON-RPC is counted as noise."""
        if isinstance(message, list):
            for item in cast("list[object]", message):
                # A batch in a batch is nonsense, and could be as deep as the stack.
                self.receive(None if isinstance(item, list) else item)
            return
        if not isinstance(message, dict):
            self.noise += 1
            return
        frame = cast(Raw, message)
        if "method" in frame:
            params = frame.get("params")
            params = cast(Raw, params) if isinstance(params, dict) else {}
            if frame.get("id") is None:
                self._notified(str(frame["method"]), params)
            else:
                self._asked(frame["id"], str(frame["method"]), params)
        elif "id" in frame and ("result" in frame or "error" in frame):
            self._answered(frame)
        else:
            self.noise += 1

    def end(self, reason: str) -> None:
        """The pipe is gone: everyone who waits is told."""
        if self._ended is not None:
            return
        self._ended = reason
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(BackendUnavailable(f"{self._name}: {reason}"))
        for task in self._tasks:
            task.cancel()

    async def join(self) -> None:
        """Wait until nothing of ours runs any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _answered(self, frame: Raw) -> None:
        waiting = self._waiting.get(jsonrpc.known_id(frame["id"]))
        if waiting is None:
            return
        if isinstance(error := frame.get("error"), Mapping):
            self._elicited.refused(cast("Mapping[str, Any]", error), waiting.relay)
        if waiting.telling is not None and not waiting.telling.done():
            waiting.telling.add_done_callback(lambda _: _settle(waiting, frame))
        else:
            _settle(waiting, frame)

    def _notified(self, method: str, params: Raw) -> None:
        if method == "notifications/progress":
            waiting = self._waiting.get(jsonrpc.known_id(params.get("progressToken")))
            if waiting is not None and waiting.relay is not None and waiting.progress_token is not None:
                waiting.patience.progressed()
                waiting.untold.append({**params, "progressToken": waiting.progress_token})
                if waiting.telling is None or waiting.telling.done():
                    waiting.telling = self._spawn(_tell(waiting.relay, method, waiting.untold))
        elif method == "notifications/cancelled":
            if (question := self._asking.get(str(params.get("requestId")))) is not None:
                question.withdrawn = True
                question.drop()
        elif (relay := self._concerned(method, params)) is not None:
            if self._telling < MAX_TELLING and len(self._tasks) < MAX_TASKS:
                self._telling += 1
                self._spawn(_tell(relay, method, deque([params]))).add_done_callback(self._told)
        else:
            self._listener.notified(method, params)

    def _told(self, _: object) -> None:
        self._telling -= 1

    def _asked(self, request_id: object, method: str, params: Raw) -> None:
        if not jsonrpc.answerable(request_id) or len(self._tasks) >= MAX_TASKS:
            return  # a flood, or an id that would be one: even refusals would only feed it
        if self._questions >= jsonrpc.MAX_SERVER_REQUESTS:
            self._spawn(self._send(jsonrpc.too_many(request_id)))
        else:
            self._questions += 1
            relay, shared = jsonrpc.addressee(self._in_flight())
            question = _Question(relay.origin if relay is not None else "")
            question.task = self._spawn(self._answer(question, request_id, method, params, relay, shared))
            if relay is not None:
                self._asking[str(request_id)] = question
                self._elicited.asked(method, params, relay)
            question.task.add_done_callback(lambda _: self._replied(str(request_id), question))

    def _replied(self, request_id: str, question: _Question) -> None:
        self._questions -= 1
        if self._asking.get(request_id) is question:
            del self._asking[request_id]

    async def _answer(
        self, question: _Question, request_id: object, method: str, params: Raw, relay: Relay | None, shared: bool
    ) -> None:
        over: list[Relay] = []
        try:
            while True:
                try:
                    with self._held(relay if method in jsonrpc.QUESTIONS else None):
                        frame = await jsonrpc.answer_upstream(
                            request_id, method, params, relay, self._roots, shared=shared
                        )
                    break
                except CallOver:
                    # Of the calls that its client has under way, it was taken for another's.
                    over += [relay] if relay is not None else []
                    left = [one for one in self._in_flight() if not any(one is gone for gone in over)]
                    relay, shared = jsonrpc.addressee(left)
        except asyncio.CancelledError:
            if question.withdrawn or self._ended is not None:
                raise
            frame = jsonrpc.unheard(request_id)
        await self._send(frame)

    @contextlib.contextmanager
    def _held(self, relay: Relay | None) -> Generator[None]:
        """While a client is asked, none of its calls here is too late: the pipe does not say which one asks."""
        origin = relay.origin if relay is not None else None
        held = [one.patience for one in self._waiting.values() if one.relay is not None and one.relay.origin == origin]
        for patience in held:
            patience.hold()
        try:
            yield
        finally:
            for patience in held:
                patience.release()

    def _over(self, origin: str) -> None:
        """A call is over; where it was its client's last, nobody waits for what that is still asked."""
        if not any(waiting.relay is not None and waiting.relay.origin == origin for waiting in self._waiting.values()):
            for question in [one for one in self._asking.values() if one.origin == origin]:
                question.drop()

    def _in_flight(self) -> list[Relay | None]:
        return [waiting.relay for waiting in self._waiting.values()]

    def _concerned(self, method: str, params: Raw) -> Relay | None:
        """Whom a notification outside any request is for, where that can be told."""
        if method == COMPLETE:
            return self._elicited.completed(params)
        return jsonrpc.sole_caller(self._in_flight()) if method == "notifications/message" else None

    def _abandon(self, request_id: int, method: str, reason: str) -> None:
        if self._ended is None and method != "initialize":
            cancelled = jsonrpc.frame("notifications/cancelled", {"requestId": request_id, "reason": reason})
            self._spawn(self._send(cancelled))

    def _spawn(self, work: Work) -> asyncio.Task[None]:
        task = asyncio.create_task(_contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task


def _settle(waiting: _Waiting, frame: Raw) -> None:
    answer, error = waiting.answer, frame.get("error")
    if answer.done():
        return
    if isinstance(error, Mapping):
        answer.set_exception(jsonrpc.remote_error(cast("Mapping[str, Any]", error)))
    elif isinstance(result := frame.get("result"), dict):
        answer.set_result(cast(Raw, result))
    else:
        answer.set_exception(RemoteError(INTERNAL_ERROR, "the server answered without a result object"))


async def _tell(relay: Relay, method: str, untold: deque[Raw]) -> None:
    while untold:
        await relay.notify(method, untold.popleft())


async def _contained(work: Work) -> None:
    # A pipe that closed must not take the conversation down with it.
    with contextlib.suppress(PorticoError, OSError):
        await work
