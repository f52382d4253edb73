"""Status record of a server, and the errors that callers get while it is unavailable. Pure."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.errors import BackendUnavailable
from portico.upstream.backend import InitializeInfo
from portico.upstream.lifecycle.restart_circuit_breaker import BreakerPhase, StartRefusal

LifecycleState = Literal[
    "configured",
    "known",
    "starting",
    "ready",
    "degraded",
    "down",
    "quarantined",
    "needs sign-in",
    "disabled",
]

TROUBLED_STATES: tuple[LifecycleState, ...] = (
    "down",
    "quarantined",
    "needs sign-in",
    "degraded",
    "disabled",
)
"""States that need attention."""
UNUSABLE_STATES: tuple[LifecycleState, ...] = ("down", "quarantined", "needs sign-in", "disabled")
"""States in which a call would probably fail."""
MAX_STDERR_LINES = 5
_MAX_LINE_CHARS = 200


@dataclass(frozen=True)
class UpstreamStatus:
    name: str
    kind: str
    state: LifecycleState
    state_since: float
    reason: str = ""
    initialize_info: InitializeInfo | None = None
    calls: int = 0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    breaker_phase: BreakerPhase = "closed"
    failures: int = 0
    """Number of recent failures."""
    next_try_at: float | None = None
    """Wall-clock time of the next try; None if it may be tried now, or only by a restart."""
    restarts: int = 0
    """Number of starts after it had died or had been closed because of a problem."""
    restart_reason: str = ""
    """Why the gateway last restarted it."""
    stderr: tuple[str, ...] = ()
    """Last stderr lines."""
    memory_bytes: int = 0
    """Bytes of the processes and their children at the last measurement; 0 if never measured."""


def make_unavailable_error(
    name: str, since: float, reason: str, advice: str = ""
) -> BackendUnavailable:
    return BackendUnavailable(
        f"{name} is known but unavailable since {format_time(since)}: {reason}",
        advice=advice
        or "Its tools stay listed; try again shortly, or run `portico status` to see why.",
    )


def make_refusal_error(
    name: str, refusal: StartRefusal, reason: str, stderr_lines: Sequence[str] = ()
) -> BackendUnavailable:
    if refusal.retry_after_s == 0:
        advice = "It is being tried again just now; ask again in a few seconds."
    elif refusal.quarantined:
        if refusal.retry_after_s is None:
            when = ""
        else:
            when = f"The next try is in {format_duration(refusal.retry_after_s)}; "
        advice = f"{when}`portico restart {name}` tries it at once."
        if stderr_lines and stderr_lines[-1] not in reason:
            advice += f" It last wrote: {' | '.join(stderr_lines)}"
    else:
        advice = f"The next try is in {math.ceil(refusal.retry_after_s or 0)} s."
    return make_unavailable_error(name, refusal.failing_since, reason, advice)


def describe_quarantine(failures: int, window: float, reason: str) -> str:
    return (
        f"it is in quarantine after {failures} failures within {format_duration(window)}; "
        f"the last: {reason}"
    )


def take_last_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last non-empty lines, unchanged."""
    return tuple(line for line in lines if line.strip())[-MAX_STDERR_LINES:]


def shorten_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Cut lines to a length; mask them before, because half of a secret is not recognised."""
    return tuple(line.strip()[:_MAX_LINE_CHARS] for line in lines)


def format_time(timestamp: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(timestamp))


def format_duration(seconds: float) -> str:
    """Format a duration: `30 s`, `10 min`."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min"
