"""JSON-RPC frames, ids and errors; one request in flight with its deadline and notifications."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from portico.errors import INTERNAL_ERROR, BackendTimeout, RemoteError
from portico.upstream.backend import Raw, Relay, RequestOptions

UNREADABLE = "portico/unreadable"
"""Method that replaces a request that was not decoded; refused with its `reason`."""
MAX_ID_CHARS = 256
"""Longest id of a server's own request that is stored and echoed."""
MAX_QUEUED = 100
"""Queued notifications of a call; above that, the oldest is dropped."""
BURST = 100
"""Notifications that are sent without delay."""
PACE_S = 0.02
"""Seconds between notifications after the burst, until the response has arrived."""

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


def make_message(
    method: str, params: Mapping[str, Any] | None, request_id: int | None = None
) -> Raw:
    """Return a request frame or, without an id, a notification frame."""
    message: Raw = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params is not None:
        message["params"] = params
    return message


def make_result_response(request_id: object, value: Raw) -> Raw:
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def make_error_response(request_id: object, code: int, message: str, data: Any = None) -> Raw:
    error: Raw = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": request_id, "error": error}


def parse_id(value: object) -> int:
    """Return an id or token as int, or -1; some servers echo them as strings, or as 1.0."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) < 20 and value.isdecimal():
        return int(value)
    return -1


def is_answerable(request_id: object) -> bool:
    """Return whether a server's request has an id that a response may carry."""
    if isinstance(request_id, str):
        return len(request_id) <= MAX_ID_CHARS
    return isinstance(request_id, int) and not isinstance(request_id, bool)


def make_timeout_error(
    name: str, method: str, options: RequestOptions, elapsed_s: float
) -> BackendTimeout:
    if options.total_timeout is not None and elapsed_s >= options.total_timeout:
        return BackendTimeout(
            f"{name} did not answer {method} within {options.total_timeout:.3g} s, "
            "the longest a call may take",
            advice="Try again, narrow the request, or raise limits.call_s "
            "and this server's timeouts.call_s.",
        )
    return BackendTimeout(
        f"{name} did not answer {method} within {options.timeout or 0:.3g} s",
        advice="Try again, narrow the request, or raise this server's timeouts.call_s.",
    )


def to_remote_error(error: Mapping[str, Any]) -> RemoteError:
    """Convert an upstream's error object, unchanged."""
    code = error.get("code")
    message = error.get("message")
    return RemoteError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "the server gave no message",
        error.get("data"),
        has_data="data" in error,
    )


class Deadline:
    """Timeouts of one request: one since the last progress, and one in total.

    Both pause while the server waits for an answer of the client, because a person may take longer
    than a server may. Enter `timeout` around the wait.
    """

    __slots__ = ("_pause_count", "_paused_at", "_started_at", "options", "timeout")

    def __init__(self, options: RequestOptions) -> None:
        self.options = options
        self._started_at = now = asyncio.get_running_loop().time()
        self._pause_count = 0
        self._paused_at = 0.0
        self.timeout = asyncio.timeout_at(self._compute_end(now))

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start, without pauses."""
        if self._pause_count:
            return self._paused_at - self._started_at
        return asyncio.get_running_loop().time() - self._started_at

    def extend(self) -> None:
        """Restart the progress timeout; the total timeout stays."""
        if not self._pause_count:
            self._reschedule(self._compute_end(asyncio.get_running_loop().time()))

    def pause(self) -> None:
        """Stop both timeouts; every `pause` needs a `resume`."""
        if not self._pause_count:
            self._paused_at = asyncio.get_running_loop().time()
            self._reschedule(None)
        self._pause_count += 1

    def resume(self) -> None:
        """Continue the timeouts after the client has answered or could not be asked."""
        self._pause_count -= 1
        if not self._pause_count:
            self._started_at += asyncio.get_running_loop().time() - self._paused_at
            self.extend()

    def _compute_end(self, last_activity: float) -> float | None:
        """Return the loop time at which the request expires, or None without a limit."""
        ends: list[float] = []
        if self.options.timeout is not None:
            ends.append(last_activity + self.options.timeout)
        if self.options.total_timeout is not None:
            ends.append(self._started_at + self.options.total_timeout)
        return min(ends, default=None)

    def _reschedule(self, when: float | None) -> None:
        # A timeout cannot be rescheduled after its block has been left.
        with contextlib.suppress(RuntimeError):
            if not self.timeout.expired():
                self.timeout.reschedule(when)


class NotificationQueue:
    """Notifications of one call to its caller: in order, and only the newest of a flood.

    Callers may be slow; a response on the same wire must not wait for thousands of notifications.
    """

    __slots__ = ("_is_flushing", "_queue", "_sent_count", "_spawn", "_task")

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._queue: deque[tuple[Relay, str, Raw]] = deque(maxlen=MAX_QUEUED)
        self._task: asyncio.Task[None] | None = None
        self._sent_count = 0
        self._is_flushing = False

    def put(self, relay: Relay, method: str, params: Raw) -> None:
        self._queue.append((relay, method, params))
        if self._task is None or self._task.done():
            self._task = self._spawn(self._send_all())

    async def flush(self) -> None:
        """Wait until everything has been sent; call it before the response."""
        self._is_flushing = True
        if self._task is not None:
            await asyncio.wait({self._task})

    def stop(self) -> None:
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    async def _send_all(self) -> None:
        while self._queue:
            if self._sent_count >= BURST and not self._is_flushing:
                await asyncio.sleep(PACE_S)
            relay, method, params = self._queue.popleft()
            self._sent_count += 1
            await relay.notify(method, params)


@dataclass(slots=True, eq=False)
class PendingCall:
    message: Raw
    deadline: Deadline
    result: "asyncio.Future[Raw]"
    progress_token: str | int | None = None
    """The caller's own token; towards the server it is the id of the request."""
    was_sent: bool = False
    notifications: NotificationQueue | None = None
    """Created with the first notification."""

    @property
    def options(self) -> RequestOptions:
        return self.deadline.options

    @property
    def relay(self) -> Relay | None:
        return self.deadline.options.relay

    @property
    def client_key(self) -> str | None:
        """The client that waits for it; None if nobody can be asked."""
        relay = self.relay
        return None if relay is None else relay.client_key
