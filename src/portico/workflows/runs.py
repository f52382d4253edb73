"""Runs that can be resumed, with owner, expiry and size limits. In memory, for one event loop.

An id is as good as a key: 128 random bits, and another caller's is not found. `last` is the last
run of the session or state handle, never that of a token or a name, which others may share.
"""

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from portico.access import Caller
from portico.errors import InvalidArguments, UnknownName
from portico.json_text.part_stream import estimate_size
from portico.results.store import get_owner_key
from portico.workflows.limits import MAX_RUNS, MAX_TOTAL_BYTES, RUN_TTL_S
from portico.workflows.validation import PlannedStep

LAST_RUN = "last"
_WITHOUT_SESSION = (
    "A client without a session has no last run: pass resume with the id that the answer of the"
    " run says, or the session that it was passed."
)


@dataclass(frozen=True)
class StepResult:
    """Result of a finished step."""

    value: Any
    seconds: float
    calls: int
    size: int
    """Approximate number of characters of its value."""
    repairs: tuple[str, ...] = ()
    """Repairs made to its arguments."""


@dataclass
class WorkflowRun:
    """State of one run."""

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
        """Return the approximate number of characters it holds."""
        finished = sum(result.size for result in self.results.values())
        parts = sum(
            part.size for results in self.element_results.values() for part in results.values()
        )
        return self.definition_chars + finished + parts


class WorkflowRunStore:
    """Stores runs."""

    def __init__(
        self,
        *,
        max_runs: int = MAX_RUNS,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        ttl_s: float = RUN_TTL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ttl_s = ttl_s
        self._max_runs = max_runs
        self._max_total_bytes = max_total_bytes
        self._clock = clock
        self._runs: dict[str, WorkflowRun] = {}
        """In order of use, the most recent last."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the stored values."""
        return sum(run.size for run in self._runs.values())

    def create(self, caller: Caller) -> WorkflowRun:
        """Create a run that is not stored yet."""
        return WorkflowRun(secrets.token_urlsafe(16), get_owner_key(caller), caller.state_key)

    def find(self, caller: Caller, name: str) -> WorkflowRun:
        """Return a run of this caller.

        Raises UnknownName, also for another caller's, and InvalidArguments while it is running.
        """
        self.expire()
        owner = get_owner_key(caller)
        name = name.strip()
        if name == LAST_RUN:
            run = self._find_last(owner, caller.state_key)
        else:
            run = self._runs.get(name)
        if run is None or run.owner != owner:
            advice = (
                f"Runs are kept for {round(self.ttl_s / 60)} minutes;"
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

    def _find_last(self, owner: str, state: str) -> WorkflowRun | None:
        if not state:
            return None
        runs = reversed(self._runs.values())
        return next((run for run in runs if run.owner == owner and run.session_key == state), None)

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
            run.expires_at = self._clock() + self.ttl_s
            run.size = run.measure_total()
            if not run.plan:  # refused by validation
                del self._runs[run.id]
            self._evict()

    def has_run(self, run: WorkflowRun) -> bool:
        """Return whether a run can be resumed."""
        return run.id in self._runs

    def expire(self) -> None:
        """Delete expired runs; called periodically."""
        now = self._clock()
        for run in [
            run for run in self._runs.values() if not run.is_busy and run.expires_at <= now
        ]:
            del self._runs[run.id]

    def _evict(self) -> None:
        self.expire()
        for run in [
            run
            for run in self._runs.values()
            if run.size > self._max_total_bytes and not run.is_busy
        ]:
            del self._runs[run.id]
        while len(self._runs) > self._max_runs or self.held_bytes > self._max_total_bytes:
            held: dict[str, int] = {}
            idle = [run for run in self._runs.values() if not run.is_busy]
            if not idle:
                return
            for run in idle:
                held[run.owner] = held.get(run.owner, 0) + run.size + 1
            largest_owner = max(held, key=lambda owner: held[owner])
            del self._runs[next(run.id for run in idle if run.owner == largest_owner)]
