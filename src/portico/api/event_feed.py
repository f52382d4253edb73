"""The event feed: what happens in the gateway, for everybody who listens over REST.

One ring holds the latest events; it is the queue of all listeners, so a slow one costs nothing. A
listener that falls behind the ring is told how many events it missed, and its stream ends. Events
have ids, `RUN-NUMBER`, by which a listener goes on where it was while the ring reaches back so far.

The feed listens to the gateway from the first listener on. It only keeps references to what was
published; text is made for those who read, a batch at a time.
"""

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from portico.callers import Caller, Principal
from portico.catalog.tool import sanitize_text
from portico.errors import Overloaded
from portico.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallRefused,
    CallStarted,
    CatalogChanged,
    ConfigApplied,
    ConfigRejected,
    Event,
    EventBus,
    ServerStateChanged,
    SignInChanged,
    ToolCalled,
    ToolsShown,
)
from portico.json_text import json_codec
from portico.rendering.token_budget import to_short_line
from portico.rendering.tool_result import mask_secrets
from portico.storage.rows import LedgerTotal

MAX_EVENTS = 2_048
MAX_LISTENERS = 64
MAX_LISTENERS_EACH = 8
BATCH_S = 0.2
"""Seconds between two batches, so that a busy gateway is not held up by those who watch it."""
BUSY_BATCH_S = 1.0
"""The same after a batch with more calls than are sent, if the ring does not fill before."""
MAX_CALLS_IN_BATCH = 100
"""Calls of a batch that are sent one by one; of further ones only the number is."""
CHECK_S = 1.0
"""Seconds between looks whether the listener's credential is still valid."""
HEARTBEAT_S = 15.0
_LEDGER_S = 1.0
_MAX_REASON_TOKENS = 60
_MAX_NAMED_TOOLS = 50

_CALL_EVENTS = (CallStarted, ToolCalled, CallRefused)
_APPROVAL_EVENTS = (ApprovalRequested, ApprovalDecided)
_KINDS = (
    *_CALL_EVENTS,
    *_APPROVAL_EVENTS,
    ServerStateChanged,
    SignInChanged,
    CatalogChanged,
    ConfigApplied,
    ConfigRejected,
    ToolsShown,
)


@dataclass(frozen=True)
class LedgerChanged(Event):
    """The token ledger has other totals."""


@dataclass(slots=True)
class _FeedEntry:
    at: float
    event: Event
    text: str = ""
    """Name and data as they are sent, made when the first listener needs them."""


@dataclass(frozen=True)
class EventListener:
    """Who listens, and what it may see."""

    principal: Principal
    is_server_visible: Callable[[str], bool]
    """Whether a server is in the view of its profile, as far as it may see that."""
    is_open: Callable[[], bool]
    """Whether it may go on listening."""
    is_behind: Callable[[], bool]
    """Whether it does not read what was sent to it."""
    is_tool_hidden: Callable[[str], bool] = lambda _: False
    """Whether a tool does not exist for it."""

    def may_see(self, event: Event) -> bool:
        """Return whether an event is within its rights: a key of certain profiles sees its own
        calls, and the servers of its profile."""
        if isinstance(event, (*_CALL_EVENTS, *_APPROVAL_EVENTS)) and self.is_tool_hidden(
            event.tool
        ):
            return False
        if isinstance(event, ServerStateChanged | SignInChanged | CatalogChanged):
            return self.is_server_visible(event.server)
        if not self.principal.profiles:
            return True
        if isinstance(event, ApprovalDecided):
            return event.person == self.principal.id
        return isinstance(event, (*_CALL_EVENTS, ApprovalRequested)) and (
            event.caller.principal.id == self.principal.id
        )

    def select_visible(self, event: Event) -> Event:
        """Return an event without the names of tools that do not exist for the listener."""
        if not isinstance(event, CatalogChanged):
            return event
        named = (event.added, event.removed, event.changed)
        if not any(self.is_tool_hidden(tool) for tools in named for tool in tools):
            return event
        added, removed, changed = (
            tuple(tool for tool in tools if not self.is_tool_hidden(tool)) for tools in named
        )
        return replace(event, added=added, removed=removed, changed=changed)


class EventFeed:
    """The latest events of a gateway. For one event loop."""

    def __init__(
        self,
        bus: EventBus,
        get_ledger: Callable[[], LedgerTotal] = LedgerTotal,
        *,
        max_events: int = MAX_EVENTS,
    ) -> None:
        self._bus = bus
        self._get_ledger = get_ledger
        self._run_id = secrets.token_hex(4)
        self._entries: deque[_FeedEntry] = deque(maxlen=max_events)
        self._next_number = 1
        self._unsubscribe: Callable[[], None] | None = None
        self._ledger_timer: asyncio.TimerHandle | None = None
        self._wakers: set[asyncio.Event] = set()
        self._counts = Counter[str]()
        self._is_closed = False

    def close(self) -> None:
        """End all streams, and listen to the gateway no more."""
        self._is_closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._ledger_timer is not None:
            self._ledger_timer.cancel()
        self._wake()

    def reserve(self, caller: str) -> None:
        """Count a listener; to be followed by `stream`. Raises Overloaded if there are too many."""
        if (
            self._counts.total() >= MAX_LISTENERS
            or self._counts[caller] >= MAX_LISTENERS_EACH
            or self._is_closed
        ):
            raise Overloaded(
                "too many listen to events already", advice="Close another stream first."
            )
        self._counts[caller] += 1
        if self._unsubscribe is None:
            self._unsubscribe = self._bus.subscribe(self._on_event, *_KINDS)

    async def stream(
        self, caller: str, listener: EventListener, last_id: str = ""
    ) -> AsyncGenerator[bytes]:
        """Yield events as `text/event-stream`, after the one with `last_id` if it is known."""
        waker = asyncio.Event()
        self._wakers.add(waker)
        try:
            position, missed = self._find_position(last_id)
            yield self._render("hello", {"run": self._run_id, "missed": missed}, position - 1)
            quiet_s = 0.0
            while listener.is_open() and not self._is_closed:
                if position < self._next_number and not listener.is_behind():
                    first = self._next_number - len(self._entries)
                    if position < first:
                        yield self._render("lagged", {"missed": first - position}, first - 1)
                        return
                    text, is_busy = self._render_batch(position, listener)
                    position = self._next_number
                    if text:
                        quiet_s = 0.0
                        yield text
                    await self._pause(position, BUSY_BATCH_S if is_busy else BATCH_S)
                    continue
                waker.clear()
                if not await _wait(waker, CHECK_S):
                    quiet_s += CHECK_S
                if quiet_s >= HEARTBEAT_S:
                    quiet_s = 0.0
                    yield b": still here\n\n"
        finally:
            self._wakers.discard(waker)
            self._counts[caller] -= 1
            if not self._counts[caller]:
                del self._counts[caller]

    async def _pause(self, position: int, seconds: float) -> None:
        """Wait so long, or until three quarters of the ring are new."""
        most = (self._entries.maxlen or 0) * 3 // 4
        paused_s = 0.0
        while paused_s < seconds and self._next_number - position < most:
            await asyncio.sleep(BATCH_S)
            paused_s += BATCH_S

    def _find_position(self, last_id: str) -> tuple[int, bool]:
        """Return the number to go on with, and whether events before it were missed."""
        run_id, _, number = last_id.partition("-")
        if not last_id:
            return self._next_number, False
        if run_id != self._run_id or not number.isdigit() or len(number) > 18:
            return self._next_number, True
        wanted = int(number) + 1
        if self._next_number - len(self._entries) <= wanted <= self._next_number:
            return wanted, False
        return self._next_number, True

    def _render_batch(self, position: int, listener: EventListener) -> tuple[bytes, bool]:
        """Return the events from a position on, and whether calls were left out."""
        parts: list[str] = []
        calls_left = MAX_CALLS_IN_BATCH
        skipped = 0
        first = self._next_number - len(self._entries)
        waiting = islice(self._entries, position - first, None)
        for number, entry in enumerate(waiting, position):
            if not listener.may_see(entry.event):
                continue
            if isinstance(entry.event, _CALL_EVENTS):
                if not calls_left:
                    skipped += 1
                    continue
                calls_left -= 1
            event = listener.select_visible(entry.event)
            if event is entry.event:
                entry.text = entry.text or self._render_entry(entry)
                text = entry.text
            else:
                text = self._render_entry(_FeedEntry(entry.at, event))
            parts.append(f"id: {self._run_id}-{number}\n{text}")
        if skipped:
            data = json_codec.dumps({"events": skipped}).decode()
            parts.append(
                f"id: {self._run_id}-{self._next_number - 1}\nevent: skipped\ndata: {data}\n\n"
            )
        return "".join(parts).encode(errors="replace"), skipped > 0

    def _render_entry(self, entry: _FeedEntry) -> str:
        name, data = describe_event(entry.event, self._get_ledger)
        body = json_codec.dumps({"at": round(entry.at, 3), **data}).decode()
        return f"event: {name}\ndata: {body}\n\n"

    def _render(self, name: str, data: Mapping[str, Any], number: int) -> bytes:
        body = json_codec.dumps(dict(data)).decode()
        return f"id: {self._run_id}-{number}\nevent: {name}\ndata: {body}\n\n".encode()

    def _on_event(self, event: Event) -> None:
        # Runs on every call, so it only appends.
        if isinstance(event, ToolsShown):
            if self._ledger_timer is None:
                loop = asyncio.get_running_loop()
                self._ledger_timer = loop.call_later(_LEDGER_S, self._add_ledger)
            return
        self._add(event)

    def _add_ledger(self) -> None:
        self._ledger_timer = None
        self._add(LedgerChanged())

    def _add(self, event: Event) -> None:
        self._entries.append(_FeedEntry(time.time(), event))
        self._next_number += 1
        self._wake()

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()


def describe_event(
    event: Event, get_ledger: Callable[[], LedgerTotal] = LedgerTotal
) -> tuple[str, dict[str, Any]]:
    """Return the name of an event and its data, without secrets."""
    if isinstance(event, CallStarted):
        return "call_started", _describe_call(event)
    if isinstance(event, CallRefused):
        return "call_refused", {**_describe_call(event), "ok": False, "error": event.error}
    if isinstance(event, ToolCalled):
        ended = {
            "ok": event.ok,
            "ms": round(event.seconds * 1_000, 1),
            "cancelled": event.cancelled,
            "cached": event.cached,
            "error": event.error,
        }
        return "call_ended", {**_describe_call(event), **ended}
    if isinstance(event, ApprovalRequested):
        return "approval_requested", {
            "approval": event.approval_id,
            "tool": sanitize_text(event.tool),
            "client": sanitize_text(event.caller.name),
            "person": sanitize_text(event.caller.principal.id),
            "profile": event.caller.profile,
            "rule": event.rule,
            "asked_by_client": event.is_asked_by_client,
        }
    if isinstance(event, ApprovalDecided):
        return "approval_decided", {
            "approval": event.approval_id,
            "tool": sanitize_text(event.tool),
            "approved": event.is_approved,
            "by": sanitize_text(event.by),
            "via": event.via,
            "reason": sanitize_text(event.reason),
        }
    if isinstance(event, ServerStateChanged):
        reason = to_short_line(mask_secrets(event.reason), _MAX_REASON_TOKENS)
        return "server", {"server": event.server, "state": event.state, "reason": reason}
    if isinstance(event, SignInChanged):
        return "sign_in", {"server": event.server, "state": event.state}
    if isinstance(event, CatalogChanged):
        changes = {"added": event.added, "removed": event.removed, "changed": event.changed}
        named = {
            key: [sanitize_text(tool) for tool in tools[:_MAX_NAMED_TOOLS]]
            for key, tools in changes.items()
        }
        return "catalog", {"server": event.server, **named}
    if isinstance(event, ConfigApplied):
        return "config", {"applied": mask_secrets(event.summary)}
    if isinstance(event, ConfigRejected):
        return "config", {"rejected": mask_secrets(event.reason)}
    total = get_ledger()
    return "ledger", {
        "listing": total.listing,
        "shown": total.shown,
        "saved": total.saved_tokens,
        "answers": total.answers,
        "sessions": total.sessions,
    }


def _describe_call(event: CallStarted | ToolCalled | CallRefused) -> dict[str, Any]:
    caller: Caller = event.caller
    return {
        "call": event.call_id,
        "tool": sanitize_text(event.tool),
        "client": sanitize_text(caller.name),
        "person": sanitize_text(caller.principal.id),
        "profile": caller.profile,
        "via": event.via,
    }


async def _wait(waker: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await waker.wait()
    except TimeoutError:
        return False
    return True
