"""JavaScript, and TypeScript without its types: runs in the worker, on QuickJS, a fresh context for every script.

The context has no way out but one function, `host`, that takes and gives JSON text; `prelude.js` hides it behind
promises. The script becomes the body of an async function (see `ending`), calls go out as they are made, and whenever
nothing is left to do but wait, one reply is let in. QuickJS's own time limit is not used: the host ends what takes too
long.
"""

import os.path
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from portico.execution.sandbox.javascript import quickjs
from portico.execution.sandbox.javascript.ending import returning
from portico.execution.sandbox.javascript.typescript import NotTypeScript, Stripper
from portico.execution.sandbox.worker.inside import TooLong

if TYPE_CHECKING:
    from portico.execution.sandbox.worker.inside import Channel

STACK_PER_CALL = 20 * 1024
MOST_STACK = 4 * 1024**2
"""Half of the stack that a process has by default."""
MOST_SAID = 4000
"""Characters of an error's message."""
PRELUDE_LINE = 20_000
"""Where the prelude's lines begin, so that they are not taken for a script's: both bear the same file's name."""
NO_MODULES = "there are no modules here: import, export and require do not work"

_NO_MEMORY = ("InternalError: out of memory", "InternalError: string too long", "null")
"""With no memory left even for an error, the engine throws null."""
_FRAME = re.compile(r"<input>:(\d{1,9})\b")
_MODULE = re.compile(r"\s*(?:import|export)\b")
_LONE = re.compile(r"((?:^|[^\\])(?:\\\\)*)\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)


class JavaScriptRuntime:
    """Serves the languages `javascript` and `typescript`."""

    def prepare(self) -> None:
        """Read what cannot be read from inside the jail."""
        with open(os.path.join(os.path.dirname(__file__), "prelude.js"), encoding="utf-8") as source:
            self._prelude = "\n" * PRELUDE_LINE + source.read()
        self._stripper = Stripper()

    def run(self, job: Mapping[str, Any], channel: "Channel") -> dict[str, Any]:
        """Run one script; see `worker.Runtime`."""
        code, typed = job["run"], job["language"] == "typescript"
        if "\0" in code:
            return _ended("syntax", "SyntaxError: a NUL character", 1 + code[: code.index("\0")].count("\n"))
        if typed:
            try:
                code = self._stripper.untyped(code)
            except NotTypeScript as error:
                return self._no_script(job["run"], str(error), error.line, typed)
        return self._run(code, job, channel, typed)

    def _run(self, code: str, job: Mapping[str, Any], channel: "Channel", typed: bool) -> dict[str, Any]:
        context, door = quickjs.context(), _Door(channel, job["state"], job["limits"]["answer_bytes"])
        try:
            context.add_callable("host", door)
            enter = context.eval(self._prelude)
            enter("bind", orjson.dumps(job["namespaces"]).decode())
            context.set_memory_limit(job["limits"]["memory_bytes"])
            context.set_max_stack_size(min(MOST_STACK, job["limits"]["recursion"] * STACK_PER_CALL))
            wrong = _wrong(context, code)
            ending = returning(code, lambda text: _wrong(context, text) is None)
            if wrong is not None and ending == code:  # a last line `{a: 1, b: 2}` is wrong until it is returned
                return self._no_script(code, *wrong, typed)
            enter("start", context.eval(_body(ending)))
            return _outcome(context, enter, door, channel, job["limits"]["answer_bytes"])
        except quickjs.JSException as error:
            return _thrown(str(error))
        finally:
            door.leave()

    def _no_script(self, code: str, message: str, line: int | None, typed: bool) -> dict[str, Any]:
        """The fault of what does not parse, with the likely reason."""
        if (kind := _limit(message)) is not None:
            return _ended(kind, message, line)
        lines = code.split("\n")
        if line is not None and line <= len(lines) and _MODULE.match(lines[line - 1]):
            message = f"SyntaxError: {NO_MODULES}"
        elif not typed and self._is_typescript(code):
            message += ". This looks like TypeScript: use language='typescript'"
        return _ended("syntax", message, line)

    def _is_typescript(self, code: str) -> bool:
        try:
            bare = self._stripper.untyped(code)
        except NotTypeScript:
            return False
        return bare != code and _wrong(quickjs.context(), bare) is None


class _Door:
    """What the context's `host` function is: it never raises, since an exception would not survive the engine."""

    def __init__(self, channel: "Channel", state: Mapping[str, Any], most: int) -> None:
        self._channel = channel
        self._state = dict(state)
        self._most = most
        self.done: str | None = None
        self.failed: str | None = None
        self._gone: BaseException | None = None

    def __call__(self, what: Any = None, text: Any = None, *_: Any) -> str:
        try:
            return self._do(what, text) if isinstance(text, str) else '"no text"'
        except TooLong as error:
            return orjson.dumps(str(error)).decode()
        except (ValueError, TypeError, RecursionError) as error:
            return orjson.dumps(f"that cannot be said in JSON: {error}").decode()
        except BaseException as error:  # the pipe is closed, or memory is out: told when the engine is left
            self._gone = error
            return '"the host is gone"'

    def _do(self, what: str, text: str) -> str:
        if len(text) > self._most and what in ("call", "store"):
            return orjson.dumps(f"{len(text):,} characters are too many: {self._most:,} may be passed").decode()
        match what:
            case "call":
                namespace, name, args = _read(text)
                return str(self._channel.call(namespace, name, args, {}))
            case "print":
                self._channel.print(_read(text))
            case "store":
                key, value = _read(text)
                self._channel.store(key, value)
                self._state[key] = value
            case "load":
                key = _read(text)
                return orjson.dumps(self._state[key]).decode() if key in self._state else ""
            case "done":
                self.done = text
            case "failed":
                self.failed = text
            case _:
                pass
        return "null"

    def leave(self) -> None:
        """Raise what could not be raised inside the engine."""
        if self._gone is not None:
            raise self._gone


def _outcome(
    context: quickjs.Context, enter: quickjs.Function, door: _Door, channel: "Channel", most: int
) -> dict[str, Any]:
    while True:
        while context.execute_pending_job():
            pass
        door.leave()
        if door.failed is not None:
            return _failure(_read(door.failed))
        if door.done is not None:
            return _answer(door.done, most)
        if not channel.pending:
            if _full(context):
                return _ended("memory", "", None)
            return _ended("deadlock", "the script waits for a promise that nothing will ever settle", None)
        id, ok, value = channel.wait()
        if channel.fatal is not None:
            return _ended("call", channel.fatal, _line(enter("where", id) or ""))
        enter("settle", id, ok, orjson.dumps(value).decode())


def _full(context: quickjs.Context) -> bool:
    """Whether memory may be what a promise's next step was lost for: the engine drops one silently."""
    memory = context.memory()
    return memory["malloc_size"] > memory["malloc_limit"] // 2


def _answer(text: str, most: int) -> dict[str, Any]:
    if len(text) > most:  # not decoded first: what is too large for the pipe may be too large for the jail
        return _ended("output", f"the script's answer has {len(text):,} bytes, more than the {most:,} allowed", None)
    try:
        return {"value": _read(text), "stored": {}, "fault": None}
    except ValueError as error:
        return _ended("value", f"the script's answer cannot be said in JSON: {error}", None)


def _body(code: str) -> str:
    return f"(async function () {{{code}\n}})"


def _wrong(context: quickjs.Context, code: str) -> tuple[str, int | None] | None:
    """Why it is no body of a function, and where; nothing of it is run."""
    try:
        context.eval(f"throw 0;{_body(code)}")
    except quickjs.JSException as error:
        message, _, stack = str(error).partition("\n")
        return None if message == "0" else (message, _line(stack))
    return None


def _failure(told: dict[str, str]) -> dict[str, Any]:
    """The fault of what the prelude says was thrown."""
    kind, message = told["kind"], told["message"]
    if "no modules here" in message or message.startswith("ReferenceError: could not load module"):
        message = f"Error: {NO_MODULES}"
    return _ended(_limit(message) or kind, message, _line(told["stack"]))


def _thrown(said: str) -> dict[str, Any]:
    """The fault of what came out of the engine itself."""
    message, _, stack = said.partition("\n")
    return _ended(_limit(message) or "runtime", message, _line(stack))


def _limit(message: str) -> str | None:
    """The limit that this is the engine's word for."""
    if message in _NO_MEMORY:
        return "memory"
    return "recursion" if message == "RangeError: Maximum call stack size exceeded" else None


def _line(stack: str) -> int | None:
    for found in _FRAME.finditer(stack):
        if (line := int(found[1])) <= PRELUDE_LINE:
            return line
    return None


def _ended(kind: str, message: str, line: int | None) -> dict[str, Any]:
    if kind == "memory":
        message = "the script used more memory than it may"
    return {"value": None, "stored": {}, "fault": {"kind": kind, "message": message[:MOST_SAID], "line": line}}


def _read(text: str) -> Any:
    """JSON of the engine's; halves of characters, which JavaScript allows in a string, are made question marks."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        mended = text
        while (again := _LONE.sub(r"\1\\ufffd", mended)) != mended:
            mended = again
        return orjson.loads(mended)
