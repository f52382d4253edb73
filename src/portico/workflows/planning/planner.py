"""Plans a workflow from an intent and inputs: things to do, a tool for each, their arguments.

    argument_reader (clauses) → clause_search → argument_reader (tools, arguments) → tool_choice
    → step_builder

Nothing is invented: a clause without a fitting tool is reported with the nearest ones, and a
required argument that nothing provides becomes an input. Up to ten tools are judged and five
read a clause; a first clause that only says where joins the next, and the search begins again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.results.shape import Shape
from portico.search import Ranking
from portico.search.dense.reader import get_chooser_network, get_reader_network
from portico.search.lexical.tokens import MAX_TEXT
from portico.workflows.planning.argument_reader import ArgumentReader, Clause, LeafReading
from portico.workflows.planning.assignment import Encode, score_inputs
from portico.workflows.planning.clause_search import (
    ClauseSearch,
    FindTools,
    UnservedClause,
    drop_values,
)
from portico.workflows.planning.joins import ShapeLookup
from portico.workflows.planning.name_matching import compute_cosine, to_words
from portico.workflows.planning.offers import StepReading, fit_value
from portico.workflows.planning.parameters import list_leaves
from portico.workflows.planning.said_values import SaidValue
from portico.workflows.planning.said_words import SaidWords
from portico.workflows.planning.step_builder import PlanInput, build_steps
from portico.workflows.planning.tool_choice import (
    Candidates,
    ChosenTool,
    FittedTool,
    PlanCandidate,
    choose_tools,
    place_tools,
)
from portico.workflows.planning.values import NOTHING
from portico.workflows.planning.word_offers import fit_said_value, score_values

_Found = Sequence[tuple[tuple[int, int], Sequence[tuple[Tool, float]]]]
_Readings = dict[tuple[tuple[int, int], str], list[LeafReading]]
"""By clause and tool."""

MAX_CLAUSES = 8
_JUDGED = 10
_JUDGED_WEIGHT = 0.03
_JUDGED_WEIGHT_OF_WORDS = 0.06
_JUDGED_EVIDENCE = 0.04
"""How many candidates the network judges, and how much a unit of its logit weighs."""
_FITTED = 5
_FIT_WINDOW = 0.2
"""How many candidates are read, and how far behind the best they may be."""
_MEANING_WEIGHT = 0.25
"""Of how near the words without values are to a tool, where no inputs were passed."""
_LEAST_TAKEN = 0.3
_OWN = 0.5
"""Sum of what a step takes of inputs beyond others, from which its clause is one of its own."""
_EVIDENCE = 0.9
_EVIDENCE_OF_WORDS = 0.6
"""Below this, a tool is not taken for what a clause means; words with values in them say less."""
TOOLS = "tools"
"""The input that names the tools to plan with."""
_OTHERS = 3
_NEAR = 0.4
_NEEDS = 5
"""How many tools that were nearly chosen are named, how far behind they may be, and how many of
their parameters are named."""


@dataclass(frozen=True)
class PlanSuggestion:
    """A plan, and what it lacks."""

    steps: tuple[Mapping[str, Any], ...] = ()
    """As `run_workflow` takes them."""
    inputs: Mapping[str, PlanInput] = field(default_factory=dict[str, PlanInput])
    """Values that are missing, by `step.parameter`: `${inputs.step.parameter}` in the steps."""
    unserved: tuple[UnservedClause, ...] = ()
    notes: tuple[str, ...] = ()
    """Conversions that were made."""
    unused: tuple[str, ...] = ()
    """Inputs that no step takes: the plan may be for something else."""
    unsure: tuple[str, ...] = ()
    """Addresses of parameters, `step.parameter`: their values are guesses, or they may be meant."""
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Tools that were nearly chosen, by address, with what each needs."""
    has_worked: bool = False
    """Whether these tools have done an intent like this one."""

    @property
    def is_complete(self) -> bool:
        """Whether it could be run as it is."""
        return bool(self.steps) and not (self.inputs or self.unserved or self.unused)


def _know_no_shape(_: Tool) -> Shape | None:
    return None


async def suggest_plan(
    intent: str,
    inputs: Mapping[str, Any],
    snapshot: Snapshot,
    find: FindTools,
    *,
    shapes: ShapeLookup = _know_no_shape,
    worked: Sequence[str] = (),
) -> PlanSuggestion:
    """Plan an intent with the tools of this snapshot.

    An input `step.parameter` is for that parameter alone; the input `tools` names the tools to
    plan with, in order. `worked` are the tools of a plan that ran to its end for words like these.
    """
    tools = _find_named_tools(inputs.get(TOOLS), snapshot)
    plain = {name: value for name, value in inputs.items() if not (tools and name == TOOLS)}
    answers = {name: plain.pop(name) for name in list(plain) if "." in name}
    request = _PlanRequest(intent[:MAX_TEXT], snapshot, find, shapes, tools, worked)
    made, unmatched = await _plan(request, plain, answers)
    if unmatched and not tools:
        # Names of the caller's own may have full stops too: they are read as any other.
        rest = {name: answers.pop(name) for name in unmatched}
        made, _ = await _plan(request, {**plain, **rest}, answers)
    return made


@dataclass(frozen=True, slots=True)
class _PlanRequest:
    intent: str
    snapshot: Snapshot
    find: FindTools
    shapes: ShapeLookup
    tools: Sequence[Tool]
    """Those to plan with; empty where they are to be chosen."""
    worked: Sequence[str]


async def _plan(
    request: _PlanRequest, inputs: Mapping[str, Any], answers: Mapping[str, Any]
) -> tuple[PlanSuggestion, Sequence[str]]:
    """Return a plan, and the names of answers that are for no parameter of it."""
    reader = await asyncio.to_thread(open_reader)
    said = await asyncio.to_thread(reader.read_words, request.intent, dict(inputs))
    if not said.spans:
        return PlanSuggestion(), ()
    clauses = await asyncio.to_thread(reader.split_clauses, said, MAX_CLAUSES)
    encode = request.snapshot.index.encode_query
    known: _Readings = {}
    gaps: dict[str, float] = {}
    while True:
        search = ClauseSearch(said, request.snapshot, request.find, reader)
        for clause in clauses:
            await search.add((clause.first, clause.last), is_last=clause == clauses[-1])
        if not search.found and not request.tools:
            for one in search.unserved:
                gaps |= dict.fromkeys(one.nearest, 0.0)
            others = _describe_others((), gaps, request.snapshot)
            return PlanSuggestion(unserved=tuple(search.unserved), others=others), ()
        # In a thread: the network takes some tens of milliseconds a tool.
        fitted = await asyncio.to_thread(_fit_tools, reader, said, search.found, known, encode)
        _measure_gaps(fitted, gaps)
        if request.tools:
            chosen = place_tools(request.tools, fitted, (0, len(said.spans) - 1))
            break
        chosen = choose_tools(fitted, request.worked)
        joined = join_clauses(clauses, chosen, said)
        if len(joined) == len(clauses):
            break
        clauses = joined
    unserved = [] if request.tools else search.unserved
    if not request.tools:
        doubtful = await asyncio.to_thread(_find_doubtful, chosen, said, encode, reader)
        if len(doubtful) == len(chosen):
            unserved += [
                UnservedClause(said.get_text(*it.clause), (it.tool.address,)) for it in chosen
            ]
            others = _describe_others((), gaps, request.snapshot)
            return PlanSuggestion(unserved=tuple(unserved), others=others), ()
    readings = await asyncio.to_thread(
        lambda: [_read_step(reader, said, choice, known) for choice in chosen]
    )
    draft = await asyncio.to_thread(build_steps, readings, said, request.shapes, encode, answers)
    plan = PlanSuggestion(
        tuple(draft.steps),
        draft.inputs,
        tuple(unserved),
        tuple(draft.notes),
        tuple(f"inputs.{name}" for name in draft.unused),
        tuple(draft.unsure),
        _describe_others(chosen, gaps, request.snapshot),
        bool(request.worked) and [it.tool.address for it in chosen] == list(request.worked),
    )
    return plan, draft.unmatched


def _find_named_tools(named: Any, snapshot: Snapshot) -> list[Tool]:
    """Return the tools of a list of addresses; empty if it is anything else."""
    if not isinstance(named, list):
        return []
    addresses = cast("list[Any]", named)[:MAX_CLAUSES]
    tools = [snapshot.tools.get(one) for one in addresses if isinstance(one, str)]
    found = [tool for tool in tools if tool is not None]
    return found if len(found) == len(addresses) else []


def _measure_gaps(fitted: Candidates, gaps: dict[str, float]) -> None:
    """Note of each candidate how far it is behind the best of its clause."""
    for _, candidates in fitted:
        for one in candidates:
            gap = candidates[0].score - one.score
            gaps[one.tool.address] = min(gap, gaps.get(one.tool.address, gap))


def _describe_others(
    chosen: Sequence[ChosenTool], gaps: Mapping[str, float], snapshot: Snapshot
) -> dict[str, tuple[str, ...]]:
    """Return the tools that were nearly chosen, the nearest first, with their required
    parameters."""
    taken = {choice.tool.address for choice in chosen}
    near = [address for address, gap in gaps.items() if gap < _NEAR and address not in taken]
    near.sort(key=gaps.__getitem__)
    return {
        address: tuple(
            leaf.name for leaf in list_leaves(snapshot.tools[address])[:_NEEDS] if leaf.required
        )
        for address in near[:_OTHERS]
    }


def open_reader() -> ArgumentReader:
    """Return the reader of arguments; the first use reads its weights."""
    return ArgumentReader(get_reader_network(), get_chooser_network())


def _find_doubtful(
    chosen: Sequence[ChosenTool], said: SaidWords, encode: Encode, reader: ArgumentReader
) -> list[ChosenTool]:
    """Return the choices for which little speaks: what the clause and the tool mean, its rank, its
    name, the network, and what it takes of the inputs."""
    least = _EVIDENCE if said.inputs else _EVIDENCE_OF_WORDS
    doubtful: list[ChosenTool] = []
    for choice in chosen:
        judged = _JUDGED_EVIDENCE * reader.judge_tool(said, choice.clause, choice.tool)
        if _weigh_evidence(choice, said, encode) + judged < least:
            doubtful.append(choice)
    return doubtful


def _weigh_evidence(choice: ChosenTool, said: SaidWords, encode: Encode) -> float:
    clause = said.get_text(*choice.clause)
    tool = choice.tool
    own = set(to_words(tool.name)) - set(to_words(tool.server))
    near = _compare_meaning(clause, tool, encode)
    if not near:
        return 1.0
    words = to_words(clause)
    named = sum(any(word.startswith(part[:4]) for word in words) for part in own)
    taken = sum(choice.takes) / len(choice.takes) if choice.takes else 1.0
    return near + 0.1 * named / max(1, len(own)) + 0.5 * min(1.0, choice.found) + 0.1 * taken


def _compare_meaning(words: str, tool: Tool, encode: Encode) -> float:
    """Return how near words are to a tool's name and first words; 0 where nothing is encoded."""
    described = f"{' '.join(to_words(tool.name))}: {tool.description[:80]}"
    return compute_cosine(encode(words), encode(described)) or 0.0


def join_clauses(
    clauses: Sequence[Clause], chosen: Sequence[ChosenTool], said: SaidWords
) -> list[Clause]:
    """Join the first clause with the next if it only says where (`In GitLab, …`) and its tool takes
    nothing of its own."""
    first = clauses[0]
    is_place = first.is_short and said.get_text(first.last, first.last) == ","
    if len(chosen) < 2 or not is_place or chosen[0].clause != (first.first, first.last):
        return list(clauses)
    others = [choice.takes for choice in chosen[1:]]
    own = sum(
        max(0.0, takes - max(other[which] for other in others))
        for which, takes in enumerate(chosen[0].takes)
    )
    if own >= _OWN:
        return list(clauses)
    return [Clause(first.first, clauses[1].last), *clauses[2:]]


def _fit_tools(
    reader: ArgumentReader, said: SaidWords, found: _Found, known: _Readings, encode: Encode
) -> Candidates:
    """Judge the candidates by the network, and measure of the best what they take of the inputs."""
    fitting: list[tuple[tuple[int, int], Sequence[FittedTool]]] = []
    for clause, candidates in found:
        bare = drop_values(said.get_text(*clause))
        fitted: list[FittedTool] = []
        weight = _JUDGED_WEIGHT if said.inputs else _JUDGED_WEIGHT_OF_WORDS
        judged = [
            (tool, score, score + weight * reader.judge_tool(said, clause, tool))
            for tool, score in candidates[:_JUDGED]
        ]
        judged.sort(key=lambda one: -one[2])
        best = judged[0][2]
        for tool, found_score, score in judged:
            takes = (0.0,) * (len(said.inputs) or len(said.values))
            if len(fitted) < _FITTED and score > best - _FIT_WINDOW:
                reading = _read_step(reader, said, ChosenTool(clause, tool), known)
                takes = measure_takes(reading, said)
                if not said.inputs:
                    score += _MEANING_WEIGHT * _compare_meaning(bare, tool, encode)
            fitted.append(FittedTool(tool, score, takes, found_score))
        fitting.append((clause, sorted(fitted, key=lambda item: -item.score)))
    return fitting


def measure_takes(reading: StepReading, said: SaidWords) -> tuple[float, ...]:
    """Return how surely a tool takes each input, or without inputs each value in the words."""
    leaves = [leaf_reading.leaf for leaf_reading in reading.leaves]
    given = [one.value for one in said.inputs] or said.values
    scores = score_inputs(reading, said) if said.inputs else score_values(reading, said)
    takes = [0.0] * len(given)
    for leaf, row in zip(leaves, scores, strict=True):
        for which, score in enumerate(row):
            if score > max(takes[which], _LEAST_TAKEN):
                value = given[which]
                if isinstance(value, SaidValue):
                    fitting = fit_said_value(value, leaf)
                else:
                    fitting = fit_value(value, leaf, leaves)
                if fitting is not NOTHING:
                    takes[which] = min(1.0, score)
    return tuple(takes)


def _read_step(
    reader: ArgumentReader, said: SaidWords, choice: ChosenTool, known: _Readings
) -> StepReading:
    """Read the parameters of a tool for a clause, once."""
    key = (choice.clause, choice.tool.address)
    if key not in known:
        leaves = list_leaves(choice.tool)
        known[key] = reader.read_arguments(said, choice.clause, choice.tool, leaves)
    return StepReading(choice, known[key])


def to_candidates(ranking: Ranking) -> list[PlanCandidate]:
    """Convert a ranking: tools that share a place follow one another."""
    return [
        PlanCandidate(address, hit.score - 0.001 * behind, ranking.is_weak)
        for hit in ranking.hits
        for behind, address in enumerate((hit.id, *hit.duplicates))
    ]
