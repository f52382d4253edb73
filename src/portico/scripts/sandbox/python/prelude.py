"""Definitions available to a Python script, and its errors.

Values pass between script and gateway as JSON text, encoded and decoded by the script's process: a
large value is one string to the gateway and does not block its event loop, and a value that is not
JSON fails inside the script, at its line and under its limits.

The definitions use names of their own, because scripts have variables such as `list` and `type`.
`_portico_host(…)` is the only function that the gateway handles. A script gains nothing by calling
it, because the gateway checks all arguments.
"""

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from portico.scripts.sandbox.python.rewriter import LAST_FUNCTION
from portico.scripts.sandbox.python.substitutes import SUBSTITUTES
from portico.scripts.sandbox.script import Fault, FaultKind

HOST_FUNCTION = "_portico_host"
RESULT_FROM_VARIABLE = "_portico_assigned()"
RESULT_FROM_OUTPUT = "_portico_last(_portico_output)"
"""Fed after the script with its output as an input, if its last expression could not be marked."""

RESULT_FUNCTIONS = frozenset({"result", LAST_FUNCTION, "_portico_assigned"})
"""Functions whose failure means that the result is not JSON."""

_COMMON_PRELUDE = """\
import json as _portico_json

_portico_has_result = []
_portico_type, _portico_isinstance = type, isinstance
_portico_hasattr, _portico_getattr = hasattr, getattr
_portico_str, _portico_dict, _portico_list = str, dict, list
_portico_tuple, _portico_sorted = tuple, sorted

async def _portico_reply(future):
    return _portico_json.loads(await future)

async def _portico_value(x):
    while _portico_type(x).__name__ == 'coroutine':
        x = await x
    return x

async def _portico_settled(x):
    x = await _portico_value(x)
    kind = _portico_type(x).__name__
    if kind in ('list', 'tuple') and any([_portico_type(y).__name__ == 'coroutine' for y in x]):
        return [await _portico_value(y) for y in x]
    if kind == 'dict':
        return {k: await _portico_value(v) for k, v in x.items()}
    return x

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
        'list_iterator',
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
_CONSTRUCTOR = "__init__"
"""A tool of this name is also called when its server's object is created."""
_CREATION_MARK = "_portico_creation"
PRELUDE_FILE = "<python-input-0>"
SCRIPT_FILE = "<python-input-1>"
"""File names that the interpreter gives to what a session is fed: the prelude, then the script."""

_MAX_MESSAGE_CHARS = 2_000
DISCARDING_KINDS: frozenset[FaultKind] = frozenset({"time", "memory", "recursion", "crash"})
"""Faults after which a process is not used again."""


def build_prelude(namespaces: Mapping[str, tuple[str, ...]], modules: Iterable[str] = ()) -> str:
    """Return the definitions for a script: modules, its servers as objects, global functions."""
    definitions = [_COMMON_PRELUDE, *map(SUBSTITUTES.__getitem__, modules)]
    definitions += [_define_namespace(name, functions) for name, functions in namespaces.items()]
    return "".join(definitions)


def _define_namespace(name: str, functions: tuple[str, ...]) -> str:
    if not all(_is_legal_name(word) for word in (*functions, name or "x")):
        raise ValueError(f"{name!r}: not every name of it is an identifier")
    if not name:
        return "".join(
            f"\ndef {function}(*args, **kwargs):\n    {_build_call_body('', function)}"
            for function in functions
        )
    methods = "".join(_define_method(name, method) for method in functions)
    creation = f"'{_CREATION_MARK}'" if _CONSTRUCTOR in functions else ""
    return f"\nclass {name}:{methods or ' pass'}\n{name} = {name}({creation})\n"


def _define_method(namespace: str, method: str) -> str:
    body = _build_call_body(namespace, method)
    if method == _CONSTRUCTOR:
        body = f"if args == ('{_CREATION_MARK}',): return None\n        {body}"
    return f"\n    def {method}(_portico_self, *args, **kwargs):\n        {body}"


def _is_legal_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _build_call_body(namespace: str, function: str) -> str:
    # The host function is called at once and only its reply is awaited, so that calls start when
    # they are made.
    return (
        f"return _portico_reply(_portico_host('call', {namespace!r}, {function!r},"
        " _portico_text(args), _portico_text(kwargs)))\n"
    )


def assigns_result(code: str) -> bool:
    """Return whether the script assigns `result = …` instead of calling `result(…)`."""
    return re.search(r"^result\s*(:[^=\n]+)?=(?!=)", code, re.MULTILINE) is not None


class TracebackFrame(Protocol):
    @property
    def filename(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function_name(self) -> str | None: ...


def to_fault(error: Any, failed_calls: frozenset[str], waiting_line: int | None) -> Fault:
    """Convert a MontyError to a fault.

    `failed_calls` are messages of failed calls: a script that raises one of them did not catch it.
    `waiting_line` is the line of the last wait: a failure inside `gather` has no line.
    """
    import pydantic_monty as monty

    if isinstance(error, monty.MontyCrashedError):
        if error.timed_out:
            return Fault(
                "time", "The script took more processor time than its limit, inside one operation."
            )
        return Fault("crash", f"The script's process ended: {shorten_message(str(error))}")
    if isinstance(error, monty.MontySyntaxError):
        return Fault(
            "syntax",
            "SyntaxError: " + shorten_message(str(error)),
            _find_script_line(error.traceback()),
        )
    if not isinstance(error, monty.MontyRuntimeError):
        return Fault("runtime", shorten_message(str(error)))
    frames = error.traceback()
    line = _find_script_line(frames)
    message = str(error)
    kind = _classify(type(error.exception()), message, frames)
    text = message.partition(": ")[2]
    if kind == "runtime" and text in failed_calls:
        return Fault("call", shorten_message(text), line or waiting_line)
    return Fault(
        kind,
        shorten_message(message),
        line or (waiting_line if kind in ("runtime", "value") else None),
    )


def _classify(
    raised: type[BaseException], message: str, frames: Sequence[TracebackFrame]
) -> FaultKind:
    if raised is TimeoutError and "time limit exceeded:" in message:
        return "time"
    if raised is MemoryError:
        return "memory"
    if any(
        frame.filename == PRELUDE_FILE and frame.function_name in RESULT_FUNCTIONS
        for frame in frames
    ):
        return "value"
    if raised is RecursionError:
        return "recursion"
    if raised is NotImplementedError and "syntax parser" in message:
        return "syntax"
    return "runtime"


def _find_script_line(frames: Sequence[TracebackFrame]) -> int | None:
    return next((frame.line for frame in reversed(frames) if frame.filename == SCRIPT_FILE), None)


def shorten_message(message: str) -> str:
    """Truncate a message, because a script may make it arbitrarily long."""
    if len(message) <= _MAX_MESSAGE_CHARS:
        return message
    return message[:_MAX_MESSAGE_CHARS] + "…"
