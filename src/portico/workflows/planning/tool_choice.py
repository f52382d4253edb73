"""Chooses one tool per clause from search results: those of one server, and those that take what
was passed. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.tool import Tool

_SAME_SERVER = 0.25
_REPEATED = 0.2
"""Deduction for a tool that another clause has: two clauses seldom mean one thing."""
_TAKEN = 0.2
"""Added for each input that a tool takes and none before it."""
_WORKED = 0.1
"""Added for each tool of a plan that has worked for words like these."""
_MAX_CANDIDATES = 8
_BEAM = 24


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A tool that a search found for some words."""

    address: str
    score: float
    """0 … 1; more for a tool that was named."""
    weak: bool = False
    """The search says that nothing here fits."""


@dataclass(frozen=True, slots=True)
class FittedTool:
    """A candidate: its score, and how surely it takes each input, 0 … 1."""

    tool: Tool
    score: float
    takes: tuple[float, ...] = ()
    found: float = 1.0
    """Score of the search alone."""


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A clause, as first and last word, and its tool."""

    clause: tuple[int, int]
    tool: Tool
    takes: tuple[float, ...] = ()
    found: float = 1.0


Candidates = Sequence[tuple[tuple[int, int], Sequence[FittedTool]]]
"""Clauses, each with its tools, best first."""


@dataclass(frozen=True, slots=True)
class _Choice:
    total: float = 0.0
    chosen: tuple[ChosenTool, ...] = ()
    taken: tuple[float, ...] = ()

    def add(self, clause: tuple[int, int], fitted: FittedTool) -> "_Choice":
        total = self.total + fitted.score
        if any(choice.tool.server == fitted.tool.server for choice in self.chosen):
            total += _SAME_SERVER
        if any(choice.tool == fitted.tool for choice in self.chosen):
            total -= _REPEATED
        before = self.taken or (0.0,) * len(fitted.takes)
        taken = tuple(map(max, before, fitted.takes))
        total += _TAKEN * (sum(taken) - sum(before))
        choice = ChosenTool(clause, fitted.tool, fitted.takes, fitted.found)
        return _Choice(total, (*self.chosen, choice), taken)


def choose_tools(found: Candidates, worked: Sequence[str] = ()) -> list[ChosenTool]:
    """Choose a tool for each clause. `worked` are those of an earlier plan, in order: they are
    chosen if they fit these words better than others."""
    beam = [_Choice()]
    for clause, candidates in found:
        longer = [
            choice.add(clause, fitted) for choice in beam for fitted in candidates[:_MAX_CANDIDATES]
        ]
        beam = sorted(longer, key=lambda choice: -choice.total)[:_BEAM]
    known = _choose_known(found, worked)
    if known is not None and known.total + _WORKED * len(worked) > beam[0].total:
        return list(known.chosen)
    return list(beam[0].chosen)


def place_tools(
    tools: Sequence[Tool], found: Candidates, whole: tuple[int, int]
) -> list[ChosenTool]:
    """Find for each of these tools the clause that it serves best, first one that no other has."""
    used: list[tuple[int, int]] = []
    chosen: list[ChosenTool] = []
    for tool in tools:
        gaps = {
            clause: candidates[0].score - fitted.score
            for clause, candidates in found
            for fitted in candidates
            if fitted.tool == tool
        }
        clause = min(gaps, key=lambda one: (one in used, gaps[one]), default=whole)
        used.append(clause)
        chosen.append(ChosenTool(whole if len(tools) == 1 else clause, tool))
    return chosen


def _choose_known(found: Candidates, worked: Sequence[str]) -> _Choice | None:
    """Return the tools of an earlier plan for these clauses; None if one is no candidate."""
    if not worked or len(worked) != len(found):
        return None
    choice = _Choice()
    for (clause, candidates), address in zip(found, worked, strict=True):
        known: Mapping[str, FittedTool] = {fitted.tool.address: fitted for fitted in candidates}
        if address not in known:
            return None
        choice = choice.add(clause, known[address])
    return choice
