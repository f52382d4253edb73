"""Parts of a stored result: by page, and by what matches. Pure; bounded in time and tokens.

A caller writes the pattern, so it is taken for hostile. A regular expression can need years: `regex` is asked with a
deadline, and lets others run while it looks; it remembers every turn of a repeated group, so it looks at a part of a
long line at a time; and to compile groups inside repeated groups takes it twice as long for each, with the lock held,
so there may be few. Plain words never become an expression at all.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from portico.errors import InvalidArguments

Count = Callable[[str], int]

MAX_EXPRESSION = 1_000
"""Characters of a pattern."""
MAX_GROUPS = 12
"""Opening brackets of a pattern."""
GREP_S = 2.0
AROUND = 160
"""Characters of a long line that are shown either side of a match."""
LONG_LINE = 4 * AROUND
"""A longer line is not shown whole: each match in it is shown by itself."""
_WINDOW = 256 * 1024
"""Characters that are folded at once, with the interpreter's lock held."""
_REACH = 64 * 1024
"""Characters of a line that an expression is held against at once; no match in a longer line has more."""
_AHEAD = 1_000
"""Characters before the end of such a part where a match may look different with what comes after it."""
_CHARS_PER_TOKEN = 8
"""A token has seldom more, so that megabytes need not be counted to find the first pages of them."""
_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|()]|\.[*+]")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_BEYOND_REGULAR = re.compile(r"\(\?(?:R|&|P>|[0-9+-]|\()|\{[^{}]*[eids]\s*[<{]|\{[eids][:}]")
"""Recursion, conditions and fuzzy matching: what no grep has, and what costs memory rather than time."""
_BETWEEN_ROWS = re.compile(r"(?<=[}\])]),\s{0,4}(?=[{\[(])")
_BETWEEN_WORDS = re.compile(r"\s")


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

Span = tuple[int, int]


class TimeUpError(TimeoutError):
    """Time is up, and the line has been looked at as far as `at`."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


@dataclass(frozen=True)
class Matcher:
    """Finds where a line matches, from a place on and until a time; its iterator raises TimeoutError."""

    spans: Callable[[str, int, float], Iterator[Span]]
    plain: bool


def matcher(grep: str) -> Matcher:
    """Plain text unless it has signs of an expression; case counts where a capital letter is in it."""
    if len(grep) > MAX_EXPRESSION:
        raise InvalidArguments(f"grep has more than {MAX_EXPRESSION} characters", advice="Look for less at a time.")
    folds = grep == grep.lower()
    if not _SPECIAL.search(grep):
        return Matcher(_plain_spans(grep, folds), plain=True)
    import regex

    if _BEYOND_REGULAR.search(grep):
        raise InvalidArguments(
            "grep knows no recursion, conditions or fuzzy matching", advice="Use plain text or a simpler expression."
        )
    if _ESCAPED.sub("", grep).count("(") > MAX_GROUPS:
        raise InvalidArguments(f"grep has more than {MAX_GROUPS} groups", advice="Use a simpler expression.")
    try:
        compiled = regex.compile(grep, regex.IGNORECASE if folds else 0)
    except (regex.error, OverflowError, RecursionError, ValueError):
        # An opening bracket is more often meant as one than as a mistake.
        return Matcher(_plain_spans(grep, folds), plain=True)

    def spans(line: str, start: int, ends: float) -> Iterator[Span]:
        while start <= len(line):
            seconds = ends - time.monotonic()
            if seconds <= 0:
                raise TimeUpError(start)
            edge = min(len(line), start + _REACH)
            found = compiled.search(line, start, edge, timeout=max(seconds, 0.001), concurrent=True)
            if found is None and edge == len(line):
                return
            if found is None:
                start += _REACH // 2
            elif edge < len(line) and found.end() > edge - _AHEAD and found.start() > start:
                start = found.start()  # once more, with what comes after it
            else:
                yield found.span()
                start = max(found.end(), found.start() + 1)

    return Matcher(spans, plain=False)


def _plain_spans(text: str, folds: bool) -> Callable[[str, int, float], Iterator[Span]]:
    def spans(line: str, start: int, ends: float) -> Iterator[Span]:
        while start < len(line):
            # What begins in this window may end behind it.
            window = line[start : start + _WINDOW + len(text) - 1]
            window = _folded(window) if folds else window
            at = 0
            while (found := window.find(text, at)) >= 0:
                at = found + len(text)
                yield start + found, start + at
                if time.monotonic() >= ends:
                    raise TimeUpError(start + at)
            start += max(_WINDOW, at)
            if time.monotonic() >= ends:
                raise TimeUpError(start)

    return spans


def _folded(text: str) -> str:
    """Lower case, and no longer for it: only this letter becomes two."""
    return text.replace("İ", "i").lower()


@dataclass(frozen=True)
class Found:
    """What matches, as it is shown."""

    text: str
    matches: int
    """Those that are shown; a line that is shown whole shows all of its own."""
    lines: int
    """Lines that they are in."""
    excerpts: int
    """Those that are shown by themselves, because their line is too long."""
    next: int | None
    """The character to go on at; None when all have been looked at."""
    since: int
    """The line, from 0, that was looked at first."""
    looked_at: int
    """Lines up to the last that was looked at."""
    unshown: int = 0
    """Further matches in the long line that the text ends in."""
    all_counted: bool = True
    """Whether time sufficed to count these."""


def search(lines: Iterable[str], looking: Matcher, start: int, tokens: int, count: Count, *, context: int = 0) -> Found:
    """The lines from the character `start` on that match, numbered from 1, with `context` lines around each.

    Of a line that is too long to be shown, each match is shown. As many as fit; the rest of such a line is counted.
    """
    telling = _Telling(tokens, count, context)
    number, position, since = -1, 0, None
    ends = 0.0
    for number, line in enumerate(lines):
        begins, position = position, position + len(line) + 1
        if position <= start:
            continue
        if since is None:
            # What was read before is skipped at its own cost, or a late page would have no time left.
            since, ends = number, time.monotonic() + GREP_S
        elif time.monotonic() >= ends:
            return telling.found(begins, since, number)
        at, matched = max(0, start - begins), False
        spans = looking.spans(line, at, ends)
        try:
            for span in spans:
                long = len(line) > LONG_LINE
                more = 0 if long else _counted(spans)[0]
                if not telling.match(number, line, span if long else None, 1 + more):
                    at = span[0] if long else 0
                    unshown, complete = _counted(spans) if matched else (0, True)
                    looked_at = number + 1 if matched else number
                    return telling.found(begins + at, since, looked_at, unshown + matched, complete)
                at, matched = max(span[1], span[0] + 1), True
        except TimeoutError as error:
            at = error.at if isinstance(error, TimeUpError) else at
            # What used up all its time at one place will do so again; what merely came last gets a new turn.
            if begins + at <= start and not matched:
                raise _slow() from None
            return telling.found(min(begins + at, position), since, number + 1 if matched else number)
        if not matched and not telling.beside(number, line):
            return telling.found(begins, since, number)
    return telling.found(None, number + 1 if since is None else since, number + 1)


def _counted(spans: Iterator[Span]) -> tuple[int, bool]:
    """How many are left, and whether these are all."""
    counted = 0
    try:
        for _ in spans:
            counted += 1
    except TimeoutError:
        return counted, False
    return counted, True


class _Telling:
    """The text of a search, while it grows."""

    def __init__(self, tokens: int, count: Count, context: int) -> None:
        self._tokens, self._count, self._context = tokens, count, context
        self._told: list[str] = []
        self._before: deque[tuple[int, str]] = deque(maxlen=context or 1)
        self._spent = self._matches = self._lines = self._excerpts = self._after = 0
        self._last = self._last_match = -1

    def match(self, number: int, line: str, span: Span | None, matches: int) -> bool:
        """Tell a line, or one match in a long line; False where it does not fit."""
        group = [*self._before] if self._context and not self._after else []
        new = [f"{at + 1}-{_start(text)}" for at, text in group]
        new.append(f"{number + 1}:{line}" if span is None else f"{number + 1}@{span[0] + 1}:{excerpt(line, span)}")
        if not self._add(new, group[0][0] if group else number, number):
            return False
        self._matches += matches
        self._excerpts += span is not None
        self._lines += number != self._last_match
        self._last_match, self._after = number, self._context
        return True

    def beside(self, number: int, line: str) -> bool:
        """Tell a line that does not match, if it is near to one that does; False where it does not fit."""
        if not self._after:
            self._before.append((number, line))
            return True
        if not self._add([f"{number + 1}-{_start(line)}"], number, number):
            return False
        self._after -= 1
        return True

    def found(self, following: int | None, since: int, looked_at: int, unshown: int = 0, counted: bool = True) -> Found:
        text = "\n".join(self._told)
        return Found(text, self._matches, self._lines, self._excerpts, following, since, looked_at, unshown, counted)

    def _add(self, new: list[str], first: int, last: int) -> bool:
        if self._context and self._told and first > self._last + 1:
            new.insert(0, "--")
        cost = sum(self._count(one) + 1 for one in new)
        if self._told and self._spent + cost > self._tokens:
            return False
        self._told += new
        self._spent += cost
        self._last = last
        self._before.clear()
        return True


def _slow() -> InvalidArguments:
    return InvalidArguments(
        "the expression takes too long to match", advice="Use plain text, or an expression without nested repeats."
    )


def excerpt(line: str, span: Span) -> str:
    """What lies around a match in a long line: its row where that is near, else whole words."""
    first, last = max(0, span[0] - AROUND), min(len(line), min(span[1], span[0] + AROUND) + AROUND)
    before, inside, after = line[first : span[0]], line[span[0] : span[1]][: 2 * AROUND], line[span[1] : last]
    if rows := [*_BETWEEN_ROWS.finditer(before)]:
        before = before[rows[-1].end() :]
    elif first and (word := _BETWEEN_WORDS.search(before, 0, AROUND // 4)):
        before = before[word.end() :]
    if row := _BETWEEN_ROWS.search(after):
        after = after[: row.start()]
    elif last < len(line) and (words := [*_BETWEEN_WORDS.finditer(after, len(after) * 3 // 4)]):
        after = after[: words[-1].start()]
    start, end = span[0] - len(before), span[0] + len(inside) + len(after)
    return f"{'…' if start else ''}{before}{inside}{after}{'…' if end < len(line) else ''}"


def _start(line: str) -> str:
    """A line that is only shown beside others."""
    return line if len(line) <= LONG_LINE else f"{line[:AROUND]} …({len(line) - AROUND:,} characters)"
