"""A task that a server works at, followed until it has a result.

Its state is read at the interval that the server wants. What the server asks meanwhile goes to the
client of the latest request that waits for the task, or is shown by `tasks/get` to a client that
knows tasks. A server that cannot be reached is tried again as long as the task may live.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from portico.calls.call import Call
from portico.calls.elicitation import parse_input_requests, request_all
from portico.calls.elicitation_labels import label_result
from portico.calls.server_task import (
    check_state,
    get_lifetime_s,
    get_message,
    get_poll_s,
    is_terminal,
)
from portico.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BackendTimeout,
    BackendUnavailable,
    RemoteError,
    SignInNeeded,
)
from portico.json_text.json_codec import to_object
from portico.upstream.backend import CallAlreadyEnded, Raw, Relay
from portico.upstream.protocol.envelope import INPUT_RESPONSES
from portico.upstream.protocol.jsonrpc import to_remote_error

MAX_TASK_S = 24 * 3_600.0
"""Seconds for which a task is followed, however long its server keeps it."""
GRACE_S = 60.0
"""Seconds after the end of its lifetime for which its server is still asked for it."""
MAX_REFUSALS = 5
"""Errors in a row with which a server may answer `tasks/get` before they count as the task's."""
FIRST_RETRY_S = 0.5
MAX_RETRY_S = 30.0
PROGRESS_S = 5.0
"""Seconds between two notes to a client that waits."""
_LOST_ADVICE = "It may have done its work: find out before you call it again."


class SendTaskRequest(Protocol):
    """Sends `tasks/get`, `tasks/update` or `tasks/cancel` about the task of a call."""

    def __call__(self, call: Call, method: str, params: Raw, /) -> Awaitable[Raw]: ...


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits for the task: its client can be asked, and is told of progress."""

    relay: Relay
    progress_token: str | int | None
    notified_at: float = 0.0
    reports: int = 0


def get_progress_token(params: Mapping[str, Any]) -> str | int | None:
    token = to_object(params.get("_meta")).get("progressToken")
    return token if isinstance(token, str | int) else None


class RunningTask:
    """One task. `wait_for_result` is awaited once; everything else may happen meanwhile."""

    def __init__(self, call: Call, task_id: str, state: Raw, send: SendTaskRequest) -> None:
        """`state` is what the server said first; empty for a task of an earlier process."""
        self.call = call
        self.task_id = task_id
        self.state = state
        """What the server said last, as it may be shown: masked, its questions labelled."""
        self.has_connection_changed: Callable[[], bool] = lambda: False
        """Returns whether the process or session that began the task is gone."""
        self.mask_state: Callable[[Raw], Awaitable[Raw]] | None = None
        self.is_client_asked = call.context.task_mode != "return"
        """Whether questions go to a client that waits, rather than into the state."""
        self.is_asking = False
        """Whether a client is being asked now."""
        self.is_handed_out = False
        """Whether its caller has a ticket, so that it goes on without a request that waits."""
        self._send = send
        self._waiters: list[_Waiter] = []
        self._wake = asyncio.Event()
        self._poll_lock = asyncio.Lock()
        self._answered: set[str] = set()
        self._terminal: Raw | None = None
        self._refusals = 0
        self._failures = 0
        self._followed_since = time.monotonic()
        if call.relay is not None:
            token = get_progress_token(call.params)
            self._waiters.append(_Waiter(call.relay, token, time.monotonic()))

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._followed_since

    @contextlib.contextmanager
    def attach(self, relay: Relay | None, params: Mapping[str, Any]) -> Generator[None]:
        """Ask this client, and tell it of progress, while its request waits for the task."""
        if relay is None:
            yield
            return
        waiter = _Waiter(relay, get_progress_token(params), time.monotonic())
        self._waiters.append(waiter)
        self._wake.set()
        try:
            yield
        finally:
            self._forget(waiter)

    def detach_first(self) -> None:
        """Forget the request that made the call: it was answered with a ticket."""
        self._waiters[:1] = []

    def _forget(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    async def wait_for_result(self) -> Raw:
        """Follow the task to its end and return its result.

        Raises RemoteError where it failed, was cancelled or is not known any more, BackendTimeout
        where it lives longer than it may.
        """
        if not self.state:
            await self.refresh()
        while self._terminal is None:
            if self.state.get("status") == "input_required" and self.is_client_asked:
                await self._answer_requests()
            await self._wait(get_poll_s(self.state))
            if self._terminal is None:
                await self.refresh()
        return self._to_result(self._terminal)

    async def refresh(self) -> None:
        """Read the state from the server; raises like `wait_for_result`."""
        async with self._poll_lock:
            if self._terminal is None:
                await self._poll()

    async def update(self, responses: Any) -> None:
        """Pass a client's answers to the server's questions on."""
        params = {"taskId": self.task_id, INPUT_RESPONSES: responses}
        await self._send(self.call, "tasks/update", params)
        self._wake.set()

    async def cancel(self) -> None:
        """Ask the server to stop working at the task."""
        await self._send(self.call, "tasks/cancel", {"taskId": self.task_id})
        self._wake.set()

    async def _poll(self) -> None:
        try:
            found = check_state(await self._send(self.call, "tasks/get", {"taskId": self.task_id}))
        except RemoteError as error:
            self._refusals += 1
            if error.code == INVALID_PARAMS:
                raise self._make_lost_error(error) from error
            if self._refusals > MAX_REFUSALS:
                raise
            return await self._wait_before_retry(error)
        except SignInNeeded:
            raise
        except BackendUnavailable as error:
            return await self._wait_before_retry(error)
        self._refusals = 0
        self._failures = 0
        await self._accept(found)
        return None

    async def _accept(self, found: Raw) -> None:
        shown = {key: value for key, value in found.items() if key not in ("result", "error")}
        if shown.get("status") == "input_required":
            parse_input_requests(shown)
            shown = label_result(self.call.server, shown)
        if self.mask_state is not None:
            shown = await self.mask_state(shown)
        self.state = shown
        if is_terminal(found):
            self._terminal = found
            self._wake.set()
            return
        self._check_age()
        for waiter in self._waiters:
            await self._report(waiter)

    async def _report(self, waiter: _Waiter) -> None:
        now = time.monotonic()
        if waiter.progress_token is None or now - waiter.notified_at < PROGRESS_S:
            return
        waiter.notified_at = now
        waiter.reports += 1
        params: Raw = {"progressToken": waiter.progress_token, "progress": waiter.reports}
        if message := get_message(self.state):
            params["message"] = message
        await waiter.relay.notify("notifications/progress", params)

    async def _wait_before_retry(self, error: Exception) -> None:
        self._check_age(error)
        self._failures += 1
        await self._wait(min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10)))

    def _check_age(self, cause: Exception | None = None) -> None:
        lifetime_s = get_lifetime_s(self.state)
        longest_s = MAX_TASK_S if lifetime_s is None else min(MAX_TASK_S, lifetime_s + GRACE_S)
        if self.age_s > longest_s:
            raise BackendTimeout(
                f"the task of {self.call.tool.address} has not ended within {longest_s:,.0f} s",
                advice=_LOST_ADVICE,
            ) from cause

    async def _wait(self, seconds: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _answer_requests(self) -> None:
        """Ask a waiting client what the server asks, and pass its answers on."""
        asked = parse_input_requests(self.state)
        wanted = {key: request for key, request in asked.items() if key not in self._answered}
        while wanted and self._terminal is None:
            if not self._waiters:
                if not self.is_handed_out:
                    await self.cancel()
                    raise RemoteError(
                        INTERNAL_ERROR, "the task asks for input, and there is nobody to ask"
                    )
                return
            waiter = self._waiters[-1]
            self.is_asking = True
            try:
                answers = await request_all(wanted, waiter.relay)
            except CallAlreadyEnded:
                self._forget(waiter)
                continue
            except RemoteError:
                await self.cancel()
                raise
            finally:
                self.is_asking = False
            self._answered |= wanted.keys()
            await self.update(answers)
            return

    def _to_result(self, found: Raw) -> Raw:
        status = found["status"]
        if status == "completed":
            result = found.get("result")
            if isinstance(result, dict):
                return result
            raise RemoteError(INTERNAL_ERROR, "the server completed its task without a result")
        if status == "failed":
            raise to_remote_error(to_object(found.get("error")))
        message = get_message(found)
        reason = f": {message}" if message else ""
        raise RemoteError(INTERNAL_ERROR, f"the task was cancelled{reason}")

    def _make_lost_error(self, error: RemoteError) -> RemoteError:
        server = self.call.server
        what = f"{server} no longer knows this task ({error.message})"
        if self.has_connection_changed():
            what = (
                f"the process of {server} that worked at this task has ended, and its tasks"
                " ended with it"
            )
        lost = RemoteError(INVALID_PARAMS, what)
        lost.advice = _LOST_ADVICE
        return lost
