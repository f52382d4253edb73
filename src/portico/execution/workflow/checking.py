"""Can this workflow run? Everything that can be known before it does, and all of it at once. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from portico.catalog.address import nearest
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import quoted
from portico.errors import UnknownName
from portico.execution.cache import is_read_only
from portico.execution.learned import Shapes
from portico.execution.retrying import ONCE_MORE
from portico.execution.workflow import arguments as fitting
from portico.execution.workflow.limits import MAX_STEPS
from portico.execution.workflow.lookalikes import lookalikes
from portico.execution.workflow.offered import Offered, offered
from portico.execution.workflow.references import INDEX, INPUTS, ITEM, RESERVED, Reference, Template, references
from portico.execution.workflow.steps import Problem, Step, cycle, read

MAX_ALIKE = 3
"""Texts of one argument that look like references and are told."""
MAX_FOUND = 100
"""Problems that are looked for: nobody reads more, and finding the nearest names takes its time."""


@dataclass(frozen=True)
class Planned:
    """A step with the tool it runs."""

    step: Step
    tool: Tool

    @property
    def id(self) -> str:
        return self.step.id


@dataclass(frozen=True)
class Checked:
    """A workflow that can run."""

    plan: tuple[Planned, ...]
    """In the order it was written."""
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Problems:
    """Why a workflow cannot run."""

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


def is_destructive(tool: Tool) -> bool:
    """Whether a tool says that it destroys.

    MCP takes a tool that says nothing for destructive. Most say nothing, and a workflow that stopped at every such step
    would be of no use, so only the word itself counts; a policy can say more.
    """
    return tool.annotations.get("destructiveHint") is True and not is_read_only(tool)


def check(
    steps: Any,
    inputs: Mapping[str, Any],
    snapshot: Snapshot,
    shapes: Shapes | None = None,
    *,
    most: int = MAX_STEPS,
    over: Sequence[Planned] = (),
    twice: Callable[[Tool], bool] = ONCE_MORE.allows,
) -> Checked | Problems:
    """A plan, or what is wrong. `over` are steps that have run: they can be referred to and are not looked at again.

    `twice` says which tools may run twice, and so be retried.
    """
    found, problems = read(steps, most) if steps or not over else ((), ())
    there = {planned.id: planned for planned in over}
    checking = _Checking(found, inputs, snapshot, shapes, there, twice)
    problems = (*problems, *islice(checking.problems(named=not problems), MAX_FOUND))
    warnings = tuple(islice(checking.warnings(), MAX_FOUND))
    if problems:
        return Problems(problems, warnings)
    plan = (*over, *(Planned(step, checking.tools[step.id]) for step in found))
    return Checked(plan, warnings)


class _Checking:
    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Mapping[str, Any],
        snapshot: Snapshot,
        shapes: Shapes | None,
        over: Mapping[str, Planned],
        twice: Callable[[Tool], bool],
    ) -> None:
        self._twice = twice
        self._steps = {step.id: step for step in steps}
        self._inputs = inputs
        self._shapes = shapes
        self._all = {**{name: planned.step for name, planned in over.items()}, **self._steps}
        self.tools: dict[str, Tool] = {name: planned.tool for name, planned in over.items()}
        self._unknown: list[Problem] = []
        for step in steps:
            try:
                if step.tool:
                    self.tools[step.id] = snapshot.tool(step.tool)
            except UnknownName as error:
                self._unknown.append(Problem(step.id, f"{error.message}. {error.advice}".strip(), "tool"))

    def problems(self, *, named: bool) -> Iterator[Problem]:
        """What is wrong; with `named` false some steps could not be read, and a name may be theirs."""
        yield from self._unknown
        for step in self._steps.values():
            yield from self._names(step, named)
            if (tool := self.tools.get(step.id)) is not None:
                yield from self._tool(step, tool)
        if circle := cycle({name: step.before & self._steps.keys() for name, step in self._steps.items()}):
            yield Problem(circle[0], f"it waits for itself: {' waits for '.join(circle)}")

    def warnings(self) -> Iterator[Problem]:
        """What will surely find nothing, or not fit."""
        for step in self._steps.values():
            for reference in dict.fromkeys(step.mentions):
                if (offer := self._offered(reference)) is not None and offer.gap:
                    yield Problem(step.id, f"{offer.gap}", f"${{{reference.text}}}")
            tool = self.tools.get(step.id)
            for name, value in step.arguments.items() if tool and isinstance(step.arguments, dict) else ():
                if isinstance(value, Template) and tool is not None:
                    offer = self._offered(value.sole) if value.sole else None
                    if doubt := fitting.doubts(tool, name, value, offer):
                        yield Problem(step.id, doubt, f"arguments.{name}")
            yield from self._lookalikes(step)

    def _lookalikes(self, step: Step) -> Iterator[Problem]:
        names = {*self._all, INPUTS, *((ITEM, INDEX) if step.each is not None else ())}
        for name, value in step.arguments.items() if isinstance(step.arguments, dict) else ():
            for written, meant in islice(dict.fromkeys(lookalikes(value, names)), MAX_ALIKE):
                yield Problem(step.id, f"{written} looks like a reference: write {meant}", f"arguments.{name}")

    def _names(self, step: Step, named: bool) -> Iterator[Problem]:
        for name in step.after if named else ():
            if name not in self._all:
                yield Problem(step.id, self._no_step(name), "depends_on")
        optional = step.mentions[len(step.uses) :]
        for reference in dict.fromkeys(step.mentions):
            where = f"${{{reference.text}}}"
            for name in sorted(reference.names - self._all.keys() - RESERVED) if named else ():
                yield Problem(step.id, self._no_step(name, reference.path), where)
            if step.each is None and not reference.names.isdisjoint((ITEM, INDEX)):
                yield Problem(step.id, "item and index are only there with for_each", where)
            if reference not in optional:
                for name in sorted(reference.inputs - self._inputs.keys()):
                    yield Problem(step.id, f"there is no input {quoted(name)}; pass it in {INPUTS}", where)
        for reference in references(step.each):
            if not reference.names.isdisjoint((ITEM, INDEX)):
                yield Problem(step.id, "item and index are not there yet", "for_each")

    def _no_step(self, name: str, path: str = "") -> str:
        if f'"{name}"' in path and "-" not in name:
            return f"there is no step {quoted(name)}; a text stands in single quotation marks there, '{name}'"
        near = nearest(name, self._all, 3)
        hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(list(self._all)[:10])}"
        return f"there is no step {quoted(name)}; {hint}"

    def _tool(self, step: Step, tool: Tool) -> Iterator[Problem]:
        if isinstance(step.arguments, dict):
            for name, message in fitting.problems(tool, step.arguments):
                yield Problem(step.id, message, f"arguments.{name}")
        if step.retry.attempts and not self._twice(tool):
            message = (
                f"{tool.address} does not say that it is read-only or idempotent; trying again might do it twice. "
                "Leave retry out; resume tries again when it has failed"
            )
            yield Problem(step.id, message, "retry")

    def _offered(self, reference: Reference) -> Offered | None:
        """What is known of what a plain reference to a step will find."""
        if reference.way is None or not isinstance(name := reference.way[0], str):
            return None
        step, tool = self._all.get(name), self.tools.get(name)
        if step is None or tool is None:
            return None
        shape = self._shapes.of(tool) if self._shapes else None
        return offered(tool, shape, reference.way[1:], each=step.each is not None)
