"""What a Python script finds when it starts, and how its last expression becomes its answer.

Everything that crosses between the script and the gateway is JSON text, made and read by the
script's own process: a large value is then one string to the gateway and never holds up its event
loop, and what JSON cannot say fails inside the script, at its line, under its limits.

It keeps its own names for what it uses: scripts call their variables `list` and `type`.
`_portico_host(…)` is the one function that the gateway answers. A script may call it too and gains nothing by it: the
gateway checks whatever comes.
"""

import ast
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping

HOST_FUNCTION = "_portico_host"
LAST_FUNCTION = "_portico_last"
RESULT_FROM_VARIABLE = "_portico_assigned()"
RESULT_FROM_OUTPUT = "_portico_last(_portico_output)"
"""Fed after the script, with its output as an input: where its last expression could not be marked.
"""

RESULT_FUNCTIONS = frozenset({"result", LAST_FUNCTION, "_portico_assigned"})
"""The functions whose failure means that the answer is no JSON."""

_MAX_PARSED_CHARS = 32 * 1024
"""Parsing holds up every thread of the gateway, about a millisecond for each 4 kB."""

_COMMON_PRELUDE = """\
import json as _portico_json

_portico_said = []
_portico_type, _portico_isinstance, _portico_hasattr, _portico_getattr = type, isinstance, hasattr, getattr
_portico_str, _portico_dict, _portico_list, _portico_tuple, _portico_sorted = str, dict, list, tuple, sorted

async def _portico_reply(future):
    return _portico_json.loads(await future)

def _portico_key(k):
    return k if k is None or _portico_type(k).__name__ in ('str', 'int', 'float', 'bool') else _portico_str(k)

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
    if not _portico_said:
        _portico_host('last', _portico_text(x))

def result(value=None):
    _portico_host('result', _portico_text(value))
    _portico_said.append(True)

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
    """The definitions a script starts with: its servers, each an object, and the functions that are
    everyone's."""
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
        f"\n    def {each}(_portico_self, *args, **kwargs):\n        {_build_call_body(name, each)}"
        for each in functions
    )
    return f"\nclass {name}:{methods or ' pass'}\n{name} = {name}()\n"


def _is_legal_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _build_call_body(namespace: str, function: str) -> str:
    # The host's function is called at once and only its reply is awaited, so calls start when they
    # are made.
    return (
        f"return _portico_reply(_portico_host('call', {namespace!r}, {function!r},"
        " _portico_text(args), _portico_text(kwargs)))\n"
    )


def mark_last_expression(code: str) -> str | None:
    """The script with its last expression handed to the gateway, every line where it was; None: it
    cannot be told.

    So is what a `return` outside of a function returns. Without either, a script is as it was. One
    that this Python cannot parse may still be one that the sandbox can, and one too long is not
    worth the wait.
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
    answers = [*last, *_iter_returned_values(body)]
    # Two brackets, since `a, b` is one value.
    texts = [(one.end_lineno or 0, one.end_col_offset or 0, b"))") for one in answers]
    texts += [(one.lineno, one.col_offset, LAST_FUNCTION.encode() + b"((") for one in answers]
    lines = code.encode().split(b"\n")
    # The last go in first: they may be on the same line.
    for line, column, text in sorted(texts, reverse=True):
        at = lines[line - 1]
        lines[line - 1] = at[:column] + text + at[column:]
    return b"\n".join(lines).decode()


def _iter_returned_values(body: Iterable[ast.stmt]) -> Iterator[ast.expr]:
    """What is returned outside of functions."""
    for one in body:
        if isinstance(one, ast.Return) and one.value is not None:
            yield one.value
        elif not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for inner in ast.iter_child_nodes(one):
                if isinstance(inner, ast.stmt):
                    yield from _iter_returned_values([inner])
                elif isinstance(inner, ast.ExceptHandler | ast.match_case):
                    yield from _iter_returned_values(inner.body)


def assigns_result(code: str) -> bool:
    """Whether the script may have given its answer as a variable: `result = …` instead of
    `result(…)`."""
    return re.search(r"^result\s*(:[^=\n]+)?=(?!=)", code, re.MULTILINE) is not None
