"""Where a script of JavaScript ends in an expression, that expression returned.

The language's own eval gives the value of the last statement, but knows no `await`; the body of an
async function knows
`await` and `return`, but gives nothing by itself. So the last expression is turned into a `return`. Where it begins is
not guessed: the engine's own parser is asked, and only where both halves and the place between them
are certain is anything changed. No line moves.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

ParseCheck = Callable[[str], bool]
"""Whether this is a whole body of an async function."""

MAX_READ_CHARS = 8 * 1024**2
"""Characters looked at in all: a long script is tried in fewer places."""
MAX_UNBALANCED_POSITIONS = 100
"""Places tried although brackets do not match there, as brackets in texts and comments count too.
"""

_NOT_EXPRESSION_START = re.compile(
    r"[)\]},.;:?=*%&|^<>]|(?:const|let|var|function|class|async\s+function|if|else|for|while|do|switch|case|default|try|catch"
    r"|finally|return|throw|break|continue|import|export|debugger|with)\b"
)
_SPACE_AND_COMMENTS = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_CONTINUES_AS_CALL = "([`"
_CONTINUES_AS_OPERATOR = "+-/"


def return_last_expression(code: str, can_parse: ParseCheck) -> str:
    """The code with `return (…)` around its last expression; as it was where it ends in none."""
    found = _try_positions(code, _iter_balanced_positions(code), can_parse)
    if found is None:
        found = _try_positions(
            code, islice(_iter_positions(code), MAX_UNBALANCED_POSITIONS), can_parse
        )
    if found is None:
        return code
    return found


def _try_positions(code: str, positions: Iterator[int], can_parse: ParseCheck) -> str | None:
    """The code changed, or as it is where another statement ends it; None where no place is
    certain."""
    read = 0
    for at in positions:
        rest = code[at:]
        read += len(rest)
        if read > MAX_READ_CHARS:
            break
        lead = _measure_leading_space(rest)
        body = rest[lead:]
        if not body:
            continue
        if _NOT_EXPRESSION_START.match(body):
            if body[0].isalpha() and _is_complete(code[:at], can_parse):
                return code
            continue
        expression = _extract_expression(body, can_parse)
        if expression is not None and _is_separate_statement(code[:at], body, can_parse):
            changed = f"{code[: at + lead]}return ({expression}\n)"
            if can_parse(changed):
                return changed
            return code
    return None


def _iter_balanced_positions(code: str) -> Iterator[int]:
    """Of these places, those with as many brackets opened as closed behind them."""
    end = len(code)
    depth = 0
    for at in _iter_positions(code):
        part = code[at:end]
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        end = at
        if depth == 0:
            yield at


def _iter_positions(code: str) -> Iterator[int]:
    """Where a last statement might begin, from the end."""
    end = len(code)
    while end > 0:
        at = max(code.rfind(mark, 0, end) for mark in "\n;}")
        if at < 0:
            break
        yield at + 1
        end = at
    yield 0


def _measure_leading_space(rest: str) -> int:
    """How much of it is space and comments."""
    found = _SPACE_AND_COMMENTS.match(rest)
    if found:
        return found.end()
    return 0


def _extract_expression(body: str, can_parse: ParseCheck) -> str | None:
    """The body without the semicolon that ends it, if that is one expression."""
    if can_parse(f"(\n{body}\n)"):
        return body
    at = len(body)
    for _ in range(3):  # the last may stand in a comment after the one that is meant
        at = body.rfind(";", 0, at)
        if at < 0:
            return None
        without = f"{body[:at]} {body[at + 1 :]}"
        if can_parse(f"(\n{without}\n)"):
            return without
    return None


def _is_separate_statement(before: str, body: str, can_parse: ParseCheck) -> bool:
    """Whether a statement ends where `before` does, so that `body` is one of its own."""
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
    """Whether it parses, and does not only because it ends inside a comment."""
    return can_parse(before) and (before.endswith("\n") or not can_parse(before + ")"))
