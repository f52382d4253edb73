"""Frozen facts the rooms tell each other, and the bus that carries them.

Publishing is synchronous and never fails: a listener that raises is logged and the others still
hear.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from portico.access import NO_CALLER, Caller

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CatalogChanged:
    """A server's offer differs from what was known: names are addresses of tools."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    resources_changed: bool = False
    prompts_changed: bool = False
    previous_definitions: Mapping[str, bytes] = field(
        default_factory=dict[str, bytes], compare=False, repr=False
    )
    """The definitions that changed, as they were: by hash, as JSON."""

    @property
    def tools_changed(self) -> bool:
        """Whether any tool differs."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class EmbeddingsComputed:
    """Every tool that can be has been given its vector: what is searched by meaning may rank
    otherwise."""


@dataclass(frozen=True)
class ListChangeAnnounced:
    """A server said that one of its lists changed, and has been listed again; whether it did is
    another matter."""

    server: str
    kind: str
    """`tools`, `resources` or `prompts`."""


@dataclass(frozen=True)
class UpstreamReady:
    """A server finished its handshake."""

    server: str


@dataclass(frozen=True)
class UpstreamLost:
    """A server is gone or did not start."""

    server: str
    reason: str


@dataclass(frozen=True)
class ResourceUpdated:
    """An upstream says that one of its resources changed."""

    server: str
    uri: str
    session: str = ""
    """Whose instance of the server says so; empty where all share it."""


@dataclass(frozen=True)
class ToolCalled:
    """A call went through the pipeline."""

    tool: str
    tool_hash: str
    seconds: float
    ok: bool
    caller: Caller = NO_CALLER
    cancelled: bool = False
    """The caller took it back: neither a success nor the tool's failure."""
    cached: bool = False
    """An earlier answer was given again: the tool was not run."""
    error: str = ""
    """What kind of failure it was: `PorticoError.kind`, or `tool_error` where the tool says so;
    empty if none."""


@dataclass(frozen=True)
class CallRefused:
    """A call was refused before its tool was begun: that is nothing the tool did."""

    tool: str
    error: str
    """Why: `PorticoError.kind`."""


@dataclass(frozen=True)
class TokensRefused:
    """Requests over HTTP came with a wrong token; one event for many of them."""

    count: int
    peers: tuple[tuple[str, int], ...]
    """Where they came from, and how many; the most first."""


@dataclass(frozen=True)
class ToolsFound:
    """Somebody looked for tools, and was shown some."""

    query: str
    shown: tuple[str, ...]
    """The addresses of the tools that were shown, best first."""
    caller: Caller = NO_CALLER
    vector: NDArray[np.int8] | None = field(default=None, compare=False)
    """What the query means, where it was worked out."""


@dataclass(frozen=True)
class SearchCompleted:
    """A search was answered, whether or not it found anything."""

    seconds: float
    found: bool


@dataclass(frozen=True)
class ScriptRan:
    """A script came to its end."""

    language: str
    seconds: float
    outcome: str
    """`ok`, `cancelled`, `refused` (it was not run), or the kind of its fault."""


@dataclass(frozen=True)
class WorkflowRan:
    """A workflow was run, or went on, as far as it went."""

    seconds: float
    outcome: str
    """`finished`, `failed`, `approval` (it waits for one), `refused` (nothing was run), `cancelled`.
    """


@dataclass(frozen=True)
class ToolsShown:
    """A client was shown something about tools: an answer of ours, or a listing."""

    caller: Caller
    content: object
    """Text, or what goes on the wire as JSON; whoever counts it does so later."""
    is_listing: bool = False
    """It is a list of tools: without us, the client would have been given all of them now."""


@dataclass(frozen=True)
class StandingsChanged:
    """What use says of the tools was computed anew: the hot list and every order may be another."""


@dataclass(frozen=True)
class ConfigApplied:
    """The gateway goes by a new configuration."""

    summary: str
    """What it changed, in words."""


@dataclass(frozen=True)
class ConfigRejected:
    """A changed configuration cannot be used: the gateway goes on by the one it has."""

    reason: str


Event = (
    CatalogChanged
    | EmbeddingsComputed
    | ListChangeAnnounced
    | UpstreamReady
    | UpstreamLost
    | ResourceUpdated
    | ToolCalled
    | CallRefused
    | TokensRefused
    | ToolsFound
    | SearchCompleted
    | ScriptRan
    | WorkflowRan
    | ToolsShown
    | StandingsChanged
    | ConfigApplied
    | ConfigRejected
)
Subscriber = Callable[[Event], None]


class EventBus:
    """Carries events to whoever subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []
        self._subscribers_by_kind: dict[type[Event], tuple[Subscriber, ...]] = {}

    def subscribe(self, subscriber: Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Hear every event from now on, or those of these kinds; the returned function ends that."""
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
                one for one in self._subscribers_by_kind.get(kind, ()) if one != subscriber
            )

    def has_subscribers(self, kind: type[Event]) -> bool:
        """Whether anybody wants this kind in particular: what is costly to tell need not be told to
        nobody."""
        return bool(self._subscribers_by_kind.get(kind))

    def publish(self, event: Event) -> None:
        """Tell everyone."""
        for subscriber in (*self._subscribers, *self._subscribers_by_kind.get(type(event), ())):
            try:
                subscriber(event)
            except Exception:  # fan-out boundary: one bad listener must not silence the others
                logger.exception("a listener failed on %s", type(event).__name__)
