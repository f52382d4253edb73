"""Finds tools for each thing to do: by the search, and by a network where the search is unsure."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.workflows.planning.argument_reader import ArgumentReader
from portico.workflows.planning.said_words import SaidWords
from portico.workflows.planning.tool_choice import PlanCandidate

FindTools = Callable[[str, int], Awaitable[Sequence[PlanCandidate]]]
"""The tools that some words mean, best first: (words, how many)."""

_QUOTATION = re.compile(r"[\"“«„][^\"”»“]{1,400}[\"”»“]")
_TOKEN = re.compile(r"\S+")
_VALUE_MARK = re.compile(r"\d|://|\w/\w|\w_\w|@")
"""In a token that is a value."""
_CANDIDATES = 12
_NEAREST = 3
_SERVED = 0.85
"""Score of the best tool from which a clause is taken for something to do."""
_JUDGED_ALONE = 8
_JUDGED_FITTING = 1.0
_JUDGED_SERVED = 1.5
"""Tools that are judged where the search is unsure of a clause; the logits of the best of them from
which one fits after all, and from which the clause is something to do."""
_CONTEXT_WEIGHT = 0.4
"""Weight of a search with the clauses before it."""


@dataclass(frozen=True, slots=True)
class UnservedClause:
    """Words that no tool here serves."""

    clause: str
    nearest: tuple[str, ...]
    """Addresses of the nearest tools."""


class ClauseSearch:
    """Finds tools for one clause after another.

    A clause that no tool serves well tells what the next one is about ("The page is out of date.
    Take it offline."), or belongs to the one before it.
    """

    def __init__(
        self, said: SaidWords, snapshot: Snapshot, find: FindTools, reader: ArgumentReader
    ) -> None:
        self.found: list[tuple[tuple[int, int], Sequence[tuple[Tool, float]]]] = []
        self.unserved: list[UnservedClause] = []
        self._said = said
        self._snapshot = snapshot
        self._find = find
        self._reader = reader
        self._first_open: int | None = None
        # Scores of words alone are on another scale.
        self._by_meaning = snapshot.index.encode_query("tool") is not None

    async def add(self, clause: tuple[int, int], *, is_last: bool) -> None:
        """Search for the tools of the next clause."""
        words = self._said.get_text(*clause)
        hits, is_weak = await self._search(words)
        is_low = is_weak or (self._by_meaning and hits[0].score < _SERVED)
        if is_low and hits and self._by_meaning:
            best = await asyncio.to_thread(self._judge_best, clause, hits)
            is_weak = is_weak and best < _JUDGED_FITTING
            is_low = best < _JUDGED_SERVED
        if is_low:
            if is_last and self.found:
                (first, _), known = self.found[-1]
                self.found[-1] = ((first, clause[1]), known)
                self._report(words, hits, is_weak)
                return
            if not is_last:
                if self._first_open is None:
                    self._first_open = clause[0]
                self._report(words, hits, is_weak)
                return
        if self._first_open is not None:
            clause = (self._first_open, clause[1])
            self._first_open = None
            words = self._said.get_text(*clause)
            hits, is_weak = await self._search(words)
        if is_weak:
            self._report(words, hits, is_weak)
            return
        if self.found:
            # "add a comment to it": the clauses before have said what it is.
            before = " ".join(self._said.get_text(*other) for other, _ in self.found[-2:])
            context = await self._find(f"{words} ({before})", _CANDIDATES)
            hits = _mix_candidates(hits, context, _CONTEXT_WEIGHT)
        self.found.append((clause, self._look_up(hits)))

    async def _search(self, words: str) -> tuple[Sequence[PlanCandidate], bool]:
        """Return tools that can be seen here, and whether none of them really fits."""
        found = await self._find(words, _CANDIDATES)
        if not self._said.inputs and (bare := drop_values(words)) != words and found:
            beside = await self._find(bare, _CANDIDATES)
            if found[0].weak:
                found = beside
            else:
                halved = [PlanCandidate(hit.address, hit.score / 2) for hit in found]
                found = _mix_candidates(halved, beside, 0.5)
        hits = [hit for hit in found if hit.address in self._snapshot.tools]
        return hits, not hits or hits[0].weak

    def _judge_best(self, clause: tuple[int, int], hits: Sequence[PlanCandidate]) -> float:
        """Return how surely the best of the first tools does what a clause wants."""
        tools = self._look_up(hits[:_JUDGED_ALONE])
        return max(self._reader.judge_tool(self._said, clause, tool) for tool, _ in tools)

    def _look_up(self, hits: Sequence[PlanCandidate]) -> list[tuple[Tool, float]]:
        tools = self._snapshot.tools
        return [(tools[hit.address], hit.score) for hit in hits if hit.address in tools]

    def _report(self, words: str, hits: Sequence[PlanCandidate], is_weak: bool) -> None:
        if is_weak:
            nearest = tuple(tool.address for tool, _ in self._look_up(hits)[:_NEAREST])
            self.unserved.append(UnservedClause(words, nearest))


def drop_values(words: str) -> str:
    """Leave out quotations and tokens with a digit or a mark inside: they say nothing of a tool."""
    return _TOKEN.sub(
        lambda token: " " if _VALUE_MARK.search(token[0]) else token[0],
        _QUOTATION.sub(" ", words),
    )


def _mix_candidates(
    hits: Sequence[PlanCandidate], others: Sequence[PlanCandidate], weight: float
) -> list[PlanCandidate]:
    """Add up the scores of two searches, best first.

    A tool on one list only ranks just below the last of the other.
    """
    alone = {hit.address: hit.score for hit in hits}
    beside = {hit.address: hit.score for hit in others}
    least = 0.9 * min(alone.values(), default=0.0)
    least_beside = 0.9 * min(beside.values(), default=0.0)
    mixed = [
        PlanCandidate(
            address, alone.get(address, least) + weight * beside.get(address, least_beside)
        )
        for address in alone | beside
    ]
    return sorted(mixed, key=lambda hit: -hit.score)
