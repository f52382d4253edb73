"""What a large result is, in at most 500 tokens: how large, how built, its first rows, and how to read on. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from portico.catalog.visible import literal, shown
from portico.execution.sampling import total
from portico.execution.shape import described, infer

Count = Callable[[str], int]

HEADER_TOKENS = 500
_AIM = 430
"""Tokens by estimate; some texts cost more than the estimate says."""
_SHAPE_TOKENS = 150
_ROWS = 5
_CELL = 28
_LONG_TEXT = 1_000
_COLUMNS = 12
_HEAD_CHARS, _TAIL_CHARS = 300, 400
_MATCHES = 3
_MATCH_CHARS = 160
_MOST_MATCHES = 5_000
_LOOK = 256 * 1024
_WORD = re.compile(r"\w{3,}")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_NOISE = re.compile(r"[!-`{-~]{4,}")
"""Capitals, digits and marks in a row."""
_MIXED = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z0-9+/]*(?:[a-z0-9][A-Z]|[A-Za-z][0-9]))[A-Za-z0-9+/]{6,}")
_IDLE = frozenset(
    ("the", "and", "for", "with", "all", "any", "from", "into", "that", "this", "what", "which", "get", "list", "find",
     "show", "are", "was", "has", "have", "not", "can", "you", "your", "how", "where", "when", "who")
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What a summary is made from."""

    tool: str
    kind: Literal["json", "text", "blob"]
    size: int
    """Bytes."""
    tokens: int
    """About how many, in all."""
    sample: Any = None
    """Of JSON: the value, long containers cut."""
    lines: int = 0
    head: str = ""
    tail: str = ""
    matches: tuple[str, ...] = ()
    mime: str = ""
    failed: bool = False
    """The tool said that this is an error."""
    member: str | None = None
    """The one field of the answer that this is the text of."""


@dataclass(frozen=True)
class Way:
    """How the whole can be read."""

    id: str
    uri: str
    minutes: int
    by_tool: bool = True
    """Whether the caller has `read_result`; else only the resource."""


def header(facts: Facts, way: Way | None, count: Count) -> str:
    """The summary; `way` is None where the whole could not be kept."""
    first = _what(facts, way)
    last = _how(facts, way)
    # Our own words cost what the estimate says; the tool's name may be anything.
    left = _AIM - round(1.1 * (count(first) + count(last))) - _cautious(_named(facts), count)
    body: list[str] = []
    for line in _body(facts, count):
        cost = _cautious(line, count) + 1
        if cost > left and len(line) > 40:
            line = _clipped(line, left - 2, count)
            cost = _cautious(line, count) + 1
        if cost > left:
            break
        body.append(line)
        left -= cost
    return "\n".join([first, *body, last])


def cached(age_s: float) -> str:
    """The mark of an answer that was kept from an earlier call."""
    return f"[cached {max(0, round(age_s))} s ago]"


def size_text(size: int) -> str:
    """Bytes, as people say them."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000:.0f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _about(number: int) -> str:
    """A number that is an estimate, with no more digits than it deserves."""
    return f"{number / 1_000_000:.1f} million" if number >= 1_000_000 else f"{float(f'{number:.2g}'):,.0f}"


def text_facts(text: str, intent: str) -> tuple[int, str, str, tuple[str, ...]]:
    """Of a long text: its lines, head, tail, and the lines that have most of the intent's words."""
    count = sum(text.count("\n", at, at + _LOOK) for at in range(0, len(text), _LOOK))
    lines = count + (0 if text.endswith("\n") else 1)
    tail = text[-_TAIL_CHARS:]
    whole_lines = tail.partition("\n")[2] if len(tail) < len(text) else tail
    return lines, text[:_HEAD_CHARS], whole_lines if whole_lines.strip() else tail, matching(text, intent)


def matching(text: str, intent: str) -> tuple[str, ...]:
    """The lines of a text that have most of the words of an intent, in their order."""
    words = {word.lower() for word in _WORD.findall(intent[:400])} - _IDLE
    if not words:
        return ()
    wanted = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    found: dict[int, tuple[str, set[str]]] = {}
    for place, word in _hits(text, wanted):
        start = text.rfind("\n", max(0, place - _MATCH_CHARS), place) + 1 or max(0, place - _MATCH_CHARS // 2)
        if start not in found:
            end = text.find("\n", place, place + _MATCH_CHARS)
            found[start] = (text[start : end if end >= 0 else start + _MATCH_CHARS], set())
        found[start][1].add(word.lower())
    best: dict[str, int] = {}
    for start in sorted(found, key=lambda start: (-len(found[start][1]), start)):
        best.setdefault(found[start][0], start)
        if len(best) == _MATCHES:
            break
    return tuple(sorted(best, key=lambda line: best[line]))


def _hits(text: str, wanted: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    hits = 0
    for at in range(0, len(text), _LOOK):
        for hit in wanted.finditer(text, at, at + _LOOK):
            yield hit.start(), hit[0]
            hits += 1
            if hits >= _MOST_MATCHES:
                return


def _what(facts: Facts, way: Way | None) -> str:
    kinds = {"json": "of JSON", "text": f"of text in {facts.lines:,} lines", "blob": f"of {one_line(facts.mime)[:60]}"}
    failed = " (it says this is an error)" if facts.failed else ""
    amount = f"{size_text(facts.size)} {kinds[facts.kind]}, about {_about(facts.tokens)} tokens"
    large = f"{_named(facts)} answered{failed} with {amount}"
    if way is None:
        return f"{large}: more than one answer may have."
    return f"{large}: kept whole as result {way.id} for {way.minutes} minutes."


def _named(facts: Facts) -> str:
    tool = one_line(facts.tool)
    longest = 90 if tool.isascii() else 30
    return tool if len(tool) <= longest else f"{tool[: longest - 1]}…"


def _how(facts: Facts, way: Way | None) -> str:
    if way is None:
        return "The rest could not be kept. Ask the tool for less: a filter, a limit, a page."
    if not way.by_tool:
        return f"The whole is the resource {way.uri}."
    call = f'read_result(result_id="{way.id}")'
    if facts.kind == "blob":
        return f"The whole is the resource {way.uri}; {call} pages its base64."
    path = f'path="{_example(facts.sample)}" (JMESPath), ' if facts.kind == "json" else ""
    return f'To read on: {call} with {path}grep="…" (what matches), or a cursor. The whole is {way.uri}'


def _body(facts: Facts, count: Count) -> Iterator[str]:
    if facts.member is not None:
        yield f"It is the text of {step(facts.member)}, the only field of the answer."
    if facts.kind == "json":
        yield "Shape: " + described(infer(facts.sample), _SHAPE_TOKENS, lambda text: _cautious(text, count))
        yield from _table(facts.sample)
    elif facts.kind == "text":
        yield "Begins: " + one_line(facts.head)
        yield "Ends: " + one_line(facts.tail)
        for line in facts.matches:
            yield "Matches: " + one_line(line)


def _table(sample: Any) -> Iterator[str]:
    """The largest uniform array of objects as columns and first rows."""
    path, rows = largest(sample)
    objects = [row for row in rows[:50] if isinstance(row, dict)]
    if len(objects) < 2 or len(objects) < len(rows[:50]):
        return
    columns = list(dict.fromkeys(name for row in objects for name in row))
    filled = sum(len(row) for row in objects)
    if not columns or filled < len(columns) * len(objects) * 0.6:
        return
    some = columns[:_COLUMNS]
    more = f" | … {len(columns) - len(some)} more columns" if len(columns) > len(some) else ""
    yield f"{path or 'It'} has {total(rows):,} rows. Columns: {' | '.join(_cell(name) for name in some)}{more}"
    for row in objects[:_ROWS]:
        yield " | ".join(_cell(row.get(name)) for name in some)


def largest(sample: Any) -> tuple[str, list[Any]]:
    """The array with most items among the outer levels, and the JMESPath to it."""
    best: tuple[str, list[Any]] = ("", sample if isinstance(sample, list) else [])
    level: list[tuple[str, Any]] = [("", sample)]
    for _ in range(3):
        level = [
            (f"{path}.{step(name)}" if path else step(name), child)
            for path, one in level
            if isinstance(one, dict)
            for name, child in list(one.items())[:50]
        ]
        for path, one in level:
            if isinstance(one, list) and total(one) > total(best[1]):
                best = (path, one)
    return best


def step(name: str) -> str:
    """A field as JMESPath spells it."""
    plain = shown(name)
    plain = plain if len(plain) <= 40 else plain[:39] + "…"
    return plain if _PLAIN.fullmatch(plain) else literal(plain)


def _example(sample: Any) -> str:
    """A path that selects something from this very result."""
    path, rows = largest(sample)
    if isinstance(sample, dict) and ('"' in path or len(rows) < 2):
        texts = [name for name, value in sample.items() if isinstance(value, str) and len(value) > _LONG_TEXT]
        return next((name for name in texts if _PLAIN.fullmatch(name) and len(name) <= 40), "keys(@)")
    names = [name for name in rows[0] if _PLAIN.fullmatch(name)] if rows and isinstance(rows[0], dict) else []
    short = [name for name in names if len(name) <= 24][:2]
    return f"{path}[0:20].[{', '.join(short)}]" if short else f"{path}[0:20]"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        text = one_line(value[: _CELL * 2]).replace("|", "¦")
    elif isinstance(value, dict):
        return f"{{{total(value)}}}"
    elif isinstance(value, list):
        return f"[{total(value)}]"
    else:
        text = literal(value)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def one_line(text: str) -> str:
    """A stranger's text where it must not make lines of its own."""
    return " ".join(shown(text).split())


def _clipped(line: str, tokens: int, count: Count) -> str:
    while len(line) > 8 and _cautious(line, count) > tokens:
        line = line[: min(len(line) - 2, int(len(line) * 0.8))] + "…"
    return line


def _cautious(text: str, count: Count) -> int:
    """Tokens at the worst: a rare character costs its bytes, and noise more than the words estimates are made for."""
    foreign = 0 if text.isascii() else sum(len(run.encode(errors="replace")) for run in _FOREIGN.findall(text))
    noise = 0.6 * sum(map(len, _NOISE.findall(text))) + 0.35 * sum(map(len, _MIXED.findall(text)))
    return count(text) + foreign + round(noise)
