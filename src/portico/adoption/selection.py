"""Parses a person's choice from a numbered list. Pure."""

import re
from collections.abc import Sequence

_RANGE = re.compile(r"(-|!)?(\d+)(?:\s*(?:-|\.\.)\s*(\d+))?")


def parse_selection(text: str, names: Sequence[str]) -> list[int] | None:
    """Return the chosen numbers in order, or None if the text cannot be parsed.

    Empty text is all, `1 3-5 git` these, `-2` all but that, `n` and the like none.
    """
    count = len(names)
    known = {name.lower(): str(number) for number, name in enumerate(names, 1)}
    words = [word for word in re.split(r"[,;\s]+", text.strip().lower()) if word]
    if not words or words in (["a"], ["all"], ["y"], ["yes"]):
        return list(range(1, count + 1))
    if words in (["n"], ["no"], ["none"], ["q"], ["quit"]):
        return []
    included: set[int] = set()
    excluded: set[int] = set()
    for word in words:
        if word[:1] in ("-", "!") and word[1:] in known:
            sign = word[:1]
        else:
            sign = ""
        match = _RANGE.fullmatch(sign + known.get(word.removeprefix(sign), word.removeprefix(sign)))
        if match is None:
            return None
        first = int(match[2])
        last = int(match[3] or match[2])
        if not 1 <= first <= last <= count:
            return None
        (excluded if match[1] else included).update(range(first, last + 1))
    return sorted((included or set(range(1, count + 1))) - excluded)
