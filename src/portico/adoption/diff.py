"""Two versions of a text → the lines that differ, fit for a screen: secrets masked, endless lines
shortened."""

import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from portico.config_file.mask import ENV_FLAGS, HEADER_FLAGS, MASK, SECRET_NAME, mask_text

CONTEXT_LINES = 3
"""Lines shown before and after a change."""
MAX_LINE_CHARS = 400
"""Characters of a line that are shown; a file written as one line may have millions."""
_ASSIGNMENT = re.compile(r"""(["']?([\w.-]+)["']?\s*[:=]\s*")((?:[^"\\]|\\.)+)(")""")
_FLAG = re.compile(r"""(["'](-[^"']*)["']\s*,\s*")(?!-)((?:[^"\\]|\\.)+)(")""")
_ITEM = re.compile(r"""(\s*["'])(.+)(["'],?\s*)""")
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def render_diff(before: str, after: str, name: str, *, mask_new_lines: bool = False) -> list[str]:
    """A unified diff. What the file said already is masked; with `masking`, what is new to it, too.

    A line on which something is changed is such a line: the rest of it was there before.
    """
    old = before.splitlines()
    new = after.splitlines()
    first = _count_common_prefix(old, new)
    last = _count_common_prefix(old[first:][::-1], new[first:][::-1])
    skipped = max(first - CONTEXT_LINES, 0)
    # Only what lies between is compared: Claude Code's file may have hundreds of thousands of
    # lines.
    was, will_be = (
        lines[skipped : len(lines) - max(last - CONTEXT_LINES, 0)] for lines in (old, new)
    )
    found = list(
        unified_diff(was, will_be, f"{name} (now)", f"{name} (then)", lineterm="", n=CONTEXT_LINES)
    )
    return list(_render_lines(found, (old, new), skipped, mask_new_lines))


def _count_common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _render_lines(
    found: Sequence[str],
    texts: tuple[Sequence[str], Sequence[str]],
    skipped: int,
    mask_new_lines: bool,
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
            other = _find_counterpart(found, place)
            start, end = _find_shown_range(line, other)
            part = line[start:end]
            side = int(line.startswith("+"))
            if at[side] > 1:
                before = texts[side][at[side] - 2]
            else:
                before = ""
            at = [at[0] + (line[:1] != "+"), at[1] + (line[:1] != "-")]
            is_new = (
                side and line[1:].rstrip(" ,") not in known and not _is_continuation(line, other)
            )
            sign, rest = (part[:1], part[1:]) if not start else ("", part)
            if is_new and not mask_new_lines:
                told = part
            else:
                told = sign + _mask_line(rest, before)
            yield f"{line[:1] if start else ''}{'…' if start > 1 else ''}{told}{'…' if end < len(line) else ''}"


def _find_counterpart(found: Sequence[str], place: int) -> str:
    """The line that a long line was, or becomes."""
    line = found[place]
    step = {"+": -1, "-": 1}.get(line[:1], 0)
    if 0 <= place + step < len(found):
        other = found[place + step]
    else:
        other = ""
    if step and other[:1] in "+-":
        return other
    return ""


def _find_shown_range(line: str, other: str) -> tuple[int, int]:
    """The part of a line to show: all of it, or of a long one what differs from its twin and a
    little around."""
    if len(line) <= MAX_LINE_CHARS:
        return 0, len(line)
    if other:
        first = _count_common_prefix(line[1:], other[1:]) + 1
    else:
        first = 1
    if other:
        last = _count_common_prefix(line[first:][::-1], other[first:][::-1])
    else:
        last = 0
    start = max(first - 40, 1)
    return start, min(max(len(line) - last + 40, start), start + 2 * MAX_LINE_CHARS)


def _is_continuation(line: str, other: str) -> bool:
    """Whether most of a line was on the one that it takes the place of."""
    return (
        2
        * max(
            _count_common_prefix(line[1:], other[1:]),
            _count_common_prefix(line[:0:-1], other[:0:-1]),
        )
        > len(other)
        > 0
    )


def _mask_line(text: str, before: str) -> str:
    """A line as it may be shown; the item after `"--token"` in a list is judged by that line before
    it."""
    item = _ITEM.fullmatch(text)
    flag = _ITEM.fullmatch(before)
    if (
        item is not None
        and flag is not None
        and _takes_secret(flag[2])
        and not item[2].startswith("-")
    ):
        return f"{item[1]}{MASK}{item[3]}"
    if text.strip():
        return mask_text(_ASSIGNMENT.sub(_mask_match, _FLAG.sub(_mask_match, text)))
    return text


def _takes_secret(flag: str) -> bool:
    return flag in (*ENV_FLAGS, *HEADER_FLAGS) or (
        flag.startswith("-") and SECRET_NAME.search(flag) is not None
    )


def _mask_match(entry: re.Match[str]) -> str:
    if entry[2].startswith("-"):
        secret = _takes_secret(entry[2])
    else:
        secret = SECRET_NAME.search(entry[2])
    if secret and "${" not in entry[3]:
        return f"{entry[1]}{MASK}{entry[4]}"
    return entry[0]
