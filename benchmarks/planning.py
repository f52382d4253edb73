"""Whether an intent becomes the right plan: the tools, their order, what is filled in, joined and
left open.

    python -m benchmarks.planning [--shared DIR] [--smoke] [--show]

The cases (`planning_cases.json`) were made by hand over the recorded fleet, one to three steps
each. Those marked
`held` were written, with what they expect, before the planner had seen them, and no rule was made for one of them: a
case that led to a rule counts among those seen while it was made. Some expectations are stricter
than a reader: an intent that names no server may be served by another as well. Every figure is a
share of what all cases expect: a link between tools of which one was not found is missed too. `as
listed` knows of answers only what servers declare;
`once seen` has seen one answer of some tools (hand-written after the real ones), as the gateway has after a first call.

The floor is the search that there is anyway: the first tools for the whole intent, as many as the
case has steps.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.fleet import recordings
from benchmarks.one_thread import begin_again
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.vector_cache import default_folder, vectors_of
from portico.catalog.search_documents import build_documents
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, make_tool
from portico.results.shape import Shape, infer_shape
from portico.search import Encoder, EncoderUnavailable, Index
from portico.workflows.planning.planner import (
    FindTools,
    PlanSuggestion,
    build_plan,
    make_index_search,
    suggest_plan,
)

_CASES = Path(__file__).with_name("planning_cases.json")
_MEASURES = ("tools", "only those", "order", "said", "joined", "rightly", "left open")


@dataclass(frozen=True, slots=True)
class Mark:
    """What one plan earned, and of how much, by measure."""

    earned: tuple[float, ...]
    of: tuple[float, ...]


def main() -> int:
    found = arguments(__doc__)
    found.add_argument("--shared", type=Path, metavar="DIR", help="where the recorded fleet is")
    found.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=default_folder(),
        help="keeps vectors between runs",
    )
    found.add_argument(
        "--show", action="store_true", help="print every plan that is not as expected"
    )
    options = found.parse_args()
    given = orjson.loads(_CASES.read_bytes())
    cases: list[dict[str, Any]] = given["cases"][::8] if options.smoke else given["cases"]
    needed = {tool.partition(".")[0] for case in cases for step in case["steps"] for tool in step}
    snapshot = fleet(options.shared, options.cache, needed if options.smoke else None)
    return conclude(asyncio.run(measured(snapshot, cases, given["answers"], options)), options)


def fleet(shared: Path | None, cache: Path, only: set[str] | None) -> Snapshot:
    """The recorded servers, or some of them, ready to be searched."""
    entries: dict[str, ServerEntry] = {}
    for recording in recordings(shared):
        slug = recording["slug"]
        if only is None or slug in only:
            tools = [make_tool(slug, definition) for definition in recording["tools"]]
            entries[slug] = ServerEntry(slug, tools={tool.name: tool for tool in tools})
    read = [document for entry in entries.values() for document in build_documents(entry)]
    encoder = Encoder()
    index = Index.build(read, encoder=encoder)
    try:
        encoder.load()
        index = index.with_vectors(vectors_of(read, encoder, cache))
    except EncoderUnavailable as error:
        print(
            f"search by meaning is off, these are figures of words alone: {error}", file=sys.stderr
        )
    return Snapshot(entries, index)


async def measured(
    snapshot: Snapshot, cases: Sequence[Mapping[str, Any]], answers: Mapping[str, Any], options: Any
) -> Report:
    """Every case, twice, beside the floor."""
    shapes = {
        tool: infer_shape(answer)
        for tool, answer in answers.items()
        if isinstance(answer, dict | list)
    }
    find = make_index_search(snapshot)
    ways: dict[str, list[Mark]] = {"top-k search": [], "as listed": [], "once seen": []}
    longest: list[float] = []
    for case in cases:
        ways["top-k search"].append(await floor(case, find))
        for way, seen in (("as listed", False), ("once seen", True)):

            def shape(tool: Tool, seen: bool = seen) -> Shape | None:
                return shapes.get(tool.address) if seen else None

            plan = await suggest_plan(case["intent"], snapshot, find, shapes=shape)
            marked = mark(case, plan, seen=seen)
            ways[way].append(marked)
            if options.show and marked.earned != marked.of:
                told(case, plan, way)
        longest.append(await blocking(case["intent"], snapshot, find))
    rows: list[tuple[Cell, ...]] = []
    for part, kept in (("all", None), ("seen while made", False), ("held out", True)):
        chosen = [at for at, case in enumerate(cases) if kept in (None, case["held"])]
        rows += [
            (part, len(chosen), way, *shares([marks[at] for at in chosen]))
            for way, marks in ways.items()
        ]
    columns = ("cases", "n", "plan", *_MEASURES)
    note = (
        "tools: expected tools in the plan · only those: steps that were expected · order: all there, in order · said: "
        "arguments\nthat the words give · joined: expected references · rightly: references that were expected · left "
        "open: inputs that are marked."
    )
    speed = Table(
        f"Time to plan over {len(snapshot.tools):,} tools, without searching, ms",
        ("cases", "median", "longest"),
        ((len(longest), sorted(longest)[len(longest) // 2], max(longest)),),
        "CPU time, the first time its tools are planned with; in a thread of its own, so that the event loop goes on.",
    )
    goals = [] if options.smoke else [Goal("the longest planning, ms", max(longest), 50)]
    return Report(
        "planning",
        (Table("Plans from intents, %", columns, tuple(rows), note), speed),
        tuple(goals),
    )


async def floor(case: Mapping[str, Any], find: FindTools) -> Mark:
    """The first tools for the whole intent, in the order of the search."""
    hits = (await find(case["intent"], len(case["steps"])))[: len(case["steps"])]
    steps = [{"id": f"s{at}", "tool": hit.address, "arguments": {}} for at, hit in enumerate(hits)]
    return mark(case, PlanSuggestion(tuple(steps)), seen=False)


def mark(case: Mapping[str, Any], plan: PlanSuggestion, *, seen: bool) -> Mark:
    """Compare a plan with what its case expects."""
    at = places(case["steps"], plan)
    found = [place for place in at if place is not None]
    said = [argument(plan, at, key) == value for key, value in case["said"].items()]
    expected = [*case["links"], *(case["seen_links"] if seen else ())]
    joined = [refers(plan, at, link) for link in expected]
    # A link that cannot be known yet is rightly left open, and rightly made where it can.
    allowed = [*case["links"], *case["seen_links"]]
    made = [
        (step, name)
        for step in plan.steps
        for name, value in step["arguments"].items()
        if is_link(value)
    ]
    rightly = sum(refers(plan, at, link) for link in allowed)
    left = [is_input(argument(plan, at, key)) for key in case["open"]]
    order = len(found) == len(at) and found == sorted(found)
    earned = (
        len(found),
        len(set(found)),
        order,
        sum(said),
        sum(joined),
        min(rightly, len(made)),
        sum(left),
    )
    of = (len(at), len(plan.steps), 1, len(said), len(joined), len(made), len(left))
    return Mark(tuple(map(float, earned)), tuple(map(float, of)))


def places(expected: Sequence[Sequence[str]], plan: PlanSuggestion) -> list[int | None]:
    """Where each expected step is in the plan."""
    taken: set[int] = set()
    at: list[int | None] = []
    for tools in expected:
        place = next(
            (p for p, step in enumerate(plan.steps) if step["tool"] in tools and p not in taken),
            None,
        )
        at.append(place)
        if place is not None:
            taken.add(place)
    return at


def argument(plan: PlanSuggestion, at: Sequence[int | None], key: str) -> Any:
    """The argument that `2.channel_id` names; `2.to|2.recipients` are two names for the same."""
    for one in key.split("|"):
        number, _, name = one.partition(".")
        place = at[int(number) - 1]
        if place is not None and name in plan.steps[place]["arguments"]:
            return plan.steps[place]["arguments"][name]
    return None


def refers(plan: PlanSuggestion, at: Sequence[int | None], link: str) -> bool:
    """Whether `1 -> 2.text` is in the plan."""
    source, _, target = link.partition(" -> ")
    value, place = argument(plan, at, target), at[int(source) - 1]
    if place is None or not is_link(value):
        return False
    text, id_ = str(value), plan.steps[place]["id"]
    each = (
        str(plan.steps[at[int(target.partition(".")[0]) - 1] or 0].get("for_each", ""))
        if "item" in text
        else ""
    )
    return any(
        f"{before}{id_}{after}" in text + each
        for before in ("{", "(")
        for after in (".", "}", "[", ")")
    )


def is_input(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("${inputs.")


def is_link(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("${") and not is_input(value)


def shares(marks: Sequence[Mark]) -> tuple[Cell, ...]:
    """Percentages of what could be earned; a dash where there was nothing to earn."""
    sums = [
        (sum(one.earned[m] for one in marks), sum(one.of[m] for one in marks))
        for m in range(len(_MEASURES))
    ]
    return tuple(100 * earned / of if of else None for earned, of in sums)


async def blocking(intent: str, snapshot: Snapshot, find: FindTools) -> float:
    """What a plan costs whose tools were never read before, in ms of CPU."""
    from portico.workflows.planning import clauses, name_parts, output_fields

    found = [
        (
            clause,
            [(replaced(snapshot.tools[hit.address]), hit.score) for hit in await find(clause, 6)],
        )
        for clause in clauses.split_clauses(intent)
    ]
    for cache in (
        name_parts.parse_name,
        name_parts.get_tool_nouns,
        name_parts.is_read_verb_name,
        name_parts.to_singular,
        output_fields.read_schema_output,
    ):
        cache.cache_clear()
    started = time.thread_time()
    build_plan(intent, snapshot, found, ())
    return 1000 * (time.thread_time() - started)


def replaced(tool: Tool) -> Tool:
    """The same tool, its definition not parsed yet."""
    return Tool(tool.server, tool.name, tool.upstream_name, tool.blob, tool.hash)


def told(case: Mapping[str, Any], plan: PlanSuggestion, way: str) -> None:
    print(f"\n{case['intent']}  [{way}{', held' if case['held'] else ''}]", file=sys.stderr)
    print(
        "  expected",
        case["steps"],
        case["said"],
        case["links"],
        case["seen_links"],
        case["open"],
        file=sys.stderr,
    )
    for step in plan.steps:
        print("  ", orjson.dumps(dict(step)).decode(), file=sys.stderr)
    for lost in plan.unserved:
        print("   unserved:", lost, file=sys.stderr)


if __name__ == "__main__":
    begin_again()
    raise SystemExit(main())
