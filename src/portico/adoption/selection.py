"""What a person types to choose from a numbered list → the numbers. Pure."""

import re
from collections.abc import Sequence

_RANGE = re.compile(r"(-|!)?(\d+)(?:\s*(?:-|\.\.)\s*(\d+))?")


def parse_selection(text: str, names: Sequence[str]) -> list[int] | None:
    """The numbers that are meant, in order: nothing is all, `1 3-5 git` these, `-2` all but that;
    None is no answer.

    `n` and its like choose nothing.
    """
    most = len(names)
    known = {name.lower(): str(number) for number, name in enumerate(names, 1)}
    words = [word for word in re.split(r"[,;\s]+", text.strip().lower()) if word]
    if not words or words in (["a"], ["all"], ["y"], ["yes"]):
        return list(range(1, most + 1))
    if words in (["n"], ["no"], ["none"], ["q"], ["quit"]):
        return []
    taken: set[int] = set()
    left: set[int] = set()
    for word in words:
        if word[:1] in ("-", "!") and word[1:] in known:
            without = word[:1]
        else:
            without = ""
        match = _RANGE.fullmatch(
            without + known.get(word.removeprefix(without), word.removeprefix(without))
        )
        if match is None:
            return None
        first = int(match[2])
        last = int(match[3] or match[2])
        if not 1 <= first <= last <= most:
            return None
        (left if match[1] else taken).update(range(first, last + 1))
    return sorted((taken or set(range(1, most + 1))) - left)
