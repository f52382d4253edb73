"""Where a script of JavaScript ends in an expression, that expression returned.

The language's own eval gives the value of the last statement, but knows no `await`; the body of an async function knows
`await` and `return`, but gives nothing by itself. So the last expression is turned into a `return`. Where it begins is
not guessed: the engine's own parser is asked, and only where both halves and the place between them are certain is
anything changed. No line moves.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice

Parses = Callable[[str], bool]
"""Whether this is a whole body of an async function."""

MOST_READ = 8 * 1024**2
"""Characters looked at in all: a long script is tried in fewer places."""
MOST_ODD = 100
"""Places tried although brackets do not match there, as brackets in texts and comments count too."""

_NO_EXPRESSION = re.compile(
    r"[)\]},.;:?=*%&|^<>]|(?:const|let|var|function|class|async\s+function|if|else|for|while|do|switch|case|default|try|catch"
    r"|finally|return|throw|break|continue|import|export|debugger|with)\b"
)
_LEADING = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_FOLDS_CALL = "([`"
_FOLDS_OPERATOR = "+-/"


def returning(code: str, parses: Parses) -> str:
    """The code with `return (…)` around its last expression; as it was where it ends in none."""
    found = _found(code, _level(code), parses)
    if found is None:
        found = _found(code, islice(_places(code), MOST_ODD), parses)
    return code if found is None else found


def _found(code: str, places: Iterator[int], parses: Parses) -> str | None:
    """The code changed, or as it is where another statement ends it; None where no place is certain."""
    read = 0
    for at in places:
        rest = code[at:]
        read += len(rest)
        if read > MOST_READ:
            break
        lead = _lead(rest)
        body = rest[lead:]
        if not body:
            continue
        if _NO_EXPRESSION.match(body):
            if body[0].isalpha() and _whole(code[:at], parses):
                return code
            continue
        expression = _expression(body, parses)
        if expression is not None and _separate(code[:at], body, parses):
            changed = f"{code[: at + lead]}return ({expression}\n)"
            return changed if parses(changed) else code
    return None


def _level(code: str) -> Iterator[int]:
    """Of these places, those with as many brackets opened as closed behind them."""
    end, depth = len(code), 0
    for at in _places(code):
        part = code[at:end]
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        end = at
        if depth == 0:
            yield at


def _places(code: str) -> Iterator[int]:
    """Where a last statement might begin, from the end."""
    end = len(code)
    while end > 0:
        at = max(code.rfind(mark, 0, end) for mark in "\n;}")
        if at < 0:
            break
        yield at + 1
        end = at
    yield 0


def _lead(rest: str) -> int:
    """How much of it is space and comments."""
    found = _LEADING.match(rest)
    return found.end() if found else 0


def _expression(body: str, parses: Parses) -> str | None:
    """The body without the semicolon that ends it, if that is one expression."""
    if parses(f"(\n{body}\n)"):
        return body
    at = len(body)
    for _ in range(3):  # the last may stand in a comment after the one that is meant
        at = body.rfind(";", 0, at)
        if at < 0:
            return None
        without = f"{body[:at]} {body[at + 1 :]}"
        if parses(f"(\n{without}\n)"):
            return without
    return None


def _separate(before: str, body: str, parses: Parses) -> bool:
    """Whether a statement ends where `before` does, so that `body` is one of its own."""
    if not before.strip():
        return True
    if not _whole(before, parses):
        return False
    if body[0] in _FOLDS_CALL:
        return not parses(before + "\n.x")
    if body[0] in _FOLDS_OPERATOR and body[:2] not in ("++", "--"):
        return not parses(before + "\n*1")
    return True


def _whole(before: str, parses: Parses) -> bool:
    """Whether it parses, and does not only because it ends inside a comment."""
    return parses(before) and (before.endswith("\n") or not parses(before + ")"))
