"""How well the form of a value that was said fits a parameter: an address, a date or a duration.
Pure.
"""

import re
from functools import lru_cache
from typing import Any

from portico.workflows.planning.name_matching import to_words
from portico.workflows.planning.parameters import Leaf
from portico.workflows.planning.said_values import SaidValue, ValueKind
from portico.workflows.planning.values import (
    NOTHING,
    convert_input,
    convert_text,
    wants_date,
)

_WORDS = {
    ValueKind.URL: frozenset(("url", "uri", "link", "endpoint", "href", "webhook", "website")),
    ValueKind.ARN: frozenset(("arn",)),
    ValueKind.EMAIL: frozenset(("email", "mail", "sender", "recipient")),
    ValueKind.PATH: frozenset(("path", "file", "folder", "directory", "dir", "filename")),
    ValueKind.DATE: frozenset(("date", "time", "day", "datetime", "timestamp", "iso")),
}
"""What a parameter for such a value is called, or described as."""
_BY_NAME = 0.3
_BY_DESCRIPTION = 0.15
_UNLIKE = -0.25
_LISTED = 0.2
_MAX_DESCRIPTION = 400


_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "mo": 2_592_000}
_UNIT_BY_NAME = {
    "second": "s",
    "sec": "s",
    "minute": "m",
    "min": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
    "month": "mo",
}
"""What the name of an input says that it is counted in."""
_MAX_DIGITS = 12
_COUNTED_IN = {
    0.001: frozenset(("ms", "millisecond", "milliseconds")),
    1: frozenset(("second", "seconds", "sec", "secs")),
    60: frozenset(("minute", "minutes", "mins")),
    3_600: frozenset(("hour", "hours")),
    86_400: frozenset(("day", "days")),
}
"""Units that a parameter is counted in, in seconds, and what they are called."""


def score_form(value: SaidValue, leaf: Leaf) -> float:
    """Return what the form of a value adds to its score for a parameter, or takes from it."""
    named, described = _read_leaf(leaf.name, leaf.schema.description)
    score = 0.0
    if value.kind in _WORDS:
        if value.kind in named or (value.kind is ValueKind.DATE and wants_date(leaf)):
            score += _BY_NAME
        elif value.kind in described:
            score += _BY_DESCRIPTION
        else:
            score += _UNLIKE
    elif named & {ValueKind.URL, ValueKind.ARN, ValueKind.EMAIL} or wants_date(leaf):
        score += _UNLIKE
    if value.items:
        score += _LISTED if leaf.types & {"array", "any", "union"} or leaf.is_plural else -_LISTED
    return score


def convert_value(value: SaidValue, leaf: Leaf) -> Any:
    """Convert a value that was said to one that a parameter takes; NOTHING if it takes none."""
    if value.items:
        return convert_input(list(value.items), leaf)
    text = value.text
    if value.kind is ValueKind.DURATION:
        return convert_duration(text, leaf)
    if value.kind is ValueKind.DATE:
        form = leaf.schema.source.get("format")
        if "T" not in text and form == "date-time":
            text += "T00:00:00Z"
        elif form == "date" or (form != "date-time" and not _takes_time(leaf)):
            text = text[:10]
    return convert_text(text, leaf)


def convert_duration(text: str, leaf: Leaf) -> Any:
    """Convert `5m` to the unit that a parameter names; a text takes it if it shows such a one."""
    number = int(text.rstrip(_LETTERS))
    unit = text.lstrip("0123456789")
    if leaf.options:
        return convert_text(text, leaf)
    if leaf.types & {"integer", "number"}:
        said = set(to_words(leaf.name))
        if not any(said & words for words in _COUNTED_IN.values()):
            said |= set(to_words_of_text(leaf.schema.description[:_MAX_DESCRIPTION]))
        named = [seconds for seconds, words in _COUNTED_IN.items() if said & words]
        if len(named) != 1:
            return convert_text(str(number), leaf)
        count = number * _SECONDS[unit] / named[0]
        return convert_text(str(int(count)), leaf) if count == int(count) else NOTHING
    shown = f"{leaf.schema.default} {leaf.schema.description[:_MAX_DESCRIPTION]}"
    is_shown = re.search(rf"(?<![\w-])\d+{unit}\b", shown)
    return text if is_shown and leaf.types <= {"string"} else NOTHING


def convert_counted(name: str, value: object, leaf: Leaf) -> Any:
    """Convert the number of an input whose name has a unit (`retention_days`) to the unit of a
    parameter; NOTHING if it is no such input or the parameter takes no duration."""
    units = [_UNIT_BY_NAME[word] for word in to_words(name) if word in _UNIT_BY_NAME]
    text = str(value)
    if len(units) != 1 or isinstance(value, bool) or not text.isascii() or not text.isdigit():
        return NOTHING
    return convert_duration(f"{text[:_MAX_DIGITS]}{units[0]}", leaf)


def _takes_time(leaf: Leaf) -> bool:
    """Return whether a time of day belongs to a date here, by name or description."""
    said = {*to_words(leaf.name), *to_words_of_text(leaf.schema.description[:_MAX_DESCRIPTION])}
    return bool(said & {"time", "datetime", "timestamp", "iso", "rfc", "utc", "at"})


@lru_cache(maxsize=4_096)
def _read_leaf(name: str, description: str) -> tuple[frozenset[ValueKind], frozenset[ValueKind]]:
    """Return the kinds that a name and a description speak of."""
    own = set(to_words(name))
    said = set(to_words_of_text(description[:_MAX_DESCRIPTION]))
    named = frozenset(kind for kind, words in _WORDS.items() if own & words)
    described = frozenset(kind for kind, words in _WORDS.items() if said & words)
    return named, described


def to_words_of_text(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"[a-z]+", text.lower())
