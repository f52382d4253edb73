"""One session's searches and calls: which call followed which search, and which tools pair up.

No clock and no storage: the time is passed in.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from portico.search import Vector

WINDOW_S = 15 * 60.0
"""Seconds after a search for which a call is attributed to it."""
_MAX_SEARCHES = 12
_MAX_RECENT_CALLS = 5


@dataclass(frozen=True, eq=False)
class SearchRecord:
    """A search, and the tools it showed."""

    terms: frozenset[str]
    shown_tools: frozenset[str]
    at: float
    vector: Vector | None = None


@dataclass(eq=False)
class SessionActivity:
    """Recent searches and calls of one session."""

    _searches: deque[SearchRecord] = field(
        default_factory=lambda: deque[SearchRecord](maxlen=_MAX_SEARCHES)
    )
    _calls: deque[tuple[str, float]] = field(
        default_factory=lambda: deque[tuple[str, float]](maxlen=_MAX_RECENT_CALLS)
    )
    _counted_pairs: set[tuple[SearchRecord, str]] = field(
        default_factory=set[tuple[SearchRecord, str]]
    )

    def add_search(self, search: SearchRecord) -> None:
        """Record a completed search."""
        if len(self._searches) == _MAX_SEARCHES:
            oldest = self._searches[0]
            self._counted_pairs = {pair for pair in self._counted_pairs if pair[0] is not oldest}
        self._searches.append(search)

    def add_call(self, tool: str, at: float) -> tuple[SearchRecord | None, Sequence[str]]:
        """Record a successful call; return the search it followed and the tools it goes together
        with.

        That search is the latest that showed the tool, and is returned only for the first call that
        follows it.
        """
        followed = next(
            (
                search
                for search in reversed(self._searches)
                if tool in search.shown_tools and _is_within_window(at, search.at)
            ),
            None,
        )
        if followed is not None:
            if (followed, tool) in self._counted_pairs:
                followed = None
            else:
                self._counted_pairs.add((followed, tool))
        recent = self.list_recent_tools(at)
        # A recent tool was already paired with each of the others, at its own call or at theirs.
        if tool in recent:
            paired = []
        else:
            paired = recent
        for entry in [entry for entry in self._calls if entry[0] == tool]:
            self._calls.remove(entry)
        self._calls.append((tool, at))
        return followed, paired

    def list_recent_tools(self, at: float) -> list[str]:
        """Return the tools called within the window, the latest last."""
        return [tool for tool, called_at in self._calls if _is_within_window(at, called_at)]


def _is_within_window(at: float, earlier: float) -> bool:
    # In both directions: a clock that was set back must not extend the window.
    return abs(at - earlier) <= WINDOW_S
