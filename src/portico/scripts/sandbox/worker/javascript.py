"""JavaScript, and TypeScript without types, on QuickJS: a fresh context for each script.

The context has one function to the outside, `host`, with JSON text both ways; `prelude.js` wraps it
in promises. The script becomes the body of an async function (see `last_expression`). Calls start
when they are made; whenever only waiting is left, one reply is processed. QuickJS's own time limit
is not used: the host ends scripts that take too long.
"""

import os.path
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from portico.scripts.sandbox.worker.javascript_source import (
    JsContext,
    JSException,
    JsFunction,
    NotTypeScript,
    TypeStripper,
    create_context,
    return_last_expression,
)
from portico.scripts.sandbox.worker.main import ScriptMessageTooLong

if TYPE_CHECKING:
    from portico.scripts.sandbox.worker.main import WorkerChannel

STACK_BYTES_PER_CALL = 20 * 1024
MAX_STACK_BYTES = 4 * 1024**2
"""Half of the default stack of a process."""
MAX_MESSAGE_CHARS = 4000
"""Maximum length of an error message."""
PRELUDE_FIRST_LINE = 20_000
"""Line offset of the prelude, which shares its file name with the script, to tell them apart."""
NO_MODULES_MESSAGE = "there are no modules here: import, export and require do not work"

_OUT_OF_MEMORY_MESSAGES = ("InternalError: out of memory", "InternalError: string too long", "null")
"""Without memory even for an error, the engine throws null."""
_STACK_FRAME = re.compile(r"<input>:(\d{1,9})\b")
_MODULE_STATEMENT = re.compile(r"\s*(?:import|export)\b")
_EXPORT = re.compile(
    r"(?P<indent>\s*)export\s+(?:(?P<default>default\s+)|\{[^}]*\}\s*;?"
    r"|(?=(?:async|function|class|const|let|var)\b))"
)
_NAMED_DECLARATION = re.compile(
    r"(?:async\s+)?function\s*\*?\s*(?P<function>[\w$]+)|class\s+(?!extends\b)[\w$]+"
)
_MAX_EXPORTS = 50
_LONE_SURROGATE = re.compile(r"((?:^|[^\\])(?:\\\\)*)\\ud[89a-f][0-9a-f]{2}", re.IGNORECASE)


class JavaScriptRuntime:
    def prepare(self) -> None:
        """Read the files that cannot be read inside the jail."""
        with open(
            os.path.join(os.path.dirname(__file__), "prelude.js"), encoding="utf-8"
        ) as source:
            self._prelude = "\n" * PRELUDE_FIRST_LINE + source.read()
        self._stripper = TypeStripper()

    def run(self, job: Mapping[str, Any], channel: "WorkerChannel") -> dict[str, Any]:
        code = job["run"]
        typed = job["language"] == "typescript"
        if "\0" in code:
            return _build_fault_outcome(
                "syntax", "SyntaxError: a NUL character", 1 + code[: code.index("\0")].count("\n")
            )
        if typed:
            try:
                code = self._stripper.strip_types(code)
            except NotTypeScript as error:
                return self._build_syntax_fault(job["run"], str(error), error.line, typed)
        return self._run_javascript(code, job, channel, typed)

    def _run_javascript(
        self, code: str, job: Mapping[str, Any], channel: "WorkerChannel", typed: bool
    ) -> dict[str, Any]:
        context = create_context()
        host = _JsHost(channel, job["state"], job["limits"]["answer_bytes"])
        try:
            context.add_callable("host", host)
            enter = context.eval(self._prelude)
            enter("bind", orjson.dumps(job["namespaces"]).decode())
            context.set_memory_limit(job["limits"]["memory_bytes"])
            context.set_max_stack_size(
                min(MAX_STACK_BYTES, job["limits"]["recursion"] * STACK_BYTES_PER_CALL)
            )
            code, default_export = _remove_exports(context, code)
            syntax_error = _find_syntax_error(context, code)
            body = return_last_expression(
                code, lambda text: _find_syntax_error(context, text) is None
            )
            if default_export and body == code:
                body = f"{code}\nreturn module.exports = {default_export}"
            # A last line `{a: 1, b: 2}` is an error until it is returned.
            if syntax_error is not None and body == code:
                return self._build_syntax_fault(code, *syntax_error, typed)
            enter("start", context.eval(_wrap_in_function(body)))
            return _run_until_done(context, enter, host, channel, job["limits"]["answer_bytes"])
        except JSException as error:
            return _convert_engine_error(str(error))
        finally:
            host.raise_deferred()

    def _build_syntax_fault(
        self, code: str, message: str, line: int | None, typed: bool
    ) -> dict[str, Any]:
        """Return the fault of code that does not parse, with the likely reason."""
        if (kind := _classify_limit(message)) is not None:
            return _build_fault_outcome(kind, message, line)
        lines = code.split("\n")
        if line is not None and line <= len(lines) and _MODULE_STATEMENT.match(lines[line - 1]):
            message = f"SyntaxError: {NO_MODULES_MESSAGE}"
        elif not typed and self._is_typescript(code):
            message += ". This looks like TypeScript: use language='typescript'"
        return _build_fault_outcome("syntax", message, line)

    def _is_typescript(self, code: str) -> bool:
        try:
            stripped = self._stripper.strip_types(code)
        except NotTypeScript:
            return False
        return stripped != code and _find_syntax_error(create_context(), stripped) is None


class _JsHost:
    """The context's `host` function. Never raises, because exceptions do not pass the engine."""

    def __init__(self, channel: "WorkerChannel", state: Mapping[str, Any], max_chars: int) -> None:
        self._channel = channel
        self._state = dict(state)
        self._max_chars = max_chars
        self.result_json: str | None = None
        self.failure_json: str | None = None
        self._deferred_error: BaseException | None = None

    def __call__(self, operation: Any = None, text: Any = None, *_: Any) -> str:
        try:
            if isinstance(text, str):
                return self._dispatch(operation, text)
            return '"no text"'
        except ScriptMessageTooLong as error:
            return orjson.dumps(str(error)).decode()
        except (ValueError, TypeError, RecursionError) as error:
            return orjson.dumps(f"that cannot be said in JSON: {error}").decode()
        # The pipe is closed or memory is exhausted; raised again outside of the engine.
        except BaseException as error:
            self._deferred_error = error
            return '"the host is gone"'

    def _dispatch(self, operation: str, text: str) -> str:
        if len(text) > self._max_chars and operation in ("call", "store"):
            return orjson.dumps(
                f"{len(text):,} characters are too many: {self._max_chars:,} may be passed"
            ).decode()
        match operation:
            case "call":
                namespace, name, args = _decode_json(text)
                return str(self._channel.begin_call(namespace, name, args, {}))
            case "sleep":
                return str(self._channel.begin_sleep(float(_decode_json(text) or 0)))
            case "print":
                self._channel.print(_decode_json(text))
            case "store":
                key, value = _decode_json(text)
                self._channel.store(key, value)
                self._state[key] = value
            case "load":
                key = _decode_json(text)
                if key in self._state:
                    return orjson.dumps(self._state[key]).decode()
                return ""
            case "done":
                self.result_json = text
            case "failed":
                self.failure_json = text
            case _:
                pass
        return "null"

    def raise_deferred(self) -> None:
        """Raise the error that could not be raised inside the engine."""
        if self._deferred_error is not None:
            raise self._deferred_error


def _run_until_done(
    context: JsContext,
    enter: JsFunction,
    host: _JsHost,
    channel: "WorkerChannel",
    max_chars: int,
) -> dict[str, Any]:
    while True:
        while context.execute_pending_job():
            pass
        host.raise_deferred()
        if host.failure_json is not None:
            return _convert_prelude_failure(_decode_json(host.failure_json))
        if host.result_json is not None:
            return _build_result_outcome(host.result_json, max_chars)
        if not channel.pending_count:
            if _may_be_out_of_memory(context):
                return _build_fault_outcome("memory", "", None)
            return _build_fault_outcome(
                "deadlock", "the script waits for a promise that nothing will ever settle", None
            )
        id, ok, value = channel.wait_for_reply()
        if channel.fatal_error is not None:
            return _build_fault_outcome(
                "call", channel.fatal_error, _find_script_line(enter("where", id) or "")
            )
        enter("settle", id, ok, orjson.dumps(value).decode())


def _may_be_out_of_memory(context: JsContext) -> bool:
    """Return whether a lack of memory may have dropped a job: the engine does that silently."""
    memory = context.memory()
    return memory["malloc_size"] > memory["malloc_limit"] // 2


def _build_result_outcome(text: str, max_chars: int) -> dict[str, Any]:
    # Checked before decoding, which could exceed the memory of the jail.
    if len(text) > max_chars:
        return _build_fault_outcome(
            "output",
            f"the script's answer has {len(text):,} bytes, more than the {max_chars:,} allowed",
            None,
        )
    try:
        return {"value": _decode_json(text), "stored": {}, "fault": None}
    except ValueError as error:
        return _build_fault_outcome(
            "value", f"the script's answer cannot be said in JSON: {error}", None
        )


def _wrap_in_function(code: str) -> str:
    return f"(async function () {{{code}\n}})"


def _find_syntax_error(context: JsContext, code: str) -> tuple[str, int | None] | None:
    """Return message and line of a syntax error in a function body, or None; nothing is run."""
    try:
        context.eval(f"throw 0;{_wrap_in_function(code)}")
    except JSException as error:
        message, _, stack = str(error).partition("\n")
        if message == "0":
            return None
        return (message, _find_script_line(stack))
    return None


def _remove_exports(context: JsContext, code: str) -> tuple[str, str]:
    """Remove `export` where the parser rejects it; lines stay the same.

    Also returns the name of a default export that the script does not use itself, or "".
    """
    default_export = ""
    for _ in range(_MAX_EXPORTS):
        _, line = _find_syntax_error(context, code) or ("", None)
        lines = code.split("\n")
        found = line and line <= len(lines) and _EXPORT.match(lines[line - 1])
        if not line or not found:
            break
        rest = lines[line - 1][found.end() :]
        if found["default"] and (named := _NAMED_DECLARATION.match(rest)):
            name = named["function"]
            if name and len(re.findall(rf"\b{re.escape(name)}\b", code)) == 1:
                default_export = name
        elif found["default"]:
            rest = f"module.exports = {rest}"
        lines[line - 1] = found["indent"] + rest
        code = "\n".join(lines)
    return code, default_export


def _convert_prelude_failure(failure: dict[str, str]) -> dict[str, Any]:
    kind = failure["kind"]
    message = failure["message"]
    if "no modules here" in message or message.startswith("ReferenceError: could not load module"):
        message = f"Error: {NO_MODULES_MESSAGE}"
    return _build_fault_outcome(
        _classify_limit(message) or kind, message, _find_script_line(failure["stack"])
    )


def _convert_engine_error(text: str) -> dict[str, Any]:
    message, _, stack = text.partition("\n")
    return _build_fault_outcome(
        _classify_limit(message) or "runtime", message, _find_script_line(stack)
    )


def _classify_limit(message: str) -> str | None:
    if message in _OUT_OF_MEMORY_MESSAGES:
        return "memory"
    if message == "RangeError: Maximum call stack size exceeded":
        return "recursion"
    return None


def _find_script_line(stack: str) -> int | None:
    for found in _STACK_FRAME.finditer(stack):
        if (line := int(found[1])) <= PRELUDE_FIRST_LINE:
            return line
    return None


def _build_fault_outcome(kind: str, message: str, line: int | None) -> dict[str, Any]:
    if kind == "memory":
        message = "the script used more memory than it may"
    return {
        "value": None,
        "stored": {},
        "fault": {"kind": kind, "message": message[:MAX_MESSAGE_CHARS], "line": line},
    }


def _decode_json(text: str) -> Any:
    """Decode JSON of the engine; lone surrogates, which JavaScript allows, are replaced."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        fixed = text
        while (replaced := _LONE_SURROGATE.sub(r"\1\\ufffd", fixed)) != fixed:
            fixed = replaced
        return orjson.loads(fixed)
