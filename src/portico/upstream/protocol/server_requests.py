"""Requests that a server sends: answered here, or by the client whose call it is processing."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    PorticoError,
    RemoteError,
)
from portico.json_text.json_codec import to_list, to_object, to_text
from portico.upstream.backend import CallAlreadyEnded, Raw, Relay
from portico.upstream.protocol.jsonrpc import (
    MAX_ID_CHARS,
    UNREADABLE,
    Deadline,
    PendingCall,
    is_answerable,
    make_error_response,
    make_result_response,
)

ELICITATION_COMPLETE = "notifications/elicitation/complete"
URL_ELICITATION_REQUIRED = -32042
MAX_REMEMBERED = 256
"""Elicitations that are remembered; above that, the oldest is forgotten."""
MAX_PER_ERROR = 16


class UrlElicitations:
    def __init__(self) -> None:
        self._relays: OrderedDict[str, Relay] = OrderedDict()

    def record_request(self, method: str, params: Mapping[str, Any], relay: Relay | None) -> None:
        """Remember the relay if a server's request is an elicitation with an id."""
        if method == "elicitation/create":
            self._remember(params.get("elicitationId"), relay)

    def record_error(self, error: RemoteError, relay: Relay | None) -> None:
        """Remember the relay for the elicitations named in a -32042 error."""
        if error.code != URL_ELICITATION_REQUIRED:
            return
        for elicitation in to_list(to_object(error.data).get("elicitations"))[:MAX_PER_ERROR]:
            self._remember(to_object(elicitation).get("elicitationId"), relay)

    def pop_relay(self, params: Raw) -> Relay | None:
        return self._relays.pop(to_text(params.get("elicitationId")), None)

    def _remember(self, elicitation_id: Any, relay: Relay | None) -> None:
        if (
            relay is None
            or not isinstance(elicitation_id, str)
            or len(elicitation_id) > MAX_ID_CHARS
        ):
            return
        self._relays[elicitation_id] = relay
        while len(self._relays) > MAX_REMEMBERED:
            self._relays.popitem(last=False)


MAX_SERVER_REQUESTS = 64
"""Concurrent requests from one server; more are refused."""
MAX_TASKS = 1_000
"""Concurrent answers and refusals over a pipe; requests above that are dropped."""
RELAYED_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
"""Requests that a server may send to the client whose call it processes."""

Work = Coroutine[Any, Any, None]


class Transport(Protocol):
    """Carries the messages of one session; what it receives, it passes to `receive`."""

    @property
    def max_tasks(self) -> int:
        """Concurrent answers to the server's requests, including refusals; more are dropped."""
        ...

    @property
    def sends_cancellation(self) -> bool: ...

    async def send_request(self, call: PendingCall) -> None:
        """Send a request and set `call.was_sent`; its response comes by `receive`, at any time."""
        ...

    async def send(self, message: Raw) -> None:
        """Send a notification or a response."""
        ...

    async def close(self, was_open: bool) -> None:
        """Release everything; `was_open` is false if the connection was lost before."""
        ...


@dataclass(slots=True, eq=False)
class IncomingRequest:
    id: object
    method: str
    params: Raw
    call: PendingCall | None
    """The call on whose stream it came."""
    relay: Relay | None = None
    is_shared: bool = False
    """Whether it may concern any of several clients."""
    is_cancelled: bool = False
    """Whether the server has cancelled it."""
    task: "asyncio.Task[None] | None" = None


class ServerRequests:
    def __init__(
        self,
        transport: Transport,
        calls: Mapping[int, PendingCall],
        url_elicitations: UrlElicitations,
        roots: tuple[Raw, ...],
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._transport = transport
        self._calls = calls
        self._url_elicitations = url_elicitations
        self._roots = roots
        self._count = 0
        self._has_ended = False
        self.relayed: dict[str, IncomingRequest] = {}
        """Requests that wait for a client, by id."""

    def handle(self, request: IncomingRequest) -> None:
        """Start answering a request; refuse or drop it if there are too many."""
        if not is_answerable(request.id) or len(self.tasks) >= self._transport.max_tasks:
            return  # a flood, or an oversized id: refusals would only add to it
        if self._count >= MAX_SERVER_REQUESTS:
            refusal = make_error_response(request.id, INTERNAL_ERROR, "too many requests at once")
            spawn(self._transport.send(refusal), self.tasks)
            return
        if request.call is not None:
            request.relay = request.call.relay
        else:
            self._select_relay(request, ())
        self._count += 1
        request.task = spawn(self._answer(request), self.tasks)
        request.task.add_done_callback(lambda _: self._forget(request))
        if request.relay is not None:
            self.relayed[str(request.id)] = request
            self._url_elicitations.record_request(request.method, request.params, request.relay)

    def end(self) -> None:
        """Cancel all requests: nothing can be sent any more."""
        self._has_ended = True
        for task in self.tasks:
            task.cancel()

    def cancel(self, request_id: object) -> None:
        """Cancel a request because its server no longer wants the answer."""
        request = self.relayed.get(str(request_id))
        if request is not None and request.task is not None:
            request.is_cancelled = True
            request.task.cancel()

    def cancel_for(self, call: PendingCall) -> None:
        """Cancel the requests of a call that has ended, and those that may concern any call of a
        client that has none in flight any more."""
        has_other_calls = any(other.client_key == call.client_key for other in self._calls.values())
        for request in tuple(self.relayed.values()):
            is_orphaned = (
                request.call is None
                and not has_other_calls
                and request.relay is not None
                and request.relay.client_key == call.client_key
            )
            if (request.call is call or is_orphaned) and request.task is not None:
                request.task.cancel()

    def _select_relay(self, request: IncomingRequest, ended: tuple[Relay, ...]) -> None:
        in_flight = [call.relay for call in self._calls.values() if call.relay is not None]
        candidates = [relay for relay in in_flight if not any(relay is other for other in ended)]
        request.relay = find_sole_caller(candidates)
        request.is_shared = request.relay is None and bool(candidates)

    def _forget(self, request: IncomingRequest) -> None:
        self._count -= 1
        self._detach(request)

    def _detach(self, request: IncomingRequest) -> None:
        """Let neither the server nor the end of a call cancel a request any more."""
        if self.relayed.get(str(request.id)) is request:
            del self.relayed[str(request.id)]

    async def _answer(self, request: IncomingRequest) -> None:
        try:
            response = await self._get_response(request)
        except asyncio.CancelledError:
            if request.is_cancelled or self._has_ended:
                raise
            response = _make_call_ended_response(request)
        self._detach(request)
        await self._transport.send(response)

    async def _get_response(self, request: IncomingRequest) -> Raw:
        ended: tuple[Relay, ...] = ()
        while True:
            try:
                with self._pause_deadlines(request):
                    return await _answer_request(request, self._roots)
            except CallAlreadyEnded:
                if request.call is not None or request.relay is None:
                    return _make_call_ended_response(request)
                # The relay's call is over: the request belongs to another call in flight.
                ended = (*ended, request.relay)
                self._select_relay(request, ended)

    @contextlib.contextmanager
    def _pause_deadlines(self, request: IncomingRequest) -> Generator[None]:
        """Pause the deadline of a request's call while the client is asked.

        Where the call is not known, those of all calls of the client.
        """
        paused: list[Deadline] = []
        if request.relay is not None and request.method in RELAYED_METHODS:
            client_key = request.relay.client_key
            paused = [
                call.deadline
                for call in self._calls.values()
                if call is request.call or (request.call is None and call.client_key == client_key)
            ]
        for deadline in paused:
            deadline.pause()
        try:
            yield
        finally:
            for deadline in paused:
                deadline.resume()


def find_sole_caller(relays: Iterable[Relay | None]) -> Relay | None:
    """Return the relay of the one client that all calls in flight come from, else None."""
    known = [relay for relay in relays if relay is not None]
    if known and len({relay.client_key for relay in known}) == 1:
        return known[-1]
    return None


def spawn(work: Work, tasks: "set[asyncio.Task[None]]") -> "asyncio.Task[None]":
    """Run `work` as a task that is in `tasks` while it lasts; what the wire fails with is dropped.

    A closed pipe must not end a session through one of its tasks.
    """

    async def run() -> None:
        with contextlib.suppress(PorticoError, OSError):
            await work

    task = asyncio.create_task(run())
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    task.add_done_callback(lambda _: work.close())  # it may not have been started
    return task


def _make_call_ended_response(request: IncomingRequest) -> Raw:
    error = CallAlreadyEnded()
    return make_error_response(request.id, error.code, error.message)


async def _answer_request(request: IncomingRequest, roots: tuple[Raw, ...]) -> Raw:
    """Return the response to a request; raise CallAlreadyEnded if the relay's call has ended."""
    method = request.method
    if method == "ping":
        return make_result_response(request.id, {})
    if method == UNREADABLE:
        reason = f"the request cannot be read: {request.params.get('reason')}"
        return make_error_response(request.id, INVALID_PARAMS, reason)
    if method in RELAYED_METHODS and request.relay is not None:
        try:
            result = await request.relay.request(method, request.params)
            return make_result_response(request.id, result)
        except CallAlreadyEnded:
            raise
        except PorticoError as error:
            if method != "roots/list":
                data = getattr(error, "data", None)
                return make_error_response(request.id, error.code, error.message, data)
    if method == "roots/list":
        return make_result_response(request.id, {"roots": list(roots)})
    reason = "is not available outside a client's call"
    if request.is_shared:
        reason = (
            "cannot be told to belong to one of the clients that share this server; "
            "set isolation: session for it"
        )
    return make_error_response(request.id, METHOD_NOT_FOUND, f"{method} {reason}")
