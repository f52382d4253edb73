"""Two versions of a text → the lines that differ, fit for a screen: secrets masked, endless lines shortened."""

import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from portico.config_file.masking import ENV_FLAGS, HEADER_FLAGS, MASK, SECRET_NAME, masked_text

AROUND = 3
"""Lines shown before and after a change."""
WIDEST = 400
"""Characters of a line that are shown; a file written as one line may have millions."""
_NAMED = re.compile(r"""(["']?([\w.-]+)["']?\s*[:=]\s*")((?:[^"\\]|\\.)+)(")""")
_FLAG = re.compile(r"""(["'](-[^"']*)["']\s*,\s*")(?!-)((?:[^"\\]|\\.)+)(")""")
_ITEM = re.compile(r"""(\s*["'])(.+)(["'],?\s*)""")
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def difference(before: str, after: str, name: str, *, masking: bool = False) -> list[str]:
    """A unified diff. What the file said already is masked; with `masking`, what is new to it, too.

    A line on which something is changed is such a line: the rest of it was there before.
    """
    old, new = before.splitlines(), after.splitlines()
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    skipped = max(first - AROUND, 0)
    # Only what lies between is compared: Claude Code's file may have hundreds of thousands of lines.
    was, will_be = (lines[skipped : len(lines) - max(last - AROUND, 0)] for lines in (old, new))
    found = list(unified_diff(was, will_be, f"{name} (now)", f"{name} (then)", lineterm="", n=AROUND))
    return list(_lines(found, (old, new), skipped, masking))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _lines(
    found: Sequence[str], texts: tuple[Sequence[str], Sequence[str]], skipped: int, masking: bool
) -> Iterator[str]:
    known = {line.rstrip(" ,") for line in texts[0]}
    at = [0, 0]
    for place, line in enumerate(found):
        if place < 2:
            yield line
        elif hunk := _HUNK.fullmatch(line):
            at = [int(hunk.group(number)) + skipped for number in (1, 3)]
            yield f"@@ -{at[0]}{hunk.group(2) or ''} +{at[1]}{hunk.group(4) or ''} @@"
        else:
            other = _twin(found, place)
            start, end = _changed(line, other)
            part, side = line[start:end], int(line.startswith("+"))
            before = texts[side][at[side] - 2] if at[side] > 1 else ""
            at = [at[0] + (line[:1] != "+"), at[1] + (line[:1] != "-")]
            is_new = side and line[1:].rstrip(" ,") not in known and not _continues(line, other)
            sign, rest = (part[:1], part[1:]) if not start else ("", part)
            told = part if is_new and not masking else sign + _masked(rest, before)
            yield f"{line[:1] if start else ''}{'…' if start > 1 else ''}{told}{'…' if end < len(line) else ''}"


def _twin(found: Sequence[str], place: int) -> str:
    """The line that a long line was, or becomes."""
    line = found[place]
    step = {"+": -1, "-": 1}.get(line[:1], 0)
    other = found[place + step] if 0 <= place + step < len(found) else ""
    return other if step and other[:1] in "+-" else ""


def _changed(line: str, other: str) -> tuple[int, int]:
    """The part of a line to show: all of it, or of a long one what differs from its twin and a little around."""
    if len(line) <= WIDEST:
        return 0, len(line)
    first = _common(line[1:], other[1:]) + 1 if other else 1
    last = _common(line[first:][::-1], other[first:][::-1]) if other else 0
    start = max(first - 40, 1)
    return start, min(max(len(line) - last + 40, start), start + 2 * WIDEST)


def _continues(line: str, other: str) -> bool:
    """Whether most of a line was on the one that it takes the place of."""
    return 2 * max(_common(line[1:], other[1:]), _common(line[:0:-1], other[:0:-1])) > len(other) > 0


def _masked(text: str, before: str) -> str:
    """A line as it may be shown; the item after `"--token"` in a list is judged by that line before it."""
    item, flag = _ITEM.fullmatch(text), _ITEM.fullmatch(before)
    if item is not None and flag is not None and _takes_secret(flag[2]) and not item[2].startswith("-"):
        return f"{item[1]}{MASK}{item[3]}"
    return masked_text(_NAMED.sub(_hidden, _FLAG.sub(_hidden, text))) if text.strip() else text


def _takes_secret(flag: str) -> bool:
    return flag in (*ENV_FLAGS, *HEADER_FLAGS) or (flag.startswith("-") and SECRET_NAME.search(flag) is not None)


def _hidden(entry: re.Match[str]) -> str:
    secret = _takes_secret(entry[2]) if entry[2].startswith("-") else SECRET_NAME.search(entry[2])
    return f"{entry[1]}{MASK}{entry[4]}" if secret and "${" not in entry[3] else entry[0]
