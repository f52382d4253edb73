"""JSON-RPC session over a duplex pipe: correlation, cancellation, progress, server requests.

Not MCP-aware beyond the notifications that it must correlate. Frames are dicts; the transport
encodes them. A server's own request or log message belongs to the call it is processing; a pipe
does not say which, so it is relayed only while all calls in flight come from one client.
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
"""Progress notifications queued for a slow caller; above that, the oldest is dropped."""
MAX_NOTIFICATIONS_IN_FLIGHT = 500
"""Log messages being sent to callers; a slow caller must not block other server requests."""
MAX_TASKS = 1_000
"""Concurrent tasks in all; log messages and server requests above that are dropped."""


@dataclass(slots=True)
class _OutstandingRequest:
    result_future: "asyncio.Future[Raw]"
    relay: Relay | None
    progress_token: str | int | None
    deadline: Deadline
    queued_progress: deque[Raw] = field(default_factory=lambda: deque(maxlen=MAX_QUEUED_PROGRESS))
    progress_task: asyncio.Task[None] | None = None
    """Sends progress to the caller, in order; the response waits for it."""


@dataclass(slots=True, eq=False)
class _ServerRequest:
    """A request of the server that is relayed to a client."""

    client_key: str
    task: "asyncio.Task[None] | None" = None
    cancelled_by_server: bool = False

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class JsonRpcSession:
    """The gateway's end of a JSON-RPC connection."""

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
        token = None
        if options.relay:
            params, token = replace_progress_token(params, request_id)
        deadline = Deadline(options)
        outstanding = _OutstandingRequest(
            asyncio.get_running_loop().create_future(), options.relay, token, deadline
        )
        self._outstanding[request_id] = outstanding
        try:
            async with deadline.timeout:
                await self._send(jsonrpc.make_message(method, params, request_id))
                return await outstanding.result_future
        except TimeoutError:
            self._send_cancellation(request_id, method, "timed out")
            raise jsonrpc.make_timeout_error(
                self._name, method, options, deadline.elapsed_s
            ) from None
        except asyncio.CancelledError:
            self._send_cancellation(request_id, method, "cancelled by the caller")
            raise
        finally:
            self._outstanding.pop(request_id, None)
            if outstanding.result_future.done() and not outstanding.result_future.cancelled():
                # Mark as retrieved: sending may have failed before the result was awaited.
                outstanding.result_future.exception()
            if self._server_requests and options.relay is not None:
                self._cancel_orphaned_requests(options.relay.client_key)

    async def notify(self, method: str, params: Raw | None) -> None:
        """Send a notification."""
        if self._end_reason is None:
            await self._send(jsonrpc.make_message(method, params))

    def receive(self, message: object) -> None:
        """Handle one decoded message; what is not JSON-RPC is counted as noise."""
        if isinstance(message, list):
            for item in cast("list[object]", message):
                # A nested batch is invalid, and could exhaust the stack.
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
        """Fail all outstanding requests with `reason`: the pipe is closed."""
        if self._end_reason is not None:
            return
        self._end_reason = reason
        for outstanding in self._outstanding.values():
            if not outstanding.result_future.done():
                outstanding.result_future.set_exception(
                    BackendUnavailable(f"{self._name}: {reason}")
                )
        for task in self._tasks:
            task.cancel()

    async def join(self) -> None:
        """Wait until all tasks have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _handle_response(self, frame: Raw) -> None:
        outstanding = self._outstanding.get(jsonrpc.parse_id(frame["id"]))
        if outstanding is None:
            return
        if isinstance(error := frame.get("error"), Mapping):
            self._url_elicitations.record_error(cast("Mapping[str, Any]", error), outstanding.relay)
        if outstanding.progress_task is not None and not outstanding.progress_task.done():
            outstanding.progress_task.add_done_callback(lambda _: _resolve(outstanding, frame))
        else:
            _resolve(outstanding, frame)

    def _handle_notification(self, method: str, params: Raw) -> None:
        if method == "notifications/progress":
            outstanding = self._outstanding.get(jsonrpc.parse_id(params.get("progressToken")))
            if (
                outstanding is not None
                and outstanding.relay is not None
                and outstanding.progress_token is not None
            ):
                outstanding.deadline.extend()
                outstanding.queued_progress.append(
                    {**params, "progressToken": outstanding.progress_token}
                )
                if outstanding.progress_task is None or outstanding.progress_task.done():
                    outstanding.progress_task = self._spawn(
                        _send_notifications(outstanding.relay, method, outstanding.queued_progress)
                    )
        elif method == "notifications/cancelled":
            if (
                server_request := self._server_requests.get(str(params.get("requestId")))
            ) is not None:
                server_request.cancelled_by_server = True
                server_request.cancel()
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
            return  # a flood, or an oversized id: refusals would only add to it
        if self._server_request_count >= jsonrpc.MAX_SERVER_REQUESTS:
            self._spawn(self._send(jsonrpc.make_too_many_response(request_id)))
        else:
            self._server_request_count += 1
            relay, shared = jsonrpc.find_addressee(self._collect_relays())
            server_request = _ServerRequest(relay.client_key if relay is not None else "")
            server_request.task = self._spawn(
                self._answer_server_request(
                    server_request, request_id, method, params, relay, shared
                )
            )
            if relay is not None:
                self._server_requests[str(request_id)] = server_request
                self._url_elicitations.record_request(method, params, relay)
            server_request.task.add_done_callback(
                lambda _: self._on_server_request_done(str(request_id), server_request)
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
        ended: list[Relay] = []
        relayed = method in jsonrpc.RELAYED_METHODS
        try:
            while True:
                try:
                    with self._pause_deadlines(relay if relayed else None):
                        frame = await jsonrpc.answer_upstream(
                            request_id, method, params, relay, self._roots, shared=shared
                        )
                    break
                except CallAlreadyEnded:
                    # The relay's call is over: the request belongs to another call in flight.
                    if relay is not None:
                        ended.append(relay)
                    candidates = [
                        candidate
                        for candidate in self._collect_relays()
                        if not any(candidate is other for other in ended)
                    ]
                    relay, shared = jsonrpc.find_addressee(candidates)
        except asyncio.CancelledError:
            if server_request.cancelled_by_server or self._end_reason is not None:
                raise
            frame = jsonrpc.make_call_ended_response(request_id)
        await self._send(frame)

    @contextlib.contextmanager
    def _pause_deadlines(self, relay: Relay | None) -> Generator[None]:
        """Pause the deadlines of all calls of a client while it is asked.

        All of them, because the pipe does not say which call the request belongs to.
        """
        client_key = relay.client_key if relay is not None else None
        paused = [
            outstanding.deadline
            for outstanding in self._outstanding.values()
            if outstanding.relay is not None and outstanding.relay.client_key == client_key
        ]
        for deadline in paused:
            deadline.pause()
        try:
            yield
        finally:
            for deadline in paused:
                deadline.resume()

    def _cancel_orphaned_requests(self, client_key: str) -> None:
        """Cancel the server requests to a client that has no call in flight any more."""
        if any(
            outstanding.relay is not None and outstanding.relay.client_key == client_key
            for outstanding in self._outstanding.values()
        ):
            return
        for server_request in tuple(self._server_requests.values()):
            if server_request.client_key == client_key:
                server_request.cancel()

    def _collect_relays(self) -> list[Relay | None]:
        return [outstanding.relay for outstanding in self._outstanding.values()]

    def _find_addressee(self, method: str, params: Raw) -> Relay | None:
        """Return the relay for a notification outside any request, if it is certain."""
        if method == ELICITATION_COMPLETE:
            return self._url_elicitations.pop_relay(params)
        if method == "notifications/message":
            return jsonrpc.find_sole_caller(self._collect_relays())
        return None

    def _send_cancellation(self, request_id: int, method: str, reason: str) -> None:
        if self._end_reason is None and method != "initialize":
            cancellation = jsonrpc.make_message(
                "notifications/cancelled", {"requestId": request_id, "reason": reason}
            )
            self._spawn(self._send(cancellation))

    def _spawn(self, work: Work) -> asyncio.Task[None]:
        task = asyncio.create_task(_suppress_pipe_errors(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may not have been started
        return task


def _resolve(outstanding: _OutstandingRequest, frame: Raw) -> None:
    future = outstanding.result_future
    error = frame.get("error")
    if future.done():
        return
    if isinstance(error, Mapping):
        future.set_exception(jsonrpc.to_remote_error(cast("Mapping[str, Any]", error)))
    elif isinstance(result := frame.get("result"), dict):
        future.set_result(cast(Raw, result))
    else:
        future.set_exception(
            RemoteError(INTERNAL_ERROR, "the server answered without a result object")
        )


async def _send_notifications(relay: Relay, method: str, queue: deque[Raw]) -> None:
    while queue:
        await relay.notify(method, queue.popleft())


async def _suppress_pipe_errors(work: Work) -> None:
    # A closed pipe must not end the session through one of its tasks.
    with contextlib.suppress(PorticoError, OSError):
        await work
