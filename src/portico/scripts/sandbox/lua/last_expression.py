"""A Lua script made to answer its last expression, where that can be known. Pure, but for the
compiler it is given."""

import re
from collections.abc import Callable, Iterator
from typing import Any

_WORD = re.compile(rb"[A-Za-z_0-9#]")
_RETURN = re.compile(rb"^[ \t]*return\b", re.MULTILINE)
_MAX_TRIED_LINES = 200


def compile_returning_last_expression(
    code: bytes, compile_chunk: Callable[[bytes], Any], syntax_error: type[Exception]
) -> tuple[Any, int | None]:
    """The compiled script, and the line of the statement that it ends with. Raises `refusal` as
    `compile` does.

    `return` is tried before the last lines: right where what is before it and what follows are both whole. A line that
    could continue the one before it (`- b`, `(f or g)()`) begins a new one only in a script that
    means nothing else.
    """
    try:
        plain = compile_chunk(code)
        problem = None
    except syntax_error as error:
        plain = None
        problem = error
    for before, last in _split_before_last_lines(code):
        if plain is not None and before.strip() and not _WORD.match(last.lstrip()):
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
    return plain, _find_return_line(code) if len(returns) == 1 else None


def _find_return_line(code: bytes) -> int | None:
    found = _RETURN.search(code)
    if found:
        return code.count(b"\n", 0, found.start()) + 1
    return None


def _split_before_last_lines(code: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The script, cut before its last line, before its last two, …; before the whole, at last."""
    lines = code.splitlines(keepends=True)
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _MAX_TRIED_LINES), -1):
        line = lines[at].strip()
        if line and not line.startswith(b"--"):
            yield b"".join(lines[:at]), b"".join(lines[at:])
