"""Changes to a script's source before it runs as JavaScript, and the engine that makes them.

Line numbers stay the same.

TypeScript: types are removed by Sucrase, in a context of its own, and not checked.

Last expression: `eval` returns the value of the last statement but does not support `await`; the
body of an async function supports `await` and `return` but returns nothing by itself. So the last
expression becomes a `return`. Its start is found with the engine's parser, and the code is only
changed if both halves and the position between them are certain.
"""

import os.path
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import _quickjs
import orjson


class JsFunction(Protocol):
    """A JavaScript function; takes numbers, strings, booleans, None and other functions."""

    def __call__(self, *args: "str | int | bool | JsFunction | None") -> Any: ...


class JsContext(Protocol):
    def eval(self, code: str) -> Any: ...
    def add_callable(self, name: str, function: Callable[..., str]) -> None: ...
    def execute_pending_job(self) -> bool: ...
    def memory(self) -> dict[str, int]: ...
    def set_memory_limit(self, size: int) -> None: ...
    def set_max_stack_size(self, size: int) -> None: ...


JSException: type[Exception] = _quickjs.JSException
"""Exception thrown in a context; its text is the error, then the stack."""


def create_context() -> JsContext:
    return _quickjs.Context()


MEMORY_BYTES = 128 * 1024**2
STACK_BYTES = 2 * 1024**2
_ERROR_POSITION = re.compile(
    r"^(?:Error: )?(?:Error transforming [^:]*: )?(.*) \((\d+):\d+\)$", re.DOTALL
)


class NotTypeScript(Exception):
    """The code does not parse; the text says why, `line` where."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class TypeStripper:
    """Strips types. The library is read at creation and loaded by the first script."""

    def __init__(self) -> None:
        folder = os.path.dirname(__file__)
        with open(os.path.join(folder, "vendored", "sucrase.js"), encoding="utf-8") as source:
            self._library = source.read()
        with open(os.path.join(folder, "strip_types.js"), encoding="utf-8") as source:
            self._strip_source = source.read()
        self._strip: JsFunction | None = None

    def strip_types(self, code: str) -> str:
        """Return the code without types, every line in its place; raises NotTypeScript."""
        if self._strip is None:
            self._strip = self._load_sucrase()
        try:
            answer = orjson.loads(self._strip(orjson.dumps(code).decode()))
        except (JSException, TypeError, ValueError) as error:
            self._strip = None  # its state is unknown, so it is not used again
            raise NotTypeScript(str(error).partition("\n")[0], None) from None
        if "error" in answer:
            position = _ERROR_POSITION.match(answer["error"])
            if position is None:
                raise NotTypeScript(f"SyntaxError: {answer['error']}", None)
            raise NotTypeScript(f"SyntaxError: {position[1]}", int(position[2]))
        return answer["code"]

    def _load_sucrase(self) -> JsFunction:
        context = create_context()
        context.set_memory_limit(MEMORY_BYTES)
        context.set_max_stack_size(STACK_BYTES)
        context.eval(self._library)
        return context.eval(self._strip_source)


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
    for positions in (
        _iter_balanced_positions(code),
        islice(_iter_positions(code), MAX_UNBALANCED_POSITIONS),
    ):
        found = _try_positions(code, positions, can_parse)
        if found is not None:
            return found
    return code


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
            return changed if can_parse(changed) else code
    return None


def _iter_balanced_positions(code: str) -> Iterator[int]:
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
    found = _SPACE_AND_COMMENTS.match(rest)
    return found.end() if found else 0


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
