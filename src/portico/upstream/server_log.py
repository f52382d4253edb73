"""The last lines about one server: what it wrote to stderr, and its changes of state.

Bounded, and kept while the server is restarted, crashes or is replaced: that is when they are
needed. Every line has a number, so that a reader can go on where it was. Texts are as the server
wrote them, without control characters; they are masked where they are read.
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

MAX_ENTRIES = 300
MAX_CHARS = 100_000
"""Characters of all kept texts together."""


class LogEntry(NamedTuple):
    """One line."""

    sequence: int
    at: float
    """Wall-clock time."""
    state: str
    """The new state, or `restart`; empty for a line of stderr."""
    text: str
    """The line, or the reason of the state."""


class ServerLog:
    """The log of one server. Used from its gateway's event loop."""

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque()
        self._chars = 0
        self._last_sequence = 0

    def add_state(self, state: str, reason: str = "") -> None:
        """Add a change of state."""
        self._add(state, reason)

    def add_stderr(self, lines: Iterable[str]) -> None:
        """Add lines of stderr; blank ones are left out."""
        for line in lines:
            if line.strip():
                self._add("", line.rstrip())

    def skip(self, count: int) -> None:
        """Count lines that are not kept, so that a reader sees that there were more."""
        self._last_sequence += count

    def read(self, after: int = 0) -> list[LogEntry]:
        """Return the kept entries with a greater number."""
        return [entry for entry in self._entries if entry.sequence > after]

    def _add(self, state: str, text: str) -> None:
        self._last_sequence += 1
        self._entries.append(LogEntry(self._last_sequence, time.time(), state, text))
        self._chars += len(text)
        while len(self._entries) > MAX_ENTRIES or self._chars > MAX_CHARS:
            self._chars -= len(self._entries.popleft().text)
