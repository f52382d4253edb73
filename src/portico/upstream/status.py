"""What can be said about a server: its state, why it is in it, and what a caller is told who wants it now. Pure."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from portico.errors import BackendUnavailable
from portico.upstream.backend import Hello
from portico.upstream.breaker import Phase, Refusal

State = Literal["configured", "known", "starting", "ready", "degraded", "down", "quarantined", "disabled"]

TROUBLED: tuple[State, ...] = ("down", "quarantined", "degraded", "disabled")
"""The states that somebody should be told of."""
LAST_LINES = 5
_LONGEST_LINE = 200


@dataclass(frozen=True)
class Status:
    """What can be said about a server now."""

    name: str
    kind: str
    state: State
    since: float
    reason: str = ""
    hello: Hello | None = None
    calls: int = 0
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    breaker: Phase = "closed"
    failures: int = 0
    """How often it failed lately."""
    next_try: float | None = None
    """When it may be tried again, in the time of day; None where it may be now, or where only a person can say."""
    restarts: int = 0
    """How often it was started again after it had died, or had been ended because something was wrong."""
    restarted_for: str = ""
    """Why it was last ended by us, to be started anew."""
    stderr: tuple[str, ...] = ()
    """The last lines it wrote."""
    memory: int = 0
    """Bytes of it and its children when that was last looked at; 0 where it never was."""


def unavailable(name: str, since: float, reason: str, advice: str = "") -> BackendUnavailable:
    """`known but unavailable`, with the reason and since when."""
    return BackendUnavailable(
        f"{name} is known but unavailable since {clock(since)}: {reason}",
        advice=advice or "Its tools stay listed; try again shortly, or run `portico status` to see why.",
    )


def refused(name: str, refusal: Refusal, reason: str, said: Sequence[str] = ()) -> BackendUnavailable:
    """What everyone is told while a server is not to be started; `said` are its last words."""
    if refusal.wait == 0:
        advice = "It is being tried again just now; ask again in a few seconds."
    elif refusal.quarantined:
        when = "" if refusal.wait is None else f"The next try is in {span(refusal.wait)}; "
        advice = f"{when}`portico restart {name}` tries it at once."
        if said and said[-1] not in reason:
            advice += f" It last wrote: {' | '.join(said)}"
    else:
        advice = f"The next try is in {math.ceil(refusal.wait or 0)} s."
    return unavailable(name, refusal.since, reason, advice)


def given_up(failures: int, window: float, reason: str) -> str:
    """Why a server is in quarantine."""
    return f"it is in quarantine after {failures} failures within {span(window)}; the last: {reason}"


def last_lines(said: Sequence[str]) -> tuple[str, ...]:
    """The end of what a server wrote, as it wrote it."""
    return tuple(line for line in said if line.strip())[-LAST_LINES:]


def shortened(said: Iterable[str]) -> tuple[str, ...]:
    """Lines cut to a length; masked before that, because half of a secret is not found."""
    return tuple(line.strip()[:_LONGEST_LINE] for line in said)


def clock(moment: float) -> str:
    """A moment of today."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def span(seconds: float) -> str:
    """How long something takes: `30 s`, `10 min`."""
    return f"{math.ceil(seconds)} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"
