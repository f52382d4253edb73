"""A unified diff for the terminal: secrets masked, long lines shortened."""

import re
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from portico.config_file.mask import ENV_FLAGS, HEADER_FLAGS, MASK, SECRET_NAME, mask_text

CONTEXT_LINES = 3
"""Lines shown before and after a change."""
MAX_LINE_CHARS = 400
"""Characters shown of a line; a minified file may have millions."""
_ASSIGNMENT = re.compile(r"""(["']?([\w.-]+)["']?\s*[:=]\s*")((?:[^"\\]|\\.)+)(")""")
_FLAG = re.compile(r"""(["'](-[^"']*)["']\s*,\s*")(?!-)((?:[^"\\]|\\.)+)(")""")
_ITEM = re.compile(r"""(\s*["'])(.+)(["'],?\s*)""")
_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def render_diff(before: str, after: str, name: str, *, mask_new_lines: bool = False) -> list[str]:
    """Return a unified diff. Old lines are masked; with `mask_new_lines`, new ones too.

    A changed line counts as old if most of it was there before.
    """
    old = before.splitlines()
    new = after.splitlines()
    first = _count_common_prefix(old, new)
    last = _count_common_prefix(old[first:][::-1], new[first:][::-1])
    skipped = max(first - CONTEXT_LINES, 0)
    # Only the part in between is compared: Claude Code's file may have hundreds of thousands of
    # lines.
    old_part, new_part = (
        lines[skipped : len(lines) - max(last - CONTEXT_LINES, 0)] for lines in (old, new)
    )
    diff_lines = list(
        unified_diff(
            old_part, new_part, f"{name} (now)", f"{name} (then)", lineterm="", n=CONTEXT_LINES
        )
    )
    return list(_render_lines(diff_lines, (old, new), skipped, mask_new_lines))


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
    line_numbers = [0, 0]
    for index, line in enumerate(found):
        if index < 2:
            yield line
        elif hunk := _HUNK.fullmatch(line):
            line_numbers = [int(hunk.group(number)) + skipped for number in (1, 3)]
            yield (
                f"@@ -{line_numbers[0]}{hunk.group(2) or ''} "
                f"+{line_numbers[1]}{hunk.group(4) or ''} @@"
            )
        else:
            other = _find_counterpart(found, index)
            start, end = _find_shown_range(line, other)
            part = line[start:end]
            side = int(line.startswith("+"))
            before = texts[side][line_numbers[side] - 2] if line_numbers[side] > 1 else ""
            line_numbers = [
                line_numbers[0] + (line[:1] != "+"),
                line_numbers[1] + (line[:1] != "-"),
            ]
            is_new = (
                side and line[1:].rstrip(" ,") not in known and not _is_continuation(line, other)
            )
            sign, rest = (part[:1], part[1:]) if not start else ("", part)
            if not is_new or mask_new_lines:
                part = sign + _mask_line(rest, before)
            if start:
                part = f"{line[:1]}{'…' if start > 1 else ''}{part}"
            if end < len(line):
                part += "…"
            yield part


def _find_counterpart(found: Sequence[str], place: int) -> str:
    """Return the line that a changed line was, or becomes; empty if there is none."""
    line = found[place]
    step = {"+": -1, "-": 1}.get(line[:1], 0)
    if not step or not 0 <= place + step < len(found):
        return ""
    other = found[place + step]
    return other if other[:1] in "+-" else ""


def _find_shown_range(line: str, other: str) -> tuple[int, int]:
    """Return the range of a line to show: all of it, or the differing part of a long one."""
    if len(line) <= MAX_LINE_CHARS:
        return 0, len(line)
    first = _count_common_prefix(line[1:], other[1:]) + 1
    last = _count_common_prefix(line[first:][::-1], other[first:][::-1])
    start = max(first - 40, 1)
    return start, min(max(len(line) - last + 40, start), start + 2 * MAX_LINE_CHARS)


def _is_continuation(line: str, other: str) -> bool:
    """Return whether most of a line was on the line that it replaces."""
    prefix = _count_common_prefix(line[1:], other[1:])
    suffix = _count_common_prefix(line[:0:-1], other[:0:-1])
    return 2 * max(prefix, suffix) > len(other) > 0


def _mask_line(text: str, before: str) -> str:
    """Mask a line; the item after `"--token"` in a list is judged by that line before it."""
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
    secret = SECRET_NAME.search(entry[2])
    if entry[2].startswith("-"):
        secret = _takes_secret(entry[2])
    if secret and "${" not in entry[3]:
        return f"{entry[1]}{MASK}{entry[4]}"
    return entry[0]
