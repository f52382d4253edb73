"""Return of the last expression of a JavaScript script.

`eval` returns the value of the last statement but does not support `await`; the body of an async
function supports `await` and `return` but returns nothing by itself. So the last expression becomes
a `return`. Its start is found with the engine's parser, and the code is only changed if both halves
and the position between them are certain. Line numbers stay the same.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

ParseCheck = Callable[[str], bool]
"""Returns whether a text is a complete body of an async function."""

MAX_READ_CHARS = 8 * 1024**2
"""Total of characters parsed: in a long script fewer positions are tried."""
MAX_UNBALANCED_POSITIONS = 100
"""Positions tried where brackets do not match, because strings and comments may contain some."""

_NOT_EXPRESSION_START = re.compile(
    r"[)\]},.;:?=*%&|^<>]|(?:const|let|var|function|class|async\s+function|if|else|for|while|do"
    r"|switch|case|default|try|catch"
    r"|finally|return|throw|break|continue|import|export|debugger|with)\b"
)
_SPACE_AND_COMMENTS = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_CONTINUES_AS_CALL = "([`"
_CONTINUES_AS_OPERATOR = "+-/"


def return_last_expression(code: str, can_parse: ParseCheck) -> str:
    """Return the code with `return (…)` around its last expression, or unchanged without one."""
    found = _try_positions(code, _iter_balanced_positions(code), can_parse)
    if found is None:
        found = _try_positions(
            code, islice(_iter_positions(code), MAX_UNBALANCED_POSITIONS), can_parse
        )
    if found is None:
        return code
    return found


def _try_positions(code: str, positions: Iterator[int], can_parse: ParseCheck) -> str | None:
    """Return the changed code, or the same if it ends in another statement; None if uncertain."""
    read_chars = 0
    for position in positions:
        rest = code[position:]
        read_chars += len(rest)
        if read_chars > MAX_READ_CHARS:
            break
        space = _measure_leading_space(rest)
        body = rest[space:]
        if not body:
            continue
        if _NOT_EXPRESSION_START.match(body):
            if body[0].isalpha() and _is_complete(code[:position], can_parse):
                return code
            continue
        expression = _extract_expression(body, can_parse)
        if expression is not None and _is_separate_statement(code[:position], body, can_parse):
            changed = f"{code[: position + space]}return ({expression}\n)"
            if can_parse(changed):
                return changed
            return code
    return None


def _iter_balanced_positions(code: str) -> Iterator[int]:
    """Yield the positions after which brackets are balanced."""
    end = len(code)
    depth = 0
    for position in _iter_positions(code):
        part = code[position:end]
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        end = position
        if depth == 0:
            yield position


def _iter_positions(code: str) -> Iterator[int]:
    """Yield positions where the last statement might begin, from the end."""
    end = len(code)
    while end > 0:
        position = max(code.rfind(mark, 0, end) for mark in "\n;}")
        if position < 0:
            break
        yield position + 1
        end = position
    yield 0


def _measure_leading_space(rest: str) -> int:
    """Return the length of leading space and comments."""
    found = _SPACE_AND_COMMENTS.match(rest)
    if found:
        return found.end()
    return 0


def _extract_expression(body: str, can_parse: ParseCheck) -> str | None:
    """Return the body without its final semicolon if it is one expression, else None."""
    if can_parse(f"(\n{body}\n)"):
        return body
    position = len(body)
    for _ in range(3):  # the last semicolon may be in a comment behind the final one
        position = body.rfind(";", 0, position)
        if position < 0:
            return None
        without = f"{body[:position]} {body[position + 1 :]}"
        if can_parse(f"(\n{without}\n)"):
            return without
    return None


def _is_separate_statement(before: str, body: str, can_parse: ParseCheck) -> bool:
    """Return whether a statement ends with `before`, so that `body` begins a new one."""
    if not before.strip():
        return True
    if not _is_complete(before, can_parse):
        return False
    if body[0] in _CONTINUES_AS_CALL:
        return not can_parse(before + "\n.x")
    if body[0] in _CONTINUES_AS_OPERATOR and body[:2] not in ("++", "--"):
        return not can_parse(before + "\n*1")
    return True


def _is_complete(before: str, can_parse: ParseCheck) -> bool:
    """Return whether it parses, and not only because it ends inside a comment."""
    return can_parse(before) and (before.endswith("\n") or not can_parse(before + ")"))
