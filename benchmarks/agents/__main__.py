"""Measures what an agent needs to do a person's tasks: calls, tokens, and whether they are done.

    python -m benchmarks.agents [--shared DIR] [--tasks FILE --inputs FILE] [--smoke] [--show]
                                [--model openai:NAME | --model anthropic:NAME]

The tasks have gold calls over the recorded fleet, whose servers answer here: each checks arguments
against its schemas, logs the call and says `{"status": "ok", "id": "r-123"}`. Who plays the agent:
(a) nobody, `run_workflow` is told the intent; (b) a script that searches and calls, through Portico
and through FastMCP's search; (c) with --model, a model at any endpoint that speaks one of two APIs.

A plan is usable when every step of gold is there with every argument of gold right, and no other
step. In the second call, what the first answer says is missing is passed as inputs, from gold.
`joins.jsonl` has tasks of which a step uses what another one answers.
Tokens are those of requests (`{"name", "arguments"}`) and answers, not of what a client lists or a
model thinks; counted with o200k_base where TIKTOKEN_CACHE_DIR has its table, else estimated.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.agents.intent import PlanOutcome, RunOutcome, plan_task, run_task
from benchmarks.agents.model import EndpointError, ModelAgent
from benchmarks.agents.search import ScriptedAgent, has_typed_lines, shows_definitions
from benchmarks.agents.servers import (
    GatewayFleet,
    load_recordings,
    open_fastmcp,
    open_gateway,
)
from benchmarks.agents.tasks import FOLDER, AgentTask, load_tasks
from benchmarks.contestants import fastmcp_version
from benchmarks.table import Cell, Goal, Report, Table, arguments, conclude
from benchmarks.vector_cache import default_folder
from portico.catalog.tool import make_tool
from portico.rendering.examples import make_example
from portico.rendering.token_budget import get_best_counter

TASKS = FOLDER / "tasks.jsonl"
MODES = ("intent", "search")
WORDS = "words alone"
INPUTS = "intent and inputs"
SMOKE_STEP = 16
"""A smoke run does every sixteenth task, over the servers of those tasks alone."""
PLAN_COLUMNS: tuple[str, ...] = (
    "run_workflow with",
    "tasks",
    "right tools",
    "arguments",
    "usable",
    "2nd call",
    "none said",
    "tokens",
    "calls",
)
RUN_COLUMNS = ("agent", "tasks", "done, %", "none said", "tokens", "median", "calls", "of model")


async def measure(options: argparse.Namespace) -> Report:
    """Run every agent over the same tasks."""
    tasks = load_tasks(options.tasks, options.inputs)
    if options.smoke:
        tasks = tasks[::SMOKE_STEP]
    only = find_servers(tasks) if options.smoke else None
    servers = load_recordings(options.shared, only)
    examples = {
        f"{name}.{tool['name']}": make_example(make_tool(name, tool))
        for name, recording in servers.items()
        for tool in recording["tools"]
    }
    counter = get_best_counter()
    model = ModelAgent.from_environment(options.model) if options.model else None
    plans: dict[str, list[PlanOutcome]] = {}
    runs: dict[str, list[RunOutcome]] = {}
    async with open_gateway(servers, options.cache, counter) as fleet:
        if "intent" in options.mode:
            for way, with_inputs in ((WORDS, False), (INPUTS, True)):
                plans[way] = [
                    await plan_task(fleet, task, examples, with_inputs=with_inputs)
                    for task in tasks
                ]
            if options.tasks == TASKS and not options.smoke:
                plans["… steps that use answers"] = [
                    await plan_task(fleet, task, examples, with_inputs=True)
                    for task in load_tasks(FOLDER / "joins.jsonl", FOLDER / "join_inputs.jsonl")
                ]
            runs["run_workflow, run: true"] = [
                await run_task(fleet, task, examples) for task in tasks
            ]
        if "search" in options.mode:
            for detail in ("brief", "schema"):
                runs[f"search_tools {detail}, call_tool"] = await run_script(
                    fleet, tasks, examples, has_typed_lines, {"detail": detail}
                )
        if model is not None:
            name = f"{options.model} with portico"
            runs[name] = [await model.run_task(fleet, task) for task in tasks]
    if fastmcp_version() and ("search" in options.mode or model is not None):
        peer = f"fastmcp {fastmcp_version()}"
        async with open_fastmcp(servers, counter) as fleet:
            if "search" in options.mode:
                runs[f"{peer} search, call"] = await run_script(
                    fleet, tasks, examples, shows_definitions, {}
                )
            if model is not None:
                name = f"{options.model} with {peer}"
                runs[name] = [await model.run_task(fleet, task) for task in tasks]
    if options.show:
        show(plans, runs)
    tables = make_tables(plans, runs, f"{len(servers)} servers, {counter.name}")
    goals = () if options.smoke else tuple(make_goals(plans, runs))
    return Report("agents", tables, goals, {"counter": counter.name, "tasks": len(tasks)})


def find_servers(tasks: Sequence[AgentTask]) -> set[str]:
    """The servers whose tools gold names."""
    return {tool.partition(".")[0] for task in tasks for step in task.steps for tool in step.tools}


async def run_script(
    fleet: GatewayFleet,
    tasks: Sequence[AgentTask],
    examples: dict[str, Any],
    is_described: Callable[[str, str], bool],
    search_options: dict[str, Any],
) -> list[RunOutcome]:
    agent = ScriptedAgent(fleet, examples, search_options, is_described)
    return [await agent.run_task(task) for task in tasks]


def make_tables(
    plans: dict[str, list[PlanOutcome]], runs: dict[str, list[RunOutcome]], how: str
) -> tuple[Table, ...]:
    tables: list[Table] = []
    if plans:
        rows = tuple((way, *summarize_plans(found)) for way, found in plans.items())
        note = (
            "Tokens and calls include the second call where something is missing; none said: of the"
            "\ntasks that no tool serves, those with no plan."
        )
        tables.append(Table(f"Plans from intents, % ({how})", PLAN_COLUMNS, rows, note))
    if runs:
        rows = tuple((agent, *summarize_runs(found)) for agent, found in runs.items())
        note = (
            "Done: the servers received the calls of gold and no other. Tokens and calls: means of "
            "the tasks\nwith gold. Of model: tokens that a model's endpoint counted."
        )
        tables.append(Table(f"Tasks done by agents ({how})", RUN_COLUMNS, rows, note))
    return tuple(tables)


def summarize_plans(found: Sequence[PlanOutcome]) -> tuple[Cell, ...]:
    served = [one for one in found if one.task.steps]
    none = [one for one in found if not one.task.steps]
    right = sum(one.first.right_argument_count for one in served)
    expected = sum(one.first.argument_count for one in served)
    return (
        len(served),
        to_share(one.first.has_right_tools for one in served),
        100 * right / expected if expected else None,
        to_share(one.first.is_usable for one in served),
        to_share(one.second.is_usable for one in served),
        to_share(one.says_nothing_serves for one in none),
        mean(one.tokens for one in served),
        mean(one.calls for one in served),
    )


def summarize_runs(found: Sequence[RunOutcome]) -> tuple[Cell, ...]:
    served = [one for one in found if one.task.steps]
    none = [one for one in found if not one.task.steps]
    return (
        len(served),
        to_share(one.comparison.is_usable for one in served),
        to_share(one.says_nothing_serves for one in none),
        mean(one.tokens for one in served),
        median(one.tokens for one in served),
        mean(one.calls for one in served),
        mean(one.model_tokens for one in served) or None,
    )


def to_share(flags: Any) -> float | None:
    """Percent of flags that are set; None where there are none."""
    listed = list(flags)
    return 100 * sum(listed) / len(listed) if listed else None


def make_goals(
    plans: dict[str, list[PlanOutcome]], runs: dict[str, list[RunOutcome]]
) -> list[Goal]:
    goals: list[Goal] = []

    def add(name: str, measured: Cell, limit: float, *, at_least: bool) -> None:
        if isinstance(measured, int | float):
            goals.append(Goal(name, measured, limit, 0, at_least))

    if plans:
        columns = PLAN_COLUMNS[1:]
        words = dict(zip(columns, summarize_plans(plans[WORDS]), strict=True))
        inputs = dict(zip(columns, summarize_plans(plans[INPUTS]), strict=True))
        add("words alone: usable, %", words["usable"], 25, at_least=True)
        for column, limit in (
            ("right tools", 85),
            ("arguments", 85),
            ("usable", 50),
            ("2nd call", 85),
            ("none said", 70),
        ):
            add(f"with inputs: {column}, %", inputs[column], limit, at_least=True)
    for agent, found in runs.items():
        tokens = mean(one.tokens for one in found if one.task.steps)
        if agent.startswith("run_workflow"):
            add("a task by intent, tokens", tokens, 350, at_least=False)
        elif agent.startswith("search_tools schema"):
            add("a task by search and call, tokens", tokens, 900, at_least=False)
    return goals


def show(plans: dict[str, list[PlanOutcome]], runs: dict[str, list[RunOutcome]]) -> None:
    """Print every plan that is not usable and every task that was not done."""
    for way, outcomes in plans.items():
        for one in outcomes:
            if one.first.is_usable and one.task.steps:
                continue
            if not one.task.steps and one.says_nothing_serves:
                continue
            said = one.task.words if way == WORDS else one.task.intent
            after = "usable after the second call" if one.second.is_usable else "not usable"
            print(f"\n{one.task.id} [{way}] {said}\n  {after}", file=sys.stderr)
            for step in one.task.steps:
                address = step.tools[0]
                others = f" (or {', '.join(step.tools[1:])})" if step.tools[1:] else ""
                print(f"  gold {address}{others} {step.get_arguments(address)}", file=sys.stderr)
            for call in one.shown:
                print(f"  plan {call.tool} {call.arguments}", file=sys.stderr)
    for agent, outcomes in runs.items():
        for one in outcomes:
            if one.task.steps and not one.comparison.is_usable:
                print(f"\n{one.task.id} [{agent}] not done: {one.comparison}", file=sys.stderr)
                print(f"  {list(one.searches) or one.task.intent}", file=sys.stderr)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shared", type=Path, metavar="DIR", help="where the recorded fleet is")
    parser.add_argument("--tasks", type=Path, metavar="FILE", default=TASKS)
    parser.add_argument("--inputs", type=Path, metavar="FILE", default=FOLDER / "inputs.jsonl")
    parser.add_argument(
        "--mode", choices=MODES, action="append", help="measure this alone; may be repeated"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=default_folder(),
        help="keeps vectors between runs",
    )
    parser.add_argument(
        "--show", action="store_true", help="print every plan and run that is not as gold says"
    )
    parser.add_argument(
        "--model",
        metavar="API:NAME",
        help="openai:NAME or anthropic:NAME also plays the agent, at PORTICO_AGENT_URL",
    )
    options = parser.parse_args()
    options.mode = options.mode or MODES
    failed = ""
    try:
        return conclude(asyncio.run(measure(options)), options)
    except* EndpointError as errors:
        failed = str(find_leaf(errors))
    raise SystemExit(failed)


def find_leaf(error: BaseException) -> BaseException:
    """The first error of a group, at any depth."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    sys.exit(main())
