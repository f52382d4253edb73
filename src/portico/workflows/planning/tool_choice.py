"""Chooses one tool per clause from search results, preferring tools that go together. Pure.

Search decides; the same server, a fitting result field, and common use before only tip the balance
between tools that fit about equally well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from portico.catalog.schema_outline import SchemaParameter, build_outline
from portico.catalog.tool import Tool
from portico.workflows.planning.joins import GOOD, FieldJoin, find_best_join
from portico.workflows.planning.literals import acts_on_it, find_literals
from portico.workflows.planning.name_parts import get_tool_nouns, is_read_verb_name, split_name
from portico.workflows.planning.output_fields import ShapeOf, ToolOutput, get_tool_output

SAME_SERVER = 0.12
JOINED = 0.08
USED_TOGETHER = 0.05
TWICE = 0.2
"""What a tool loses that another clause has: two clauses seldom mean one thing."""
CANDIDATES = 12
"""Asked of a search …"""
LOOKED_AT = 8
"""… and looked at more closely."""
_BEAM = 24
_PARAMS = 60
_READ = 2_048

Together = Callable[[str, str], float]
"""How much two tools, by address, were used together: 0 … 1."""


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A tool that a search found for some words."""

    address: str
    score: float
    """0 … 1; more for a tool that was named."""
    weak: bool = False
    """The search says that nothing here fits."""


@dataclass(frozen=True, slots=True)
class ChosenTool:
    """A clause and its tool."""

    clause: str
    tool: Tool
    score: float


@dataclass
class ToolInterfaces:
    """What tools ask for and offer, each read once."""

    shapes: ShapeOf
    _params: dict[Tool, tuple[SchemaParameter, ...]] = field(
        default_factory=dict[Tool, tuple[SchemaParameter, ...]]
    )
    _answers: dict[Tool, ToolOutput] = field(default_factory=dict[Tool, ToolOutput])

    def get_params(self, tool: Tool) -> tuple[SchemaParameter, ...]:
        """A tool's parameters, the required ones first."""
        if tool not in self._params:
            found = build_outline(tool.input_schema).parameters
            self._params[tool] = tuple(param for param in found if not param.is_pattern)[:_PARAMS]
        return self._params[tool]

    def get_output(self, tool: Tool) -> ToolOutput:
        """What a tool's answer offers."""
        if tool not in self._answers:
            self._answers[tool] = get_tool_output(tool, self.shapes)
        return self._answers[tool]

    def find_join(self, earlier: Tool, later: Tool, param: SchemaParameter) -> FieldJoin | None:
        """What one offers for a parameter of the other."""
        home = earlier.server == later.server
        lookup = home and is_read_verb_name(earlier.name) and is_read_verb_name(later.name)
        nouns = get_tool_nouns(later.name, later.server)
        return find_best_join(
            param, nouns, self.get_output(earlier), cross_server=not home, lookup=lookup
        )

    def score_joins(self, earlier: Tool, later: Tool) -> list[float]:
        """How surely one offers each thing that the other must have."""
        found = (
            self.find_join(earlier, later, param)
            for param in self.get_params(later)
            if param.required
        )
        return [one.sureness if one is not None else 0.0 for one in found]


def make_together_score(pairs: Mapping[tuple[str, str], float]) -> Together:
    """What is known of pairs of tools and how often they were used together, as `Together`; in
    either order."""

    def together(one: str, other: str) -> float:
        weight = pairs.get((one, other), 0.0) + pairs.get((other, one), 0.0)
        return weight / (weight + 1)

    return together


def choose(
    found: Sequence[tuple[str, Sequence[tuple[Tool, float]]]],
    reader: ToolInterfaces,
    together: Together,
) -> list[ChosenTool]:
    """The tools for these clauses, each with its candidates, best first."""
    pairs: dict[tuple[Tool, Tool], float] = {}

    def bonus(earlier: Tool, later: Tool) -> float:
        if (earlier, later) not in pairs:
            pairs[earlier, later] = _score_pair(earlier, later, reader, together)
        return pairs[earlier, later]

    beam: list[tuple[float, tuple[ChosenTool, ...]]] = [(0.0, ())]
    for clause, candidates in found:
        named = _is_server_named(clause, candidates)
        longer: list[tuple[float, tuple[ChosenTool, ...]]] = []
        for total, chosen in beam:
            for tool, score in candidates[:LOOKED_AT]:
                # Of what came before, whatever it goes with best; but for a server that was named
                # there is no other.
                if not named:
                    pull = max((bonus(one.tool, tool) for one in chosen), default=0.0)
                else:
                    pull = 0.0
                pull *= 2 if acts_on_it(clause) else 1
                if any(one.tool == tool for one in chosen):
                    again = TWICE
                else:
                    again = 0.0
                longer.append(
                    (total + score + pull - again, (*chosen, ChosenTool(clause, tool, score)))
                )
        beam = sorted(longer, key=lambda one: -one[0])[:_BEAM]
    return _drop_duplicates(beam[0][1])


def _score_pair(earlier: Tool, later: Tool, reader: ToolInterfaces, together: Together) -> float:
    if earlier.server == later.server:
        amount = SAME_SERVER
    else:
        amount = 0.0
    served = reader.score_joins(earlier, later)
    amount += JOINED * sum(one for one in served if one >= GOOD) / max(1, len(served))
    return amount + USED_TOGETHER * min(1.0, together(earlier.address, later.address))


def _is_server_named(clause: str, candidates: Sequence[tuple[Tool, float]]) -> bool:
    words = set(split_name(clause))
    return any(set(split_name(tool.server)[:1]) & words for tool, _ in candidates[:LOOKED_AT])


def _drop_duplicates(chosen: Sequence[ChosenTool]) -> list[ChosenTool]:
    """A tool twice is one step, unless each clause says for what."""
    kept: list[ChosenTool] = []
    said: dict[Tool, list[frozenset[str]]] = {}
    for one in chosen:
        here = frozenset(literal.text for literal in find_literals(one.clause))
        before = said.setdefault(one.tool, [])
        if before and (not here or here in before):
            continue
        before.append(here)
        kept.append(one)
    return kept


def order_by_dependencies(chosen: Sequence[ChosenTool], reader: ToolInterfaces) -> list[ChosenTool]:
    """As the intent tells them, but that a tool comes after the one that surely offers what it must
    have."""
    needs: Mapping[int, set[int]] = {
        at: {
            other
            for other in range(len(chosen))
            if other != at and _has_sure_join(reader, chosen[other].tool, chosen[at].tool)
        }
        for at in range(len(chosen))
    }
    left = list(range(len(chosen)))
    order: list[ChosenTool] = []
    while left:
        # Where two need each other, or none can begin, the words decide.
        ready = next(
            (at for at in left if not any(o in left and at not in needs[o] for o in needs[at])),
            left[0],
        )
        left.remove(ready)
        order.append(chosen[ready])
    return order


def _has_sure_join(reader: ToolInterfaces, earlier: Tool, later: Tool) -> bool:
    return earlier != later and max(reader.score_joins(earlier, later), default=0.0) >= 0.9
