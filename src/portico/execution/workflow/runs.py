"""Runs that can be continued: whose they are, for how long, how many and how large. In memory; one event loop's own.

An id is as good as a key: 128 random bits, and another caller's is not found. `last` is the last run of the session, or
of the handle that a client without one brings; never that of a token or a name, which others may have too.
"""

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from portico.access import Caller
from portico.errors import InvalidArguments, UnknownName
from portico.execution.json_stream import weight
from portico.execution.results import owner_of
from portico.execution.workflow.checking import Planned
from portico.execution.workflow.limits import MAX_RUNS, TOTAL_BYTES, TTL_S

LAST = "last"
_WITHOUT_SESSION = (
    "A client without a session has no last run: pass resume with the id that the answer of the run says, or the "
    "session that it was passed."
)


@dataclass(frozen=True)
class Done:
    """A step that has run."""

    value: Any
    seconds: float
    calls: int
    size: int
    """About how many characters its value has."""
    repaired: tuple[str, ...] = ()
    """What was done to its arguments so that they fit."""


@dataclass
class Run:
    """One run, as far as it got."""

    id: str
    owner: str
    state: str = ""
    """The session or handle whose `last` it may be; empty: nobody's."""
    plan: tuple[Planned, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    done: dict[str, Done] = field(default_factory=dict)
    elements: dict[str, dict[str, Done]] = field(default_factory=dict)
    """Of a `for_each` that is not over: what its finished calls answered, by the fingerprint of the call."""
    shown: dict[str, str] = field(default_factory=dict)
    """What the last answer asked approval for: the step, and the fingerprint of its calls."""
    approved: dict[str, str] = field(default_factory=dict)
    intent: str = ""
    busy: bool = False
    expires: float = 0.0
    written: int = 0
    """About how many characters its inputs and steps have."""
    size: int = 0

    def weigh_written(self) -> int:
        """Return about how many characters its inputs and steps have; takes long for large inputs."""
        return weight([dict(self.inputs), *(dict(planned.step.given) for planned in self.plan)], TOTAL_BYTES)

    def measured(self) -> int:
        """About how many characters it holds."""
        parts = (one.size for some in self.elements.values() for one in some.values())
        return self.written + sum(one.size for one in self.done.values()) + sum(parts)


class Runs:
    """Keeps runs."""

    def __init__(
        self,
        *,
        most: int = MAX_RUNS,
        total_bytes: int = TOTAL_BYTES,
        ttl_s: float = TTL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ttl_s = ttl_s
        self._most, self._total_bytes = most, total_bytes
        self._clock = clock
        self._runs: dict[str, Run] = {}
        """The one that was used last comes last."""

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def held_bytes(self) -> int:
        """About how much memory the values take."""
        return sum(run.size for run in self._runs.values())

    def new(self, caller: Caller) -> Run:
        """A run that is not kept yet."""
        return Run(secrets.token_urlsafe(16), owner_of(caller), caller.state)

    def find(self, caller: Caller, name: str) -> Run:
        """A run of this caller's; raises UnknownName, also for another's, and InvalidArguments while it is at work."""
        self.expire()
        owner, name = owner_of(caller), name.strip()
        run = self._last(owner, caller.state) if name == LAST else self._runs.get(name)
        if run is None or run.owner != owner:
            advice = f"Runs are kept for {round(self.ttl_s / 60)} minutes; pass the steps again for a new one."
            if name == LAST and not caller.session:
                advice = f"{_WITHOUT_SESSION} {advice}"
            raise UnknownName("there is no such run", advice=advice)
        if run.busy:
            raise InvalidArguments(
                "this run is at work already", advice="Wait for its answer; one request at a time can continue it."
            )
        return run

    def _last(self, owner: str, state: str) -> Run | None:
        if not state:
            return None
        runs = reversed(self._runs.values())
        return next((run for run in runs if run.owner == owner and run.state == state), None)

    @contextmanager
    def using(self, run: Run) -> Generator[None]:
        """Nobody else's while it is at work, and kept afterwards as far as it got, if there is room."""
        run.busy = True
        self._runs.pop(run.id, None)
        self._runs[run.id] = run
        try:
            yield
        finally:
            run.busy, run.expires, run.size = False, self._clock() + self.ttl_s, run.measured()
            if not run.plan:  # it was refused before it began
                del self._runs[run.id]
            self._make_room()

    def keeps(self, run: Run) -> bool:
        """Whether a run can be continued."""
        return run.id in self._runs

    def expire(self) -> None:
        """Let go of what is over its time; for housekeeping."""
        now = self._clock()
        for run in [run for run in self._runs.values() if not run.busy and run.expires <= now]:
            del self._runs[run.id]

    def _make_room(self) -> None:
        self.expire()
        for run in [run for run in self._runs.values() if run.size > self._total_bytes and not run.busy]:
            del self._runs[run.id]
        while len(self._runs) > self._most or self.held_bytes > self._total_bytes:
            held: dict[str, int] = {}
            idle = [run for run in self._runs.values() if not run.busy]
            if not idle:
                return
            for run in idle:
                held[run.owner] = held.get(run.owner, 0) + run.size + 1
            most = max(held, key=lambda owner: held[owner])
            del self._runs[next(run.id for run in idle if run.owner == most)]
