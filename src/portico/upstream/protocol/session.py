"""JSON-RPC session with one server, over any transport: the `Connection` of every MCP server.

Correlates responses, progress, cancellation and the server's own requests with calls in flight, and
wraps params for the server's era. A server's request or log message belongs to the call that it is
processing. Over HTTP it comes on that call's stream; a pipe does not say which call it is, so it is
relayed only while all calls in flight come from one client.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any, cast

from portico.errors import (
    INTERNAL_ERROR,
    BackendTimeout,
    BackendUnavailable,
    RemoteError,
)
from portico.json_text.json_codec import to_object
from portico.upstream.backend import (
    NO_OPTIONS,
    InitializeInfo,
    Listener,
    Raw,
    Relay,
    RequestOptions,
)
from portico.upstream.protocol import jsonrpc
from portico.upstream.protocol.envelope import (
    replace_progress_token,
    to_legacy_params,
    to_modern_params,
)
from portico.upstream.protocol.jsonrpc import Deadline, NotificationQueue, PendingCall
from portico.upstream.protocol.server_requests import (
    ELICITATION_COMPLETE,
    IncomingRequest,
    ServerRequests,
    Transport,
    UrlElicitations,
    Work,
    find_sole_caller,
    spawn,
)
from portico.upstream.protocol.subscription import SUBSCRIPTION_METHODS, OpenStream, Subscription

MAX_NOTIFICATIONS_IN_FLIGHT = 500
"""Log messages being sent to callers; more are dropped."""
CANCELLATION_TIMEOUT_S = 1.0
"""Seconds that sending cancellations may delay the end of a session."""

_CHANGE_NOTIFICATIONS = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


class JsonRpcSession:
    """The gateway's end of a conversation with one server."""

    def __init__(
        self, name: str, transport: Transport, listener: Listener, roots: tuple[Raw, ...] = ()
    ) -> None:
        self.name = name
        self.noise = 0
        self.has_activity = False
        self.last_error = ""
        self.pid: int | None = None
        """Process id of a server that is a command."""
        self._transport = transport
        self._listener = listener
        self._initialize_info: InitializeInfo | None = None
        self.is_modern = False
        self._subscription: Subscription | None = None
        self._calls: dict[int, PendingCall] = {}
        self._last_id = 0
        self._end_reason: str | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._cancellation_tasks: set[asyncio.Task[None]] = set()
        self._notification_tasks: set[asyncio.Task[None]] = set()
        self._url_elicitations = UrlElicitations()
        self._server_requests = ServerRequests(
            transport, self._calls, self._url_elicitations, roots
        )

    @property
    def initialize_info(self) -> InitializeInfo:
        if self._initialize_info is None:
            raise BackendUnavailable(f"{self.name}: the connection was never opened")
        return self._initialize_info

    @property
    def is_open(self) -> bool:
        return self._initialize_info is not None

    @property
    def is_closing(self) -> bool:
        return self._close_task is not None

    def start(self, info: InitializeInfo, open_stream: OpenStream | None = None) -> None:
        """Begin after the handshake; `open_stream` subscribes to the changes of a modern server."""
        self._initialize_info = info
        self.is_modern = info.era == "modern"
        if self.is_modern and open_stream is not None:
            self._subscription = Subscription(
                self.name, info.capabilities, open_stream, self._listener.on_notification
            )
            self.follow(self._subscription.keep_open())

    def follow(self, stream: Coroutine[Any, Any, str | None]) -> None:
        """Run the reader of the server's own messages; it returns why the connection was lost, or
        None if it was not."""

        async def follow_stream() -> None:
            if (reason := await stream) is not None:
                self.lose(reason)

        self._spawn_notification(follow_stream())

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request and wait for its raw result.

        Params are wrapped for the era of the server; before that is known, they are sent unchanged.
        """
        if self._end_reason is not None:
            raise BackendUnavailable(f"{self.name}: {self._end_reason}")
        if self._subscription is not None and method in SUBSCRIPTION_METHODS:
            return await self._subscription.request(method, params, options.timeout)
        if self.is_modern:
            params = to_modern_params(params)
        elif self.is_open:
            params = to_legacy_params(params)
        self._last_id += 1
        request_id = self._last_id
        token = None
        if options.relay is not None:
            params, token = replace_progress_token(params, request_id)
        call = PendingCall(
            jsonrpc.make_message(method, params, request_id),
            Deadline(options),
            asyncio.get_running_loop().create_future(),
            token,
        )
        self._calls[request_id] = call
        try:
            async with call.deadline.timeout:
                await self._transport.send_request(call)
                result = await call.result
                if call.notifications is not None:
                    await call.notifications.flush()
                return result
        except TimeoutError:
            self._send_cancellation(call, "timed out")
            raise self._make_timeout_error(call) from None
        except asyncio.CancelledError:
            self._send_cancellation(call, "cancelled by the caller")
            raise
        except BackendUnavailable as error:
            self.last_error = error.message
            raise
        finally:
            del self._calls[request_id]
            if call.notifications is not None:
                call.notifications.stop()
            if call.result.done() and not call.result.cancelled():
                # Mark as retrieved: sending may have failed before the result was awaited.
                call.result.exception()
            if self._server_requests.relayed:
                self._server_requests.cancel_for(call)

    async def notify(self, method: str, params: Raw | None = None) -> None:
        if self._end_reason is None:
            await self._transport.send(jsonrpc.make_message(method, to_legacy_params(params)))

    def receive(self, message: object, call: PendingCall | None = None) -> None:
        """Handle one decoded message; what is not JSON-RPC is counted as noise.

        `call` is the request on whose stream it came, where the transport knows it.
        """
        self.has_activity = True
        if isinstance(message, list):
            for item in cast("list[object]", message):
                # A nested batch is invalid, and could exhaust the stack.
                self.receive(None if isinstance(item, list) else item, call)
            return
        if not isinstance(message, dict):
            self.noise += 1
            return
        frame = cast(Raw, message)
        if "method" in frame:
            params = to_object(frame.get("params"))
            if frame.get("id") is None:
                self._handle_notification(str(frame["method"]), params, call)
            else:
                self._server_requests.handle(
                    IncomingRequest(frame["id"], str(frame["method"]), params, call)
                )
        elif "id" in frame and ("result" in frame or "error" in frame):
            self.resolve(self._calls.get(jsonrpc.parse_id(frame["id"])), frame)
        else:
            self.noise += 1

    def resolve(self, call: PendingCall | None, response: Raw) -> None:
        """Set the result of a call; the first response counts."""
        if call is None or call.result.done():
            return
        error = response.get("error")
        result = response.get("result")
        if isinstance(error, Mapping):
            remote_error = jsonrpc.to_remote_error(cast("Mapping[str, Any]", error))
            self._url_elicitations.record_error(remote_error, call.relay)
            call.result.set_exception(remote_error)
        elif isinstance(result, dict):
            call.result.set_result(cast(Raw, result))
        else:
            call.result.set_exception(
                RemoteError(INTERNAL_ERROR, "the server answered without a result object")
            )

    def lose(self, reason: str) -> None:
        """Refuse new requests and report the loss: the server is gone."""
        if self._end_reason is None:
            self._end_reason = reason
            self.last_error = reason
            if self.is_open:
                self._listener.on_lost(reason)

    def end(self, reason: str) -> None:
        """Fail all calls in flight with `reason` and cancel everything that is under way."""
        self._end_reason = self._end_reason or reason
        for call in self._calls.values():
            if not call.result.done():
                call.result.set_exception(BackendUnavailable(f"{self.name}: {reason}"))
        self._server_requests.end()
        for task in self._notification_tasks:
            task.cancel()

    async def join(self) -> None:
        tasks = self._server_requests.tasks | self._notification_tasks | self._cancellation_tasks
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Close the transport and end everything. Idempotent; cancelling the caller does not stop
        it."""
        await asyncio.shield(self._start_closing())

    async def abandon(self) -> None:
        """Close after a failed handshake; returns when that is done, even if it is cancelled."""
        closing = self._start_closing()
        while not closing.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({closing})

    def _start_closing(self) -> "asyncio.Task[None]":
        if self._close_task is None:
            self._close_task = asyncio.create_task(self._close(), name=f"close {self.name}")
        return self._close_task

    async def _close(self) -> None:
        was_open = self._end_reason is None
        self.end("the connection was closed")
        if self._cancellation_tasks:
            await asyncio.wait(self._cancellation_tasks, timeout=CANCELLATION_TIMEOUT_S)
        await self._transport.close(was_open)
        for task in self._cancellation_tasks:
            task.cancel()
        await self.join()

    def _handle_notification(self, method: str, params: Raw, call: PendingCall | None) -> None:
        if method == "notifications/progress":
            self._handle_progress(params)
        elif method == "notifications/cancelled":
            self._server_requests.cancel(params.get("requestId"))
        elif (relay := self._find_addressee(method, params, call)) is None:
            self._listener.on_notification(method, params)
        elif call is not None and method == "notifications/message":
            self._queue_notification(call, relay, method, params)
        elif len(self._notification_tasks) < MAX_NOTIFICATIONS_IN_FLIGHT:
            self._spawn_notification(relay.notify(method, params))

    def _handle_progress(self, params: Raw) -> None:
        call = self._calls.get(jsonrpc.parse_id(params.get("progressToken")))
        if call is not None and call.relay is not None and call.progress_token is not None:
            call.deadline.extend()
            progress = {**params, "progressToken": call.progress_token}
            self._queue_notification(call, call.relay, "notifications/progress", progress)

    def _queue_notification(
        self, call: PendingCall, relay: Relay, method: str, params: Raw
    ) -> None:
        if call.notifications is None:
            call.notifications = NotificationQueue(self._spawn_notification)
        call.notifications.put(relay, method, params)

    def _find_addressee(self, method: str, params: Raw, call: PendingCall | None) -> Relay | None:
        """Return the relay that a notification is for; None if it is for the gateway."""
        if method == ELICITATION_COMPLETE:
            return self._url_elicitations.pop_relay(params)
        if call is not None and method not in _CHANGE_NOTIFICATIONS:
            return call.relay
        if method == "notifications/message":
            return find_sole_caller(call.relay for call in self._calls.values())
        return None

    def _make_timeout_error(self, call: PendingCall) -> BackendTimeout:
        error = jsonrpc.make_timeout_error(
            self.name, call.message["method"], call.options, call.deadline.elapsed_s
        )
        self.last_error = error.message
        return error

    def _send_cancellation(self, call: PendingCall, reason: str) -> None:
        if (
            call.was_sent
            and self._end_reason is None
            and self._transport.sends_cancellation
            and call.message["method"] != "initialize"
        ):
            params: Raw = {"requestId": call.message["id"], "reason": reason}
            cancellation = jsonrpc.make_message("notifications/cancelled", params)
            spawn(self._transport.send(cancellation), self._cancellation_tasks)

    def _spawn_notification(self, work: Work) -> "asyncio.Task[None]":
        return spawn(work, self._notification_tasks)
