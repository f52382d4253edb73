"""Parts of a stored result: by page, and by what matches. Pure; bounded in time and tokens.

A caller writes the pattern, so it is taken for hostile. A regular expression can need years:
`regex` is asked with a deadline, and lets others run while it looks; it remembers every turn of a
repeated group, so it looks at a part of a long line at a time; and to compile groups inside
repeated groups takes it twice as long for each, with the lock held, so there may be few. Plain
words never become an expression at all.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from portico.errors import InvalidArguments

CountTokens = Callable[[str], int]

MAX_PATTERN_CHARS = 1_000
"""Characters of a pattern."""
MAX_GROUPS = 12
"""Opening brackets of a pattern."""
GREP_TIMEOUT_S = 2.0
CONTEXT_CHARS = 160
"""Characters of a long line that are shown either side of a match."""
LONG_LINE_CHARS = 4 * CONTEXT_CHARS
"""A longer line is not shown whole: each match in it is shown by itself."""
_FOLD_WINDOW_CHARS = 256 * 1024
"""Characters that are folded at once, with the interpreter's lock held."""
_MATCH_WINDOW_CHARS = 64 * 1024
"""Characters of a line that an expression is held against at once; no match in a longer line has
more."""
_LOOKAHEAD_CHARS = 1_000
"""Characters before the end of such a part where a match may look different with what comes after
it."""
_CHARS_PER_TOKEN = 8
"""A token has seldom more, so that megabytes need not be counted to find the first pages of them.
"""
_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|()]|\.[*+]")
_ESCAPE_SEQUENCE = re.compile(r"\\.", re.DOTALL)
_BEYOND_REGULAR = re.compile(r"\(\?(?:R|&|P>|[0-9+-]|\()|\{[^{}]*[eids]\s*[<{]|\{[eids][:}]")
"""Recursion, conditions and fuzzy matching: what no grep has, and what costs memory rather than
time."""
_BETWEEN_ROWS = re.compile(r"(?<=[}\])]),\s{0,4}(?=[{\[(])")
_BETWEEN_WORDS = re.compile(r"\s")


@dataclass(frozen=True)
class TextPage:
    """A part of something longer."""

    text: str
    next_offset: int | None
    """Where to go on; None at the end."""


def count_fitting_chars(text: str, tokens: int, count: CountTokens) -> int:
    """How many of the first characters fit, at the end of a line where one is near; at least one."""
    end = min(len(text), max(1, tokens) * _CHARS_PER_TOKEN)
    while end > 1 and (cost := count(text[:end])) > tokens:
        end = max(1, min(end - 1, int(end * tokens / cost)))
    if end == len(text):
        return end
    line_end = text.rfind("\n", end // 2, end) + 1
    return line_end or end


def take_page(texts: Iterable[str], start: int, tokens: int, count: CountTokens) -> TextPage:
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
    if body:
        end = count_fitting_chars(body, tokens, count)
    else:
        end = 0
    return TextPage(body[:end], start + end if more or end < gathered else None)


# --- grep

MatchSpan = tuple[int, int]


class GrepTimeoutError(TimeoutError):
    """Time is up, and the line has been looked at as far as `at`."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class LineMatcher:
    """Finds where a line matches, from a place on and until a time; its iterator raises
    TimeoutError."""

    find_spans: Callable[[str, int, float], Iterator[MatchSpan]]
    is_plain: bool


def compile_matcher(grep: str) -> LineMatcher:
    """Plain text unless it has signs of an expression; case counts where a capital letter is in it."""
    if len(grep) > MAX_PATTERN_CHARS:
        raise InvalidArguments(
            f"grep has more than {MAX_PATTERN_CHARS} characters", advice="Look for less at a time."
        )
    folds = grep == grep.lower()
    if not _SPECIAL.search(grep):
        return LineMatcher(_build_plain_search(grep, folds), is_plain=True)
    import regex

    if _BEYOND_REGULAR.search(grep):
        raise InvalidArguments(
            "grep knows no recursion, conditions or fuzzy matching",
            advice="Use plain text or a simpler expression.",
        )
    if _ESCAPE_SEQUENCE.sub("", grep).count("(") > MAX_GROUPS:
        raise InvalidArguments(
            f"grep has more than {MAX_GROUPS} groups", advice="Use a simpler expression."
        )
    try:
        compiled = regex.compile(grep, regex.IGNORECASE if folds else 0)
    except (regex.error, OverflowError, RecursionError, ValueError):
        # An opening bracket is more often meant as one than as a mistake.
        return LineMatcher(_build_plain_search(grep, folds), is_plain=True)

    def find_spans(line: str, start: int, deadline: float) -> Iterator[MatchSpan]:
        while start <= len(line):
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise GrepTimeoutError(start)
            edge = min(len(line), start + _MATCH_WINDOW_CHARS)
            found = compiled.search(line, start, edge, timeout=max(seconds, 0.001), concurrent=True)
            if found is None and edge == len(line):
                return
            if found is None:
                start += _MATCH_WINDOW_CHARS // 2
            elif (
                edge < len(line) and found.end() > edge - _LOOKAHEAD_CHARS and found.start() > start
            ):
                start = found.start()  # once more, with what comes after it
            else:
                yield found.span()
                start = max(found.end(), found.start() + 1)

    return LineMatcher(find_spans, is_plain=False)


def _build_plain_search(
    text: str, ignores_case: bool
) -> Callable[[str, int, float], Iterator[MatchSpan]]:
    def find_spans(line: str, start: int, deadline: float) -> Iterator[MatchSpan]:
        while start < len(line):
            # What begins in this window may end behind it.
            window = line[start : start + _FOLD_WINDOW_CHARS + len(text) - 1]
            if ignores_case:
                window = _fold_case(window)
            else:
                window = window
            at = 0
            while (found := window.find(text, at)) >= 0:
                at = found + len(text)
                yield start + found, start + at
                if time.monotonic() >= deadline:
                    raise GrepTimeoutError(start + at)
            start += max(_FOLD_WINDOW_CHARS, at)
            if time.monotonic() >= deadline:
                raise GrepTimeoutError(start)

    return find_spans


def _fold_case(text: str) -> str:
    """Lower case, and no longer for it: only this letter becomes two."""
    return text.replace("İ", "i").lower()


@dataclass(frozen=True)
class GrepResult:
    """What matches, as it is shown."""

    text: str
    match_count: int
    """Those that are shown; a line that is shown whole shows all of its own."""
    line_count: int
    """Lines that they are in."""
    excerpt_count: int
    """Those that are shown by themselves, because their line is too long."""
    next_offset: int | None
    """The character to go on at; None when all have been looked at."""
    first_line: int
    """The line, from 0, that was looked at first."""
    end_line: int
    """Lines up to the last that was looked at."""
    hidden_count: int = 0
    """Further matches in the long line that the text ends in."""
    is_count_complete: bool = True
    """Whether time sufficed to count these."""


def grep_lines(
    lines: Iterable[str],
    line_matcher: LineMatcher,
    start: int,
    tokens: int,
    count: CountTokens,
    *,
    context: int = 0,
) -> GrepResult:
    """The lines from the character `start` on that match, numbered from 1, with `context` lines
    around each.

    Of a line that is too long to be shown, each match is shown. As many as fit; the rest of such a
    line is counted.
    """
    telling = _GrepOutput(tokens, count, context)
    number = -1
    position = 0
    since = None
    ends = 0.0
    for number, line in enumerate(lines):
        begins = position
        position = position + len(line) + 1
        if position <= start:
            continue
        if since is None:
            # What was read before is skipped at its own cost, or a late page would have no time
            # left.
            since = number
            ends = time.monotonic() + GREP_TIMEOUT_S
        elif time.monotonic() >= ends:
            return telling.build_result(begins, since, number)
        at = max(0, start - begins)
        matched = False
        spans = line_matcher.find_spans(line, at, ends)
        try:
            for span in spans:
                long = len(line) > LONG_LINE_CHARS
                if long:
                    more = 0
                else:
                    more = _count_remaining(spans)[0]
                if not telling.add_match(number, line, span if long else None, 1 + more):
                    if long:
                        at = span[0]
                    else:
                        at = 0
                    unshown, complete = _count_remaining(spans) if matched else (0, True)
                    if matched:
                        looked_at = number + 1
                    else:
                        looked_at = number
                    return telling.build_result(
                        begins + at, since, looked_at, unshown + matched, complete
                    )
                at = max(span[1], span[0] + 1)
                matched = True
        except TimeoutError as error:
            if isinstance(error, GrepTimeoutError):
                at = error.position
            else:
                at = at
            # What used up all its time at one place will do so again; what merely came last gets a
            # new turn.
            if begins + at <= start and not matched:
                raise _build_timeout_error() from None
            return telling.build_result(
                min(begins + at, position), since, number + 1 if matched else number
            )
        if not matched and not telling.add_context_line(number, line):
            return telling.build_result(begins, since, number)
    return telling.build_result(None, number + 1 if since is None else since, number + 1)


def _count_remaining(spans: Iterator[MatchSpan]) -> tuple[int, bool]:
    """How many are left, and whether these are all."""
    counted = 0
    try:
        for _ in spans:
            counted += 1
    except TimeoutError:
        return counted, False
    return counted, True


class _GrepOutput:
    """The text of a search, while it grows."""

    def __init__(self, tokens: int, count: CountTokens, context: int) -> None:
        self._tokens = tokens
        self._count = count
        self._context = context
        self._output: list[str] = []
        self._before: deque[tuple[int, str]] = deque(maxlen=context or 1)
        self._spent = self._matches = self._lines = self._excerpts = self._context_left = 0
        self._last_line = self._last_match = -1

    def add_match(self, number: int, line: str, span: MatchSpan | None, match_count: int) -> bool:
        """Tell a line, or one match in a long line; False where it does not fit."""
        if self._context and not self._context_left:
            group = [*self._before]
        else:
            group = []
        new = [f"{at + 1}-{_truncate_line(text)}" for at, text in group]
        new.append(
            f"{number + 1}:{line}"
            if span is None
            else f"{number + 1}@{span[0] + 1}:{build_excerpt(line, span)}"
        )
        if not self._add(new, group[0][0] if group else number, number):
            return False
        self._matches += match_count
        self._excerpts += span is not None
        self._lines += number != self._last_match
        self._last_match = number
        self._context_left = self._context
        return True

    def add_context_line(self, number: int, line: str) -> bool:
        """Tell a line that does not match, if it is near to one that does; False where it does not
        fit."""
        if not self._context_left:
            self._before.append((number, line))
            return True
        if not self._add([f"{number + 1}-{_truncate_line(line)}"], number, number):
            return False
        self._context_left -= 1
        return True

    def build_result(
        self,
        next_offset: int | None,
        first_line: int,
        end_line: int,
        hidden_count: int = 0,
        is_count_complete: bool = True,
    ) -> GrepResult:
        text = "\n".join(self._output)
        return GrepResult(
            text,
            self._matches,
            self._lines,
            self._excerpts,
            next_offset,
            first_line,
            end_line,
            hidden_count,
            is_count_complete,
        )

    def _add(self, new: list[str], first: int, last: int) -> bool:
        if self._context and self._output and first > self._last_line + 1:
            new.insert(0, "--")
        cost = sum(self._count(one) + 1 for one in new)
        if self._output and self._spent + cost > self._tokens:
            return False
        self._output += new
        self._spent += cost
        self._last_line = last
        self._before.clear()
        return True


def _build_timeout_error() -> InvalidArguments:
    return InvalidArguments(
        "the expression takes too long to match",
        advice="Use plain text, or an expression without nested repeats.",
    )


def build_excerpt(line: str, span: MatchSpan) -> str:
    """What lies around a match in a long line: its row where that is near, else whole words."""
    first = max(0, span[0] - CONTEXT_CHARS)
    last = min(len(line), min(span[1], span[0] + CONTEXT_CHARS) + CONTEXT_CHARS)
    before = line[first : span[0]]
    inside = line[span[0] : span[1]][: 2 * CONTEXT_CHARS]
    after = line[span[1] : last]
    if rows := [*_BETWEEN_ROWS.finditer(before)]:
        before = before[rows[-1].end() :]
    elif first and (word := _BETWEEN_WORDS.search(before, 0, CONTEXT_CHARS // 4)):
        before = before[word.end() :]
    if row := _BETWEEN_ROWS.search(after):
        after = after[: row.start()]
    elif last < len(line) and (words := [*_BETWEEN_WORDS.finditer(after, len(after) * 3 // 4)]):
        after = after[: words[-1].start()]
    start = span[0] - len(before)
    end = span[0] + len(inside) + len(after)
    return f"{'…' if start else ''}{before}{inside}{after}{'…' if end < len(line) else ''}"


def _truncate_line(line: str) -> str:
    """A line that is only shown beside others."""
    if len(line) <= LONG_LINE_CHARS:
        return line
    return f"{line[:CONTEXT_CHARS]} …({len(line) - CONTEXT_CHARS:,} characters)"
