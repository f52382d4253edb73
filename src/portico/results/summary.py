"""Summary of a large result in at most 500 tokens: size, shape, first rows, how to read on.
Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.tool import sanitize_text, to_literal
from portico.results.shape import count_children, infer_shape, render_shape

CountTokens = Callable[[str], int]

SUMMARY_TOKENS = 500
_TARGET_TOKENS = 430
"""Target of the estimate, below the limit because some texts cost more than estimated."""
_SHAPE_TOKENS = 150
_MAX_ROWS = 5
_CELL_CHARS = 28
_LONG_TEXT_CHARS = 1_000
_MAX_COLUMNS = 12
_HEAD_CHARS = 300
_TAIL_CHARS = 400
_MAX_MATCHES = 3
_MATCH_CHARS = 160
_MAX_HITS = 5_000
_SCAN_CHARS = 256 * 1024
_WORD = re.compile(r"\w{3,}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
_NOISE = re.compile(r"[!-`{-~]{4,}")
"""Runs of capitals, digits and punctuation, which cost more tokens than words."""
_MIXED = re.compile(
    r"(?<![A-Za-z0-9+/])(?=[A-Za-z0-9+/]*(?:[a-z0-9][A-Z]|[A-Za-z][0-9]))[A-Za-z0-9+/]{6,}"
)
_STOP_WORDS = frozenset(
    ("the", "and", "for", "with", "all", "any", "from", "into", "that", "this", "what", "which",
     "get", "list", "find", "show", "are", "was", "has", "have", "not", "can", "you", "your",
     "how", "where", "when", "who")
)  # fmt: skip


@dataclass(frozen=True)
class ResultFacts:
    tool: str
    kind: Literal["json", "text", "blob"]
    size: int
    """In bytes."""
    tokens: int
    """Estimate for the whole result."""
    sample: Any = None
    """The JSON value with long containers cut."""
    line_count: int = 0
    head: str = ""
    tail: str = ""
    matches: tuple[str, ...] = ()
    mime: str = ""
    is_error: bool = False
    """The tool marked the result as an error."""
    member: str | None = None
    """Name of the only field of the answer, if this is its text."""


@dataclass(frozen=True)
class ResultAccess:
    """Ways to read the whole result."""

    id: str
    uri: str
    ttl_minutes: int
    has_read_result: bool = True
    """False if the caller has only the resource."""


def render_summary(facts: ResultFacts, access: ResultAccess | None, count: CountTokens) -> str:
    """Render the summary; `access` is None if the result could not be stored."""
    first = _render_title(facts, access)
    last = _render_reading_hint(facts, access)
    # The estimate holds for our own text; the tool's name may be anything.
    tokens_left = (
        _TARGET_TOKENS
        - round(1.1 * (count(first) + count(last)))
        - _estimate_tokens(_format_tool_name(facts), count)
    )
    body: list[str] = []
    for line in _render_details(facts, count):
        cost = _estimate_tokens(line, count) + 1
        if cost > tokens_left and len(line) > 40:
            line = _clip_line(line, tokens_left - 2, count)
            cost = _estimate_tokens(line, count) + 1
        if cost > tokens_left:
            break
        body.append(line)
        tokens_left -= cost
    return "\n".join([first, *body, last])


def render_cache_note(age_s: float) -> str:
    return f"[cached {max(0, round(age_s))} s ago]"


def format_size(size: int) -> str:
    """Format a number of bytes for people."""
    if size < 1_000:
        return f"{size} bytes"
    if size < 1_000_000:
        return f"{size / 1_000:.0f} KB"
    return f"{size / 1_000_000:.1f} MB"


def _format_estimate(number: int) -> str:
    """Format an estimated number with two significant digits."""
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f} million"
    return f"{float(f'{number:.2g}'):,.0f}"


def collect_text_facts(text: str, intent: str) -> tuple[int, str, str, tuple[str, ...]]:
    """Return line count, head, tail, and the lines with most words of the intent."""
    count = sum(text.count("\n", at, at + _SCAN_CHARS) for at in range(0, len(text), _SCAN_CHARS))
    lines = count + (0 if text.endswith("\n") else 1)
    tail = text[-_TAIL_CHARS:]
    if len(tail) < len(text) and (whole_lines := tail.partition("\n")[2]).strip():
        tail = whole_lines
    return lines, text[:_HEAD_CHARS], tail, find_matching_lines(text, intent)


def find_matching_lines(text: str, intent: str) -> tuple[str, ...]:
    """Return the lines with most words of an intent, in their order in the text."""
    words = {word.lower() for word in _WORD.findall(intent[:400])} - _STOP_WORDS
    if not words:
        return ()
    wanted = re.compile(
        "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE
    )
    hits: dict[int, tuple[str, set[str]]] = {}
    for position, word in _find_hits(text, wanted):
        start = text.rfind("\n", max(0, position - _MATCH_CHARS), position) + 1 or max(
            0, position - _MATCH_CHARS // 2
        )
        if start not in hits:
            end = text.find("\n", position, position + _MATCH_CHARS)
            hits[start] = (text[start : end if end >= 0 else start + _MATCH_CHARS], set())
        hits[start][1].add(word.lower())
    start_by_line: dict[str, int] = {}
    for start in sorted(hits, key=lambda start: (-len(hits[start][1]), start)):
        start_by_line.setdefault(hits[start][0], start)
        if len(start_by_line) == _MAX_MATCHES:
            break
    return tuple(sorted(start_by_line, key=lambda line: start_by_line[line]))


def _find_hits(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    hits = 0
    for at in range(0, len(text), _SCAN_CHARS):
        for hit in pattern.finditer(text, at, at + _SCAN_CHARS):
            yield hit.start(), hit[0]
            hits += 1
            if hits >= _MAX_HITS:
                return


def _render_title(facts: ResultFacts, access: ResultAccess | None) -> str:
    kinds = {
        "json": "of JSON",
        "text": f"of text in {facts.line_count:,} lines",
        "blob": f"of {to_one_line(facts.mime)[:60]}",
    }
    error_note = " (it says this is an error)" * facts.is_error
    size = f"{format_size(facts.size)} {kinds[facts.kind]}"
    amount = f"{size}, about {_format_estimate(facts.tokens)} tokens"
    sentence = f"{_format_tool_name(facts)} answered{error_note} with {amount}"
    if access is None:
        return f"{sentence}: more than one answer may have."
    return f"{sentence}: kept whole as result {access.id} for {access.ttl_minutes} minutes."


def _format_tool_name(facts: ResultFacts) -> str:
    tool = to_one_line(facts.tool)
    return _truncate(tool, 90 if tool.isascii() else 30)


def _render_reading_hint(facts: ResultFacts, access: ResultAccess | None) -> str:
    if access is None:
        return "The rest could not be kept. Ask the tool for less: a filter, a limit, a page."
    if not access.has_read_result:
        return f"The whole is the resource {access.uri}."
    call = f'read_result(result_id="{access.id}")'
    if facts.kind == "blob":
        return f"The whole is the resource {access.uri}; {call} pages its base64."
    path = ""
    if facts.kind == "json":
        path = f'path="{_build_example_path(facts.sample)}" (JMESPath), '
    return (
        f'To read on: {call} with {path}grep="…" (what matches), or a cursor. '
        f"The whole is {access.uri}"
    )


def _render_details(facts: ResultFacts, count: CountTokens) -> Iterator[str]:
    if facts.member is not None:
        yield f"It is the text of {to_path_step(facts.member)}, the only field of the answer."
    if facts.kind == "json":
        yield "Shape: " + render_shape(
            infer_shape(facts.sample), _SHAPE_TOKENS, lambda text: _estimate_tokens(text, count)
        )
        yield from _render_table(facts.sample)
    elif facts.kind == "text":
        yield "Begins: " + to_one_line(facts.head)
        yield "Ends: " + to_one_line(facts.tail)
        for line in facts.matches:
            yield "Matches: " + to_one_line(line)


def _render_table(sample: Any) -> Iterator[str]:
    """Render the largest uniform array of objects as columns and first rows."""
    path, rows = find_largest_array(sample)
    objects = [row for row in rows[:50] if isinstance(row, dict)]
    if len(objects) < 2 or len(objects) < len(rows[:50]):
        return
    columns = list(dict.fromkeys(name for row in objects for name in row))
    filled = sum(len(row) for row in objects)
    if not columns or filled < len(columns) * len(objects) * 0.6:
        return
    shown = columns[:_MAX_COLUMNS]
    names = [_format_cell(name) for name in shown]
    if len(columns) > len(shown):
        names.append(f"… {len(columns) - len(shown)} more columns")
    yield f"{path or 'It'} has {count_children(rows):,} rows. Columns: {' | '.join(names)}"
    for row in objects[:_MAX_ROWS]:
        yield " | ".join(_format_cell(row.get(name)) for name in shown)


def find_largest_array(sample: Any) -> tuple[str, list[Any]]:
    """Return the JMESPath and value of the array with most items in the outer levels."""
    best: tuple[str, list[Any]] = ("", sample if isinstance(sample, list) else [])
    level: list[tuple[str, Any]] = [("", sample)]
    for _ in range(3):
        level = [
            (f"{path}.{to_path_step(name)}" if path else to_path_step(name), child)
            for path, container in level
            if isinstance(container, dict)
            for name, child in list(container.items())[:50]
        ]
        for path, container in level:
            if isinstance(container, list) and count_children(container) > count_children(best[1]):
                best = (path, container)
    return best


def to_path_step(name: str) -> str:
    """Return a field name as JMESPath spells it."""
    plain = _truncate(sanitize_text(name), 40)
    return plain if _IDENTIFIER.fullmatch(plain) else to_literal(plain)


def _build_example_path(sample: Any) -> str:
    """Return a path that selects something from this result."""
    path, rows = find_largest_array(sample)
    if isinstance(sample, dict) and ('"' in path or len(rows) < 2):
        texts = [
            name
            for name, value in sample.items()
            if isinstance(value, str) and len(value) > _LONG_TEXT_CHARS
        ]
        return next(
            (name for name in texts if _IDENTIFIER.fullmatch(name) and len(name) <= 40), "keys(@)"
        )
    first = rows[0] if rows and isinstance(rows[0], dict) else {}
    short = [name for name in first if _IDENTIFIER.fullmatch(name) and len(name) <= 24][:2]
    return f"{path}[0:20].[{', '.join(short)}]" if short else f"{path}[0:20]"


def _format_cell(value: Any) -> str:
    if isinstance(value, str):
        text = to_one_line(value[: _CELL_CHARS * 2]).replace("|", "¦")
    elif isinstance(value, dict):
        return f"{{{count_children(value)}}}"
    elif isinstance(value, list):
        return f"[{count_children(value)}]"
    else:
        text = to_literal(value)
    return _truncate(text, _CELL_CHARS)


def _truncate(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def to_one_line(text: str) -> str:
    """Return untrusted text on one line, without control characters."""
    return " ".join(sanitize_text(text).split())


def _clip_line(line: str, tokens: int, count: CountTokens) -> str:
    while len(line) > 8 and _estimate_tokens(line, count) > tokens:
        line = line[: min(len(line) - 2, int(len(line) * 0.8))] + "…"
    return line


def _estimate_tokens(text: str, count: CountTokens) -> int:
    """Estimate tokens for the worst case: rare characters cost their bytes, and noise costs more
    than words."""
    foreign = sum(len(run.encode(errors="replace")) for run in _NON_ASCII.findall(text))
    noise = 0.6 * sum(map(len, _NOISE.findall(text))) + 0.35 * sum(map(len, _MIXED.findall(text)))
    return count(text) + foreign + round(noise)
