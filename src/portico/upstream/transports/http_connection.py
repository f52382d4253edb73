"""One connection over Streamable HTTP, in the era that the server speaks.

handshake era  session, cancellation by notification, server requests, an extra GET stream
modern era     no session, cancellation by closing the stream, an extra subscription
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

from portico.errors import (
    METHOD_NOT_FOUND,
    BackendUnavailable,
    PorticoError,
    RemoteError,
)
from portico.upstream.backend import (
    NO_OPTIONS,
    CallAlreadyEnded,
    Era,
    InitializeInfo,
    Listener,
    Raw,
    Relay,
    RequestOptions,
)
from portico.upstream.protocol import jsonrpc
from portico.upstream.protocol.deadline import Deadline
from portico.upstream.protocol.envelope import (
    replace_progress_token,
    to_legacy_params,
    to_modern_params,
)
from portico.upstream.protocol.handshake import ProbeFailed, ProtocolSetting, perform_handshake
from portico.upstream.protocol.notification_queue import NotificationQueue
from portico.upstream.protocol.subscription import SUBSCRIPTION_METHODS, Subscription
from portico.upstream.protocol.token_bucket import TokenBucket
from portico.upstream.protocol.url_elicitations import ELICITATION_COMPLETE, UrlElicitations
from portico.upstream.transports.http_errors import HttpStatusError, SessionExpired
from portico.upstream.transports.http_exchange import HttpExchange, ServerUnreachable
from portico.upstream.transports.http_headers import (
    SESSION_HEADER,
    get_negotiated_version,
    make_handshake_headers,
    make_routing_headers,
)
from portico.upstream.transports.http_subscription import HttpSubscriptionOpener, follow_session

MAX_REQUESTS = 100
"""Concurrent requests; more are queued. Responses and cancellations never wait."""
MAX_SERVER_REQUEST_BURST = 500
"""Requests of the server that are answered without a rate limit."""
SERVER_REQUESTS_PER_S = 50.0
"""Rate of answered server requests after the burst."""
CANCELLATION_TIMEOUT_S = 1.0
RESPONSE_TIMEOUT_S = 30.0
DELETE_TIMEOUT_S = 2.0
_CANCELLATION_TASK = "send cancellation"

_CHANGE_NOTIFICATIONS = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


@dataclass(slots=True, eq=False)
class _HttpCall:
    method: str
    deadline: Deadline
    notifications: NotificationQueue
    progress_token: str | int | None = None
    was_sent: bool = False
    server_request_tasks: "set[asyncio.Task[None]]" = field(default_factory=set)

    @property
    def relay(self) -> Relay | None:
        return self.deadline.options.relay

    async def pause(self) -> None:
        if self.relay is not None:
            await self.relay.pause()


class HttpConnection:
    """One open connection."""

    def __init__(
        self, name: str, exchange: HttpExchange, listener: Listener, roots: tuple[Raw, ...]
    ) -> None:
        self._name = name
        self._exchange = exchange
        self._listener = listener
        self._roots = roots
        self._initialize_info: InitializeInfo | None = None
        self._is_modern = False
        self._subscription: Subscription | None = None
        self._session_id: str | None = None
        self._last_id = 0
        self._calls: dict[int, _HttpCall] = {}
        self._request_slots = asyncio.Semaphore(MAX_REQUESTS)
        self._server_request_tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled_by_server: set[str] = set()
        self._url_elicitations = UrlElicitations()
        self._server_request_bucket = TokenBucket(MAX_SERVER_REQUEST_BURST, SERVER_REQUESTS_PER_S)
        self._tasks: set[asyncio.Task[None]] = set()
        self._end_reason: str | None = None
        self._close_task: asyncio.Task[None] | None = None
        self.last_error = ""
        self.has_activity = False

    @property
    def initialize_info(self) -> InitializeInfo:
        if self._initialize_info is None:
            raise BackendUnavailable(f"{self._name}: the connection was never opened")
        return self._initialize_info

    @property
    def has_session(self) -> bool:
        """Whether the server issued a session id."""
        return self._session_id is not None

    async def open(self, protocol: ProtocolSetting, known_era: Era | None) -> None:
        """Detect the era, perform the handshake, and follow the server's own messages."""
        try:
            try:
                self._initialize_info = await perform_handshake(self, protocol, known_era)
            except (RemoteError, HttpStatusError) as error:
                if (
                    protocol != "auto"
                    or known_era != "legacy"
                    or (isinstance(error, HttpStatusError) and error.final)
                ):
                    raise
                self._initialize_info = await perform_handshake(self, "auto", None)
        except ProbeFailed as error:
            raise error.__cause__ or error from None
        self._is_modern = self._initialize_info.era == "modern"
        self._exchange.is_initialized = True
        if self._is_modern:
            self._exchange.set_session_headers({})
            opener = HttpSubscriptionOpener(self._exchange, self._handle_message)
            self._subscription = Subscription(
                self._name,
                self._initialize_info.capabilities,
                opener.open,
                self._listener.on_notification,
            )
        self._spawn(self._follow_stream())

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Send a request in the negotiated era."""
        if self._end_reason is not None:
            raise BackendUnavailable(f"{self._name}: {self._end_reason}")
        if self._subscription is not None and method in SUBSCRIPTION_METHODS:
            return await self._subscription.request(method, params, options.timeout)
        self._last_id += 1
        request_id = self._last_id
        if self._is_modern:
            params = to_modern_params(params)
        else:
            params = to_legacy_params(params)
        call = _HttpCall(method, Deadline(options), NotificationQueue(self._spawn))
        if options.relay is not None:
            params, call.progress_token = replace_progress_token(params, request_id)
        if self._is_modern:
            headers = {**make_routing_headers(method, params), **options.headers}
        else:
            headers = options.headers
        self._calls[request_id] = call

        async def on_message(message: Raw) -> None:
            await self._handle_message(message, call)

        try:
            async with call.deadline.timeout, self._request_slots:
                call.was_sent = True
                result, _ = await self._exchange.send_request(
                    jsonrpc.make_message(method, params, request_id),
                    on_message,
                    headers=headers,
                    on_pause=None if self._is_modern else call.pause,
                )
                await call.notifications.flush()
                return result
        except TimeoutError:
            self._send_cancellation(request_id, call, "timed out")
            error = jsonrpc.make_timeout_error(self._name, method, options, call.deadline.elapsed_s)
            self.last_error = error.message
            raise error from None
        except asyncio.CancelledError:
            self._send_cancellation(request_id, call, "cancelled by the caller")
            raise
        except RemoteError as error:
            self._url_elicitations.record_error(
                {"code": error.code, "data": error.data}, options.relay
            )
            raise
        except BackendUnavailable as error:
            self.last_error = error.message
            if isinstance(error, SessionExpired | ServerUnreachable):
                self._mark_lost(error.message)
            raise
        finally:
            del self._calls[request_id]
            call.notifications.stop()
            for task in call.server_request_tasks:
                task.cancel()

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        if self._end_reason is None:
            headers = make_routing_headers(method, None) if self._is_modern else None
            await self._exchange.send_message(
                jsonrpc.make_message(method, to_legacy_params(params)), headers
            )

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """Send a handshake request without any era's envelope."""
        self._last_id += 1
        frame = jsonrpc.make_message(method, params, self._last_id)
        if method != "server/discover":
            result, headers = await self._exchange.send_request(frame, self._ignore_message)
            self._session_id = headers.get(SESSION_HEADER)
            self._exchange.set_session_headers(
                make_handshake_headers(get_negotiated_version(result), self._session_id)
            )
            return result
        try:
            result, _ = await self._exchange.send_request(
                frame, self._ignore_message, headers=make_routing_headers(method, params)
            )
        except HttpStatusError as error:
            if error.final:
                raise
            # Handshake-era servers answer an unknown method with 400, 404, 405, 500 …
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        except ServerUnreachable:
            raise
        except BackendUnavailable as error:
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        return result

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """Send a handshake notification without any era's envelope."""
        # Some servers refuse `initialized` and work all the same.
        with contextlib.suppress(RemoteError, HttpStatusError):
            await self._exchange.send_message(jsonrpc.make_message(method, params))

    async def close(self) -> None:
        """End the session and close all connections."""
        if self._close_task is None:
            self._close_task = asyncio.create_task(self._close())
        await asyncio.shield(self._close_task)

    async def _close(self) -> None:
        was_open = self._end_reason is None
        self._end_reason = self._end_reason or "the connection was closed"
        cancellations = {task for task in self._tasks if task.get_name() == _CANCELLATION_TASK}
        for task in self._tasks - cancellations:
            task.cancel()
        if cancellations:
            await asyncio.wait(cancellations, timeout=CANCELLATION_TIMEOUT_S)
        if self._session_id is not None and was_open:
            with contextlib.suppress(PorticoError, TimeoutError):
                async with asyncio.timeout(DELETE_TIMEOUT_S):
                    await self._exchange.delete_session()
        await self._exchange.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _mark_lost(self, reason: str) -> None:
        if self._end_reason is None:
            self._end_reason = reason
            self.last_error = reason
            self._listener.on_lost(reason)

    async def _follow_stream(self) -> None:
        if self._subscription is not None:
            reason = await self._subscription.keep_open()
        else:
            reason = await follow_session(self._exchange, self._handle_message)
        if reason is not None:
            self._mark_lost(reason)

    async def _handle_message(self, message: Raw, call: _HttpCall | None = None) -> None:
        """Handle a message that is no response: on the stream of `call`, or outside any."""
        self.has_activity = True
        method = message.get("method")
        request_id = message.get("id")
        if not isinstance(method, str):
            return
        raw_params = message.get("params")
        if isinstance(raw_params, dict):
            params = cast(Raw, raw_params)
        else:
            params = {}
        if request_id is None:
            await self._handle_notification(method, params, call)
        elif not self._is_modern:
            self._handle_server_request(request_id, method, params, call)

    async def _handle_notification(self, method: str, params: Raw, call: _HttpCall | None) -> None:
        if method == "notifications/progress":
            self._handle_progress(params)
        elif method == "notifications/cancelled":
            cancelled_id = str(params.get("requestId"))
            if (task := self._server_request_tasks.get(cancelled_id)) is not None:
                self._cancelled_by_server.add(cancelled_id)
                task.cancel()
        elif (relay := self._find_addressee(method, params, call)) is not None:
            if call is not None and method == "notifications/message":
                call.notifications.put(relay, method, params)
            else:
                await relay.notify(method, params)
        else:
            self._listener.on_notification(method, params)

    def _handle_progress(self, params: Raw) -> None:
        call = self._calls.get(jsonrpc.parse_id(params.get("progressToken")))
        if call is None or call.relay is None or call.progress_token is None:
            return
        call.deadline.extend()
        progress = {**params, "progressToken": call.progress_token}
        call.notifications.put(call.relay, "notifications/progress", progress)

    def _find_addressee(self, method: str, params: Raw, call: _HttpCall | None) -> Relay | None:
        if method == ELICITATION_COMPLETE:
            return self._url_elicitations.pop_relay(params)
        if call is not None and (
            method not in _CHANGE_NOTIFICATIONS or call.method == "subscriptions/listen"
        ):
            return call.relay
        if method == "notifications/message":
            return self._find_sole_caller()
        return None

    def _find_sole_caller(self) -> Relay | None:
        # Not every server says which call a message belongs to; it is certain while all calls
        # come from one client.
        return jsonrpc.find_sole_caller(call.relay for call in self._calls.values())

    def _handle_server_request(
        self, request_id: object, method: str, params: Raw, call: _HttpCall | None
    ) -> None:
        if (
            not jsonrpc.is_answerable(request_id)
            or len(self._tasks) >= 2 * jsonrpc.MAX_SERVER_REQUESTS
        ):
            return  # a flood, or an oversized id: refusals would only add to it
        if not self._server_request_bucket.try_acquire():
            return  # a flood as well: each response is an HTTP request
        if len(self._server_request_tasks) >= jsonrpc.MAX_SERVER_REQUESTS:
            self._spawn(self._send_suppressing_errors(jsonrpc.make_too_many_response(request_id)))
            return
        task = self._spawn(
            self._answer_server_request(request_id, method, params, self._select_relay(call), call)
        )
        self._server_request_tasks[str(request_id)] = task
        if call is not None:
            call.server_request_tasks.add(task)

    def _select_relay(self, call: _HttpCall | None) -> tuple[Relay | None, bool]:
        if call is not None:
            return call.relay, False
        in_flight = [other.relay for other in self._calls.values()]
        return jsonrpc.find_addressee(in_flight)

    async def _answer_server_request(
        self,
        request_id: object,
        method: str,
        params: Raw,
        selected: tuple[Relay | None, bool],
        call: _HttpCall | None,
    ) -> None:
        relay, shared = selected
        self._url_elicitations.record_request(method, params, relay)
        concerned = self._calls.values() if call is None else (call,)
        deadlines: list[Deadline] = []
        if relay is not None and method in jsonrpc.RELAYED_METHODS:
            deadlines = [other.deadline for other in concerned if other.relay is not None]
        try:
            for deadline in deadlines:
                deadline.pause()
            frame = await jsonrpc.answer_upstream(
                request_id, method, params, relay, self._roots, shared=shared
            )
        except CallAlreadyEnded:
            frame = jsonrpc.make_call_ended_response(request_id)
        except asyncio.CancelledError:
            if str(request_id) in self._cancelled_by_server or self._end_reason is not None:
                raise
            frame = jsonrpc.make_call_ended_response(request_id)
        finally:
            for deadline in deadlines:
                deadline.resume()
            self._cancelled_by_server.discard(str(request_id))
            self._server_request_tasks.pop(str(request_id), None)
            if call is not None:
                # The response is about to be sent: the end of the call no longer cancels it.
                call.server_request_tasks.discard(
                    cast("asyncio.Task[None]", asyncio.current_task())
                )
        await self._send_suppressing_errors(frame)

    def _send_cancellation(self, request_id: int, call: _HttpCall, reason: str) -> None:
        # In the modern era, closing the stream has cancelled the request.
        if call.was_sent and not self._is_modern and self._end_reason is None:
            params: Raw = {"requestId": request_id, "reason": reason}
            frame = jsonrpc.make_message("notifications/cancelled", params)
            self._spawn(self._send_suppressing_errors(frame), name=_CANCELLATION_TASK)

    async def _send_suppressing_errors(self, frame: Raw) -> None:
        timeout = CANCELLATION_TIMEOUT_S if "method" in frame else RESPONSE_TIMEOUT_S
        with contextlib.suppress(PorticoError, TimeoutError):
            async with asyncio.timeout(timeout):
                await self._exchange.send_message(frame)

    async def _ignore_message(self, message: Raw) -> None:
        """Drop a message that the server sends before the handshake is complete."""

    def _spawn(self, work: Any, name: str = "") -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
