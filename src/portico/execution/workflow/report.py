"""What became of a run, step by step. Facts only; how they are told is disclosure's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.access import Caller
from portico.errors import PorticoError
from portico.execution.workflow.checking import Planned
from portico.execution.workflow.steps import Problem, ends

State = Literal["done", "skipped", "failed", "approval", "waiting"]
"""`approval`: it would destroy something and was not approved; `waiting`: what it needs did not come."""


@dataclass(frozen=True)
class Failure:
    """Why a step failed."""

    kind: str
    message: str
    advice: str = ""
    retryable: bool = False
    element: int | None = None
    """Which of a `for_each`."""

    @classmethod
    def of(cls, error: PorticoError, element: int | None = None) -> "Failure":
        """An error as the failure of a step."""
        return cls(error.kind, error.message, error.advice, error.retryable, element)


@dataclass(frozen=True)
class Told:
    """What became of one step."""

    id: str
    tool: str
    state: State
    value: Any = None
    seconds: float = 0.0
    calls: int = 0
    earlier: bool = False
    """Whether it was done before this run was resumed."""
    reason: str = ""
    """Why it was skipped, or what it waits for."""
    failure: Failure | None = None
    repaired: tuple[str, ...] = ()
    would: tuple[Mapping[str, Any], ...] = ()
    """The arguments of the calls that wait for approval."""


@dataclass(frozen=True)
class Report:
    """What became of a run."""

    run: str
    """The handle to go on with; empty where the run could not be kept."""
    state: Literal["finished", "failed", "approval"]
    steps: tuple[Told, ...]
    seconds: float
    plan: tuple[Planned, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    caller: Caller = field(default_factory=Caller)
    kept_s: float = 0.0
    intent: str = ""

    @property
    def worked(self) -> bool:
        """Whether it came to its end, and by something that was done just now."""
        return self.state == "finished" and any(told.state == "done" and not told.earlier for told in self.steps)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The values of the steps that no other waits for, as far as they are done."""
        last = set(ends({planned.id: planned.step.before for planned in self.plan}))
        return {told.id: told.value for told in self.steps if told.state == "done" and told.id in last}
