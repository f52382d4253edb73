"""Runs that can be resumed, and their reports. In memory, with owner, expiry and size limits.

An id is as good as a key: 128 random bits, and another caller's is not found. `last` is the last
run of the session or state handle, never that of a token or a name, which others may share.
"""

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.callers import Caller
from portico.config import WorkflowConfig
from portico.errors import InvalidArguments, PorticoError, UnknownName
from portico.json_text.part_stream import estimate_size
from portico.results.store import get_owner_key
from portico.workflows.steps import WorkflowProblem, find_final_steps
from portico.workflows.validation import PlannedStep

LAST_RUN = "last"
MAX_RUNS = 100
MAX_TOTAL_BYTES = 32 * 1024**2
_WITHOUT_SESSION = (
    "A client without a session has no last run: pass resume with the id that the answer of the"
    " run says, or the session that it was passed."
)
StepState = Literal["done", "skipped", "failed", "approval", "waiting"]
"""`approval`: it is destructive and was not approved; `waiting`: a dependency did not finish."""


@dataclass(frozen=True)
class StepResult:
    value: Any
    seconds: float
    calls: int
    size: int
    """Approximate number of characters of its value."""
    repairs: tuple[str, ...] = ()
    """Repairs made to its arguments."""


@dataclass
class WorkflowRun:
    id: str
    owner: str
    session_key: str = ""
    """Session or state handle whose `last` run it may be; empty: none."""
    plan: tuple[PlannedStep, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    results: dict[str, StepResult] = field(default_factory=dict)
    element_results: dict[str, dict[str, StepResult]] = field(default_factory=dict)
    """Results of finished calls of an unfinished `for_each`, by call fingerprint."""
    requested_approvals: dict[str, str] = field(default_factory=dict)
    """Approvals that the last answer asked for: step and fingerprint of its calls."""
    granted_approvals: dict[str, str] = field(default_factory=dict)
    intent: str = ""
    is_planned: bool = False
    """Its steps were planned here: what is not known to be read-only needs approval."""
    is_busy: bool = False
    expires_at: float = 0.0
    definition_chars: int = 0
    """Approximate number of characters of its inputs and steps."""
    size: int = 0

    def measure_definition(self) -> int:
        """Return the approximate characters of inputs and steps; slow for large inputs."""
        return estimate_size(
            [dict(self.inputs), *(dict(planned.step.definition) for planned in self.plan)],
            MAX_TOTAL_BYTES,
        )

    def measure_total(self) -> int:
        finished = sum(result.size for result in self.results.values())
        parts = sum(
            part.size for results in self.element_results.values() for part in results.values()
        )
        return self.definition_chars + finished + parts


class WorkflowRunStore:
    def __init__(self, config: WorkflowConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = config.ttl_s
        self._clock = clock
        self._runs: dict[str, WorkflowRun] = {}
        """In order of use, the most recent last."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        return sum(run.size for run in self._runs.values())

    def find(self, caller: Caller, name: str) -> WorkflowRun:
        """Return a run of this caller.

        Raises UnknownName, also for another caller's, and InvalidArguments while it is running.
        """
        self.expire()
        owner = get_owner_key(caller)
        name = name.strip()
        run = self._runs.get(name)
        if name == LAST_RUN and caller.state_key:
            runs = [run for run in self._runs.values() if run.session_key == caller.state_key]
            run = next((run for run in reversed(runs) if run.owner == owner), None)
        if run is None or run.owner != owner:
            advice = (
                f"Runs are kept for {round(self._ttl_s / 60)} minutes;"
                " pass the steps again for a new one."
            )
            if name == LAST_RUN and not caller.session:
                advice = f"{_WITHOUT_SESSION} {advice}"
            raise UnknownName("there is no such run", advice=advice)
        if run.is_busy:
            raise InvalidArguments(
                "this run is at work already",
                advice="Wait for its answer; one request at a time can continue it.",
            )
        return run

    @contextmanager
    def check_out(self, run: WorkflowRun) -> Generator[None]:
        """Mark a run busy for the duration; store its state afterwards, if there is room."""
        run.is_busy = True
        self._runs.pop(run.id, None)
        self._runs[run.id] = run
        try:
            yield
        finally:
            run.is_busy = False
            run.expires_at = self._clock() + self._ttl_s
            run.size = run.measure_total()
            if not run.plan:  # refused by validation
                del self._runs[run.id]
            self._evict()

    def has_run(self, run: WorkflowRun) -> bool:
        return run.id in self._runs

    def expire(self) -> None:
        """Delete expired runs; called periodically."""
        now = self._clock()
        self._delete_idle(lambda run: run.expires_at <= now)

    def _delete_idle(self, is_deleted: Callable[[WorkflowRun], bool]) -> None:
        for run in list(self._runs.values()):
            if not run.is_busy and is_deleted(run):
                del self._runs[run.id]

    def _evict(self) -> None:
        self.expire()
        self._delete_idle(lambda run: run.size > MAX_TOTAL_BYTES)
        while len(self._runs) > MAX_RUNS or self.held_bytes > MAX_TOTAL_BYTES:
            idle = [run for run in self._runs.values() if not run.is_busy]
            if not idle:
                return
            held: dict[str, int] = {}
            for run in idle:
                held[run.owner] = held.get(run.owner, 0) + run.size + 1
            largest_owner = max(held, key=lambda owner: held[owner])
            del self._runs[next(run.id for run in idle if run.owner == largest_owner)]


@dataclass(frozen=True)
class StepFailure:
    kind: str
    message: str
    advice: str = ""
    retryable: bool = False
    element: int | None = None
    """Index of the `for_each` element."""

    @classmethod
    def from_error(cls, error: PorticoError, element: int | None = None) -> "StepFailure":
        return cls(error.kind, error.message, error.advice, error.retryable, element)


@dataclass(frozen=True)
class StepReport:
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
