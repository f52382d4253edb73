"""The agent that says what it wants: `run_workflow(intent, inputs)` and nothing else.

What a first answer says is missing is answered from gold and passed as inputs of a second call.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from benchmarks.agents.conversation import Conversation, Reply
from benchmarks.agents.servers import GatewayFleet
from benchmarks.agents.tasks import (
    AgentTask,
    Comparison,
    GoldStep,
    ToolCall,
    compare_calls,
    drop_joins,
    is_join,
    pick_arguments,
    resolve_references,
)

_EXPRESSION = re.compile(r"\$\{([^}]*)\}")
_STEP_ID = re.compile(r"(?<![\w.-])[\w-]+")
"""A word of an expression that is no member of another one."""
_RESUME = re.compile(r'resume="([^"]+)"')


@dataclass(frozen=True, slots=True)
class SuggestedPlan:
    """The steps that an answer proposes, and the inputs that it says are missing."""

    steps: Sequence[Mapping[str, Any]]
    missing: tuple[str, ...]
    unsure: tuple[str, ...] = ()
    """`step.parameter` of guesses, and of parameters that may have been meant."""
    other_tools: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Tools that the answer names beside those of the plan, with what each needs."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The plans for one task: of the first call, and of the second where one was needed."""

    task: AgentTask
    first: Comparison
    second: Comparison
    """The same as the first where nothing was missing."""
    tokens: int
    """Of both calls."""
    calls: int
    says_nothing_serves: bool
    shown: Sequence[ToolCall] = ()
    """The calls of the first plan."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A task that was run: the calls that arrived at servers, compared with gold."""

    task: AgentTask
    comparison: Comparison
    tokens: int
    calls: int
    says_nothing_serves: bool
    searches: Sequence[str] = ()
    model_tokens: int = 0
    """What the endpoint of a model counted: every turn is sent the whole conversation again."""


def parse_plan(reply: Reply) -> SuggestedPlan:
    """Read a plan out of an answer's structured content; empty where it has none."""
    missing = reply.structured.get("missing") or ()
    names = [
        cast("Mapping[str, Any]", entry)["name"] if isinstance(entry, Mapping) else entry
        for entry in cast("Sequence[Any]", missing)
    ]
    steps: Any = reply.structured.get("steps")
    return SuggestedPlan(
        steps if isinstance(steps, list) else [],
        tuple(names),
        tuple(reply.structured.get("unsure") or ()),
        reply.structured.get("other_tools") or {},
    )


def list_calls(plan: SuggestedPlan, task: AgentTask, inputs: Mapping[str, Any]) -> list[ToolCall]:
    """Return the calls of a plan with these inputs; a step for each item is several.

    A reference to the answer of a step is written as gold writes it: `${1}`, by the place of the
    gold step that it serves.
    """
    places = {
        str(step.get("id")): task.steps.index(gold) + 1
        for step, gold in assign_steps(task.steps, plan.steps)
        if gold is not None
    }
    calls: list[ToolCall] = []
    for step in plan.steps:
        arguments = resolve_references(step.get("arguments") or {}, inputs)
        items = resolve_references(step.get("for_each"), inputs)
        if isinstance(items, list):
            listed = cast("list[Any]", items)
            calls += (ToolCall(step["tool"], _replace_item(arguments, item)) for item in listed)
            continue
        known = {**places, "item": _find_place(str(items), places)}
        calls.append(ToolCall(step["tool"], _rename_references(arguments, known)))
    return calls


def _rename_references(value: Any, places: Mapping[str, int]) -> Any:
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {name: _rename_references(part, places) for name, part in parts.items()}
    if isinstance(value, list):
        return [_rename_references(part, places) for part in cast("list[Any]", value)]
    if isinstance(value, str) and (place := _find_place(value, places)):
        return f"${{{place}}}"
    return value


def _find_place(text: str, places: Mapping[str, int]) -> int:
    """Return the place of the first step that a text refers to; 0 where it refers to none."""
    words = (word for part in _EXPRESSION.findall(text) for word in _STEP_ID.findall(part))
    return next((places[word] for word in words if word in places), 0)


async def plan_task(
    fleet: GatewayFleet, task: AgentTask, examples: Mapping[str, Any], *, with_inputs: bool
) -> PlanOutcome:
    """Ask for a plan, and once more with what the first answer says is missing."""
    conversation = fleet.start_conversation()
    intent = task.intent if with_inputs else task.words
    inputs = dict(task.inputs) if with_inputs else {}
    plan = parse_plan(await _ask(conversation, intent, inputs))
    first_calls = list_calls(plan, task, inputs)
    first = compare_calls(task.steps, first_calls)
    second = first
    answers = {} if first.is_usable else answer_plan(task, plan, examples)
    if answers:
        inputs |= answers
        plan = parse_plan(await _ask(conversation, intent, inputs))
        second = compare_calls(task.steps, list_calls(plan, task, inputs))
    return PlanOutcome(
        task,
        first,
        second,
        conversation.tokens,
        conversation.calls,
        not first_calls,
        first_calls,
    )


async def run_task(fleet: GatewayFleet, task: AgentTask, examples: Mapping[str, Any]) -> RunOutcome:
    """Do a task with intent and inputs: run at once, answer what is missing, and pass the plan back
    where it was not run. Calls that need approval are approved."""
    conversation = fleet.start_conversation()
    inputs = dict(task.inputs)
    fleet.log.take()
    reply = await _ask(conversation, task.intent, inputs, run=True)
    plan = parse_plan(reply)
    says_nothing_serves = not plan.steps and not fleet.log.calls
    answers = {} if fleet.log.calls else answer_plan(task, plan, examples)
    if answers:
        inputs |= answers
        reply = await _ask(conversation, task.intent, inputs, run=True)
        plan = parse_plan(reply)
    if plan.steps and not fleet.log.calls and task.steps and not _find_run(reply):
        steps = [dict(step) for step in plan.steps]
        reply = await conversation.ask("run_workflow", {"steps": steps, "inputs": inputs})
    if task.steps and (run := _find_run(reply)):
        await conversation.ask("run_workflow", {"resume": run})
    done = compare_calls(drop_joins(task.steps), fleet.log.take())
    return RunOutcome(task, done, conversation.tokens, conversation.calls, says_nothing_serves)


def _find_run(reply: Reply) -> str | None:
    """Return the run that waits for approval."""
    found = _RESUME.search(reply.text)
    return found[1] if found else None


async def _ask(
    conversation: Conversation, intent: str, inputs: Mapping[str, Any], **options: Any
) -> Reply:
    arguments = {"intent": intent, **({"inputs": inputs} if inputs else {}), **options}
    return await conversation.ask("run_workflow", arguments)


def answer_plan(
    task: AgentTask, plan: SuggestedPlan, examples: Mapping[str, Any]
) -> dict[str, Any]:
    """Answer what a plan asks: what is missing, what is unsure where gold knows it, and other tools
    of those that it names, where it has not the tools of gold."""
    tools = choose_named_tools(task.steps, plan)
    kept = [step for step in plan.steps if not tools or step["tool"] in tools]
    answers = answer_missing(task, replace(plan, steps=kept), examples)
    for step, gold in assign_steps(task.steps, kept):
        known = pick_arguments(gold, step["tool"]) if gold else {}
        for name in plan.unsure:
            id_, _, parameter = name.partition(".")
            if id_ != step.get("id") or name in answers:
                continue
            found, value = _look_up_plain(known, parameter)
            if found and not is_join(value):
                answers[name] = value
    if tools and tools != [step["tool"] for step in plan.steps]:
        answers["tools"] = tools
        for tool, gold in zip(tools, task.steps, strict=True):
            known = pick_arguments(gold, tool)
            step_id = re.sub(r"\W", "_", tool.partition(".")[2])
            for name in plan.other_tools.get(tool, ()):
                if name in known and not is_join(known[name]):
                    answers[f"{step_id}.{name}"] = known[name]
    return answers


def choose_named_tools(gold: Sequence[GoldStep], plan: SuggestedPlan) -> list[str]:
    """Return the tools of gold among those of a plan and those that it names beside them; empty
    where one is not there, or nothing was named."""
    if not gold or not plan.other_tools:
        return []
    named = [*(step["tool"] for step in plan.steps), *plan.other_tools]
    chosen = [next((tool for tool in named if tool in step.tools), "") for step in gold]
    return chosen if all(chosen) else []


def _look_up_plain(known: Mapping[str, Any], parameter: str) -> tuple[bool, Any]:
    """Find a value by its plain name, in which `_` stands for what is between names too."""
    for name, value in known.items():
        plain = re.sub(r"\W", "_", name)
        if plain == parameter:
            return True, value
        if isinstance(value, Mapping) and parameter.startswith(f"{plain}_"):
            rest = parameter.removeprefix(f"{plain}_")
            return _look_up_plain(cast("Mapping[str, Any]", value), rest)
    return False, None


def answer_missing(
    task: AgentTask, plan: SuggestedPlan, examples: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a value for each missing input: gold's, or an example of what the schema takes.

    `examples` are plausible arguments of each tool, by address.
    """
    answers: dict[str, Any] = {}
    for step, gold in assign_steps(task.steps, plan.steps):
        known = pick_arguments(gold, step["tool"]) if gold else {}
        known = {name: value for name, value in known.items() if not is_join(value)}
        example = examples.get(step["tool"], {})
        for name, path in find_input_references(step.get("arguments") or {}):
            if name not in plan.missing or name in answers:
                continue
            for source in (known, example):
                found, value = _look_up(source, path)
                if found:
                    answers[name] = value
                    break
    return answers


def assign_steps(
    gold: Sequence[GoldStep], steps: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], GoldStep | None]]:
    """Pair the steps of a plan with steps of gold that accept their tool, each once, in order."""
    free = list(gold)
    for step in steps:
        found = next((one for one in free if step["tool"] in one.tools), None)
        if found is not None:
            free.remove(found)
        yield step, found


def find_input_references(
    value: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each input that arguments refer to, and where."""
    if isinstance(value, Mapping):
        for name, part in cast("Mapping[str, Any]", value).items():
            yield from find_input_references(part, (*path, name))
    elif isinstance(value, list):
        for part in cast("list[Any]", value):
            yield from find_input_references(part, path)
    elif isinstance(value, str) and value.startswith("${inputs.") and value.endswith("}"):
        yield value.removeprefix("${inputs.").removesuffix("}"), path


def _look_up(source: Any, path: Sequence[str]) -> tuple[bool, Any]:
    for name in path:
        if not isinstance(source, Mapping) or name not in source:
            return False, None
        source = cast("Mapping[str, Any]", source)[name]
    return True, source


def _replace_item(value: Any, item: Any) -> Any:
    """Replace `${item}` and `${item.x}` in the arguments of a step for each item."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {name: _replace_item(part, item) for name, part in parts.items()}
    if isinstance(value, list):
        return [_replace_item(part, item) for part in cast("list[Any]", value)]
    if value == "${item}":
        return item
    if isinstance(value, str) and value.startswith("${item.") and value.endswith("}"):
        found, part = _look_up(item, value.removeprefix("${item.").removesuffix("}").split("."))
        return part if found else value
    return value
