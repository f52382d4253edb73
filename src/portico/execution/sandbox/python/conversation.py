"""One Python script's conversation with its process: it runs until it waits, is told what it waited for, runs on.

Everything here blocks and is for a thread, except `kill`, which is for any. It is pydantic_monty's sync interface on
purpose: its async one aborts the whole process in some exits of the interpreter.
"""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from portico.execution.sandbox.python import prelude as python_prelude
from portico.execution.sandbox.python.backstop import hold, stand_back
from portico.execution.sandbox.python.crossing import FLOOD, Printed, text_of, value_of
from portico.execution.sandbox.python.faults import SCRIPT, SPOILING, fault_of, shortened
from portico.execution.sandbox.script import MAX_STORED, Fault, Outcome, Script


@dataclass(frozen=True)
class Waiting:
    """The script waits for one of these calls."""

    calls: tuple[int, ...]


@dataclass(frozen=True)
class Pause:
    """The script sleeps."""

    seconds: float


@dataclass(frozen=True)
class Ended:
    """The script is over."""


Turn = Waiting | Pause | Ended
Call = Callable[[int, str, str, list[Any], dict[str, Any]], None]
Reply = dict[str, Any]


class Conversation:
    """One script, its process, and what it has said so far."""

    def __init__(self, script: Script, call: Call, sleep: Callable[[int, float], None]) -> None:
        self._script = script
        self._call = call
        self._sleep = sleep
        self._session: Any = None
        self._snapshot: Any = None
        self._last: str | None = None
        self._result: str | None = None
        self._stored: dict[str, str] = {}
        self._printed = Printed(script.limits.output_bytes, self._flooded)
        self._failed: set[str] = set()
        self._unmarked = False
        self._fed = ""
        self._waiting_line: int | None = None
        self._pid: int | None = None
        self._process = threading.Lock()
        self._killed: Fault | None = None
        self._fatal: str | None = None
        self.outcome: Outcome | None = None
        self.held: dict[int, int] = {}
        """How many characters of arguments the calls under way have."""

    # --- from any thread

    def kill(self, why: Fault) -> None:
        """End the script's process now. What it was in the middle of fails at once."""
        with self._process:
            self._killed = self._killed or why
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def doom(self, message: str) -> None:
        """A call failed in a way that ends the script, whatever it catches."""
        self._fatal = self._fatal or message

    # --- from one thread at a time

    def begin(self, pool: Callable[[], Any]) -> Turn:
        """Take a process and run until the script waits or ends."""
        return self._converse(lambda: self._start(pool))

    def _start(self, pool: Callable[[], Any]) -> Turn:
        limits = self._script.limits
        session = pool().checkout(
            script_name="script.py",
            limits={
                "max_feed_duration_secs": limits.cpu_s,
                "max_memory": limits.memory_bytes,
                "max_recursion_depth": limits.recursion,
                "max_suspensions": 1_000 + 20 * limits.calls,
            },
            os_policy={"sleep": "call_host"},
        )
        session.__enter__()
        self._session = session
        with self._process:
            self._pid = session.worker_pid
            killed = self._killed
        if killed is not None:
            return self._end(killed)
        if self._pid is not None:
            stand_back(self._pid)
            hold(self._pid, limits)
        code = self._script.code.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        return self._feeds(code)

    def tell(self, replies: Mapping[int, Reply]) -> Turn:
        """Tell the script how its calls went, their values as JSON text, and run on."""
        for reply in replies.values():
            if "message" in reply:
                self._failed.add(reply["message"])
        return self._converse(lambda: self._answered(self._snapshot.resume(dict(replies))))

    def wake(self) -> Turn:
        """A sleep is over."""
        return self._converse(lambda: self._answered(self._snapshot.resume({"return_value": None})))

    def abandon(self, fault: Fault) -> None:
        """Leave a script that waits where it is."""
        self._end(replace(fault, line=fault.line or self._waiting_line))

    # --- its turns

    def _converse(self, turn: Callable[[], Turn]) -> Turn:
        import pydantic_monty as monty

        try:
            return turn()
        except monty.MontyError as error:
            fault = self._killed or fault_of(error, frozenset(self._failed), self._waiting_line)
            if self._fatal is not None:
                fault = Fault("call", shortened(self._fatal), fault.line)
            return self._end(fault)
        except OSError as error:
            return self._end(Fault("crash", f"The sandbox for Python does not start: {error}"))
        except _Stopped as stopped:
            return self._end(stopped.fault)

    def _feeds(self, code: str) -> Turn:
        self._feed(python_prelude.prelude(self._script.namespaces))
        marked = python_prelude.marked(code)
        self._unmarked = marked is None
        self._fed = code if marked is None else marked
        return self._answered(self._feed(self._fed))

    def _feed(self, code: str, **inputs: Any) -> Any:
        return self._session.feed_start(code, inputs=inputs, print_callback=self._printed)

    def _answered(self, snapshot: Any) -> Turn:
        """Answer what can be answered at once, until the script waits or ends."""
        import pydantic_monty as monty

        while True:
            # One that waits is told of the failure first: only then is its line known.
            if self._fatal is not None and not isinstance(snapshot, monty.FutureSnapshot):
                raise _Stopped(Fault("call", shortened(self._fatal)))
            if isinstance(snapshot, monty.MontyComplete):
                self._look_for_answer(snapshot)
                return self._end(None)
            if isinstance(snapshot, monty.NameLookupSnapshot):
                snapshot = snapshot.resume()
            elif isinstance(snapshot, monty.FutureSnapshot):
                self._snapshot = snapshot
                self._waiting_line = self._line_at(snapshot.position)
                return Waiting(tuple(snapshot.pending_call_ids))
            elif snapshot.is_os_function and snapshot.function_name == "time.sleep":
                self._snapshot = snapshot
                return Pause(_seconds(snapshot.args))
            elif snapshot.is_os_function and snapshot.function_name == "asyncio.sleep":
                self._sleep(snapshot.call_id, _seconds(snapshot.args))
                snapshot = snapshot.resume({"future": ...})
            elif snapshot.is_os_function:
                snapshot = snapshot.resume_not_handled()
            else:
                snapshot = snapshot.resume(self._answer(snapshot))

    def _answer(self, snapshot: Any) -> Reply:
        name = snapshot.function_name
        if name != python_prelude.HOST or snapshot.object_id is not None:
            return {"exc_type": "NameError", "message": f"name '{name}' is not defined"}
        match snapshot.args:
            case ("call", str(namespace), str(function), str(args), str(kwargs)):
                return self._begin_call(snapshot.call_id, namespace, function, args, kwargs)
            case ("last", str(text)):
                self._last = text
            case ("result", str(text)):
                self._result = text
            case ("store", str(key), str(text)):
                return self._store(key, text)
            case ("load", str(key)):
                return {"return_value": self._load(key)}
            case ("store" | "load", *_):
                return {"exc_type": "TypeError", "message": "the key must be a string"}
            case _:
                return {"exc_type": "TypeError", "message": "no such question to the host"}
        return {"return_value": None}

    def _begin_call(self, number: int, namespace: str, function: str, args: str, kwargs: str) -> Reply:
        if function not in self._script.namespaces.get(namespace, ()):
            return {"exc_type": "AttributeError", "message": f"'{namespace}' object has no attribute '{function}'"}
        size = len(args) + len(kwargs)
        if size + sum(list(self.held.values())) > self._script.limits.memory_bytes:
            raise _Stopped(Fault("memory", "The arguments of the calls under way are too large together."))
        try:
            positional, named = value_of(args), value_of(kwargs)
        except ValueError as error:
            return {"exc_type": "ValueError", "message": str(error)}
        if not isinstance(positional, list) or not isinstance(named, dict):
            return {"exc_type": "TypeError", "message": "no such question to the host"}
        self.held[number] = size
        self._call(number, namespace, function, cast("list[Any]", positional), cast("dict[str, Any]", named))
        return {"future": ...}

    def _store(self, key: str, text: str) -> Reply:
        self._stored[key] = text
        if (
            len(self._stored) > MAX_STORED
            or sum(map(len, self._stored.values())) + sum(map(len, self._stored)) > self._script.limits.answer_bytes
        ):
            del self._stored[key]
            return {"exc_type": "ValueError", "message": "store() has no room for more"}
        return {"return_value": None}

    def _load(self, key: str) -> str | None:
        if key in self._stored:
            return self._stored[key]
        return text_of(self._script.state[key]) if key in self._script.state else None

    def _look_for_answer(self, complete: Any) -> None:
        if self._result is not None:
            return
        if self._unmarked:
            output = _output(complete)
            if output is not None:
                self._answer_by(python_prelude.FROM_OUTPUT, _portico_output=output)
        if self._last in (None, "null") and python_prelude.assigns_result(self._script.code):
            self._answer_by(python_prelude.FROM_ASSIGNED)

    def _answer_by(self, code: str, **inputs: Any) -> None:
        import pydantic_monty as monty

        snapshot = self._feed(code, **inputs)
        while isinstance(snapshot, monty.FunctionSnapshot):
            snapshot = snapshot.resume(cast("Any", self._answer(snapshot)))

    def _line_at(self, position: Any) -> int | None:
        # Marking the last expression adds no line, so a line counted in what was fed is the script's own.
        return self._fed.encode()[: position.start].count(b"\n") + 1 if position.filename == SCRIPT else None

    def _flooded(self) -> None:
        self.kill(Fault("output", f"The script printed more than {FLOOD} times what is kept of its output."))

    # --- its end

    def _end(self, fault: Fault | None) -> Turn:
        self._release(spoiled=fault is not None and fault.kind in SPOILING)
        value = None
        text = self._last if self._result is None else self._result
        if fault is None and text is not None:
            value, fault = self._valued(text)
        stored: dict[str, Any] = {}
        for key, each in self._stored.items():
            with contextlib.suppress(ValueError):  # only of a script that spoke to the host itself
                stored[key] = value_of(each)
        self.outcome = Outcome(value, self._printed.text(), self._printed.dropped, stored, fault=fault)
        return Ended()

    def _valued(self, text: str) -> tuple[Any, Fault | None]:
        most = self._script.limits.answer_bytes
        if len(text) > most or len(text.encode()) > most:
            return None, Fault("output", f"The answer is larger than {most:,} bytes.")
        try:
            return value_of(text), None
        except ValueError as error:
            return None, Fault("value", str(error))

    def _release(self, *, spoiled: bool) -> None:
        session, self._session, self._snapshot = self._session, None, None
        with self._process:
            pid, self._pid = self._pid, None
        if session is None:
            return
        if (spoiled or self._killed is not None) and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        session.__exit__(None, None, None)


class _Stopped(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _output(complete: Any) -> Any:
    """The script's last expression as a Python value; some, as a number of 5,000 digits, cannot be one."""
    try:
        return complete.output
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _Stopped(Fault("value", shortened(f"{type(error).__name__}: {error}"))) from error


def _seconds(args: tuple[Any, ...]) -> float:
    seconds = args[0] if args and isinstance(args[0], int | float) else 0.0
    return max(0.0, float(seconds)) if math.isfinite(seconds) else 0.0
