"""Suggestions for argument names that the tool does not have. Pure.

Nothing is repaired here: `tz` may well mean `timezone`, but only the caller knows.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from portico.catalog.visible_text import quote_text

MAX_SUGGESTIONS = 3
MAX_NAME_CHARS = 60
_MAX_PARAMETERS = 200
_MIN_SIMILARITY = 0.6
"""Least ratio at which two names are alike: `tittle` and `title` are, `city` and `zip` are not."""


def suggest_names(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Suggest a parameter for each unknown argument; empty if none is similar or missing."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return ()
    if isinstance(required, list):
        required_names = [name for name in required if isinstance(name, str)]
    else:
        required_names = []
    unused = [
        name for name in dict.fromkeys([*required_names, *properties]) if name not in arguments
    ][:_MAX_PARAMETERS]
    missing = [name for name in required_names if name not in arguments]
    if not missing and schema.get("additionalProperties") is not False:
        return ()
    unknown = [name for name in arguments if name not in properties and len(name) <= MAX_NAME_CHARS]
    suggestions: list[str] = []
    for name in unknown[:MAX_SUGGESTIONS]:
        # One missing and one unknown name belong together, however they are spelt.
        if len(missing) == len(unknown) == 1:
            only_missing = missing[0]
        else:
            only_missing = None
        if (suggestion := find_nearest(name, unused) or only_missing) is not None:
            suggestions.append(
                f"unknown argument {quote_text(name)}: "
                f"did you mean {quote_text(suggestion, MAX_NAME_CHARS)}?"
            )
    return tuple(suggestions)


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, or the one that `name` abbreviates; None if none is close."""
    scored = [
        (_score_similarity(name.casefold(), candidate.casefold()), candidate)
        for candidate in names
        if len(candidate) <= MAX_NAME_CHARS
    ]
    best = max(scored, default=(0.0, ""), key=lambda pair: pair[0])
    if best[0] >= _MIN_SIMILARITY:
        return best[1]
    return None


def _score_similarity(one: str, other: str) -> float:
    from rapidfuzz import fuzz  # imported here because only wrong names need it

    short, long = sorted((one, other), key=len)
    if not short:
        return 0.0
    ratio = fuzz.ratio(one, other) / 100
    if len(short) > 1 and (long.startswith(short) or short in long.replace("-", "_").split("_")):
        return max(ratio, 0.9)
    letters = iter(long)
    is_short_for = (
        len(short) > 1 and short[0] == long[0] and all(letter in letters for letter in short)
    )
    return max(ratio, 0.7 if is_short_for else 0.0)
