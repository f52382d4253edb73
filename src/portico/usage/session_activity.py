"""One client's searches and calls in their order: which call followed which search, and which tools
went together.

No clock and no storage: the moment is given with each deed.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from portico.search import Vector

WINDOW_S = 15 * 60.0
"""A call this long after a search has nothing to do with it."""
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
    """What one session did lately."""

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
        """A search was answered."""
        if len(self._searches) == _MAX_SEARCHES:
            oldest = self._searches[0]
            self._counted_pairs = {pair for pair in self._counted_pairs if pair[0] is not oldest}
        self._searches.append(search)

    def add_call(self, tool: str, at: float) -> tuple[SearchRecord | None, Sequence[str]]:
        """A call succeeded: the search it followed, if it is the first to do so, and the tools it
        went together with.

        That is the latest search that showed the tool. One that showed others was for something
        else.
        """
        followed = next(
            (
                one
                for one in reversed(self._searches)
                if tool in one.shown_tools and _is_within_window(at, one.at)
            ),
            None,
        )
        if followed is not None:
            if (followed, tool) in self._counted_pairs:
                followed = None
            else:
                self._counted_pairs.add((followed, tool))
        recent = self.list_recent_tools(at)
        # A tool that is among the recent ones was counted with each of them, at its own call or at
        # theirs.
        if tool in recent:
            beside = []
        else:
            beside = recent
        for entry in [entry for entry in self._calls if entry[0] == tool]:
            self._calls.remove(entry)
        self._calls.append((tool, at))
        return followed, beside

    def list_recent_tools(self, at: float) -> list[str]:
        """The tools called lately, the latest last."""
        return [tool for tool, then in self._calls if _is_within_window(at, then)]


def _is_within_window(at: float, earlier: float) -> bool:
    # Either way: a clock that was set back does not keep a search for as long as it was set back.
    return abs(at - earlier) <= WINDOW_S
