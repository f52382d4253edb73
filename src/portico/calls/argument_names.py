"""Arguments under a name that the tool does not have, and the parameter that was probably meant.
Pure.

Nothing is repaired here: `tz` may well be `timezone`, but only its caller knows.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from portico.catalog.visible_text import quote_text

MAX_SUGGESTIONS = 3
MAX_NAME_CHARS = 60
_MAX_PARAMETERS = 200
_MIN_SIMILARITY = 0.6
"""From which ratio two names are alike: `tittle` and `title` are, `city` and `zip` are not."""


def suggest_names(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What to say of each argument that no parameter has the name of; nothing where none is like
    it, or none lacks."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return ()
    if isinstance(required, list):
        named = [name for name in required if isinstance(name, str)]
    else:
        named = []
    free = [name for name in dict.fromkeys([*named, *properties]) if name not in arguments][
        :_MAX_PARAMETERS
    ]
    lacking = [name for name in named if name not in arguments]
    if not lacking and schema.get("additionalProperties") is not False:
        return ()
    unknown = [name for name in arguments if name not in properties and len(name) <= MAX_NAME_CHARS]
    told: list[str] = []
    for name in unknown[:MAX_SUGGESTIONS]:
        # One that lacks and one too many: these belong together, however they are spelt.
        if len(lacking) == len(unknown) == 1:
            only = lacking[0]
        else:
            only = None
        if (meant := find_nearest(name, free) or only) is not None:
            told.append(
                f"unknown argument {quote_text(name)}: did you mean {quote_text(meant, MAX_NAME_CHARS)}?"
            )
    return tuple(told)


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like another: alike in letters, or the one that it is short for."""
    likeness = [
        (_score_similarity(name.casefold(), one.casefold()), one)
        for one in names
        if len(one) <= MAX_NAME_CHARS
    ]
    best = max(likeness, default=(0.0, ""), key=lambda pair: pair[0])
    if best[0] >= _MIN_SIMILARITY:
        return best[1]
    return None


def _score_similarity(one: str, other: str) -> float:
    from rapidfuzz import fuzz  # only a wrong name needs it

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
