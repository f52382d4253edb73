"""Request and answer over a duplex pipe: correlation, cancellation, progress, and the requests of
the other side.

Deliberately not MCP-aware beyond the notifications it must correlate. Frames are dicts; the
transport turns them into bytes. A request or log message that an upstream sends on its own belongs
to the call it is working on; a duplex pipe does not say which, so it is relayed only while every
call in flight comes from one and the same client.
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
from portico.upstream.backend import (
    NO_OPTIONS,
    CallAlreadyEnded,
    Listener,
    Raw,
    Relay,
    RequestOptions,
)
from portico.upstream.protocol import jsonrpc
from portico.upstream.protocol.deadline import Deadline
from portico.upstream.protocol.envelope import replace_progress_token
from portico.upstream.protocol.url_elicitations import ELICITATION_COMPLETE, UrlElicitations

Work = Coroutine[Any, Any, None]
SendFrame = Callable[[Raw], Work]

MAX_QUEUED_PROGRESS = 100
"""Progress that waits for a caller who does not take it; of more, the oldest is dropped."""
MAX_NOTIFICATIONS_IN_FLIGHT = 500
"""Log messages on their way to callers: one that takes none must leave room for the questions of
others."""
MAX_TASKS = 1_000
"""Everything under way at one time; log messages and requests of the other side beyond that are
dropped."""


@dataclass(slots=True)
class _OutstandingRequest:
    result_future: "asyncio.Future[Raw]"
    relay: Relay | None
    progress_token: str | int | None
    deadline: Deadline
    queued_progress: deque[Raw] = field(default_factory=lambda: deque(maxlen=MAX_QUEUED_PROGRESS))
    progress_task: asyncio.Task[None] | None = None
    """Progress on its way to the caller, in order; the answer waits for it."""


@dataclass(slots=True, eq=False)
class _ServerRequest:
    """A request of the other side that a client is asked."""

    client_key: str
    task: "asyncio.Task[None] | None" = None
    cancelled_by_server: bool = False

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class JsonRpcSession:
    """One end of a JSON-RPC conversation."""

    def __init__(
        self, name: str, send: SendFrame, listener: Listener, roots: tuple[Raw, ...] = ()
    ) -> None:
        self._name = name
        self._send = send
        self._listener = listener
        self._roots = roots
        self._outstanding: dict[int, _OutstandingRequest] = {}
        self._last_id = 0
        self._end_reason: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._server_request_count = 0
        self._notifications_in_flight = 0
        self._server_requests: dict[str, _ServerRequest] = {}
        self._url_elicitations = UrlElicitations()
        self.noise = 0

    async def request(
        self, method: str, params: Raw | None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request and wait for its raw result."""
        if self._end_reason is not None:
            raise BackendUnavailable(f"{self._name}: {self._end_reason}")
        self._last_id += 1
        request_id = self._last_id
        params, token = (
            replace_progress_token(params, request_id) if options.relay else (params, None)
        )
        patience = Deadline(options)
        waiting = _OutstandingRequest(
            asyncio.get_running_loop().create_future(), options.relay, token, patience
        )
        self._outstanding[request_id] = waiting
        try:
            async with patience.timeout:
                await self._send(jsonrpc.make_message(method, params, request_id))
                return await waiting.result_future
        except TimeoutError:
            self._send_cancellation(request_id, method, "timed out")
            raise jsonrpc.make_timeout_error(
                self._name, method, options, patience.elapsed_s
            ) from None
        except asyncio.CancelledError:
            self._send_cancellation(request_id, method, "cancelled by the caller")
            raise
        finally:
            self._outstanding.pop(request_id, None)
            if waiting.result_future.done() and not waiting.result_future.cancelled():
                waiting.result_future.exception()  # whoever was still sending has not heard it, and need not
            if self._server_requests and options.relay is not None:
                self._cancel_orphaned_requests(options.relay.client_key)

    async def notify(self, method: str, params: Raw | None) -> None:
        """Send a notification."""
        if self._end_reason is None:
            await self._send(jsonrpc.make_message(method, params))

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
            if isinstance(params, dict):
                params = cast(Raw, params)
            else:
                params = {}
            if frame.get("id") is None:
                self._handle_notification(str(frame["method"]), params)
            else:
                self._handle_server_request(frame["id"], str(frame["method"]), params)
        elif "id" in frame and ("result" in frame or "error" in frame):
            self._handle_response(frame)
        else:
            self.noise += 1

    def end(self, reason: str) -> None:
        """The pipe is gone: everyone who waits is told."""
        if self._end_reason is not None:
            return
        self._end_reason = reason
        for waiting in self._outstanding.values():
            if not waiting.result_future.done():
                waiting.result_future.set_exception(BackendUnavailable(f"{self._name}: {reason}"))
        for task in self._tasks:
            task.cancel()

    async def join(self) -> None:
        """Wait until nothing of ours runs any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _handle_response(self, frame: Raw) -> None:
        waiting = self._outstanding.get(jsonrpc.parse_id(frame["id"]))
        if waiting is None:
            return
        if isinstance(error := frame.get("error"), Mapping):
            self._url_elicitations.record_error(cast("Mapping[str, Any]", error), waiting.relay)
        if waiting.progress_task is not None and not waiting.progress_task.done():
            waiting.progress_task.add_done_callback(lambda _: _resolve(waiting, frame))
        else:
            _resolve(waiting, frame)

    def _handle_notification(self, method: str, params: Raw) -> None:
        if method == "notifications/progress":
            waiting = self._outstanding.get(jsonrpc.parse_id(params.get("progressToken")))
            if (
                waiting is not None
                and waiting.relay is not None
                and waiting.progress_token is not None
            ):
                waiting.deadline.extend()
                waiting.queued_progress.append({**params, "progressToken": waiting.progress_token})
                if waiting.progress_task is None or waiting.progress_task.done():
                    waiting.progress_task = self._spawn(
                        _send_notifications(waiting.relay, method, waiting.queued_progress)
                    )
        elif method == "notifications/cancelled":
            if (question := self._server_requests.get(str(params.get("requestId")))) is not None:
                question.cancelled_by_server = True
                question.cancel()
        elif (relay := self._find_addressee(method, params)) is not None:
            if (
                self._notifications_in_flight < MAX_NOTIFICATIONS_IN_FLIGHT
                and len(self._tasks) < MAX_TASKS
            ):
                self._notifications_in_flight += 1
                self._spawn(_send_notifications(relay, method, deque([params]))).add_done_callback(
                    self._on_notification_sent
                )
        else:
            self._listener.on_notification(method, params)

    def _on_notification_sent(self, _: object) -> None:
        self._notifications_in_flight -= 1

    def _handle_server_request(self, request_id: object, method: str, params: Raw) -> None:
        if not jsonrpc.is_answerable(request_id) or len(self._tasks) >= MAX_TASKS:
            return  # a flood, or an id that would be one: even refusals would only feed it
        if self._server_request_count >= jsonrpc.MAX_SERVER_REQUESTS:
            self._spawn(self._send(jsonrpc.make_too_many_response(request_id)))
        else:
            self._server_request_count += 1
            relay, shared = jsonrpc.find_addressee(self._collect_relays())
            question = _ServerRequest(relay.client_key if relay is not None else "")
            question.task = self._spawn(
                self._answer_server_request(question, request_id, method, params, relay, shared)
            )
            if relay is not None:
                self._server_requests[str(request_id)] = question
                self._url_elicitations.record_request(method, params, relay)
            question.task.add_done_callback(
                lambda _: self._on_server_request_done(str(request_id), question)
            )

    def _on_server_request_done(self, request_id: str, server_request: _ServerRequest) -> None:
        self._server_request_count -= 1
        if self._server_requests.get(request_id) is server_request:
            del self._server_requests[request_id]

    async def _answer_server_request(
        self,
        server_request: _ServerRequest,
        request_id: object,
        method: str,
        params: Raw,
        relay: Relay | None,
        shared: bool,
    ) -> None:
        over: list[Relay] = []
        try:
            while True:
                try:
                    with self._pause_deadlines(
                        relay if method in jsonrpc.RELAYED_METHODS else None
                    ):
                        frame = await jsonrpc.answer_upstream(
                            request_id, method, params, relay, self._roots, shared=shared
                        )
                    break
                except CallAlreadyEnded:
                    # Of the calls that its client has under way, it was taken for another's.
                    over += [relay] if relay is not None else []
                    left = [
                        one
                        for one in self._collect_relays()
                        if not any(one is gone for gone in over)
                    ]
                    relay, shared = jsonrpc.find_addressee(left)
        except asyncio.CancelledError:
            if server_request.cancelled_by_server or self._end_reason is not None:
                raise
            frame = jsonrpc.make_call_ended_response(request_id)
        await self._send(frame)

    @contextlib.contextmanager
    def _pause_deadlines(self, relay: Relay | None) -> Generator[None]:
        """While a client is asked, none of its calls here is too late: the pipe does not say which
        one asks."""
        if relay is not None:
            origin = relay.client_key
        else:
            origin = None
        held = [
            one.deadline
            for one in self._outstanding.values()
            if one.relay is not None and one.relay.client_key == origin
        ]
        for patience in held:
            patience.pause()
        try:
            yield
        finally:
            for patience in held:
                patience.resume()

    def _cancel_orphaned_requests(self, client_key: str) -> None:
        """A call is over; where it was its client's last, nobody waits for what that is still
        asked."""
        if not any(
            waiting.relay is not None and waiting.relay.client_key == client_key
            for waiting in self._outstanding.values()
        ):
            for question in [
                one for one in self._server_requests.values() if one.client_key == client_key
            ]:
                question.cancel()

    def _collect_relays(self) -> list[Relay | None]:
        return [waiting.relay for waiting in self._outstanding.values()]

    def _find_addressee(self, method: str, params: Raw) -> Relay | None:
        """Whom a notification outside any request is for, where that can be told."""
        if method == ELICITATION_COMPLETE:
            return self._url_elicitations.pop_relay(params)
        if method == "notifications/message":
            return jsonrpc.find_sole_caller(self._collect_relays())
        return None

    def _send_cancellation(self, request_id: int, method: str, reason: str) -> None:
        if self._end_reason is None and method != "initialize":
            cancelled = jsonrpc.make_message(
                "notifications/cancelled", {"requestId": request_id, "reason": reason}
            )
            self._spawn(self._send(cancelled))

    def _spawn(self, work: Work) -> asyncio.Task[None]:
        task = asyncio.create_task(_suppress_pipe_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task


def _resolve(outstanding: _OutstandingRequest, frame: Raw) -> None:
    answer = outstanding.result_future
    error = frame.get("error")
    if answer.done():
        return
    if isinstance(error, Mapping):
        answer.set_exception(jsonrpc.to_remote_error(cast("Mapping[str, Any]", error)))
    elif isinstance(result := frame.get("result"), dict):
        answer.set_result(cast(Raw, result))
    else:
        answer.set_exception(
            RemoteError(INTERNAL_ERROR, "the server answered without a result object")
        )


async def _send_notifications(relay: Relay, method: str, queue: deque[Raw]) -> None:
    while queue:
        await relay.notify(method, queue.popleft())


async def _suppress_pipe_errors(work: Work) -> None:
    # A pipe that closed must not take the conversation down with it.
    with contextlib.suppress(PorticoError, OSError):
        await work
