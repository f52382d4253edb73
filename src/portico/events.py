"""Frozen facts the rooms tell each other, and the bus that carries them.

Publishing is synchronous and never fails: a listener that raises is logged and the others still hear.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CatalogChanged:
    """A server's offer differs from what was known: names are addresses of tools."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    resources: bool = False
    prompts: bool = False

    @property
    def tools(self) -> bool:
        """Whether any tool differs."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class ListAnnounced:
    """A server said that one of its lists changed, and has been listed again; whether it did is another matter."""

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


Event = CatalogChanged | ListAnnounced | UpstreamReady | UpstreamLost | ResourceUpdated | ToolCalled
Subscriber = Callable[[Event], None]


class Bus:
    """Carries events to whoever subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Hear every event from now on; the returned function ends that."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber) if subscriber in self._subscribers else None

    def publish(self, event: Event) -> None:
        """Tell everyone."""
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:  # fan-out boundary: one bad listener must not silence the others
                logger.exception("a listener failed on %s", type(event).__name__)
