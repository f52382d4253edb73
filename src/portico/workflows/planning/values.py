"""Values of arguments from words and from inputs, where the conversion is certain. Pure."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, cast

from portico.workflows.planning.name_matching import score_name
from portico.workflows.planning.parameters import MAX_LEAVES, Leaf

NOTHING = object()
"""No certain value."""

_QUOTES = "\"'“”„«»‘’`"
_NUMBER = re.compile(r"(?<![\w.-])-?\d[\d,. '’]*")
_COUNTED = "two three four five six seven eight nine ten eleven twelve"
NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTED.split(), 2)}
"""Without `one`, which is an article too."""
_MONTHS = (
    "jan gen ene",
    "feb fev fév",
    "mar mär mrz",
    "apr abr avr",
    "may mai mag",
    "jun juin giu",
    "jul juil lug",
    "aug ago aoû aou",
    "sep set",
    "oct okt ott out",
    "nov",
    "dec dez déc dic",
)
_MONTH_BY_WORD = {word: at + 1 for at, words in enumerate(_MONTHS) for word in words.split()}
_ISO_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)(.*)", re.DOTALL)
_DAY_FIRST = re.compile(r"(\d{1,2})\.\s?(\d{1,2})\.\s?(\d{4})")
_NAMED_MONTH = re.compile(r"[^\W\d_]{3,}")
SEPARATOR = r"(?:(?<!\s)\s+)?(?:[,;\n]|\s(?:and|und|et|y|e|plus|&)\s)\s*"
"""Between two values of a list. White space before it is read from its beginning only: from each
of twenty thousand spaces, that would take seconds."""
_SEPARATORS = re.compile(SEPARATOR, re.IGNORECASE)
_TRUE = frozenset(["true", "yes", "on", "y", "ja", "oui", "si", "sí", "1"])
_FALSE = frozenset(["false", "no", "off", "n", "nein", "non", "0"])
_CODE = re.compile(
    r"[A-Za-z][A-Za-z0-9]{0,30}(?:[_-][A-Za-z0-9]{1,30})+|(?<=['\"`])\w{1,40}(?=['\"`])"
)
_CAPITALS = re.compile(r"\b[A-Z]{3,30}\b")
_NUMBERED = re.compile(r"(\d{1,4})\s?(?:=|:|-|–|\()\s?([A-Za-z][A-Za-z ]{1,30})")
_NAMED_NUMBER = re.compile(r"([A-Za-z][A-Za-z ]{1,30})\s?(?:=|:|-|–|\()\s?(\d{1,4})")
MAX_TEXT = 20_000
_MAX_EACH = 100
"""Values for each of which a step is done."""


@dataclass(frozen=True, slots=True)
class Each:
    """Values of which a parameter takes one: the step is done for each."""

    values: list[Any]


def strip_quotes(text: str) -> str:
    """Remove white space, closing punctuation and quotation marks around a value."""
    text = text.strip()
    if len(text) > 1 and text[0] in _QUOTES:
        end = max(text.rfind(mark) for mark in _QUOTES)
        inner = text[1:end] if end > 0 else text[1:]
        return inner.rstrip(",;") or text
    return text.rstrip(",;" + _QUOTES).strip()


def convert_text(text: str, leaf: Leaf) -> Any:
    """Convert words to a value that a parameter takes; NOTHING if that is not certain."""
    text = strip_quotes(text[:MAX_TEXT])
    if not text:
        return NOTHING
    if leaf.options:
        chosen = match_option(text, leaf)
        if chosen is not NOTHING or "array" not in leaf.types:
            return chosen
    types = leaf.types
    if "array" in types and "string" not in types:
        return _convert_list(text, leaf)
    described = _find_described(text, leaf)
    if described is not NOTHING:
        return described
    if types & {"integer", "number"} and "string" not in types:
        if found := to_iso_date(text):
            return _to_epoch(found, leaf)
        return _convert_number(text, integer="number" not in types)
    if types <= {"object"}:
        return _parse_json(text, dict)
    if wants_date(leaf):
        return _write_date(text, leaf)
    return text


def convert_input(value: Any, leaf: Leaf) -> Any:
    """Convert an input to a value that a parameter takes; NOTHING if it does not fit."""
    types = leaf.types
    if value is None:
        return NOTHING
    if isinstance(value, str):
        if "string" in types or "any" in types or "union" in types:
            if leaf.options or wants_date(leaf):
                return convert_text(value, leaf)
            described = _find_described(value, leaf)
            return value if described is NOTHING else described
        return convert_text(value, leaf)
    if isinstance(value, bool):
        return _convert_boolean(value, leaf)
    if isinstance(value, int | float):
        return _convert_given_number(value, leaf)
    if isinstance(value, list):
        return _convert_given_list(cast("list[Any]", value), leaf)
    if isinstance(value, dict) and not types & {"object", "any"}:
        return NOTHING
    return cast("Any", value)


def _convert_boolean(value: bool, leaf: Leaf) -> Any:
    if leaf.types & {"boolean", "any"}:
        return value
    return NOTHING


def _convert_given_number(value: float, leaf: Leaf) -> Any:
    types = leaf.types
    if not math.isfinite(value):
        return NOTHING
    if leaf.options:
        return match_option(f"{value:g}" if isinstance(value, float) else str(value), leaf)
    if "number" in types or "any" in types:
        return value
    if "integer" in types and value == int(value):
        return int(value)
    if "string" in types:
        return f"{value:g}" if isinstance(value, float) else str(value)
    if "array" in types:
        return _convert_given_list([value], leaf)
    return NOTHING


def _convert_given_list(values: list[Any], leaf: Leaf) -> Any:
    if leaf.types & {"array", "any"}:
        if leaf.options or (leaf.item_types and "object" not in leaf.item_types):
            item = _make_item_leaf(leaf)
            found = [convert_input(value, item) for value in values]
            if any(value is NOTHING for value in found):
                return NOTHING
            return found
        return values
    if not values or not all(isinstance(value, str | int | float) for value in values):
        return NOTHING
    if len(values) == 1:
        return convert_input(values[0], leaf)
    if "string" in leaf.types and not leaf.options:
        described = leaf.schema.description.lower()
        if "json" in described:
            return json.dumps(values)
        if "comma" in described:
            return ",".join(map(str, values))
    if len(values) > _MAX_EACH:
        return NOTHING
    found = [convert_input(value, leaf) for value in values]
    return NOTHING if any(value is NOTHING for value in found) else Each(found)


def fit_objects(value: Any, leaf: Leaf, leaves: Sequence[Leaf]) -> Any:
    """Rename the keys of objects in a list to those that a parameter takes, where each fits one by
    its name, or is the only one left."""
    if not isinstance(value, list) or not value or "array" not in leaf.types:
        return value
    items = cast("list[Any]", value)
    around = (*leaf.path, 0)
    parts = [other for other in leaves if other.path[:-1] == around]
    if not parts or not all(isinstance(item, dict) for item in items):
        return value
    keys = list(dict.fromkeys(key for item in items for key in item))
    if len(keys) > MAX_LEAVES:
        return value
    names: dict[str, Leaf] = {}
    pairs = [(score_name(key, part, ()), key, part) for key in keys for part in parts]
    for score, key, part in sorted(pairs, key=lambda pair: -pair[0]):
        if score > 0.3 and key not in names and part not in names.values():
            names[key] = part
    left = [key for key in keys if key not in names]
    open_parts = [part for part in parts if part.required_beside and part not in names.values()]
    if left and len(left) <= len(open_parts):
        for key in left:
            fitting = [
                part
                for part in open_parts
                if all(convert_input(item.get(key), part) == item.get(key) for item in items)
            ]
            if len(fitting) > 1:
                fitting = [part for part in fitting if not _takes_any(part)] or fitting[:1]
            if fitting:
                names[key] = fitting[0]
                open_parts.remove(fitting[0])
    return [
        {
            str(names[key].path[-1]) if key in names else key: (
                convert_input(part, names[key]) if key in names else part
            )
            for key, part in item.items()
        }
        for item in items
    ]


def _takes_any(leaf: Leaf) -> bool:
    return bool(leaf.types & {"any", "union", "string"}) and len(leaf.types) > 1


def _make_item_leaf(leaf: Leaf) -> Leaf:
    types = leaf.item_types or frozenset({"any"})
    return replace(leaf, types=types, item_types=frozenset())


def match_option(text: str, leaf: Leaf) -> Any:
    """Return the option that is spelt so, whatever its case and separators; else NOTHING."""
    wanted = _fold(text)
    for option in leaf.options:
        if isinstance(option, bool):
            if wanted in (_TRUE if option else _FALSE):
                return option
        elif isinstance(option, int | float):
            if str(option) == text.strip():
                return option
        elif _fold(str(option)) == wanted:
            return option
    words = [option for option in leaf.options if isinstance(option, str)]
    endings = [option for option in words if _is_inflected(_fold(option), wanted)]
    return endings[0] if len(endings) == 1 else NOTHING


def _find_described(text: str, leaf: Leaf) -> Any:
    """Return the spelling or the number that the description gives a word: `show_hn` for `Show HN`,
    40 for `maintainer` where it says `40=Maintainer`. NOTHING where it gives none."""
    wanted = _fold(text)
    said = leaf.schema.description[:2_000]
    if not wanted or len(wanted) > 40:
        return NOTHING
    if leaf.types & {"string"}:
        words = (*_CODE.findall(said), *_CAPITALS.findall(said))
        known = [word for word in words if _fold(word) == wanted]
        return known[0] if known and text not in known else NOTHING
    if leaf.types & {"integer", "number"} and not any(letter.isdigit() for letter in text):
        for number, after in _NUMBERED.findall(said):
            if _fold(after).startswith(wanted):
                return int(number)
        for before, number in _NAMED_NUMBER.findall(said):
            if _fold(before).endswith(wanted):
                return int(number)
    return NOTHING


def _is_inflected(option: str, wanted: str) -> bool:
    """Return whether two words differ in an ending: `put` and `puts`, `close` and `closed`."""
    short, long = sorted((option, wanted), key=len)
    return len(short) > 2 and long.startswith(short) and long[len(short) :] in ("s", "d", "ed")


def _fold(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _convert_list(text: str, leaf: Leaf) -> Any:
    if text.startswith("["):
        parsed = _parse_json(text, list)
        if parsed is not NOTHING:
            return parsed
    if leaf.item_types & {"object", "array"}:
        return NOTHING
    item = _make_item_leaf(leaf)
    found = [convert_text(part, item) for part in _SEPARATORS.split(text)[:100] if part]
    if not found or any(value is NOTHING for value in found):
        return NOTHING
    return found


def _parse_json(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return NOTHING
    return value if isinstance(value, kind) else NOTHING


def _convert_number(text: str, *, integer: bool) -> Any:
    number = NUMBER_WORDS.get(text.lower())
    if number is not None:
        return number
    found = _NUMBER.search(text)
    if found is None or len(found.group()) > 30:
        return NOTHING
    digits = re.sub(r"[ '’]", "", found.group()).rstrip(".,")
    # 1,250 and 1.250.000 have separators of thousands, 12,5 and 12.5 a fraction.
    if re.fullmatch(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits):
        digits = digits.replace(",", "")
    elif re.fullmatch(r"-?\d{1,3}(?:\.\d{3}){2,}", digits):
        digits = digits.replace(".", "")
    digits = digits.replace(",", ".")
    try:
        value = float(digits)
    except ValueError:
        return NOTHING
    if value == int(value):
        return int(value)
    return NOTHING if integer else value


def wants_date(leaf: Leaf) -> bool:
    """Return whether a text parameter takes a date in the form of ISO 8601."""
    if "string" not in leaf.types:
        return False
    if leaf.schema.source.get("format") in ("date", "date-time"):
        return True
    said = f"{leaf.name} {leaf.schema.description[:400]}".lower()
    return any(form in said for form in ("yyyy-mm-dd", "yyyymmdd", "iso 8601", "iso-8601"))


def _write_date(text: str, leaf: Leaf) -> str:
    """Return a date in the form that a parameter takes; the text itself if it is none."""
    found = to_iso_date(text)
    said = leaf.schema.description[:400].lower()
    if len(found) == 10 and "yyyymmdd" in said and "yyyy-mm-dd" not in said:
        return found.replace("-", "")
    return found or text


def to_iso_date(text: str) -> str:
    """Return a date as YYYY-MM-DD (a time behind it stays); empty if the words are none."""
    text = text[:60].strip()
    if (found := _ISO_DATE.match(text)) is not None:
        year, month, day, rest = found.groups()
        joined = _join_date(int(year), int(month), int(day))
        return joined and joined + rest
    if (found := _DAY_FIRST.fullmatch(text)) is not None:
        day, month, year = map(int, found.groups())
        return _join_date(year, month, day)
    numbers = [int(number) for number in re.findall(r"\d{1,4}", text)]
    months = [_find_month(word) for word in _NAMED_MONTH.findall(text)]
    named = [month for month in months if month]
    years = [number for number in numbers if number >= 1000]
    days = [number for number in numbers if number <= 31]
    if len(named) == len(years) == len(days) == 1 and len(numbers) == 2:
        return _join_date(years[0], named[0], days[0])
    return ""


def _to_epoch(iso: str, leaf: Leaf) -> Any:
    """Convert a date to seconds or milliseconds since 1970, where a parameter says that it takes
    them; else NOTHING."""
    said = f"{leaf.name} {leaf.schema.description[:400]}".lower()
    if not any(word in said for word in ("epoch", "unix", "timestamp", "since 1970")):
        return NOTHING
    try:
        at = datetime.fromisoformat(iso)
    except ValueError:
        return NOTHING
    seconds = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
    return seconds * 1_000 if "millisecond" in said or "(ms)" in said else seconds


def _find_month(word: str) -> int:
    lowered = word.lower()
    return _MONTH_BY_WORD.get(lowered[:4], 0) or _MONTH_BY_WORD.get(lowered[:3], 0)


def _join_date(year: int, month: int, day: int) -> str:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return ""
