"""Parts of a stored result: by page, and by the lines that match. Pure; bounded in time and tokens.

A caller writes the pattern, so it is taken for hostile. A regular expression can need years: `regex` is asked with a
deadline, and lets others run while it looks; plain words never become an expression at all.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portico.errors import InvalidArguments

Count = Callable[[str], int]

MAX_EXPRESSION = 1_000
"""Characters of a pattern."""
GREP_S = 2.0
AROUND = 160
"""Characters of a long line that are shown either side of a match."""
_CHARS_PER_TOKEN = 8
"""A token has seldom more, so that megabytes need not be counted to find the first pages of them."""
_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|()]|\.[*+]")
_BEYOND_REGULAR = re.compile(r"\(\?(?:R|&|P>|[0-9+-]|\()|\{[^{}]*[eids]\s*[<{]|\{[eids][:}]")
"""Recursion, conditions and fuzzy matching: what no grep has, and what costs memory rather than time."""


@dataclass(frozen=True)
class Page:
    """A part of something longer."""

    text: str
    next: int | None
    """Where to go on; None at the end."""


def fitting(text: str, tokens: int, count: Count) -> int:
    """How many of the first characters fit, at the end of a line where one is near; at least one."""
    end = min(len(text), max(1, tokens) * _CHARS_PER_TOKEN)
    while end > 1 and (cost := count(text[:end])) > tokens:
        end = max(1, min(end - 1, int(end * tokens / cost)))
    if end == len(text):
        return end
    line_end = text.rfind("\n", end // 2, end) + 1
    return line_end or end


def page(texts: Iterable[str], start: int, tokens: int, count: Count) -> Page:
    """The characters from `start` on that fit; what comes later is not even asked for."""
    wanted = tokens * _CHARS_PER_TOKEN
    kept: list[str] = []
    position = gathered = 0
    more = False
    for text in texts:
        if position + len(text) > start:
            if gathered >= wanted:
                more = True
                break
            inside = text[max(0, start - position) :]
            kept.append(inside[: wanted - gathered])
            gathered += len(inside)
        position += len(text)
    body = "".join(kept)
    end = fitting(body, tokens, count) if body else 0
    return Page(body[:end], start + end if more or end < gathered else None)


# --- grep


@dataclass(frozen=True)
class Matcher:
    """Finds the place of the first match in a line; None where there is none."""

    find: Callable[[str, float], tuple[int, int] | None]
    plain: bool


def matcher(grep: str) -> Matcher:
    """Plain text unless it has signs of an expression; case counts where a capital letter is in it."""
    if len(grep) > MAX_EXPRESSION:
        raise InvalidArguments(f"grep has more than {MAX_EXPRESSION} characters", advice="Look for less at a time.")
    folds = grep == grep.lower()
    if not _SPECIAL.search(grep):
        return Matcher(_plain_finder(grep, folds), plain=True)
    import regex

    if _BEYOND_REGULAR.search(grep):
        raise InvalidArguments(
            "grep knows no recursion, conditions or fuzzy matching", advice="Use plain text or a simpler expression."
        )
    try:
        compiled = regex.compile(grep, regex.IGNORECASE if folds else 0)
    except (regex.error, OverflowError, RecursionError, ValueError):
        # An opening bracket is more often meant as one than as a mistake.
        return Matcher(_plain_finder(grep, folds), plain=True)

    def find(line: str, seconds: float) -> tuple[int, int] | None:
        found = compiled.search(line, timeout=max(seconds, 0.001), concurrent=True)
        return found.span() if found else None

    return Matcher(find, plain=False)


def _plain_finder(text: str, folds: bool) -> Callable[[str, float], tuple[int, int] | None]:
    def find(line: str, seconds: float) -> tuple[int, int] | None:
        at = line.lower().find(text) if folds else line.find(text)
        return (at, at + len(text)) if at >= 0 else None

    return find


@dataclass(frozen=True)
class Found:
    """Lines that match, as they are shown."""

    text: str
    matches: int
    next: int | None
    """The line to go on at; None when all have been looked at."""
    looked_at: int


def search(lines: Iterable[str], looking: Matcher, start: int, tokens: int, count: Count, *, context: int = 0) -> Found:
    """The lines from `start` (from 0) that match, numbered from 1, with `context` lines around each, as many as fit."""
    ends = time.monotonic() + GREP_S
    told: list[str] = []
    before: deque[tuple[int, str]] = deque(maxlen=context or 1)
    spent = matches = after = 0
    last = number = -1
    place: tuple[int, int] | None = None
    for number, line in enumerate(lines):
        if number < start:
            continue
        seconds = ends - time.monotonic()
        try:
            place = looking.find(line, seconds) if seconds > 0 else None
        except TimeoutError:
            # What used up its time on one line will do so again; what merely came last gets a new turn.
            if seconds > GREP_S / 2:
                raise _slow() from None
            seconds = 0
        if seconds <= 0:
            return Found("\n".join(told), matches, number, number)
        if place is None and not after:
            before.append((number, line))
            continue
        group = [*before] if place and context and not after else []
        new = [f"{at + 1}-{_clipped(text, (0, 0))}" for at, text in group]
        new.append(f"{number + 1}{':' if place else '-'}{_clipped(line, place or (0, 0))}")
        if context and told and (group[0][0] if group else number) > last + 1:
            new.insert(0, "--")
        cost = sum(count(one) + 1 for one in new)
        if told and spent + cost > tokens:
            return Found("\n".join(told), matches, number, number)
        told += new
        spent += cost
        matches += 1 if place else 0
        after = context if place else after - 1
        last = number
        before.clear()
    return Found("\n".join(told), matches, None, number + 1)


def _slow() -> InvalidArguments:
    return InvalidArguments(
        "the expression takes too long to match", advice="Use plain text, or an expression without nested repeats."
    )


def _clipped(line: str, place: tuple[int, int]) -> str:
    """A line, or of a long one what lies around the match."""
    if len(line) <= 4 * AROUND:
        return line
    start, end = max(0, place[0] - AROUND), min(len(line), min(place[1], place[0] + AROUND) + AROUND)
    left, right = f"…({start:,} characters) " if start else "", f" …({len(line) - end:,} characters)"
    return f"{left}{line[start:end]}{right if end < len(line) else ''}"
