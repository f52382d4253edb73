"""Driver of one Python script: runs it until it waits, passes the replies, resumes it.

Every method blocks and runs in a thread, except `kill`, which may be called from any. It uses
pydantic_monty's sync API on purpose: the async one aborts the process in some exits of the
interpreter.
"""

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from portico.json_text.json_codec import has_more_values
from portico.scripts.sandbox.python import prelude as python_prelude
from portico.scripts.sandbox.python.launcher import apply_limits, lower_priority
from portico.scripts.sandbox.python.prelude import (
    DISCARDING_KINDS,
    SCRIPT_FILE,
    shorten_message,
    to_fault,
)
from portico.scripts.sandbox.python.rewriter import rewrite_script
from portico.scripts.sandbox.python.script_io import (
    FLOOD_CHARS,
    PrintedOutput,
    parse_json_text,
    to_json_text,
)
from portico.scripts.sandbox.python.source_edits import RewrittenScript
from portico.scripts.sandbox.script import MAX_STORED_VALUES, Fault, Script, ScriptOutcome

_MAX_ARGUMENT_VALUES = 50_000
"""Values of a call's arguments; more are refused before they are decoded."""


@dataclass(frozen=True)
class CallsAwaited:
    """The script waits for one of these calls."""

    call_ids: tuple[int, ...]


@dataclass(frozen=True)
class SleepRequested:
    """The script sleeps for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class ScriptFinished:
    """The script has ended."""


DriverEvent = CallsAwaited | SleepRequested | ScriptFinished
StartCall = Callable[[int, str, str, list[Any], dict[str, Any]], None]
MontyReply = dict[str, Any]


class MontyDriver:
    def __init__(
        self, script: Script, start_call: StartCall, start_sleep: Callable[[int, float], None]
    ) -> None:
        self._script = script
        self._start_call = start_call
        self._start_sleep = start_sleep
        self._session: Any = None
        self._snapshot: Any = None
        self._last_expression_json: str | None = None
        self._result_json: str | None = None
        self._stored: dict[str, str] = {}
        self._output = PrintedOutput(script.limits.output_bytes, self._kill_for_flood)
        self._call_errors: set[str] = set()
        self._is_unmarked = False
        self._rewritten = RewrittenScript("")
        self._waiting_line: int | None = None
        self._pid: int | None = None
        self._process_lock = threading.Lock()
        self._kill_fault: Fault | None = None
        self._fatal_message: str | None = None
        self.outcome: ScriptOutcome | None = None
        self.pending_argument_chars: dict[int, int] = {}
        """Characters of arguments of the calls under way, by call."""

    # --- callable from any thread

    def kill(self, fault: Fault) -> None:
        """Kill the script's process now; the current operation fails at once."""
        with self._process_lock:
            self._kill_fault = self._kill_fault or fault
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)

    def mark_fatal(self, message: str) -> None:
        """Record a call error that ends the script even if it is caught."""
        self._fatal_message = self._fatal_message or message

    # --- called from one thread at a time

    def begin(self, get_pool: Callable[[], Any]) -> DriverEvent:
        """Check out a process and run until the script waits or ends."""
        return self._run_step(lambda: self._start(get_pool))

    def _start(self, get_pool: Callable[[], Any]) -> DriverEvent:
        limits = self._script.limits
        session = get_pool().checkout(
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
        with self._process_lock:
            self._pid = session.worker_pid
            kill_fault = self._kill_fault
        if kill_fault is not None:
            return self._finish(kill_fault)
        if self._pid is not None:
            lower_priority(self._pid)
            apply_limits(self._pid, limits)
        code = self._script.code.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        return self._feed_script(code)

    def resume_with_replies(self, replies: Mapping[int, MontyReply]) -> DriverEvent:
        """Pass the replies to calls, their values as JSON text, and resume the script."""
        for reply in replies.values():
            if "message" in reply:
                self._call_errors.add(reply["message"])
        return self._run_step(
            lambda: self._run_until_suspended(self._snapshot.resume(dict(replies)))
        )

    def resume_after_sleep(self) -> DriverEvent:
        return self._run_step(
            lambda: self._run_until_suspended(self._snapshot.resume({"return_value": None}))
        )

    def abandon(self, fault: Fault) -> None:
        self._finish(replace(fault, line=fault.line or self._waiting_line))

    # --- steps

    def _run_step(self, step: Callable[[], DriverEvent]) -> DriverEvent:
        import pydantic_monty as monty

        try:
            return step()
        except monty.MontyError as error:
            fault = self._kill_fault or to_fault(
                error, frozenset(self._call_errors), self._waiting_line
            )
            if self._fatal_message is not None:
                fault = Fault("call", shorten_message(self._fatal_message), fault.line)
            return self._finish(fault)
        except OSError as error:
            return self._finish(Fault("crash", f"The sandbox for Python does not start: {error}"))
        except _ScriptStopped as stopped:
            return self._finish(stopped.fault)

    def _feed_script(self, code: str) -> DriverEvent:
        rewritten = rewrite_script(code, self._script.namespaces)
        self._is_unmarked = rewritten is None
        self._rewritten = rewritten or RewrittenScript(code)
        prelude = python_prelude.build_prelude(self._script.namespaces, self._rewritten.modules)
        self._feed(prelude)
        return self._run_until_suspended(self._feed(self._rewritten.code))

    def _feed(self, code: str, **inputs: Any) -> Any:
        return self._session.feed_start(code, inputs=inputs, print_callback=self._output)

    def _run_until_suspended(self, snapshot: Any) -> DriverEvent:
        """Handle what can be handled at once, until the script waits or ends."""
        import pydantic_monty as monty

        while True:
            # A waiting script gets the failure first: only then is its line known.
            if self._fatal_message is not None and not isinstance(snapshot, monty.FutureSnapshot):
                raise _ScriptStopped(Fault("call", shorten_message(self._fatal_message)))
            if isinstance(snapshot, monty.MontyComplete):
                self._determine_result(snapshot)
                return self._finish(None)
            if isinstance(snapshot, monty.NameLookupSnapshot):
                snapshot = snapshot.resume()
            elif isinstance(snapshot, monty.FutureSnapshot):
                self._snapshot = snapshot
                self._waiting_line = self._find_line(snapshot.position)
                return CallsAwaited(tuple(snapshot.pending_call_ids))
            elif snapshot.is_os_function and snapshot.function_name == "time.sleep":
                self._snapshot = snapshot
                return SleepRequested(_parse_seconds(snapshot.args))
            elif snapshot.is_os_function and snapshot.function_name == "asyncio.sleep":
                self._start_sleep(snapshot.call_id, _parse_seconds(snapshot.args))
                snapshot = snapshot.resume({"future": ...})
            elif snapshot.is_os_function:
                snapshot = snapshot.resume_not_handled()
            else:
                snapshot = snapshot.resume(self._handle_host_call(snapshot))

    def _handle_host_call(self, snapshot: Any) -> MontyReply:
        name = snapshot.function_name
        if name != python_prelude.HOST_FUNCTION or snapshot.object_id is not None:
            return {"exc_type": "NameError", "message": f"name '{name}' is not defined"}
        match snapshot.args:
            case ("call", str(namespace), str(function), str(args), str(kwargs)):
                return self._begin_call(snapshot.call_id, namespace, function, args, kwargs)
            case ("last", str(text)):
                self._last_expression_json = text
            case ("result", str(text)):
                self._result_json = text
            case ("store", str(key), str(text)):
                return self._store(key, text)
            case ("load", str(key)):
                return {"return_value": self._load(key)}
            case ("store" | "load", *_):
                return {"exc_type": "TypeError", "message": "the key must be a string"}
            case _:
                return {"exc_type": "TypeError", "message": "no such question to the host"}
        return {"return_value": None}

    def _begin_call(
        self, number: int, namespace: str, function: str, args: str, kwargs: str
    ) -> MontyReply:
        if function not in self._script.namespaces.get(namespace, ()):
            return {
                "exc_type": "AttributeError",
                "message": f"'{namespace}' object has no attribute '{function}'",
            }
        size = len(args) + len(kwargs)
        pending = sum(list(self.pending_argument_chars.values()))
        if size + pending > self._script.limits.memory_bytes:
            raise _ScriptStopped(
                Fault("memory", "The arguments of the calls under way are too large together.")
            )
        if any(has_more_values(text.encode(), _MAX_ARGUMENT_VALUES) for text in (args, kwargs)):
            message = f"the arguments of a call may have {_MAX_ARGUMENT_VALUES:,} values"
            return {"exc_type": "ValueError", "message": message}
        try:
            positional = parse_json_text(args)
            named = parse_json_text(kwargs)
        except ValueError as error:
            return {"exc_type": "ValueError", "message": str(error)}
        if not isinstance(positional, list) or not isinstance(named, dict):
            return {"exc_type": "TypeError", "message": "no such question to the host"}
        self.pending_argument_chars[number] = size
        arguments = (cast("list[Any]", positional), cast("dict[str, Any]", named))
        self._start_call(number, namespace, function, *arguments)
        return {"future": ...}

    def _store(self, key: str, text: str) -> MontyReply:
        self._stored[key] = text
        chars = sum(map(len, self._stored.values())) + sum(map(len, self._stored))
        if len(self._stored) > MAX_STORED_VALUES or chars > self._script.limits.answer_bytes:
            del self._stored[key]
            return {"exc_type": "ValueError", "message": "store() has no room for more"}
        return {"return_value": None}

    def _load(self, key: str) -> str | None:
        if key in self._stored:
            return self._stored[key]
        if key in self._script.state:
            return to_json_text(self._script.state[key])
        return None

    def _determine_result(self, complete: Any) -> None:
        if self._result_json is not None:
            return
        if self._is_unmarked:
            output = _read_output(complete)
            if output is not None:
                self._feed_for_result(python_prelude.RESULT_FROM_OUTPUT, _portico_output=output)
        if self._last_expression_json in (None, "null") and python_prelude.assigns_result(
            self._script.code
        ):
            self._feed_for_result(python_prelude.RESULT_FROM_VARIABLE)

    def _feed_for_result(self, code: str, **inputs: Any) -> None:
        import pydantic_monty as monty

        snapshot = self._feed(code, **inputs)
        while isinstance(snapshot, monty.FunctionSnapshot):
            snapshot = snapshot.resume(cast("Any", self._handle_host_call(snapshot)))

    def _find_line(self, position: Any) -> int | None:
        if position.filename == SCRIPT_FILE:
            return self._rewritten.code.encode()[: position.start].count(b"\n") + 1
        return None

    def _kill_for_flood(self) -> None:
        self.kill(
            Fault(
                "output",
                f"The script printed {FLOOD_CHARS:,} characters more than are kept.",
            )
        )

    # --- end

    def _finish(self, fault: Fault | None) -> DriverEvent:
        if fault is not None:
            fault = replace(fault, line=self._rewritten.to_script_line(fault.line))
        self._release(discard=fault is not None and fault.kind in DISCARDING_KINDS)
        value = None
        text = self._result_json
        if text is None:
            text = self._last_expression_json
        if fault is None and text is not None:
            value, fault = self._parse_result(text)
        stored: dict[str, Any] = {}
        for key, stored_text in self._stored.items():
            # Invalid only if the script called the host function itself.
            with contextlib.suppress(ValueError):
                stored[key] = parse_json_text(stored_text)
        self.outcome = ScriptOutcome(
            value, self._output.get_text(), self._output.dropped_chars, stored, fault=fault
        )
        return ScriptFinished()

    def _parse_result(self, text: str) -> tuple[Any, Fault | None]:
        max_bytes = self._script.limits.answer_bytes
        if len(text) > max_bytes or len(text.encode()) > max_bytes:
            return None, Fault("output", f"The answer is larger than {max_bytes:,} bytes.")
        try:
            return parse_json_text(text), None
        except ValueError as error:
            return None, Fault("value", str(error))

    def _release(self, *, discard: bool) -> None:
        session = self._session
        self._session = None
        self._snapshot = None
        with self._process_lock:
            pid = self._pid
            self._pid = None
        if session is None:
            return
        if (discard or self._kill_fault is not None) and pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        session.__exit__(None, None, None)


class _ScriptStopped(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _read_output(complete: Any) -> Any:
    """Return the last expression as a Python value; raises _ScriptStopped if that is impossible,
    such as for a number of 5,000 digits."""
    try:
        return complete.output
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise _ScriptStopped(
            Fault("value", shorten_message(f"{type(error).__name__}: {error}"))
        ) from error


def _parse_seconds(args: tuple[Any, ...]) -> float:
    if args and isinstance(args[0], int | float) and math.isfinite(args[0]):
        return max(0.0, float(args[0]))
    return 0.0
