"""Plans a workflow from an intent: clauses, a tool for each, and joins between their results.

    clauses → find (search, a parameter) → tool_choice → step_builder (argument_values, joins)

Nothing is invented: a clause without a fitting tool is reported with the nearest ones, and an
argument that neither the words nor an earlier step provide with certainty becomes an input.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from portico.calls.cache import is_read_only
from portico.catalog.schema_outline import summarize_parameters
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.results.shape import Shape
from portico.search import Ranking
from portico.search.lexical.query import MAX_TEXT
from portico.workflows.planning.clauses import split_clauses
from portico.workflows.planning.literals import acts_on_it, generalize_clause
from portico.workflows.planning.omissions import find_omissions, is_mentioned, to_searchable_text
from portico.workflows.planning.step_builder import PlanInput, build_steps, to_plain_name
from portico.workflows.planning.tool_choice import (
    CANDIDATES,
    PlanCandidate,
    Together,
    ToolInterfaces,
    choose,
    order_by_dependencies,
)

FindTools = Callable[[str, int], Awaitable[Sequence[PlanCandidate]]]
"""The tools that some words mean, best first: (words, how many)."""

_NEAREST = 3
MAX_CLAUSES = 8
CONTEXT = 0.4
ITS_CONTEXT = 0.9
"""What a search with the clauses before it counts beside the clause alone; more where it is done to
*it*."""


@dataclass(frozen=True, slots=True)
class UnservedClause:
    """Words that no tool here serves."""

    clause: str
    nearest: tuple[str, ...]
    """What comes nearest, by address."""


@dataclass(frozen=True)
class PlanSuggestion:
    """A plan, and what it lacks."""

    steps: tuple[Mapping[str, Any], ...] = ()
    """As `run_workflow` takes them."""
    inputs: Mapping[str, PlanInput] = field(default_factory=dict[str, PlanInput])
    """What has to be said before it can run, by name: `${inputs.name}` in the steps."""
    unserved: tuple[UnservedClause, ...] = ()
    why: tuple[str, ...] = ()
    changing_tools: tuple[str, ...] = ()
    """The tools that are not known to be read-only, by address."""
    success_count: int = 0
    """How often a plan like this one has run to its end; 0 for one that was made just now."""
    unused: tuple[str, ...] = ()
    """What is said and no step takes: the plan may be for something else."""
    given_inputs: tuple[str, ...] = ()
    """The inputs that were passed with the intent."""

    @property
    def missing_inputs(self) -> tuple[str, ...]:
        """The inputs that have to be given."""
        return tuple(self.inputs)

    @property
    def is_ready(self) -> bool:
        """Whether it could run at once, and do no harm."""
        return bool(self.steps) and not (
            self.changing_tools or self.inputs or self.unserved or self.unused
        )


def _no_shape(_: Tool) -> Shape | None:
    return None


def _score_no_use(_: str, __: str) -> float:
    return 0.0


async def suggest_plan(
    intent: str,
    snapshot: Snapshot,
    find: FindTools,
    *,
    shapes: Callable[[Tool], Shape | None] = _no_shape,
    together: Together = _score_no_use,
    read_only: Callable[[Tool], bool] = is_read_only,
) -> PlanSuggestion:
    """A plan for an intent, of the tools that this snapshot shows."""
    intent, beyond = intent[:MAX_TEXT], intent[MAX_TEXT:]
    unserved: list[UnservedClause] = []
    found: list[tuple[str, Sequence[tuple[Tool, float]]]] = []
    before: list[str] = []
    asked = await asyncio.to_thread(split_clauses, intent)
    for clause in asked[:MAX_CLAUSES]:
        words = generalize_clause(clause)
        hits = await find(words, CANDIDATES)
        weak = any(hit.weak for hit in hits)
        if before and hits and not weak:
            # "add a comment to it": what it is, the clauses before have said.
            context = await find(f"{words} ({' '.join(before[-2:])})", CANDIDATES)
            hits = mix_candidates(hits, context, ITS_CONTEXT if acts_on_it(clause) else CONTEXT)
        known = [
            (tool, hit.score)
            for hit in hits
            if (tool := snapshot.tools.get(hit.address)) is not None
        ]
        if not known or weak:
            unserved.append(
                UnservedClause(clause, tuple(tool.address for tool, _ in known[:_NEAREST]))
            )
        else:
            found.append((clause, known))
            before.append(words)
    # In a thread: reading some dozens of large definitions would be felt by everybody else.
    plan = await asyncio.to_thread(
        build_plan, intent, snapshot, found, unserved, shapes, together, read_only
    )
    return replace(
        plan, unused=(*plan.unused, *asked[MAX_CLAUSES:], *filter(None, (beyond.strip(),)))
    )


def mix_candidates(
    hits: Sequence[PlanCandidate], context: Sequence[PlanCandidate], share: float
) -> list[PlanCandidate]:
    """What was found for a clause alone and with those before it, best first.

    A tool on one list only ranks just below the last of the other.
    """
    alone = {hit.address: hit.score for hit in hits}
    beside = {hit.address: hit.score for hit in context}
    least = 0.9 * min(alone.values(), default=0.0)
    least_beside = 0.9 * min(beside.values(), default=0.0)
    scores = {
        address: alone.get(address, least) + share * beside.get(address, least_beside)
        for address in alone | beside
    }
    return [
        PlanCandidate(address, score)
        for address, score in sorted(scores.items(), key=lambda one: -one[1])
    ]


def build_plan(
    intent: str,
    snapshot: Snapshot,
    found: Sequence[tuple[str, Sequence[tuple[Tool, float]]]],
    unserved: Sequence[UnservedClause],
    shapes: Callable[[Tool], Shape | None] = _no_shape,
    together: Together = _score_no_use,
    read_only: Callable[[Tool], bool] = is_read_only,
) -> PlanSuggestion:
    """The plan that these clauses with their candidates come to. Pure."""
    if not found:
        return PlanSuggestion(unserved=tuple(unserved))
    reader = ToolInterfaces(shapes)
    chosen = order_by_dependencies(choose(found, reader, together), reader)

    def tools_of(server: str) -> Mapping[str, Tool]:
        entry = snapshot.servers.get(server)
        if entry is not None:
            return entry.tools
        return {}

    plan = build_steps(chosen, intent, reader, tools_of, read_only)
    served = {one.clause for one in chosen}
    unused = find_omissions(
        intent, plan.steps, snapshot.tools, [clause for clause, _ in found if clause not in served]
    )
    changing = list_changing_tools(plan.steps, snapshot, read_only)
    return PlanSuggestion(
        plan.steps, plan.inputs, tuple(unserved), plan.why, changing, unused=unused
    )


def list_changing_tools(
    steps: Sequence[Mapping[str, Any]], snapshot: Snapshot, read_only: Callable[[Tool], bool]
) -> tuple[str, ...]:
    """The tools of a plan that are not known to be read-only, by address."""
    used = dict.fromkeys(step["tool"] for step in steps)
    return tuple(address for address in used if not read_only(snapshot.tools[address]))


def apply_inputs(
    plan: PlanSuggestion, inputs: Mapping[str, Any], snapshot: Snapshot
) -> PlanSuggestion:
    """A plan with what was passed for its inputs, by name, or for a parameter that only one step
    has and leaves out.

    What is for neither is said and not used.
    """
    steps = [dict(step) for step in plan.steps]
    taken: dict[str, Any] = {}
    for name, value in inputs.items():
        if name in plan.inputs:
            taken[name] = value
        elif (
            to_plain_name(name) == name
            and len(places := [step for step in steps if _can_take_input(step, name, snapshot)])
            == 1
        ):
            places[0]["arguments"] = {**places[0]["arguments"], name: f"${{inputs.{name}}}"}
            taken[name] = value
    said = to_searchable_text(list(taken.values()))
    unused = [one for one in plan.unused if not is_mentioned(one, "repo", said)]
    return replace(
        plan,
        steps=tuple(steps),
        inputs={name: one for name, one in plan.inputs.items() if name not in taken},
        given_inputs=tuple(taken),
        unused=(*unused, *(f"inputs.{name}" for name in inputs if name not in taken)),
    )


def _can_take_input(step: Mapping[str, Any], name: str, snapshot: Snapshot) -> bool:
    takes = (one for one, _, _ in summarize_parameters(snapshot.tools[step["tool"]].input_schema))
    return name not in step["arguments"] and name in takes


def to_candidates(ranking: Ranking) -> list[PlanCandidate]:
    """A ranking as `Find` answers: tools that share a place follow one another."""
    return [
        PlanCandidate(address, hit.score - 0.001 * behind, ranking.is_weak)
        for hit in ranking.hits
        for behind, address in enumerate((hit.id, *hit.duplicates))
    ]


def make_index_search(snapshot: Snapshot) -> FindTools:
    """Searches the snapshot's own index, without what use has taught."""
    if snapshot.scope.is_unrestricted:
        allowed = None
    else:
        allowed = snapshot.tools.__contains__

    async def find(words: str, limit: int) -> Sequence[PlanCandidate]:
        index = snapshot.index
        if index.encoder is not None and not index.encoder.is_loaded and not index.encoder.problem:
            await asyncio.to_thread(
                index.encode_query, words
            )  # the model is read first, which takes a second
        # Each search takes some milliseconds: other requests are served in between.
        await asyncio.sleep(0)
        return to_candidates(index.search(words, limit, allow=allowed))[: 2 * limit]

    return find
