"""Lua 5.4 in a worker, through lupa: a fresh state for each script, without access to Python.

`calculator.add({a=5, b=3})` begins a call and returns a handle; `:await()` waits for its result.
`prelude.lua` is the only Lua code that refers to Python functions; none of them raises, and no
Python object is ever a Lua value.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import orjson

from portico.scripts.sandbox.worker.lua_values import LuaValueTooLarge, NotJson, to_json, to_lua
from portico.scripts.sandbox.worker.main import (
    HostDisconnected,
    ScriptMessageTooLong,
    WorkerChannel,
)

CHUNK_NAME = b"=script"
_POSITION = re.compile(r"^(?:script:(\d+)|portico:\d+): ")
"""Position before a message, with the line if it is one of the script."""
_WORD = re.compile(rb"[A-Za-z_0-9#]")
_RETURN = re.compile(rb"^[ \t]*return\b", re.MULTILINE)
_MAX_TRIED_LINES = 200
MAX_MESSAGE_CHARS = 2000
MAX_NAME_CHARS = 100
OUT_OF_MEMORY = b"not enough memory"


class LuaRuntime:
    def __init__(self) -> None:
        import lupa.lua54

        self._lupa: Any = lupa.lua54
        with open(os.path.join(os.path.dirname(__file__), "prelude.lua"), "rb") as source:
            self._prelude = source.read()

    def prepare(self) -> None:
        """Run a few scripts, so that everything a script needs is loaded before the jail closes."""
        limits = {"memory_bytes": 1 << 20, "answer_bytes": 1 << 10}
        base_job = {
            "run": "os.date()\nreturn {1, nil, 'x', {}}",
            "namespaces": {},
            "state": {},
            "limits": limits,
        }
        for code in ("", base_job["run"], "error('x')", "return return", "return print"):
            self.run({**base_job, "run": code}, WorkerChannel(-1, -1))

    def run(self, job: Mapping[str, Any], channel: WorkerChannel) -> dict[str, Any]:
        script = _LuaScript(self._lupa, self._prelude, job, channel)
        try:
            return script.run()
        finally:
            script.close()


class _LuaScript:
    def __init__(
        self, lupa: Any, prelude: bytes, job: Mapping[str, Any], channel: WorkerChannel
    ) -> None:
        self._lupa = lupa
        self._prelude = prelude
        self._job = job
        self._channel = channel
        self._memory_bytes = int(job["limits"]["memory_bytes"])
        self._max_answer_bytes = int(job["limits"]["answer_bytes"])
        self._lua: Any = lupa.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_filter=_deny_attribute,
            max_memory=self._memory_bytes,
        )
        self._is_list: Any = None
        self._null: Any = None
        self._array: Any = None
        self._state = dict(job["state"])
        self._stored: dict[str, Any] = {}
        self._results: list[Any] | None = None
        self._last_call_error = ""
        """Message of the last call that failed."""
        self._last_line: int | None = None
        """Line of the last statement: a tail call (`return f()`) leaves no trace of its line."""
        self._unserializable_message = ""
        self._unserializable_kind = "value"
        """Message and fault kind of the last result that was not JSON."""

    def close(self) -> None:
        """Drop the references to the Lua state, which refers back to this object."""
        self._lua = self._is_list = self._null = self._array = None

    def run(self) -> dict[str, Any]:
        try:
            code = self._job["run"].encode("utf-8", "replace")
            chunk, self._last_line = self._compile_returning_last_expression(code)
        except self._lupa.LuaMemoryError:
            return self._build_outcome(None, _make_fault("memory", "the script is too large"))
        except self._lupa.LuaError as error:
            return self._build_outcome(None, _to_syntax_fault(error))
        self._lua.set_max_memory(0)
        host: tuple[Callable[..., Any], ...] = (
            self._begin_call,
            self._wait_for_call,
            self._print,
            self._encode_for_print,
            self._store,
            self._load,
            self._set_result,
            self._decode,
        )
        exports = self._lua.execute(
            self._prelude,
            self._lift_memory_limit,
            self._restore_memory_limit,
            *map(_catch_exceptions, host),
            name=b"=portico",
            mode="t",
        )
        bind, begin_script, run, self._is_list, self._null, self._array = exports
        for space, names in self._job["namespaces"].items():
            bind(space.encode(), self._lua.table_from([name.encode() for name in names]))
        begin_script()
        try:
            ok, outcome = run(chunk)
            self._lift_memory_limit()
            if ok:
                return self._build_result_outcome(outcome)
            return self._build_outcome(None, self._to_fault(outcome[2]))
        except MemoryError:
            self._lift_memory_limit()
            return self._build_outcome(None, _make_fault("memory", OUT_OF_MEMORY.decode()))
        except self._lupa.LuaError as error:
            self._lift_memory_limit()
            return self._build_outcome(None, self._to_fault(str(error).encode()))

    def _build_result_outcome(self, returned: Any) -> dict[str, Any]:
        if self._results is None:
            try:
                self._results = [
                    self._to_json(returned[index]) for index in range(2, int(returned[b"n"]) + 1)
                ]
            except NotJson as error:
                return self._build_outcome(
                    None, _make_fault(error.kind, _describe_unserializable_result(error))
                )
        results = self._results
        return self._build_outcome(results[0] if len(results) == 1 else results or None, None)

    def _build_outcome(self, value: Any, fault: dict[str, Any] | None) -> dict[str, Any]:
        return {"value": value, "stored": self._stored, "fault": fault}

    def _to_fault(self, failure: Any) -> dict[str, Any]:
        line: int | None = None
        if not isinstance(failure, bytes) and self._lupa.lua_type(failure) == "table":
            line = failure[2]
            failure = failure[1]
        text = _to_text(failure)
        if position := _POSITION.match(text):
            line = int(position[1] or 0) or line
            text = text[position.end() :]
        line = line or self._last_line
        kind = "runtime"
        if OUT_OF_MEMORY.decode() in text:
            kind = "memory"
        elif "stack overflow" in text:
            kind = "recursion"
            text = text.partition("\n")[0]
        elif self._unserializable_message and self._unserializable_message in text:
            kind = self._unserializable_kind
        elif self._last_call_error and self._last_call_error in text:
            kind = "call"
        return _make_fault(kind, text[:MAX_MESSAGE_CHARS], line)

    def _compile_returning_last_expression(self, code: bytes) -> tuple[Any, int | None]:
        """Return the compiled script and the line of its last statement; raises LuaSyntaxError.

        Tries `return` before each of the last lines, until both the code before it and the rest
        compile alone. A line that could continue the preceding one (`- b`, `(f or g)()`) begins a
        statement only if the script does not compile otherwise.
        """
        syntax_error = self._lupa.LuaSyntaxError
        unchanged = problem = None
        try:
            unchanged = self._compile(code)
        except syntax_error as error:
            problem = error
        for before, last in _split_before_last_lines(code):
            if unchanged is not None and before.strip() and not _WORD.match(last.lstrip()):
                continue
            try:
                self._compile(b"return " + last)
                self._compile(before)
                return self._compile(before + b"return " + last), before.count(b"\n") + 1
            except syntax_error:
                continue
        if problem is not None:
            raise problem
        returns = list(_RETURN.finditer(code))
        if len(returns) == 1:
            return unchanged, code.count(b"\n", 0, returns[0].start()) + 1
        return unchanged, None

    def _compile(self, code: bytes) -> Any:
        return self._lua.compile(code, name=CHUNK_NAME, mode="t")

    def _to_json(self, value: Any) -> Any:
        return to_json(value, self._is_list, self._lupa.lua_type, self._max_answer_bytes)

    def _to_lua(self, value: Any) -> Any:
        free_bytes = self._memory_bytes - self._lua.get_memory_used(total=True)
        return to_lua(value, self._lua.table_from, self._null, self._array, free_bytes)

    def _lift_memory_limit(self, *_: Any) -> None:
        self._lua.set_max_memory(0)

    def _restore_memory_limit(self) -> None:
        self._lua.set_max_memory(self._memory_bytes)

    def _begin_call(self, space: bytes, name: bytes, packed: Any) -> Any:
        args: list[Any] = []
        for index in range(1, int(packed[b"n"]) + 1):
            try:
                args.append(self._to_json(packed[index]))
            except NotJson as error:
                return None, self._describe_unsendable(name, f"argument {index}", error)
        try:
            return self._channel.begin_call(
                space.decode("utf-8", "replace"), name.decode("utf-8", "replace"), args, {}
            )
        except (TypeError, ScriptMessageTooLong) as error:
            return None, self._describe_unsendable(name, "the arguments", error)

    def _describe_unsendable(self, name: bytes, what: str, error: Exception) -> bytes:
        message = (
            f"{name[:MAX_NAME_CHARS].decode('utf-8', 'replace')}: {what} cannot be sent: {error}"
        )
        if isinstance(error, LuaValueTooLarge | ScriptMessageTooLong):
            self._last_call_error = message
        return message.encode()

    def _wait_for_call(self, id: int, *_: Any) -> Any:
        ok, value = self._channel.wait_for_reply(id)[1:]
        if not ok:
            self._last_call_error = str(value)
            return False, self._last_call_error.encode("utf-8", "replace")
        return True, self._to_lua(value)

    def _print(self, text: bytes, *_: Any) -> None:
        self._channel.print(text.decode("utf-8", "replace"))

    def _encode_for_print(self, value: Any, *_: Any) -> bytes | None:
        try:
            return orjson.dumps(self._to_json(value))
        except (NotJson, TypeError):
            return None

    def _decode(self, text: bytes, *_: Any) -> Any:
        if len(text) > self._max_answer_bytes:
            return False, f"at most {self._max_answer_bytes:,} bytes are decoded".encode()
        try:
            return True, self._to_lua(orjson.loads(text))
        except (ValueError, NotJson) as error:
            return False, str(error).encode("utf-8", "replace")

    def _store(self, key: bytes, value: Any, *_: Any) -> Any:
        name = key.decode("utf-8", "replace")
        try:
            json_value = self._to_json(value)
            self._channel.store(name, json_value)
        except (NotJson, TypeError, ScriptMessageTooLong) as error:
            return False, f"store: {error}".encode()
        self._state[name] = json_value
        return True

    def _load(self, key: bytes, *_: Any) -> Any:
        return True, self._to_lua(self._state.get(key.decode("utf-8", "replace")))

    def _set_result(self, packed: Any, *_: Any) -> Any:
        try:
            self._results = [
                self._to_json(packed[index]) for index in range(1, int(packed[b"n"]) + 1)
            ]
        except NotJson as error:
            self._unserializable_message = _describe_unserializable_result(error)
            self._unserializable_kind = error.kind
            return False, self._unserializable_message.encode()
        return True


def _split_before_last_lines(code: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the script split before its last line, its last two lines, and so on."""
    lines = code.splitlines(keepends=True)
    for start in range(len(lines) - 1, max(-1, len(lines) - 1 - _MAX_TRIED_LINES), -1):
        line = lines[start].strip()
        if line and not line.startswith(b"--"):
            yield b"".join(lines[:start]), b"".join(lines[start:])


def _catch_exceptions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `false, message` instead of raising, because an exception would become a Lua value."""

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except HostDisconnected:
            os._exit(0)
        except MemoryError:
            return False, OUT_OF_MEMORY
        except BaseException as error:
            return False, f"{type(error).__name__}: {error}".encode("utf-8", "replace")

    return call


def _deny_attribute(_object: Any, name: Any, _setting: bool) -> NoReturn:
    raise AttributeError(name)


def _to_syntax_fault(error: Exception) -> dict[str, Any]:
    text = _to_text(error.args[0] if error.args else b"")
    line = None
    if position := _POSITION.match(text):
        line = int(position[1] or 0) or None
        text = text[position.end() :]
    return _make_fault("syntax", text[:MAX_MESSAGE_CHARS], line)


def _to_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _describe_unserializable_result(error: NotJson) -> str:
    return f"the script's answer cannot be given as JSON: {error}"


def _make_fault(kind: str, message: str, line: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "message": message, "line": line}
