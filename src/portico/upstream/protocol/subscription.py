"""Subscription to a modern server's changes: its lists, and the watched resources.

One `subscriptions/listen` covers everything. When other resources are watched, a new one is
acknowledged before the old one ends, so that no change is lost in between. Nothing is replayed:
after an interruption, everything subscribed is announced as changed. Reconnects with growing delays
while the connection lasts.

To the rest of the gateway every server supports `resources/subscribe`; this module translates it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol, cast

from portico.errors import (
    INVALID_PARAMS,
    BackendTimeout,
    BackendUnavailable,
    PorticoError,
    RemoteError,
)
from portico.json_text.json_codec import to_list, to_object
from portico.upstream.backend import Raw
from portico.upstream.protocol.envelope import make_subscription_params

SUBSCRIPTION_METHODS = frozenset({"resources/subscribe", "resources/unsubscribe"})
ACKNOWLEDGED_METHOD = "notifications/subscriptions/acknowledged"
ACKNOWLEDGE_TIMEOUT_S = 2.0
"""Seconds a server has to acknowledge; without an acknowledgement everything counts as agreed."""
DEBOUNCE_S = 0.05
"""Changes of the watched resources within these seconds make one new subscription."""
LINGER_S = 0.5
"""Seconds the old stream is read beside the new one: earlier notifications may be on their way."""
STABLE_AFTER_S = 5.0
"""A subscription that lasted these seconds does not count as a failure when it ends."""
FIRST_RETRY_DELAY_S = 0.5
MAX_RETRY_DELAY_S = 30.0
MAX_RESOURCES = 2_000
"""Resources in one subscription: it is sent in full each time."""

Announce = Callable[[str, Raw], None]


class SubscriptionStream(Protocol):
    @property
    def agreed_uris(self) -> Collection[str] | None:
        """Resources that the server agreed to announce; None if it did not say."""
        ...

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds the server wants clients to wait before they reconnect."""
        ...

    async def wait_for_end(self) -> None: ...

    def close(self) -> None: ...


class TaskStream:
    """A subscription that lasts as long as a task, which raises what the server refuses it with."""

    retry_ms: int | None = None

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.agreed_uris: frozenset[str] | None = None
        self._acknowledged = asyncio.Event()
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(_consume_exception)

    def acknowledge(self, message: Raw) -> None:
        """Record the resources that an acknowledgement names; the first one counts."""
        if not self._acknowledged.is_set():
            self.agreed_uris = parse_agreed_uris(message)
            self._acknowledged.set()

    async def wait_for_agreement(self) -> None:
        """Wait for the acknowledgement; close and raise RemoteError or BackendUnavailable."""
        acknowledged = asyncio.ensure_future(self._acknowledged.wait())
        try:
            await asyncio.wait(
                {self._task, acknowledged},
                timeout=ACKNOWLEDGE_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self._task.done() and not self._acknowledged.is_set():
                self._task.result()
                self.agreed_uris = frozenset()  # it ended before the acknowledgement
        except BaseException:
            self.close()
            raise
        finally:
            acknowledged.cancel()

    async def wait_for_end(self) -> None:
        await asyncio.wait({self._task})

    def close(self) -> None:
        self._task.cancel()


def _consume_exception(task: "asyncio.Task[Any]") -> None:
    # Mark as retrieved: only the end matters, not how it came.
    if not task.cancelled():
        task.exception()


class SubscriptionLost(Exception):
    """The connection is gone; the message says why."""


OpenStream = Callable[[Raw], Awaitable[SubscriptionStream]]
"""Opens a subscription; returns when it is acknowledged.

Raises RemoteError (refused), BackendUnavailable (try again), SubscriptionLost.
"""


class Subscription:
    def __init__(
        self,
        name: str,
        capabilities: Mapping[str, Any],
        open_stream: OpenStream,
        announce: Announce,
    ) -> None:
        self._name = name
        self._capabilities = capabilities
        self._open_stream = open_stream
        self._announce = announce
        self._wanted_uris: set[str] = set()
        self._requested_uris: set[str] = set()
        """Resources of the open stream."""
        self._stream: SubscriptionStream | None = None
        self._waiters: dict[str, asyncio.Future[PorticoError | None]] = {}
        self._changed = asyncio.Event()
        self._opened_at = 0.0
        self._one_by_one = False
        self._was_opened = False
        self._closing_tasks: set[asyncio.Task[None]] = set()

    async def request(self, method: str, params: Raw | None, timeout: float | None) -> Raw:
        """Handle `resources/subscribe` or `resources/unsubscribe` on the server's behalf."""
        uri = (params or {}).get("uri")
        if not isinstance(uri, str):
            raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
        if method == "resources/subscribe":
            await self._subscribe(uri, timeout)
        else:
            self._unsubscribe(uri)
        return {}

    async def _subscribe(self, uri: str, timeout: float | None) -> None:
        if uri in self._wanted_uris and self._is_agreed(uri):
            return
        if len(self._wanted_uris) >= MAX_RESOURCES and uri not in self._wanted_uris:
            raise RemoteError(
                INVALID_PARAMS,
                f"{MAX_RESOURCES} resources of {self._name} are watched already; "
                "unsubscribe from some first",
            )
        self._wanted_uris.add(uri)
        if uri not in self._waiters:
            self._waiters[uri] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            async with asyncio.timeout(timeout):
                error = await asyncio.shield(self._waiters[uri])
        except TimeoutError:
            self._unsubscribe(uri)
            raise BackendTimeout(
                f"{self._name} did not agree within {timeout or 0:g} s "
                "to announce changes of a resource",
                advice="Try again, or read the resource when you need it.",
            ) from None
        except asyncio.CancelledError:
            self._unsubscribe(uri)
            raise
        if error is not None:
            raise error

    def _unsubscribe(self, uri: str) -> None:
        self._wanted_uris.discard(uri)
        if (waiter := self._waiters.pop(uri, None)) is not None and not waiter.done():
            waiter.cancel()
        self._changed.set()

    async def keep_open(self) -> str:
        """Keep the subscription open while the connection lasts; return why it was lost."""
        failures = 0
        reason = "the conversation is over"
        try:
            while True:
                self._changed.clear()
                try:
                    await self._renew()
                except BackendUnavailable as error:
                    self._reject(self._waiters, error)
                    delay = compute_retry_delay(failures, None)
                else:
                    if not await self._wait_for_end_or_change():
                        continue
                    stream = cast(SubscriptionStream, self._stream)
                    self._stream = None
                    self._requested_uris = set()
                    stream.close()
                    if asyncio.get_running_loop().time() - self._opened_at >= STABLE_AFTER_S:
                        failures = 0
                    delay = compute_retry_delay(failures, stream.retry_ms)
                failures += 1
                await self._wait_before_retry(delay)
        except SubscriptionLost as lost:
            reason = str(lost)
            return reason
        finally:
            self._reject(self._waiters, BackendUnavailable(f"{self._name}: {reason}"))
            for task in self._closing_tasks:
                task.cancel()
            if self._closing_tasks:
                await asyncio.wait(self._closing_tasks)
            if self._stream is not None:
                self._stream.close()
                await self._stream.wait_for_end()

    async def _wait_before_retry(self, seconds: float) -> None:
        """Wait before the next try; shorter if the wanted resources change."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.sleep(FIRST_RETRY_DELAY_S)
                await self._changed.wait()

    async def _wait_for_end_or_change(self) -> bool:
        """Return True if the stream ended, False if the wanted resources changed."""
        if self._stream is None:
            await self._changed.wait()
        elif self._requested_uris == self._wanted_uris:
            ended = asyncio.ensure_future(self._stream.wait_for_end())
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return True
            finally:
                ended.cancel()
                changed.cancel()
        await asyncio.sleep(DEBOUNCE_S)
        return False

    async def _renew(self) -> None:
        """Open a stream for the wanted resources if the current one differs.

        Raises BackendUnavailable if it has to be retried later.
        """
        if self._stream is not None and self._requested_uris == self._wanted_uris:
            self._resolve_waiters()
            return
        new = self._wanted_uris - self._requested_uris
        requested = set(self._wanted_uris)
        if self._one_by_one:
            requested = (self._wanted_uris & self._requested_uris) | set(sorted(new)[:1])
        params = make_subscription_params(self._capabilities, sorted(requested))
        if params is None:
            self._replace(None, set())
            return
        try:
            stream = await self._open_stream(params)
        except RemoteError as error:
            self._handle_refusal(requested & new, error)
            return
        if self._was_opened and self._stream is None:
            self._announce_all(requested)
        self._was_opened = True
        self._replace(stream, requested)
        self._resolve_waiters()
        self._one_by_one = self._one_by_one and self._requested_uris != self._wanted_uris

    def _handle_refusal(self, new: set[str], error: PorticoError) -> None:
        if len(new) > 1:
            self._one_by_one = True  # the refusal may concern only one of them
            self._changed.set()
        elif new:
            self._wanted_uris -= new
            self._reject(new, error)
            self._changed.set()
        else:
            self._capabilities = {}  # it does not announce its lists

    def _replace(self, stream: SubscriptionStream | None, requested: set[str]) -> None:
        if self._stream is not None:
            closing = asyncio.create_task(
                _close_after_linger(self._stream), name=f"close a subscription to {self._name}"
            )
            self._closing_tasks.add(closing)
            closing.add_done_callback(self._closing_tasks.discard)
        self._stream = stream
        self._requested_uris = requested
        self._opened_at = asyncio.get_running_loop().time()

    def _resolve_waiters(self) -> None:
        for uri in [uri for uri in self._waiters if uri in self._requested_uris]:
            if self._is_agreed(uri):
                self._resolve(uri, None)
                continue
            self._wanted_uris.discard(uri)
            self._requested_uris.discard(uri)
            message = f"{self._name} does not announce changes of this resource"
            self._resolve(uri, RemoteError(INVALID_PARAMS, message))

    def _is_agreed(self, uri: str) -> bool:
        if self._stream is None or uri not in self._requested_uris:
            return False
        return self._stream.agreed_uris is None or uri in self._stream.agreed_uris

    def _reject(self, uris: Collection[str], error: PorticoError) -> None:
        for uri in tuple(uris):
            if uri in self._waiters:
                self._wanted_uris.discard(uri)
                self._resolve(uri, error)

    def _resolve(self, uri: str, error: PorticoError | None) -> None:
        if not (waiter := self._waiters.pop(uri)).done():
            waiter.set_result(error)

    def _announce_all(self, requested: Collection[str]) -> None:
        lists = make_subscription_params(self._capabilities) or {}
        for kind in lists.get("notifications", ()):
            self._announce(f"notifications/{kind.removesuffix('ListChanged')}/list_changed", {})
        for uri in sorted(requested):
            self._announce("notifications/resources/updated", {"uri": uri})


async def _close_after_linger(stream: SubscriptionStream) -> None:
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await stream.wait_for_end()
    finally:
        stream.close()
        await stream.wait_for_end()


def parse_agreed_uris(message: Raw) -> frozenset[str]:
    agreed = to_object(to_object(message.get("params")).get("notifications"))
    uris = to_list(agreed.get("resourceSubscriptions"))
    return frozenset(uri for uri in uris if isinstance(uri, str))


def compute_retry_delay(failures: int, retry_ms: int | None) -> float:
    """Return the seconds to wait before an ended stream is opened again."""
    backoff = min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2 ** min(failures, 10))
    return max(backoff, min(retry_ms or 0, 60_000) / 1000)
