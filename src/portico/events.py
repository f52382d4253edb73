"""Events that the parts of the gateway publish, and the bus that delivers them.

Publishing is synchronous and never fails: a subscriber that raises is logged, and the others are
still called.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from portico.callers import NO_CALLER, Caller

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True)
class CatalogChanged(Event):
    """A server's listing differs from the known one; tools are named by address."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    resources_changed: bool = False
    prompts_changed: bool = False
    previous_definitions: Mapping[str, bytes] = field(
        default_factory=dict[str, bytes], compare=False, repr=False
    )
    """The previous JSON of changed definitions, by hash."""

    @property
    def tools_changed(self) -> bool:
        """Whether any tool differs."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class EmbeddingsComputed(Event):
    """All tools have their embeddings, so the results of a semantic search may change."""


@dataclass(frozen=True)
class ListChangeAnnounced(Event):
    """A server announced that a list changed, and has been listed again; it may be unchanged."""

    server: str
    kind: str
    """`tools`, `resources` or `prompts`."""


@dataclass(frozen=True)
class UpstreamReady(Event):
    """A server finished its handshake."""

    server: str


@dataclass(frozen=True)
class UpstreamLost(Event):
    """A server exited or did not start."""

    server: str
    reason: str


@dataclass(frozen=True)
class ResourceUpdated(Event):
    """A server announced that one of its resources changed."""

    server: str
    uri: str
    session: str = ""
    """Owner of the instance that announced it; empty if the server is shared."""


@dataclass(frozen=True)
class ServerStateChanged(Event):
    """A server has another state, or the same one for another reason."""

    server: str
    state: str
    reason: str = ""


@dataclass(frozen=True)
class SignInChanged(Event):
    """A sign-in to a server that was begun over REST waits for the browser, is done or failed."""

    server: str
    state: str


class CallStages(NamedTuple):
    """Where the seconds of a call went, in the order of its way."""

    admission: float = 0.0
    """In the gateway's queue, before the call began."""
    preparation: float = 0.0
    """Checks of its definition and arguments, and what no other stage has."""
    start: float = 0.0
    """Waiting for its server to start."""
    server_queue: float = 0.0
    """Waiting for a slot of its server."""
    tool: float = 0.0
    """The tool's own work."""


NO_STAGES = CallStages()


@dataclass(frozen=True)
class CallStarted(Event):
    """A call entered the pipeline. Published only while somebody subscribes to it."""

    call_id: str
    tool: str
    caller: Caller = NO_CALLER
    via: str = ""


@dataclass(frozen=True)
class ToolCalled(Event):
    """A call ended in the pipeline."""

    tool: str
    tool_hash: str
    seconds: float
    ok: bool
    caller: Caller = NO_CALLER
    cancelled: bool = False
    """The caller cancelled it: neither a success nor a failure of the tool."""
    cached: bool = False
    """A cached result was returned: the tool was not run."""
    error: str = ""
    """Kind of failure: `PorticoError.kind`, or `tool_error` for an error result; empty if none."""
    call_id: str = ""
    via: str = ""
    """Origin of the call, as in `CallContext`."""
    stages: CallStages = NO_STAGES


@dataclass(frozen=True)
class CallRefused(Event):
    """A call was refused before its tool was run: not a failure of the tool."""

    tool: str
    error: str
    """`PorticoError.kind`."""
    caller: Caller = NO_CALLER
    call_id: str = ""
    via: str = ""


@dataclass(frozen=True)
class ApprovalRequested(Event):
    """A call waits for a person's approval."""

    approval_id: str
    tool: str
    """Address of the tool, or of the resource or prompt."""
    caller: Caller = NO_CALLER
    rule: str = ""
    is_asked_by_client: bool = False
    """Whether the caller's client asks its user; otherwise anybody who may can answer."""


@dataclass(frozen=True)
class ApprovalDecided(Event):
    """A person approved or denied a call."""

    approval_id: str
    tool: str
    is_approved: bool
    person: str
    """Id of the principal on whose behalf the call is made."""
    by: str
    """Id of the principal that decided."""
    via: str
    """`elicitation`, `rest`, `cli`."""
    reason: str = ""
    """What that person said of it."""


@dataclass(frozen=True)
class TokensRefused(Event):
    """HTTP requests with a wrong token were refused; one event for many of them."""

    count: int
    peers: tuple[tuple[str, int], ...]
    """Peers and their number of requests, most first."""


@dataclass(frozen=True)
class ToolsFound(Event):
    """A search returned tools."""

    query: str
    shown: tuple[str, ...]
    """Addresses of the tools that were shown, best first."""
    caller: Caller = NO_CALLER
    vector: NDArray[np.int8] | None = field(default=None, compare=False)
    """Embedding of the query, if it was computed."""


@dataclass(frozen=True)
class SearchCompleted(Event):
    """A search was answered, whether or not it found anything."""

    seconds: float
    found: bool


@dataclass(frozen=True)
class ScriptRan(Event):
    """A script ended."""

    language: str
    seconds: float
    outcome: str
    """`ok`, `cancelled`, `refused` (it was not run), or the kind of its error."""


@dataclass(frozen=True)
class WorkflowRan(Event):
    """A workflow was run or resumed, and ended or paused."""

    seconds: float
    outcome: str
    """`finished`, `failed`, `approval` (waits for one), `refused` (nothing was run),
    `cancelled`."""


@dataclass(frozen=True)
class ToolsShown(Event):
    """A client was shown something about tools: an answer of a meta-tool, or a listing."""

    caller: Caller
    content: object
    """Text, or a value that is sent as JSON; its tokens are counted later."""
    is_listing: bool = False
    """It is a list of tools: without the gateway, the client would have got all of them."""


@dataclass(frozen=True)
class StandingsChanged(Event):
    """Tiers were recomputed from usage: the hot list and every order by use may have changed."""


@dataclass(frozen=True)
class ConfigApplied(Event):
    """The gateway applied a new configuration."""

    summary: str
    """The changes, in words."""


@dataclass(frozen=True)
class ConfigRejected(Event):
    """A changed configuration cannot be used: the gateway keeps the current one."""

    reason: str


Subscriber = Callable[[Event], None]


class EventBus:
    """Delivers events to subscribers."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []
        self._subscribers_by_kind: dict[type[Event], tuple[Subscriber, ...]] = {}

    def subscribe(self, subscriber: Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Subscribe to all events, or to those of `kinds`; the returned function unsubscribes."""
        if not kinds:
            self._subscribers.append(subscriber)
            return lambda: (
                self._subscribers.remove(subscriber) if subscriber in self._subscribers else None
            )
        for kind in kinds:
            self._subscribers_by_kind[kind] = (*self._subscribers_by_kind.get(kind, ()), subscriber)
        return lambda: self._unsubscribe(subscriber, kinds)

    def _unsubscribe(self, subscriber: Subscriber, kinds: Iterable[type[Event]]) -> None:
        for kind in kinds:
            self._subscribers_by_kind[kind] = tuple(
                other for other in self._subscribers_by_kind.get(kind, ()) if other != subscriber
            )

    def has_subscribers(self, kind: type[Event]) -> bool:
        """Return whether this kind has subscribers of its own, so that a costly event can be
        skipped."""
        return bool(self._subscribers_by_kind.get(kind))

    def publish(self, event: Event) -> None:
        """Call all subscribers."""
        for subscriber in (*self._subscribers, *self._subscribers_by_kind.get(type(event), ())):
            try:
                subscriber(event)
            except Exception:  # fan-out boundary: one bad subscriber must not stop the others
                logger.exception("a listener failed on %s", type(event).__name__)
