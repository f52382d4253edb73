"""What became of a run, step by step. Facts only; how they are told is disclosure's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.access import Caller
from portico.errors import PorticoError
from portico.workflows.steps import WorkflowProblem, find_final_steps
from portico.workflows.validation import PlannedStep

StepState = Literal["done", "skipped", "failed", "approval", "waiting"]
"""`approval`: it would destroy something and was not approved; `waiting`: what it needs did not come.
"""


@dataclass(frozen=True)
class StepFailure:
    """Why a step failed."""

    kind: str
    message: str
    advice: str = ""
    retryable: bool = False
    element: int | None = None
    """Which of a `for_each`."""

    @classmethod
    def from_error(cls, error: PorticoError, element: int | None = None) -> "StepFailure":
        """An error as the failure of a step."""
        return cls(error.kind, error.message, error.advice, error.retryable, element)


@dataclass(frozen=True)
class StepReport:
    """What became of one step."""

    id: str
    tool: str
    state: StepState
    value: Any = None
    seconds: float = 0.0
    calls: int = 0
    is_from_earlier: bool = False
    """Whether it was done before this run was resumed."""
    reason: str = ""
    """Why it was skipped, or what it waits for."""
    failure: StepFailure | None = None
    repairs: tuple[str, ...] = ()
    pending_arguments: tuple[Mapping[str, Any], ...] = ()
    """The arguments of the calls that wait for approval."""


@dataclass(frozen=True)
class WorkflowReport:
    """What became of a run."""

    run_id: str
    """The handle to go on with; empty where the run could not be kept."""
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
        """Whether it came to its end, and by something that was done just now."""
        return self.state == "finished" and any(
            told.state == "done" and not told.is_from_earlier for told in self.steps
        )

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The values of the steps that no other waits for, as far as they are done."""
        last = set(
            find_final_steps({planned.id: planned.step.dependencies for planned in self.plan})
        )
        return {
            told.id: told.value for told in self.steps if told.state == "done" and told.id in last
        }
