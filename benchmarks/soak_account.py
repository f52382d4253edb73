"""The books of the soak: what was asked, what went wrong on purpose, and which answers cannot be
accounted for. Pure.

An error is explained by a fault that was injected on something the request needed, while it needed
it. A reload, a restart that was asked for or a broken configuration file explain nothing: they must
not be felt, unless they took the very server away. An error without a kind of its own (`internal`)
is never explained.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import linear_regression, median
from typing import Any

NONCE = re.compile(r"~[0-9a-f]{16}~")
OK, ERROR, CROSSED, LOST, HUNG, LEFT = "ok", "error", "crossed", "lost", "hung", "left"
"""`left` is a request whose client hung up, or was killed, on purpose."""
UNTYPED = frozenset({"internal", "-32603", "untyped"})
_WARM_SHARE = 0.3


TRIED, UNTRIED_S = "is being tried again just now", 120.0
"""Calls during the first attempt after a fault are answered so; that first call may
come long after it."""


@dataclass
class Asked:
    """One request and what became of it."""

    client: str
    what: str
    needs: frozenset[str]
    """What it needs: `main/b03`, `main/sandbox`, `main`, `client 7`."""
    nonces: frozenset[str]
    sent: float
    wants: str = OK
    """`error` for a call that is made to fail."""
    ended: float = math.inf
    outcome: str = ""
    kind: str = ""
    """Of an error."""
    said: str = ""


@dataclass
class Fault:
    """Something that was done on purpose."""

    what: str
    hits: frozenset[str]
    """Empty for what nobody may feel."""
    since: float
    until: float = math.inf

    def explains(self, asked: Asked) -> bool:
        until = self.until + (UNTRIED_S if TRIED in asked.said else 0)
        return bool(self.hits & asked.needs) and asked.sent <= until and asked.ended >= self.since


@dataclass
class Books:
    """Everything that happened; a request stays in `open` until it has an outcome."""

    asked: list[Asked] = field(default_factory=list[Asked])
    faults: list[Fault] = field(default_factory=list[Fault])
    strays: list[str] = field(default_factory=list[str])
    """Answers that nobody waited for."""
    abandoned: int = 0
    """Sessions whose client was killed and never came back."""


@dataclass(frozen=True)
class Verdict:
    """Describes what the books say."""

    outcomes: Counter[str]
    wanted: int
    """Errors of calls that were made to fail."""
    explained: dict[str, tuple[int, int, int]]
    """By kind of fault: how many, errors of requests under way when it struck, errors of those sent
    while it lasted."""
    in_flight: dict[str, int]
    """By kind of fault: requests that were under way, and needed what it struck."""
    unexplained: list[Asked]
    bad: list[Asked]
    """Crossed, lost or hung."""


def outcome(
    message: dict[str, Any], nonces: frozenset[str], marks: Iterable[str], *, failing: bool
) -> tuple[str, str]:
    """Return how an answer is to be taken, and its kind of error; `marks` is what a right one must
    contain."""
    whole = str(message)
    if not set(NONCE.findall(whole)) <= nonces:
        return CROSSED, ""
    if "error" in message:
        return ERROR, str(message["error"].get("code"))
    result = message.get("result")
    if not isinstance(result, dict):
        return CROSSED, "no result"
    if result.get("isError"):
        return ERROR, kind_of(result)
    if failing:
        return CROSSED, "succeeded though it cannot"
    return (OK, "") if all(mark in whole for mark in marks) else (CROSSED, "without its own nonce")


def kind_of(result: dict[str, Any]) -> str:
    """The kind of a refusal."""
    reported = (result.get("_meta") or {}).get("portico/error")
    if reported:
        return str(reported.get("kind"))
    text = str(((result.get("content") or [{}])[0]).get("text", ""))
    for head, kind in (
        ("script ", "script"),
        ("Workflow ", "workflow"),
        ("failed as asked", "failed as asked"),
    ):
        if text.startswith(head):
            return (
                f"{kind} {text.removeprefix(head).partition(':')[0]}" if head == "script " else kind
            )
    return "untyped" if not text else "tool"


def judge(books: Books) -> Verdict:
    """Account for every request."""
    counted = Counter(one.outcome for one in books.asked)
    bad = [
        one
        for one in books.asked
        if one.outcome in (CROSSED, LOST, HUNG, "") and not _is_killed(one, books.faults)
    ]
    errors = [one for one in books.asked if one.outcome == ERROR and one.wants == OK]
    explained = {
        kind: (many, 0, 0) for kind, many in Counter(one.what for one in books.faults).items()
    }
    unexplained: list[Asked] = []
    for one in errors:
        # The latest that explains it: what struck last is felt first.
        why = next((fault for fault in reversed(books.faults) if fault.explains(one)), None)
        if why is None or one.kind in UNTYPED:
            unexplained.append(one)
            continue
        many, before, after = explained[why.what]
        explained[why.what] = (
            many,
            before + (one.sent <= why.since),
            after + (one.sent > why.since),
        )
    flying: Counter[str] = Counter()
    for fault in books.faults:
        flying[fault.what] += sum(
            one.sent <= fault.since <= one.ended and bool(fault.hits & one.needs)
            for one in books.asked
        )
    wanted = sum(one.wants == ERROR and one.outcome == ERROR for one in books.asked)
    return Verdict(counted, wanted, explained, dict(flying), unexplained, bad)


def _is_killed(asked: Asked, faults: Iterable[Fault]) -> bool:
    """Decide whether nothing came back because the client itself, its own gateway included, was
    killed."""
    return asked.outcome == LOST and any(
        asked.client in one.hits and one.explains(asked) for one in faults
    )


@dataclass(frozen=True)
class Trend:
    """Describes how a figure moved: medians of the first and the last fifth after warming up, and
    the slope
    with its doubt."""

    name: str
    first: float
    last: float
    per_minute: float
    doubt: float
    """Half of the 95 % interval of the slope."""


def trend(name: str, at: Sequence[float], figures: Sequence[float]) -> Trend:
    """A line through the figures after warming up; `at` in seconds."""
    skipped = int(len(at) * _WARM_SHARE)
    minutes, kept = [second / 60 for second in at[skipped:]], list(figures[skipped:])
    if len(kept) < 3:
        return Trend(name, math.nan, math.nan, math.nan, math.inf)
    line = linear_regression(minutes, kept)
    middle = sum(minutes) / len(minutes)
    spread = sum((minute - middle) ** 2 for minute in minutes)
    off = [y - line.intercept - line.slope * x for x, y in zip(minutes, kept, strict=True)]
    # Neighbouring samples are alike: they say less than as many that are independent of each other.
    alike = _alike(off)
    scatter = sum(one * one for one in off) / (len(off) - 2)
    doubt = 1.96 * math.sqrt(scatter / spread * (1 + alike) / (1 - alike))
    fifth = max(1, len(kept) // 5)
    return Trend(name, median(kept[:fifth]), median(kept[-fifth:]), line.slope, doubt)


def _alike(off: Sequence[float]) -> float:
    """Return how much a sample is like the one before it, 0 to 1."""
    power = sum(one * one for one in off)
    if not power:
        return 0.0
    return min(0.95, max(0.0, sum(one * two for one, two in pairwise(off)) / power))
