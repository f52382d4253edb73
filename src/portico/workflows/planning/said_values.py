"""Finds what is a value in the words of an intent, whatever tool is meant: quotations, addresses,
names with a digit or a mark inside, numbers and dates. Pure.
"""

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from portico.workflows.planning.values import NUMBER_WORDS, SEPARATOR, to_iso_date

MAX_VALUES = 24
_MAX_CHARS = 4_000

_QUOTATION = re.compile(
    r"[\"“„]([^\"”“\n]{1,400})[\"”“]|«\s?([^»\n]{1,400}?)\s?»|`([^`\n]{1,400})`"
    r"|(?<![\w'’])'([^'\n]{1,200})'(?![\w'])"
)
_DAY = r"(?<![\w.:/-])\d{1,2}(?:st|nd|rd|th|\.|º|°)?"
_WORD = r"[^\W\d_]{3,12}"
_OF = r"(?:de |di |del |of )?"
_MONTH_AND_YEAR = rf"{_OF}{_WORD}\.?,? {_OF}\d{{4}}"
_TO = r"(?:[-–—]|[^\W\d_]{1,5})"
_DATE = re.compile(
    r"(?<![\w.:/-])(?:\d{4}-\d{2}-\d{2}(?:T[\d:.]{5,12}(?:Z|[+-]\d\d:?\d\d)?)?"
    rf"|\d{{1,2}}\.\s?\d{{1,2}}\.\s?\d{{4}}|{_WORD}\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}})"
    rf"(?![\w/-])|{_DAY} {_MONTH_AND_YEAR}"
)
_FIRST_DAY = re.compile(rf"({_DAY}) ?{_TO} ?(?=\d{{1,2}}\S{{0,2}} ({_MONTH_AND_YEAR}))")
"""`4 to` before `29 January 2027`."""
_FIRST_DATE = re.compile(
    rf"(?<!\w)(\d{{1,2}}\.? {_OF}{_WORD}) {_TO} "
    rf"(?=\d{{1,2}}\S{{0,2}} {_OF}{_WORD}\.? {_OF}(\d{{4}}))"
)
"""`30 November to` before `11 December 2026`."""
_MONTH = re.compile(
    rf"(?<![\w.])(?<!\d )(?<!\d\. )(?<!\d de )({_WORD}),? (?:de |of )?((?:19|20)\d\d)(?![\w.-])"
)
_TIME = re.compile(r"(?<![\w:.-])(\d{1,2})[:.h](\d{2})(?![\d:-]|\.\d)(?:\s?(UTC|GMT|Z)\b)?")
_DURATION = re.compile(
    r"(?<![\w.,:/-])(\d{1,4}|[^\W\d_]{3,6}) (sec|seg|sek|min|hour|hora|heure|stund|day|tag|día|jour"
    r"|giorn|week|woche|seman|month|monat|mes|mois)[^\W\d_]{0,5}\b",
    re.IGNORECASE,
)
_UNITS = {
    "s": ("sec", "seg", "sek"),
    "m": ("min",),
    "h": ("hour", "hora", "heure", "stund"),
    "d": ("day", "tag", "día", "jour", "giorn"),
    "w": ("week", "woche", "seman"),
    "mo": ("month", "monat", "mes", "mois"),
}
_UNIT_BY_WORD = {word: unit for unit, words in _UNITS.items() for word in words}
_EMAIL = re.compile(r"[^\s@<>,;:]+@[\w-]+(?:\.[\w-]+)+")
_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*%?")
_OPENING = "([{<\"'“„«‘`"
_CLOSING = ".,;:!?)]}>\"'”»’`"
_MARKED = re.compile(r"\d|://|\w[/_]\S|\w\.[a-z]|\w-\w+-\w")
_SETTING = re.compile(r"([A-Za-z][\w.-]{0,60})=([\w.-]{1,60})")
"""A name and its value: `reviewed=yes`."""
_JOINT = re.compile(
    rf"[\"'”»’`]?{SEPARATOR}(?:(?:and|or|und|oder|et|ou|y|o|e)\s+)?[\"'“„«‘`]?", re.IGNORECASE
)
"""Between two values of a list."""
_MAX_JOINT = 16
_TIME_REACH = 24
"""Characters between a date and a time that belongs to it."""


class ValueKind(StrEnum):
    """What a value looks like."""

    QUOTED = "quoted"
    URL = "url"
    ARN = "arn"
    EMAIL = "email"
    PATH = "path"
    DATE = "date"
    DURATION = "duration"
    NUMBER = "number"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class SaidValue:
    """One value, and the words it stands in."""

    kind: ValueKind
    text: str
    """A date as ISO 8601, a duration as `5m`; anything else as it was said, without quotes."""
    first: int
    last: int
    items: tuple[str, ...] = ()
    """The values of a list: `A, B and C`."""


@dataclass(frozen=True, slots=True)
class _Found:
    kind: ValueKind
    text: str
    start: int
    end: int


def find_said_values(intent: str, spans: Sequence[tuple[int, int]]) -> tuple[SaidValue, ...]:
    """Return the values in an intent, in order; `spans` are the places of its words."""
    text = intent[:_MAX_CHARS]
    taken: list[_Found] = []
    for found in (
        *_find_quotations(text),
        *_find_dates(text),
        *_find_durations(text),
        *_find_tokens(text),
    ):
        if all(found.end <= other.start or found.start >= other.end for other in taken):
            taken.append(found)
    starts = [start for start, _ in spans]
    ends = [end for _, end in spans]
    values: list[SaidValue] = []
    for found in sorted(taken, key=lambda one: one.start)[:MAX_VALUES]:
        first = bisect_right(ends, found.start)
        last = bisect_left(starts, found.end) - 1
        if first <= last:
            values.append(SaidValue(found.kind, found.text, first, last))
    return (*values, *_find_lists(values, intent, spans))


def _find_lists(
    values: Sequence[SaidValue], intent: str, spans: Sequence[tuple[int, int]]
) -> Iterator[SaidValue]:
    """Yield what was said as one list: values of one kind with a comma or a short word between."""
    run: list[SaidValue] = []
    for value in (*values, None):
        if run and value is not None and value.kind is run[-1].kind is not ValueKind.DATE:
            between = intent[spans[run[-1].last][1] : spans[value.first][0]]
            if len(between) <= _MAX_JOINT and _JOINT.fullmatch(between):
                run.append(value)
                continue
        if len(run) > 1:
            texts = tuple(one.text for one in run)
            text = intent[spans[run[0].first][0] : spans[run[-1].last][1]]
            yield SaidValue(run[0].kind, text, run[0].first, run[-1].last, texts)
        run = [value] if value is not None else []


def _find_quotations(text: str) -> Iterator[_Found]:
    for match in _QUOTATION.finditer(text):
        group = match.lastindex or 0
        inner = match.group(group)
        kind = _find_kind(inner) if _TOKEN.fullmatch(inner) else ValueKind.QUOTED
        yield _Found(kind, inner, match.start(group), match.end(group))


def _find_dates(text: str) -> Iterator[_Found]:
    """Yield dates, each with a time that stands beside it."""
    dates = sorted(_find_days(text), key=lambda one: one.start)
    times = list(_TIME.finditer(text))
    for date, following in pairwise([*dates, None]):
        if date is not None:
            end = following.start if following is not None else len(text)
            own = [time for time in times if date.end <= time.start() < end]
            yield from _add_times(date, own)


def _find_days(text: str) -> Iterator[_Found]:
    """Yield dates: the first of a period has the month or the year of the second, and a month is
    its first and its last day."""
    for match in _FIRST_DAY.finditer(text):
        yield from _make_date(match, 1, f"{match[1].rstrip('stndrh.º°')} {match[2]}")
    for match in _FIRST_DATE.finditer(text):
        yield from _make_date(match, 1, f"{match[1]} {match[2]}")
    for match in _DATE.finditer(text):
        yield from _make_date(match, 0, re.sub(r"(?<=\d)(?:st|nd|rd|th|º|°)\b", "", match[0]))
    for match in _MONTH.finditer(text):
        for first_day in _make_date(match, 1, f"1 {match[1]} {match[2]}"):
            yield first_day
            days = monthrange(int(first_day.text[:4]), int(first_day.text[5:7]))[1]
            last_day = f"{first_day.text[:8]}{days:02}"
            yield _Found(ValueKind.DATE, last_day, match.start(2), match.end(2))


def _make_date(match: re.Match[str], group: int, said: str) -> Iterator[_Found]:
    """Yield the place of a group as a date, if these words are one."""
    if iso := to_iso_date(said):
        yield _Found(ValueKind.DATE, iso, match.start(group), match.end(group))


def _add_times(date: _Found, times: Sequence[re.Match[str]]) -> Iterator[_Found]:
    """Yield a date with the times that follow it: one, or the two of a period."""
    end = date.end
    found: list[_Found] = []
    zone = "Z" if any(time[3] for time in times[:2]) else ""
    for time in times[:2]:
        hour = int(time[1])
        minute = int(time[2])
        if time.start() - end > _TIME_REACH or hour > 23 or minute > 59:
            break
        written = f"{date.text[:10]}T{hour:02}:{minute:02}:00{zone}"
        start = time.start() if found else date.start
        found.append(_Found(ValueKind.DATE, written, start, time.end()))
        end = time.end()
    yield from found or [date]


def _find_durations(text: str) -> Iterator[_Found]:
    for match in _DURATION.finditer(text):
        number = int(match[1]) if match[1].isdigit() else NUMBER_WORDS.get(match[1].lower())
        if number is not None:
            written = f"{number}{_UNIT_BY_WORD[match[2].lower()]}"
            yield _Found(ValueKind.DURATION, written, match.start(), match.end())


def _find_tokens(text: str) -> Iterator[_Found]:
    for match in _TOKEN.finditer(text):
        start = match.start()
        token = match[0]
        inner = token.lstrip(_OPENING)
        start += len(token) - len(inner)
        inner = inner.rstrip(_CLOSING)
        if not inner:
            continue
        if (counted := NUMBER_WORDS.get(inner.lower())) is not None:
            yield _Found(ValueKind.NUMBER, str(counted), start, start + len(inner))
            continue
        if (setting := _SETTING.fullmatch(inner)) is not None:
            for group in (1, 2):
                at = start + setting.start(group)
                yield _Found(
                    _find_kind(setting[group]), setting[group], at, at + len(setting[group])
                )
            continue
        kind = _find_kind(inner)
        if kind is not ValueKind.NAME or _MARKED.search(inner):
            yield _Found(kind, inner, start, start + len(inner))


def _find_kind(token: str) -> ValueKind:
    if re.match(r"[a-z][a-z0-9+.]{1,15}://", token):
        return ValueKind.URL
    if token.startswith("arn:"):
        return ValueKind.ARN
    if _EMAIL.fullmatch(token):
        return ValueKind.EMAIL
    if token.startswith(("/", "~/", "./", "../")) and len(token) > 2:
        return ValueKind.PATH
    if _NUMBER.fullmatch(token):
        return ValueKind.NUMBER
    return ValueKind.NAME
