"""Pages and matching lines of a stored result. Pure; bounded in time and tokens.

The pattern comes from a caller and is treated as hostile. A regular expression can need years:
`regex` runs with a deadline and releases the interpreter's lock; it remembers every repetition of a
group, so a long line is searched in windows; and compiling nested repeated groups doubles in time
with each level, with the lock held, so their number is limited. Plain words are never compiled.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from portico.errors import InvalidArguments

CountTokens = Callable[[str], int]

MAX_PATTERN_CHARS = 1_000
"""Maximum length of a pattern."""
MAX_GROUPS = 12
"""Maximum number of opening brackets in a pattern."""
GREP_TIMEOUT_S = 2.0
CONTEXT_CHARS = 160
"""Characters of a long line that are shown on either side of a match."""
LONG_LINE_CHARS = 4 * CONTEXT_CHARS
"""A longer line is not shown whole: each of its matches is shown as an excerpt."""
_FOLD_WINDOW_CHARS = 256 * 1024
"""Characters that are case-folded at once, with the interpreter's lock held."""
_MATCH_WINDOW_CHARS = 64 * 1024
"""Characters of a line that an expression is matched against at once; also the longest match."""
_LOOKAHEAD_CHARS = 1_000
"""Distance from the end of such a window within which a match may change with the text after it."""
_CHARS_PER_TOKEN = 8
"""Few tokens are longer, so that megabytes need not be counted to find the first page."""
_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|()]|\.[*+]")
_ESCAPE_SEQUENCE = re.compile(r"\\.", re.DOTALL)
_BEYOND_REGULAR = re.compile(r"\(\?(?:R|&|P>|[0-9+-]|\()|\{[^{}]*[eids]\s*[<{]|\{[eids][:}]")
"""Recursion, conditions and fuzzy matching, which no grep has and which cost memory, not time."""
_BETWEEN_ROWS = re.compile(r"(?<=[}\])]),\s{0,4}(?=[{\[(])")
_BETWEEN_WORDS = re.compile(r"\s")


@dataclass(frozen=True)
class TextPage:
    text: str
    next_offset: int | None
    """Offset of the next page; None at the end."""


def count_fitting_chars(text: str, tokens: int, count: CountTokens) -> int:
    """Return how many leading characters fit, at a line end if one is near; at least one."""
    end = min(len(text), max(1, tokens) * _CHARS_PER_TOKEN)
    while end > 1 and (cost := count(text[:end])) > tokens:
        end = max(1, min(end - 1, int(end * tokens / cost)))
    if end == len(text):
        return end
    line_end = text.rfind("\n", end // 2, end) + 1
    return line_end or end


def take_page(texts: Iterable[str], start: int, tokens: int, count: CountTokens) -> TextPage:
    """Return the characters from `start` on that fit; later texts are not consumed."""
    wanted = tokens * _CHARS_PER_TOKEN
    pieces: list[str] = []
    position = gathered = 0
    more = False
    for text in texts:
        if position + len(text) > start:
            if gathered >= wanted:
                more = True
                break
            rest = text[max(0, start - position) :]
            pieces.append(rest[: wanted - gathered])
            gathered += len(rest)
        position += len(text)
    body = "".join(pieces)
    end = count_fitting_chars(body, tokens, count) if body else 0
    return TextPage(body[:end], start + end if more or end < gathered else None)


# --- grep

MatchSpan = tuple[int, int]


class GrepTimeoutError(TimeoutError):
    """The deadline passed after the line was searched up to `position`."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@dataclass(frozen=True)
class LineMatcher:
    """Finds matches in a line from a position on; the iterator raises TimeoutError at the
    deadline."""

    find_spans: Callable[[str, int, float], Iterator[MatchSpan]]
    is_plain: bool


def compile_matcher(grep: str) -> LineMatcher:
    """Compile a pattern: plain text unless it has special characters; smart case."""
    if len(grep) > MAX_PATTERN_CHARS:
        raise InvalidArguments(
            f"grep has more than {MAX_PATTERN_CHARS} characters", advice="Look for less at a time."
        )
    ignores_case = grep == grep.lower()
    if not _SPECIAL.search(grep):
        return LineMatcher(_build_plain_search(grep, ignores_case), is_plain=True)
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
        compiled = regex.compile(grep, regex.IGNORECASE if ignores_case else 0)
    except (regex.error, OverflowError, RecursionError, ValueError):
        # An unmatched bracket is more often meant literally than a mistake.
        return LineMatcher(_build_plain_search(grep, ignores_case), is_plain=True)

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
                start = found.start()  # matched again with the text after it
            else:
                yield found.span()
                start = max(found.end(), found.start() + 1)

    return LineMatcher(find_spans, is_plain=False)


def _build_plain_search(
    text: str, ignores_case: bool
) -> Callable[[str, int, float], Iterator[MatchSpan]]:
    def find_spans(line: str, start: int, deadline: float) -> Iterator[MatchSpan]:
        while start < len(line):
            # A match that begins in this window may end behind it.
            window = line[start : start + _FOLD_WINDOW_CHARS + len(text) - 1]
            if ignores_case:
                window = _fold_case(window)
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
    """Return text in lower case with the same length: only this letter becomes two."""
    return text.replace("İ", "i").lower()


@dataclass(frozen=True)
class GrepResult:
    """Matches in the form they are shown."""

    text: str
    match_count: int
    """Matches shown; a line that is shown whole counts with all of its matches."""
    line_count: int
    """Lines that contain them."""
    excerpt_count: int
    """Matches shown as excerpts, because their line is too long."""
    next_offset: int | None
    """Character offset to go on at; None when everything was searched."""
    first_line: int
    """Number of the first line searched, from 0."""
    end_line: int
    """Number of lines up to the last one searched."""
    hidden_count: int = 0
    """Further matches in the long line that the text ends in."""
    is_count_complete: bool = True
    """False if the deadline passed before all were counted."""


def _make_slow_expression_error() -> InvalidArguments:
    return InvalidArguments(
        "the expression takes too long to match",
        advice="Use plain text, or an expression without nested repeats.",
    )


def grep_lines(
    lines: Iterable[str],
    line_matcher: LineMatcher,
    start: int,
    tokens: int,
    count: CountTokens,
    *,
    context: int = 0,
) -> GrepResult:
    """Find matching lines from the character `start` on, numbered from 1, with context lines.

    A line that is too long is shown as an excerpt for each match. Stops when the tokens are used
    up; the other matches of the last long line are counted.
    """
    output = _GrepOutput(tokens, count, context)
    number = -1
    position = 0
    first_line = None
    deadline = 0.0
    for number, line in enumerate(lines):
        line_start = position
        position = position + len(line) + 1
        if position <= start:
            continue
        if first_line is None:
            # The deadline starts here, because skipping earlier pages takes time too.
            first_line = number
            deadline = time.monotonic() + GREP_TIMEOUT_S
        elif time.monotonic() >= deadline:
            return output.build_result(line_start, first_line, number)
        offset = max(0, start - line_start)
        matched = False
        spans = line_matcher.find_spans(line, offset, deadline)
        try:
            for span in spans:
                is_long = len(line) > LONG_LINE_CHARS
                remaining = 0 if is_long else _count_remaining(spans)[0]
                if not output.add_match(number, line, span if is_long else None, 1 + remaining):
                    offset = span[0] if is_long else 0
                    hidden, complete = _count_remaining(spans) if matched else (0, True)
                    return output.build_result(
                        line_start + offset,
                        first_line,
                        number + matched,
                        hidden + matched,
                        complete,
                    )
                offset = max(span[1], span[0] + 1)
                matched = True
        except TimeoutError as error:
            if isinstance(error, GrepTimeoutError):
                offset = error.position
            # A position that used up the whole time would do so again; a later one gets more time.
            if line_start + offset <= start and not matched:
                raise _make_slow_expression_error() from None
            next_offset = min(line_start + offset, position)
            return output.build_result(next_offset, first_line, number + matched)
        if not matched and not output.add_context_line(number, line):
            return output.build_result(line_start, first_line, number)
    return output.build_result(None, number + 1 if first_line is None else first_line, number + 1)


def _count_remaining(spans: Iterator[MatchSpan]) -> tuple[int, bool]:
    """Return how many matches are left, and whether all of them were counted."""
    counted = 0
    try:
        for _ in spans:
            counted += 1
    except TimeoutError:
        return counted, False
    return counted, True


class _GrepOutput:
    """The text of a search while it is built."""

    def __init__(self, tokens: int, count: CountTokens, context: int) -> None:
        self._tokens = tokens
        self._count = count
        self._context = context
        self._output: list[str] = []
        self._before: deque[tuple[int, str]] = deque(maxlen=context or 1)
        self._spent = self._matches = self._lines = self._excerpts = self._context_left = 0
        self._last_line = self._last_match = -1

    def add_match(self, number: int, line: str, span: MatchSpan | None, match_count: int) -> bool:
        """Add a line, or one match of a long line; returns False if it does not fit."""
        context_lines = list[tuple[int, str]]()
        if self._context and not self._context_left:
            context_lines = [*self._before]
        new = [f"{index + 1}-{_truncate_line(text)}" for index, text in context_lines]
        if span is None:
            new.append(f"{number + 1}:{line}")
        else:
            new.append(f"{number + 1}@{span[0] + 1}:{build_excerpt(line, span)}")
        if not self._add(new, context_lines[0][0] if context_lines else number, number):
            return False
        self._matches += match_count
        self._excerpts += span is not None
        self._lines += number != self._last_match
        self._last_match = number
        self._context_left = self._context
        return True

    def add_context_line(self, number: int, line: str) -> bool:
        """Add a line without a match if it is near one; returns False if it does not fit."""
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
        shown = ("\n".join(self._output), self._matches, self._lines, self._excerpts)
        return GrepResult(
            *shown, next_offset, first_line, end_line, hidden_count, is_count_complete
        )

    def _add(self, new: list[str], first: int, last: int) -> bool:
        if self._context and self._output and first > self._last_line + 1:
            new.insert(0, "--")
        cost = sum(self._count(line) + 1 for line in new)
        if self._output and self._spent + cost > self._tokens:
            return False
        self._output += new
        self._spent += cost
        self._last_line = last
        self._before.clear()
        return True


def build_excerpt(line: str, span: MatchSpan) -> str:
    """Return the text around a match in a long line: its row if that is near, else words."""
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
    """Shorten a context line."""
    if len(line) <= LONG_LINE_CHARS:
        return line
    return f"{line[:CONTEXT_CHARS]} …({len(line) - CONTEXT_CHARS:,} characters)"
