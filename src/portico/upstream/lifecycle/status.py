"""What can be said about a server: its state, why it is in it, and what a caller is told who wants
it now. Pure."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.errors import BackendUnavailable
from portico.upstream.backend import InitializeInfo
from portico.upstream.lifecycle.circuit_breaker import BreakerPhase, StartRefusal

LifecycleState = Literal[
    "configured", "known", "starting", "ready", "degraded", "down", "quarantined", "disabled"
]

TROUBLED_STATES: tuple[LifecycleState, ...] = ("down", "quarantined", "degraded", "disabled")
"""The states that somebody should be told of."""
MAX_STDERR_LINES = 5
_MAX_LINE_CHARS = 200


@dataclass(frozen=True)
class UpstreamStatus:
    """What can be said about a server now."""

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
    """How often it failed lately."""
    next_try_at: float | None = None
    """When it may be tried again, in the time of day; None where it may be now, or where only a
    person can say."""
    restarts: int = 0
    """How often it was started again after it had died, or had been ended because something was
    wrong."""
    restart_reason: str = ""
    """Why it was last ended by us, to be started anew."""
    stderr: tuple[str, ...] = ()
    """The last lines it wrote."""
    memory_bytes: int = 0
    """Bytes of it and its children when that was last looked at; 0 where it never was."""


def make_unavailable_error(
    name: str, since: float, reason: str, advice: str = ""
) -> BackendUnavailable:
    """`known but unavailable`, with the reason and since when."""
    return BackendUnavailable(
        f"{name} is known but unavailable since {format_time(since)}: {reason}",
        advice=advice
        or "Its tools stay listed; try again shortly, or run `portico status` to see why.",
    )


def make_refusal_error(
    name: str, refusal: StartRefusal, reason: str, stderr_lines: Sequence[str] = ()
) -> BackendUnavailable:
    """What everyone is told while a server is not to be started; `said` are its last words."""
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
    """Why a server is in quarantine."""
    return f"it is in quarantine after {failures} failures within {format_duration(window)}; the last: {reason}"


def take_last_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The end of what a server wrote, as it wrote it."""
    return tuple(line for line in lines if line.strip())[-MAX_STDERR_LINES:]


def shorten_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines cut to a length; masked before that, because half of a secret is not found."""
    return tuple(line.strip()[:_MAX_LINE_CHARS] for line in lines)


def format_time(timestamp: float) -> str:
    """A moment of today."""
    return time.strftime("%H:%M:%S", time.localtime(timestamp))


def format_duration(seconds: float) -> str:
    """How long something takes: `30 s`, `10 min`."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    return f"{math.ceil(seconds / 60)} min"
