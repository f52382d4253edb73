"""What a modern server is asked to announce: changes of its lists, and of the resources that somebody watches here.

One `subscriptions/listen` says it all. When other resources are watched, a new one is agreed on before the old one
ends, so that nothing is lost between them. It replays nothing: after a break, all it is about is announced as changed.
Comes back after a break, later and later, for as long as the conversation lasts.

Towards the rest of the gateway every server knows `resources/subscribe`: here it is what the modern era has for it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, cast

from portico.errors import INVALID_PARAMS, BackendTimeout, BackendUnavailable, PorticoError, RemoteError
from portico.upstream.backend import Raw
from portico.upstream.envelope import subscription_params

WATCHING = frozenset({"resources/subscribe", "resources/unsubscribe"})
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ACKNOWLEDGED_S = 2.0
"""How long a server may take to say what it agrees to; one that never says so has agreed to all."""
SETTLE_S = 0.05
"""Resources that are watched or left within this time are one new subscription."""
LINGER_S = 0.5
"""How long the old one is read beside the new one: what it was sent before may still be on its way."""
STEADY_S = 5.0
"""A subscription that held so long is no failure when it ends."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
MAX_WATCHED = 2_000
"""Resources in one subscription: it is sent whole each time."""

Announce = Callable[[str, Raw], None]


class Stream(Protocol):
    """One subscription that is open."""

    @property
    def agreed(self) -> Collection[str] | None:
        """The resources the server agreed to announce; None where it did not say."""
        ...

    @property
    def retry_ms(self) -> int | None:
        """How long the server wants us to wait before we come back."""
        ...

    async def ended(self) -> None:
        """Wait for its end."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Lost(Exception):
    """There is nobody any more to subscribe with; says why."""


Open = Callable[[Raw], Awaitable[Stream]]
"""Asks for a subscription; returns when it is agreed on.

Raises RemoteError (the server will have none of it), BackendUnavailable (try again), Lost.
"""


class Subscription:
    """What one conversation's server is asked to announce."""

    def __init__(self, name: str, capabilities: Mapping[str, Any], open_stream: Open, announce: Announce) -> None:
        self._name = name
        self._capabilities = capabilities
        self._open = open_stream
        self._announce = announce
        self._wanted: set[str] = set()
        self._asked: set[str] = set()
        """What the open one is about."""
        self._stream: Stream | None = None
        self._waiting: dict[str, asyncio.Future[PorticoError | None]] = {}
        self._changed = asyncio.Event()
        self._since = 0.0
        self._one_by_one = False
        self._lists = True
        self._opened = False
        self._old: set[asyncio.Task[None]] = set()

    async def request(self, method: str, params: Raw | None, patience: float | None) -> Raw:
        """Answer `resources/subscribe` or `resources/unsubscribe` in the server's place."""
        uri = (params or {}).get("uri")
        if not isinstance(uri, str):
            raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
        if method == "resources/subscribe":
            await self._watch(uri, patience)
        else:
            self._leave(uri)
        return {}

    async def _watch(self, uri: str, patience: float | None) -> None:
        if uri in self._wanted and self._agreed(uri):
            return
        if len(self._wanted) >= MAX_WATCHED and uri not in self._wanted:
            reason = f"{MAX_WATCHED} resources of {self._name} are watched already; unsubscribe from some first"
            raise RemoteError(INVALID_PARAMS, reason)
        self._wanted.add(uri)
        if uri not in self._waiting:
            self._waiting[uri] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            async with asyncio.timeout(patience):
                refused = await asyncio.shield(self._waiting[uri])
        except TimeoutError:
            self._leave(uri)
            raise BackendTimeout(
                f"{self._name} did not agree within {patience or 0:g} s to announce changes of a resource",
                advice="Try again, or read the resource when you need it.",
            ) from None
        except asyncio.CancelledError:
            self._leave(uri)
            raise
        if refused is not None:
            raise refused

    def _leave(self, uri: str) -> None:
        self._wanted.discard(uri)
        if (waiting := self._waiting.pop(uri, None)) is not None and not waiting.done():
            waiting.cancel()
        self._changed.set()

    async def follow(self) -> str:
        """Keep the subscription open for as long as the conversation lasts; answers why it is lost."""
        failures = 0
        reason = "the conversation is over"
        try:
            while True:
                self._changed.clear()
                try:
                    await self._renew()
                except BackendUnavailable as error:
                    self._refuse(self._waiting, error)
                    wait = pause(failures, None)
                else:
                    if not await self._ended():
                        continue
                    stream, self._stream = cast(Stream, self._stream), None
                    stream.close()
                    failures = 0 if asyncio.get_running_loop().time() - self._since >= STEADY_S else failures
                    wait = pause(failures, stream.retry_ms)
                failures += 1
                await self._rest(wait)
        except Lost as lost:
            reason = str(lost)
            return reason
        finally:
            self._refuse(self._waiting, BackendUnavailable(f"{self._name}: {reason}"))
            for task in self._old:
                task.cancel()
            if self._old:
                await asyncio.wait(self._old)
            if self._stream is not None:
                self._stream.close()
                await self._stream.ended()

    async def _rest(self, seconds: float) -> None:
        """Before the next try; whoever wants something new need not wait for all of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.sleep(FIRST_PAUSE_S)
                await self._changed.wait()

    async def _ended(self) -> bool:
        """Whether the subscription has ended, rather than that it should be about something else."""
        if self._stream is None:
            await self._changed.wait()
        elif self._asked == self._wanted:
            ended, changed = asyncio.ensure_future(self._stream.ended()), asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return True
            finally:
                ended.cancel()
                changed.cancel()
        await asyncio.sleep(SETTLE_S)
        return False

    async def _renew(self) -> None:
        """Have one open that is about what is wanted, if it is not; raises BackendUnavailable where that must wait."""
        new = self._wanted - self._asked if self._stream is not None else set(self._wanted)
        if self._stream is not None and self._asked == self._wanted:
            self._settle()
            return
        if self._one_by_one:
            kept = self._wanted & self._asked if self._stream is not None else set[str]()
            asked = kept | set(sorted(new)[:1])
        else:
            asked = set(self._wanted)
        params = subscription_params(self._capabilities if self._lists else {}, sorted(asked))
        if params is None:
            self._replace(None, set())
            return
        try:
            stream = await self._open(params)
        except RemoteError as error:
            self._refused(asked & new, error)
            return
        if self._opened and self._stream is None:
            self._catch_up(asked)
        self._opened = True
        self._replace(stream, asked)
        self._settle()
        self._one_by_one = self._one_by_one and self._asked != self._wanted

    def _refused(self, new: set[str], error: PorticoError) -> None:
        if len(new) > 1:
            self._one_by_one = True  # it may be about one of them only
            self._changed.set()
        elif new:
            self._wanted -= new
            self._refuse(new, error)
            self._changed.set()
        else:
            self._lists = False

    def _replace(self, stream: Stream | None, asked: set[str]) -> None:
        if self._stream is not None:
            old = asyncio.create_task(_outlived(self._stream), name=f"end an old subscription to {self._name}")
            self._old.add(old)
            old.add_done_callback(self._old.discard)
        self._stream, self._asked, self._since = stream, asked, asyncio.get_running_loop().time()

    def _settle(self) -> None:
        """Tell those who wait what was agreed on."""
        for uri in [uri for uri in self._waiting if uri in self._asked]:
            if self._agreed(uri):
                self._answer(uri, None)
                continue
            self._wanted.discard(uri)
            self._asked.discard(uri)
            self._answer(uri, RemoteError(INVALID_PARAMS, f"{self._name} does not announce changes of this resource"))

    def _agreed(self, uri: str) -> bool:
        if self._stream is None or uri not in self._asked:
            return False
        return self._stream.agreed is None or uri in self._stream.agreed

    def _refuse(self, uris: Collection[str], error: PorticoError) -> None:
        for uri in tuple(uris):
            if uri in self._waiting:
                self._wanted.discard(uri)
                self._answer(uri, error)

    def _answer(self, uri: str, refused: PorticoError | None) -> None:
        if not (waiting := self._waiting.pop(uri)).done():
            waiting.set_result(refused)

    def _catch_up(self, asked: Collection[str]) -> None:
        lists = subscription_params(self._capabilities if self._lists else {})
        for kind in lists["notifications"] if lists else ():
            self._announce(f"notifications/{kind.removesuffix('ListChanged')}/list_changed", {})
        for uri in sorted(asked):
            self._announce("notifications/resources/updated", {"uri": uri})


async def _outlived(stream: Stream) -> None:
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await stream.ended()
    finally:
        stream.close()
        await stream.ended()


def agreed_on(message: Raw) -> frozenset[str]:
    """The resources that an acknowledgement names."""
    params: Any = message.get("params")
    found: Any = params.get("notifications") if isinstance(params, dict) else None
    uris: Any = found.get("resourceSubscriptions") if isinstance(found, dict) else None
    return frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()


def pause(failures: int, retry_ms: int | None) -> float:
    """How long to wait before a stream that ended is opened again."""
    grown = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures, 10))
    return max(grown, min(retry_ms or 0, 60_000) / 1000)
