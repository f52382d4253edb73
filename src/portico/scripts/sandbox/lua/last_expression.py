"""Compilation of Lua scripts that return their last expression. Pure except for the compiler."""

import re
from collections.abc import Callable, Iterator
from typing import Any

_WORD = re.compile(rb"[A-Za-z_0-9#]")
_RETURN = re.compile(rb"^[ \t]*return\b", re.MULTILINE)
_MAX_TRIED_LINES = 200


def compile_returning_last_expression(
    code: bytes, compile_chunk: Callable[[bytes], Any], syntax_error: type[Exception]
) -> tuple[Any, int | None]:
    """Return the compiled script and the line of its last statement; raises `syntax_error`.

    Tries `return` before each of the last lines, until both the code before it and the rest compile
    alone. A line that could continue the preceding one (`- b`, `(f or g)()`) begins a statement
    only if the script does not compile otherwise.
    """
    try:
        unchanged = compile_chunk(code)
        problem = None
    except syntax_error as error:
        unchanged = None
        problem = error
    for before, last in _split_before_last_lines(code):
        if unchanged is not None and before.strip() and not _WORD.match(last.lstrip()):
            continue
        try:
            compile_chunk(b"return " + last)
            compile_chunk(before)
            return compile_chunk(before + b"return " + last), before.count(b"\n") + 1
        except syntax_error:
            continue
    if problem is not None:
        raise problem
    returns = _RETURN.findall(code)
    return unchanged, _find_return_line(code) if len(returns) == 1 else None


def _find_return_line(code: bytes) -> int | None:
    found = _RETURN.search(code)
    if found:
        return code.count(b"\n", 0, found.start()) + 1
    return None


def _split_before_last_lines(code: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the script split before its last line, its last two lines, and so on."""
    lines = code.splitlines(keepends=True)
    for start in range(len(lines) - 1, max(-1, len(lines) - 1 - _MAX_TRIED_LINES), -1):
        line = lines[start].strip()
        if line and not line.startswith(b"--"):
            yield b"".join(lines[:start]), b"".join(lines[start:])
