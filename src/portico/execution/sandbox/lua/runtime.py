"""Lua 5.4 in a worker, by lupa: a fresh state for each script, with nothing of Python in it.

`calculator.add({a=5, b=3})` begins a call and gives a handle, `:await()` waits for its result. The glue (`lua_glue`) is
the only Lua code that holds Python functions; none of them raises, and no Python object is ever a Lua value.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import orjson

from portico.execution.sandbox.lua.answer import answering
from portico.execution.sandbox.lua.glue import GLUE
from portico.execution.sandbox.lua.values import NotJson, TooLarge, to_json, to_lua
from portico.execution.sandbox.worker.inside import Channel, HostGone, TooLong

NAME = b"=script"
_POSITION = re.compile(r"^script:(\d+): ")
MAX_TEXT = 2000
MAX_NAME = 100
MEMORY = b"not enough memory"


class LuaRuntime:
    """Serves `lua`."""

    def __init__(self) -> None:
        import lupa.lua54

        self._lupa: Any = lupa.lua54

    def prepare(self) -> None:
        """Run one script, so that everything a script needs is in memory."""
        limits = {"memory_bytes": 1 << 20, "answer_bytes": 1 << 10}
        job = {"run": "os.date()\nreturn {1, nil, 'x', {}}", "namespaces": {}, "state": {}, "limits": limits}
        for code in ("", job["run"], "error('x')", "return return", "return print"):
            self.run({**job, "run": code}, Channel(-1, -1))

    def run(self, job: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
        """One script."""
        script = _Script(self._lupa, job, channel)
        try:
            return script.run()
        finally:
            script.close()


class _Script:
    def __init__(self, lupa: Any, job: Mapping[str, Any], channel: Channel) -> None:
        self._lupa, self._job, self._channel = lupa, job, channel
        self._memory = int(job["limits"]["memory_bytes"])
        self._most = int(job["limits"]["answer_bytes"])
        self._lua: Any = lupa.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            unpack_returned_tuples=True,
            attribute_filter=_deny,
            max_memory=self._memory,
        )
        self._is_list: Any = None
        self._null: Any = None
        self._array: Any = None
        self._state = dict(job["state"])
        self._stored: dict[str, Any] = {}
        self._answers: list[Any] | None = None
        self._failed = ""
        """The text of the last call that failed."""
        self._last_line: int | None = None
        """What a script returns from a call (`return f()`) leaves no trace of its own line."""
        self._unsayable, self._unsayable_kind = "", "value"
        """Why the last answer is no JSON."""

    def close(self) -> None:
        """Let go of the state, which holds functions that hold it."""
        self._lua = self._is_list = self._null = self._array = None

    def run(self) -> dict[str, Any]:
        """Compile, bind, run; the outcome."""
        try:
            code = self._job["run"].encode("utf-8", "replace")
            chunk, self._last_line = answering(code, self._compile, self._lupa.LuaSyntaxError)
        except self._lupa.LuaMemoryError:
            return self._outcome(None, _fault("memory", "the script is too large"))
        except self._lupa.LuaError as error:
            return self._outcome(None, _syntax(error))
        self._lua.set_max_memory(0)
        host: tuple[Callable[..., Any], ...] = (
            self._begin,
            self._wait,
            self._say,
            self._show,
            self._keep,
            self._recall,
            self._answer,
        )
        glue = self._lua.execute(GLUE, self._enter, self._leave, *map(_never_raising, host), name=b"=portico", mode="t")
        bind, begin_script, run, self._is_list, self._null, self._array = glue
        for space, names in self._job["namespaces"].items():
            bind(space.encode(), self._lua.table_from([name.encode() for name in names]))
        begin_script()
        try:
            ok, ended = run(chunk)
            self._enter()
            return self._ended(ended) if ok else self._outcome(None, self._fault(ended[2]))
        except MemoryError:
            self._enter()
            return self._outcome(None, _fault("memory", MEMORY.decode()))
        except self._lupa.LuaError as error:
            self._enter()
            return self._outcome(None, self._fault(str(error).encode()))

    def _ended(self, ended: Any) -> dict[str, Any]:
        if self._answers is None:
            try:
                self._answers = [self._to_json(ended[at]) for at in range(2, int(ended[b"n"]) + 1)]
            except NotJson as error:
                return self._outcome(None, _fault(error.kind, _no_answer(error)))
        answers = self._answers
        return self._outcome(answers[0] if len(answers) == 1 else answers or None, None)

    def _outcome(self, value: Any, fault: dict[str, Any] | None) -> dict[str, Any]:
        return {"value": value, "stored": self._stored, "fault": fault}

    def _fault(self, failure: Any) -> dict[str, Any]:
        line: int | None = None
        if not isinstance(failure, bytes) and self._lupa.lua_type(failure) == "table":
            failure, line = failure[1], failure[2]
        text = failure.decode("utf-8", "replace") if isinstance(failure, bytes) else str(failure)
        if place := _POSITION.match(text):
            line, text = int(place[1]), text[place.end() :]
        line = line or self._last_line
        kind = "runtime"
        if MEMORY.decode() in text:
            kind = "memory"
        elif "stack overflow" in text:
            kind, text = "recursion", text.partition("\n")[0]
        elif self._unsayable and self._unsayable in text:
            kind = self._unsayable_kind
        elif self._failed and self._failed in text:
            kind = "call"
        return _fault(kind, text[:MAX_TEXT], line)

    def _compile(self, code: bytes) -> Any:
        return self._lua.compile(code, name=NAME, mode="t")

    def _to_json(self, value: Any) -> Any:
        return to_json(value, self._is_list, self._lupa.lua_type, self._most)

    def _to_lua(self, value: Any) -> Any:
        left = self._memory - self._lua.get_memory_used(total=True)
        return to_lua(value, self._lua.table_from, self._null, self._array, left)

    def _enter(self, *_: Any) -> None:
        self._lua.set_max_memory(0)

    def _leave(self) -> None:
        self._lua.set_max_memory(self._memory)

    def _begin(self, space: bytes, name: bytes, packed: Any) -> Any:
        args: list[Any] = []
        for at in range(1, int(packed[b"n"]) + 1):
            try:
                args.append(self._to_json(packed[at]))
            except NotJson as error:
                return None, self._not_sent(name, f"argument {at}", error)
        try:
            return self._channel.call(space.decode("utf-8", "replace"), name.decode("utf-8", "replace"), args, {})
        except (TypeError, TooLong) as error:
            return None, self._not_sent(name, "the arguments", error)

    def _not_sent(self, name: bytes, what: str, error: Exception) -> bytes:
        why = f"{name[:MAX_NAME].decode('utf-8', 'replace')}: {what} cannot be sent: {error}"
        if isinstance(error, TooLarge | TooLong):
            self._failed = why
        return why.encode()

    def _wait(self, id: int, *_: Any) -> Any:
        ok, value = self._channel.wait(id)[1:]
        if not ok:
            self._failed = str(value)
            return False, self._failed.encode("utf-8", "replace")
        return True, self._to_lua(value)

    def _say(self, text: bytes, *_: Any) -> None:
        self._channel.print(text.decode("utf-8", "replace"))

    def _show(self, value: Any, *_: Any) -> bytes | None:
        try:
            return orjson.dumps(self._to_json(value))
        except (NotJson, TypeError):
            return None

    def _keep(self, key: bytes, value: Any, *_: Any) -> Any:
        name = key.decode("utf-8", "replace")
        try:
            kept = self._to_json(value)
            self._channel.store(name, kept)
        except (NotJson, TypeError, TooLong) as error:
            return False, f"store: {error}".encode()
        self._state[name] = kept
        return True

    def _recall(self, key: bytes, *_: Any) -> Any:
        return True, self._to_lua(self._state.get(key.decode("utf-8", "replace")))

    def _answer(self, packed: Any, *_: Any) -> Any:
        try:
            self._answers = [self._to_json(packed[at]) for at in range(1, int(packed[b"n"]) + 1)]
        except NotJson as error:
            self._unsayable, self._unsayable_kind = _no_answer(error), error.kind
            return False, self._unsayable.encode()
        return True


def _never_raising(function: Callable[..., Any]) -> Callable[..., Any]:
    """An exception of Python's would be a Lua value; each is told as `false, why` instead."""

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except HostGone:
            os._exit(0)
        except MemoryError:
            return False, MEMORY
        except BaseException as error:
            return False, f"{type(error).__name__}: {error}".encode("utf-8", "replace")

    return call


def _deny(_object: Any, name: Any, _setting: bool) -> NoReturn:
    raise AttributeError(name)


def _syntax(error: Exception) -> dict[str, Any]:
    told: Any = error.args[0] if error.args else b""
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    place = _POSITION.match(text)
    return _fault("syntax", text[place.end() if place else 0 :][:MAX_TEXT], int(place[1]) if place else None)


def _no_answer(error: NotJson) -> str:
    return f"the script's answer cannot be given as JSON: {error}"


def _fault(kind: str, message: str, line: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "message": message, "line": line}
