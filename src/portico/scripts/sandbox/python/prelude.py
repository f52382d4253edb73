"""Definitions available to a Python script, and marking of its last expression as its result.

Values pass between script and gateway as JSON text, encoded and decoded by the script's process: a
large value is one string to the gateway and does not block its event loop, and a value that is not
JSON fails inside the script, at its line and under its limits.

The definitions use names of their own, because scripts have variables such as `list` and `type`.
`_portico_host(…)` is the only function that the gateway handles. A script gains nothing by calling
it, because the gateway checks all arguments.
"""

import ast
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping

HOST_FUNCTION = "_portico_host"
LAST_FUNCTION = "_portico_last"
RESULT_FROM_VARIABLE = "_portico_assigned()"
RESULT_FROM_OUTPUT = "_portico_last(_portico_output)"
"""Fed after the script with its output as an input, if its last expression could not be marked."""

RESULT_FUNCTIONS = frozenset({"result", LAST_FUNCTION, "_portico_assigned"})
"""Functions whose failure means that the result is not JSON."""

_MAX_PARSED_CHARS = 32 * 1024
"""Parsing blocks all threads of the gateway, about a millisecond for each 4 kB."""

_COMMON_PRELUDE = """\
import json as _portico_json

_portico_has_result = []
_portico_type, _portico_isinstance = type, isinstance
_portico_hasattr, _portico_getattr = hasattr, getattr
_portico_str, _portico_dict, _portico_list = str, dict, list
_portico_tuple, _portico_sorted = tuple, sorted

async def _portico_reply(future):
    return _portico_json.loads(await future)

def _portico_key(k):
    if k is None or _portico_type(k).__name__ in ('str', 'int', 'float', 'bool'):
        return k
    return _portico_str(k)

def _portico_plain(x):
    kind = _portico_type(x).__name__
    if x is None or kind in ('str', 'int', 'float', 'bool'):
        return x
    if _portico_isinstance(x, _portico_dict):
        return {_portico_key(k): _portico_plain(v) for k, v in x.items()}
    if kind in ('set', 'frozenset'):
        try:
            x = _portico_sorted(x)
        except TypeError:
            x = _portico_list(x)
    if _portico_isinstance(x, (_portico_list, _portico_tuple)) or kind in (
        'deque', 'range', 'map', 'filter', 'zip', 'enumerate', 'reversed', 'generator',
        'dict_keys', 'dict_values', 'dict_items',
    ):
        return [_portico_plain(y) for y in x]
    if kind in ('datetime', 'date', 'time'):
        return x.isoformat()
    if kind == 'timedelta':
        return x.total_seconds()
    if kind == 'bytes':
        try:
            return x.decode()
        except UnicodeDecodeError:
            import base64
            return base64.b64encode(x).decode()
    if kind in ('Decimal', 'UUID', 'Path', 'PosixPath', 'PurePath', 'PurePosixPath'):
        return _portico_str(x)
    if _portico_hasattr(x, '__dataclass_fields__'):
        return {k: _portico_plain(_portico_getattr(x, k)) for k in x.__dataclass_fields__}
    raise TypeError('Object of type ' + kind + ' is not JSON serializable')

def _portico_text(x):
    try:
        return _portico_json.dumps(x, allow_nan=False, ensure_ascii=False)
    except TypeError:
        return _portico_json.dumps(_portico_plain(x), allow_nan=False, ensure_ascii=False)

def _portico_last(x):
    if not _portico_has_result:
        _portico_host('last', _portico_text(x))

def result(value=None):
    _portico_host('result', _portico_text(value))
    _portico_has_result.append(True)

_portico_result = result

def _portico_assigned():
    if result is not _portico_result:
        _portico_last(result)

def store(key, value):
    _portico_host('store', key, _portico_text(value))

def load(key, default=None):
    text = _portico_host('load', key)
    return default if text is None else _portico_json.loads(text)
"""


def build_prelude(namespaces: Mapping[str, tuple[str, ...]]) -> str:
    """Return the definitions for a script: its servers as objects, and global functions."""
    return _COMMON_PRELUDE + "".join(
        _define_namespace(name, functions) for name, functions in namespaces.items()
    )


def _define_namespace(name: str, functions: tuple[str, ...]) -> str:
    if not all(_is_legal_name(word) for word in (*functions, name or "x")):
        raise ValueError(f"{name!r}: not every name of it is an identifier")
    if not name:
        return "".join(
            f"\ndef {function}(*args, **kwargs):\n    {_build_call_body('', function)}"
            for function in functions
        )
    methods = "".join(
        f"\n    def {method}(_portico_self, *args, **kwargs):\n"
        f"        {_build_call_body(name, method)}"
        for method in functions
    )
    return f"\nclass {name}:{methods or ' pass'}\n{name} = {name}()\n"


def _is_legal_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _build_call_body(namespace: str, function: str) -> str:
    # The host function is called at once and only its reply is awaited, so that calls start when
    # they are made.
    return (
        f"return _portico_reply(_portico_host('call', {namespace!r}, {function!r},"
        " _portico_text(args), _portico_text(kwargs)))\n"
    )


def mark_last_expression(code: str) -> str | None:
    """Return the script with its result marked, line numbers unchanged; None if not possible.

    Marked are the last expression and values of `return` outside of functions; a script without
    either is returned unchanged. None for a script that this Python cannot parse, which the
    sandbox's may, and for one that is too long.
    """
    if len(code) > _MAX_PARSED_CHARS:
        return None
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if body and isinstance(body[-1], ast.Expr):
        last = [body[-1].value]
    else:
        last = []
    expressions = [*last, *_iter_returned_values(body)]
    # Two brackets, because `a, b` is one value.
    insertions = [(node.end_lineno or 0, node.end_col_offset or 0, b"))") for node in expressions]
    insertions += [
        (node.lineno, node.col_offset, LAST_FUNCTION.encode() + b"((") for node in expressions
    ]
    lines = code.encode().split(b"\n")
    # From the end, because several may be on the same line.
    for line, column, text in sorted(insertions, reverse=True):
        source = lines[line - 1]
        lines[line - 1] = source[:column] + text + source[column:]
    return b"\n".join(lines).decode()


def _iter_returned_values(body: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """Yield values returned outside of functions."""
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield statement.value
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner in ast.iter_child_nodes(statement):
                if isinstance(inner, ast.stmt):
                    yield from _iter_returned_values([inner])
                elif isinstance(inner, ast.ExceptHandler | ast.match_case):
                    yield from _iter_returned_values(inner.body)


def assigns_result(code: str) -> bool:
    """Return whether the script assigns `result = …` instead of calling `result(…)`."""
    return re.search(r"^result\s*(:[^=\n]+)?=(?!=)", code, re.MULTILINE) is not None
