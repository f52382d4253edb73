"""Validates a workflow before it runs and reports all problems at once. Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from portico.calls.cache import is_read_only
from portico.calls.dispatcher import can_run_twice
from portico.calls.validation import repair_or_raise
from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool, make_tool, quote_text, sanitize_text
from portico.config.limits import MAX_STEPS
from portico.errors import InvalidArguments, UnknownName
from portico.json_text.json_codec import to_list
from portico.results.learned_shapes import LearnedShapes
from portico.workflows.expected_values import (
    ExpectedValue,
    get_json_types,
    get_properties,
    infer_value,
    is_closed,
)
from portico.workflows.references import (
    INDEX,
    INPUTS,
    ITEM,
    RESERVED,
    Reference,
    TextTemplate,
    iter_references,
)
from portico.workflows.steps import WorkflowProblem, WorkflowStep, find_cycle, parse_steps

_NUMBERS = frozenset(("integer", "number"))
_KEPT_KEYWORDS = ("$schema", "$defs", "definitions", "properties")
MAX_SEARCHED_CHARS = 100_000
"""Characters of one text that are searched."""
_NAME = (
    r"(?:steps\.)?(?P<{0}>[A-Za-z_][A-Za-z0-9_-]{{0,63}})"
    r"(?P<{0}_way>(?:\.[\w-]{{1,64}}|\[[\w*]{{0,9}}\])*)"
)
_FORMS = re.compile(
    r"\{\{[ \t]{0,9}\$?" + _NAME.format("braced") + r"[ \t]{0,9}\}\}"
    r"|(?<![\w$])\$(?:\.)?" + _NAME.format("marked"),
    re.ASCII,
)


def find_problems(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield certain problems as (argument, reason)."""
    refused = dict[str, str]()
    if tool.translation is not None:
        for name in arguments:
            if problems := tool.translation.find_refused([name]):
                refused[name] = problems[0]
        yield from refused.items()
    schema = tool.input_schema
    required = schema.get("required")
    for name in to_list(required):
        if isinstance(name, str) and name not in arguments:
            yield name, f"{tool.address} requires it"
    known = get_properties(schema)
    if is_closed(schema):
        for name in arguments.keys() - known.keys() - refused.keys():
            near = find_nearest_names(name, known, 3)
            hint = f"it takes {_list_names(known)}"
            if near:
                hint = f"did you mean {', '.join(map(sanitize_text, near))}?"
            yield name, f"{tool.address} has no such parameter; {hint}"
    literals = {
        name: value
        for name, value in arguments.items()
        if name in known and next(iter_references(value), None) is None
    }
    yield from _find_misfits(tool, literals)


def find_type_mismatch(
    tool: Tool, name: str, value: TextTemplate, expected: ExpectedValue | None
) -> str:
    """Return why an argument with references certainly does not fit, or an empty string.

    `expected` is the expected value of its only reference.
    """
    schema = tool.input_schema
    wanted = get_json_types(get_properties(schema).get(name), schema)
    kinds = frozenset({"string"})
    if value.sole_reference:
        kinds = expected.json_types if expected else frozenset[str]()
    if (
        not wanted
        or not kinds
        or any(_can_become(kind, wanted) for kind in kinds - {"null"} or kinds)
    ):
        return ""
    return f"it is {'|'.join(sorted(kinds))}, and {tool.address} takes {'|'.join(sorted(wanted))}"


def _can_become(kind: str, wanted: frozenset[str]) -> bool:
    # Argument repair: text may be a number or JSON, a list may take one value, 5.0 is an integer.
    return (
        kind in wanted
        or kind == "string"
        or "array" in wanted
        or (kind in _NUMBERS and bool(wanted & _NUMBERS))
    )


def _find_misfits(tool: Tool, literals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    relaxed = _drop_joint_constraints(tool) if literals else tool
    for name, value in literals.items():
        try:
            repair_or_raise(relaxed, {name: value})
        except InvalidArguments as error:
            reason = error.problems[0] if error.problems else error.message
            yield name, reason.removeprefix(f"{name}: ")


@lru_cache(maxsize=1_024)
def _drop_joint_constraints(tool: Tool) -> Tool:
    """Return the tool without constraints that span several arguments; the call checks those."""
    schema = {name: tool.input_schema[name] for name in _KEPT_KEYWORDS if name in tool.input_schema}
    return make_tool(
        tool.server, {"name": tool.upstream_name, "inputSchema": schema}, name=tool.name
    )


def _list_names(names: Mapping[str, Any]) -> str:
    shown = ", ".join(quote_text(name, 40) for name in list(names)[:8])
    if len(names) > 8:
        return f"{shown} …"
    return shown or "none"


def find_lookalikes(tree: Any, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield text that looks like a reference: as written, and as it should be."""
    if isinstance(tree, str):
        yield from _find_in_text(tree, names)
    elif isinstance(tree, TextTemplate):
        for part in tree.parts:
            if isinstance(part, str):
                yield from _find_in_text(part, names)
    elif isinstance(tree, dict | list):
        children = cast("Mapping[str, Any] | list[Any]", tree)
        for item in children.values() if isinstance(children, Mapping) else children:
            yield from find_lookalikes(item, names)


def _find_in_text(text: str, names: Collection[str]) -> Iterator[tuple[str, str]]:
    for found in _FORMS.finditer(text[:MAX_SEARCHED_CHARS]) if "$" in text or "{{" in text else ():
        kind = "braced" if found["braced"] else "marked"
        name = found[kind]
        path = found[f"{kind}_way"]
        # "$price" inside a sentence is money, or a shell variable.
        if name in names and (kind == "braced" or path or found[0] == text.strip()):
            yield found[0], f"${{{name}{path}}}"


MAX_LOOKALIKES = 3
"""Lookalikes reported per argument."""
MAX_PROBLEMS = 100
"""Maximum number of problems; finding suggestions for more would take long."""


@dataclass(frozen=True)
class PlannedStep:
    step: WorkflowStep
    tool: Tool

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(frozen=True)
class ValidatedWorkflow:
    plan: tuple[PlannedStep, ...]
    """In the order it was written."""
    warnings: tuple[WorkflowProblem, ...] = ()


@dataclass(frozen=True)
class InvalidWorkflow:
    """Why a workflow cannot run."""

    problems: tuple[WorkflowProblem, ...]
    warnings: tuple[WorkflowProblem, ...] = ()


def is_destructive(tool: Tool) -> bool:
    """Return whether a tool is annotated as destructive.

    MCP treats a tool without annotation as destructive. Most tools have none, and a workflow that
    stopped at every such step would be useless, so only the explicit hint counts, its server's or
    the configuration's.
    """
    return tool.is_destructive and not is_read_only(tool)


def validate_workflow(
    steps: Any,
    inputs: Mapping[str, Any],
    snapshot: Snapshot,
    shapes: LearnedShapes | None = None,
    *,
    max_steps: int = MAX_STEPS,
    finished: Sequence[PlannedStep] = (),
    may_retry: Callable[[Tool], bool] = can_run_twice,
) -> ValidatedWorkflow | InvalidWorkflow:
    """Return a plan, or the problems.

    `finished` are steps that have run: they can be referred to and are not validated again.
    `may_retry` tells which tools are safe to retry.
    """
    found, problems = parse_steps(steps, max_steps) if steps or not finished else ((), ())
    finished_by_id = {planned.id: planned for planned in finished}
    validator = _WorkflowValidator(found, inputs, snapshot, shapes, finished_by_id, may_retry)
    problems = (*problems, *islice(validator.find_problems(all_parsed=not problems), MAX_PROBLEMS))
    warnings = tuple(islice(validator.find_warnings(), MAX_PROBLEMS))
    if problems:
        return InvalidWorkflow(problems, warnings)
    plan = (*finished, *(PlannedStep(step, validator.tools[step.id]) for step in found))
    return ValidatedWorkflow(plan, warnings)


class _WorkflowValidator:
    def __init__(
        self,
        steps: Sequence[WorkflowStep],
        inputs: Mapping[str, Any],
        snapshot: Snapshot,
        shapes: LearnedShapes | None,
        finished: Mapping[str, PlannedStep],
        may_retry: Callable[[Tool], bool],
    ) -> None:
        self._may_retry = may_retry
        self._steps = {step.id: step for step in steps}
        self._inputs = inputs
        self._shapes = shapes
        self._all_steps = {
            **{name: planned.step for name, planned in finished.items()},
            **self._steps,
        }
        self.tools: dict[str, Tool] = {name: planned.tool for name, planned in finished.items()}
        self._unknown_tools: list[WorkflowProblem] = []
        for step in steps:
            try:
                if step.tool:
                    self.tools[step.id] = snapshot.resolve_tool(step.tool)
            except UnknownName as error:
                self._unknown_tools.append(
                    WorkflowProblem(step.id, f"{error.message}. {error.advice}".strip(), "tool")
                )

    def find_problems(self, *, all_parsed: bool) -> Iterator[WorkflowProblem]:
        """Yield problems; unless `all_parsed`, an unknown name may be that of an unparsed step."""
        yield from self._unknown_tools
        for step in self._steps.values():
            yield from self._check_names(step, all_parsed)
            if (tool := self.tools.get(step.id)) is not None:
                yield from self._check_tool(step, tool)
        if cycle := find_cycle(
            {name: step.dependencies & self._steps.keys() for name, step in self._steps.items()}
        ):
            yield WorkflowProblem(cycle[0], f"it waits for itself: {' waits for '.join(cycle)}")

    def find_warnings(self) -> Iterator[WorkflowProblem]:
        """Yield references that will certainly find nothing, or not fit."""
        for step in self._steps.values():
            for reference in dict.fromkeys(step.all_references):
                if (
                    expected := self._infer_value(reference)
                ) is not None and expected.missing_reason:
                    yield WorkflowProblem(
                        step.id, f"{expected.missing_reason}", f"${{{reference.text}}}"
                    )
            if isinstance(step.arguments, dict):
                yield from self._find_mismatches(step, step.arguments)
                yield from self._find_lookalikes(step, step.arguments)

    def _find_mismatches(
        self, step: WorkflowStep, arguments: Mapping[str, Any]
    ) -> Iterator[WorkflowProblem]:
        tool = self.tools.get(step.id)
        for name, value in arguments.items() if tool else ():
            if isinstance(value, TextTemplate) and tool:
                sole = value.sole_reference
                expected = self._infer_value(sole) if sole else None
                if doubt := find_type_mismatch(tool, name, value, expected):
                    yield WorkflowProblem(step.id, doubt, f"arguments.{name}")

    def _find_lookalikes(
        self, step: WorkflowStep, arguments: Mapping[str, Any]
    ) -> Iterator[WorkflowProblem]:
        names = {*self._all_steps, INPUTS}
        if step.for_each is not None:
            names |= {ITEM, INDEX}
        for name, value in arguments.items():
            for text, suggestion in islice(
                dict.fromkeys(find_lookalikes(value, names)), MAX_LOOKALIKES
            ):
                yield WorkflowProblem(
                    step.id,
                    f"{text} looks like a reference: write {suggestion}",
                    f"arguments.{name}",
                )

    def _check_names(self, step: WorkflowStep, all_parsed: bool) -> Iterator[WorkflowProblem]:
        for name in step.depends_on if all_parsed else ():
            if name not in self._all_steps:
                yield WorkflowProblem(step.id, self._describe_unknown_step(name), "depends_on")
        optional = step.all_references[len(step.call_references) :]
        for reference in dict.fromkeys(step.all_references):
            where = f"${{{reference.text}}}"
            for name in (
                sorted(reference.names - self._all_steps.keys() - RESERVED) if all_parsed else ()
            ):
                yield WorkflowProblem(
                    step.id, self._describe_unknown_step(name, reference.path), where
                )
            if step.for_each is None and not reference.names.isdisjoint((ITEM, INDEX)):
                yield WorkflowProblem(step.id, "item and index are only there with for_each", where)
            if reference not in optional:
                for name in sorted(reference.inputs - self._inputs.keys()):
                    yield WorkflowProblem(
                        step.id, f"there is no input {quote_text(name)}; pass it in {INPUTS}", where
                    )
        for reference in iter_references(step.for_each):
            if not reference.names.isdisjoint((ITEM, INDEX)):
                yield WorkflowProblem(step.id, "item and index are not there yet", "for_each")

    def _describe_unknown_step(self, name: str, path: str = "") -> str:
        if f'"{name}"' in path and "-" not in name:
            return (
                f"there is no step {quote_text(name)};"
                f" a text stands in single quotation marks there, '{name}'"
            )
        hint = f"there are {', '.join(list(self._all_steps)[:10])}"
        if near := find_nearest_names(name, self._all_steps, 3):
            hint = f"did you mean {', '.join(near)}?"
        return f"there is no step {quote_text(name)}; {hint}"

    def _check_tool(self, step: WorkflowStep, tool: Tool) -> Iterator[WorkflowProblem]:
        if isinstance(step.arguments, dict):
            for name, message in find_problems(tool, step.arguments):
                yield WorkflowProblem(step.id, message, f"arguments.{name}")
        if step.retry.attempts and not self._may_retry(tool):
            message = (
                f"{tool.address} does not say that it is read-only or idempotent; trying again"
                " might do it twice. Leave retry out; resume tries again when it has failed"
            )
            yield WorkflowProblem(step.id, message, "retry")

    def _infer_value(self, reference: Reference) -> ExpectedValue | None:
        """Return the expected value of a plain reference to a step, if anything is known."""
        if reference.plain_path is None or not isinstance(name := reference.plain_path[0], str):
            return None
        step = self._all_steps.get(name)
        tool = self.tools.get(name)
        if step is None or tool is None:
            return None
        shape = self._shapes.get(tool) if self._shapes else None
        return infer_value(
            tool, shape, reference.plain_path[1:], for_each=step.for_each is not None
        )
