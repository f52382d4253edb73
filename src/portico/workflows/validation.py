"""Validates a workflow before it runs and reports all problems at once. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from portico.calls.cache import is_read_only
from portico.calls.retry import DEFAULT_RETRY_RULE
from portico.catalog.address import find_nearest_names
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible_text import quote_text
from portico.errors import UnknownName
from portico.results.learned_shapes import LearnedShapes
from portico.workflows import argument_checks as fitting
from portico.workflows.expected_values import ExpectedValue, infer_value
from portico.workflows.limits import MAX_STEPS
from portico.workflows.lookalikes import find_lookalikes
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

MAX_LOOKALIKES = 3
"""Lookalikes reported per argument."""
MAX_PROBLEMS = 100
"""Maximum number of problems; finding suggestions for more would take long."""


@dataclass(frozen=True)
class PlannedStep:
    """A step with its resolved tool."""

    step: WorkflowStep
    tool: Tool

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(frozen=True)
class ValidatedWorkflow:
    """A workflow that can run."""

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
    stopped at every such step would be useless, so only the explicit hint counts; configuration can
    add more.
    """
    return tool.annotations.get("destructiveHint") is True and not is_read_only(tool)


def validate_workflow(
    steps: Any,
    inputs: Mapping[str, Any],
    snapshot: Snapshot,
    shapes: LearnedShapes | None = None,
    *,
    max_steps: int = MAX_STEPS,
    finished: Sequence[PlannedStep] = (),
    may_retry: Callable[[Tool], bool] = DEFAULT_RETRY_RULE.can_run_twice,
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
            tool = self.tools.get(step.id)
            for name, value in (
                step.arguments.items() if tool and isinstance(step.arguments, dict) else ()
            ):
                if isinstance(value, TextTemplate) and tool is not None:
                    expected = None
                    if value.sole_reference:
                        expected = self._infer_value(value.sole_reference)
                    if doubt := fitting.find_type_mismatch(tool, name, value, expected):
                        yield WorkflowProblem(step.id, doubt, f"arguments.{name}")
            yield from self._find_lookalikes(step)

    def _find_lookalikes(self, step: WorkflowStep) -> Iterator[WorkflowProblem]:
        names = {*self._all_steps, INPUTS, *((ITEM, INDEX) if step.for_each is not None else ())}
        for name, value in step.arguments.items() if isinstance(step.arguments, dict) else ():
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
        near = find_nearest_names(name, self._all_steps, 3)
        if near:
            hint = f"did you mean {', '.join(near)}?"
        else:
            hint = f"there are {', '.join(list(self._all_steps)[:10])}"
        return f"there is no step {quote_text(name)}; {hint}"

    def _check_tool(self, step: WorkflowStep, tool: Tool) -> Iterator[WorkflowProblem]:
        if isinstance(step.arguments, dict):
            for name, message in fitting.find_problems(tool, step.arguments):
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
