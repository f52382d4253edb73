"""Outcome of a run, step by step. Data only; rendering is done elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.access import Caller
from portico.errors import PorticoError
from portico.workflows.steps import WorkflowProblem, find_final_steps
from portico.workflows.validation import PlannedStep

StepState = Literal["done", "skipped", "failed", "approval", "waiting"]
"""`approval`: it is destructive and was not approved; `waiting`: a dependency did not finish."""


@dataclass(frozen=True)
class StepFailure:
    """Why a step failed."""

    kind: str
    message: str
    advice: str = ""
    retryable: bool = False
    element: int | None = None
    """Index of the `for_each` element."""

    @classmethod
    def from_error(cls, error: PorticoError, element: int | None = None) -> "StepFailure":
        """Convert an error to a failure."""
        return cls(error.kind, error.message, error.advice, error.retryable, element)


@dataclass(frozen=True)
class StepReport:
    """Outcome of one step."""

    id: str
    tool: str
    state: StepState
    value: Any = None
    seconds: float = 0.0
    calls: int = 0
    is_from_earlier: bool = False
    """Done before this run was resumed."""
    reason: str = ""
    """Why it was skipped, or what it waits for."""
    failure: StepFailure | None = None
    repairs: tuple[str, ...] = ()
    pending_arguments: tuple[Mapping[str, Any], ...] = ()
    """Arguments of the calls that wait for approval."""


@dataclass(frozen=True)
class WorkflowReport:
    """Outcome of a run."""

    run_id: str
    """Id to resume with; empty if the run was not stored."""
    state: Literal["finished", "failed", "approval"]
    steps: tuple[StepReport, ...]
    seconds: float
    plan: tuple[PlannedStep, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[WorkflowProblem, ...] = ()
    caller: Caller = field(default_factory=Caller)
    ttl_s: float = 0.0
    intent: str = ""

    @property
    def is_newly_finished(self) -> bool:
        """Whether the run finished and at least one step was done just now."""
        return self.state == "finished" and any(
            step.state == "done" and not step.is_from_earlier for step in self.steps
        )

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Values of the finished steps that no other step depends on."""
        last = set(
            find_final_steps({planned.id: planned.step.dependencies for planned in self.plan})
        )
        return {
            step.id: step.value for step in self.steps if step.state == "done" and step.id in last
        }
