"""One script on one worker: handles its calls, collects its output, enforces its limits.

The worker is not trusted: the form of each message is checked, each quantity is bounded, and a
worker that violates either is killed.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from itertools import count
from typing import Any, cast, get_args

import orjson

from portico.errors import PorticoError
from portico.json_text import json_codec
from portico.json_text.part_stream import (
    build_value,
    decode_parts,
    encode_lines,
    estimate_size,
    to_parts,
)
from portico.scripts.sandbox.script import (
    LATE_CALLS_S,
    MAX_STORED_VALUES,
    CallFailed,
    CallHandler,
    CallTaskGroup,
    Fault,
    FaultKind,
    Script,
    ScriptOutcome,
)
from portico.scripts.sandbox.worker.process import BadFrame, WorkerLost, WorkerProcess
from portico.scripts.sandbox.worker.protocol import MAX_FRAME_BYTES

logger = logging.getLogger(__name__)

FAULT_KINDS: tuple[str, ...] = get_args(FaultKind)
LARGE_BYTES = 256 * 1024
"""Size from which a message is encoded or decoded in a thread, in parts."""
FATAL_GRACE_S = 0.1
"""Time for a script to end by itself after a fatal call error, which keeps its line and stored
values."""
SPARE_BYTES = 1024**2
MAX_MESSAGE_CHARS = 4000
MAX_DEPTH = 1000
MIN_CHECK_INTERVAL_S = 0.01
MESSAGES_PER_YIELD = 32
"""Messages after which to yield to the event loop: buffered messages are read without waiting."""


class WorkerScriptRun:
    """A running script. Use once."""

    def __init__(
        self, worker: WorkerProcess, script: Script, handle_call: CallHandler, deadline: float
    ) -> None:
        self._worker = worker
        self._script = script
        self._handle_call = handle_call
        self._limits = script.limits
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._call_tasks = CallTaskGroup()
        self._sleep_tasks = CallTaskGroup()
        self._cpu_at_start = worker.get_cpu_seconds() or 0.0
        self._timers: list[asyncio.TimerHandle] = []
        self._kill_fault: Fault | None = None
        """Reason for which the worker was killed."""
        self._fatal_fault: Fault | None = None
        self._call_ids: set[int] = set()
        self._pending_call_bytes = 0
        self._printed: list[str] = []
        self._output_bytes_left = self._limits.output_bytes
        self._dropped_chars = 0
        self._reported_dropped_chars = 0
        self._stored: dict[str, Any] = {}
        self._stored_bytes = 0
        self._is_over = False
        """Whether the worker takes no more replies for this script."""
        self.is_worker_reusable = False
        """True if the worker ended the script by itself and may run another."""

    async def run(self) -> ScriptOutcome:
        """Run the script to its end; the worker is killed if it does not end by itself."""
        done: dict[str, Any] | None = None
        async with self._call_tasks, self._sleep_tasks:
            try:
                done = await self._exchange_messages()
            finally:
                self._script.clock.on_change = lambda: None
                for timer in self._timers:
                    timer.cancel()
                if done is None:
                    self._worker.kill()
            self._is_over = True
            late = 0
            faults = (done and done["fault"], self._kill_fault, self._fatal_fault)
            if done is not None and not any(faults):
                remaining_s = self._get_remaining_s()
                late = await self._call_tasks.finish(min(LATE_CALLS_S, remaining_s))
            unawaited = await self._call_tasks.close()
        fault = await self._determine_fault(done)
        self.is_worker_reusable = (
            done is not None
            and self._kill_fault is None
            and (fault is None or fault.kind not in _DISCARDING_KINDS)
        )
        stored = {**self._stored, **(done["stored"] if done else {})}
        value = done["value"] if done and fault is None else None
        dropped = self._dropped_chars + (done["dropped"] if done else self._reported_dropped_chars)
        printed = "".join(self._printed)
        return ScriptOutcome(value, printed, dropped, stored, unawaited, late, fault)

    async def _exchange_messages(self) -> dict[str, Any] | None:
        """Return the validated last message; None if the worker was killed or lost."""
        try:
            self._worker.script_count += 1
            self._worker.apply_limits(self._limits.memory_bytes, self._limits.cpu_s)
            self._worker.send_frame(await _encode(self._build_job()))
            self._check_limits()
            self._script.clock.on_change = self._check_limits
            for number in count(1):
                body = await self._worker.read_frame(
                    min(MAX_FRAME_BYTES, 2 * self._limits.answer_bytes + SPARE_BYTES)
                )
                message = await _parse_message(body)
                if "done" in message:
                    return _parse_done(message["done"])
                # Output printed before the end may arrive after it.
                if (self._kill_fault is None and self._fatal_fault is None) or message.keys() & {
                    "print",
                    "dropped",
                }:
                    self._handle_message(message, len(body))
                if number % MESSAGES_PER_YIELD == 0:
                    await asyncio.sleep(0)
        except WorkerLost:
            return None
        except BadFrame as error:
            self._kill(Fault("crash", f"the script's process said what no script can say: {error}"))
            return None
        except ValueError as error:
            self._kill(Fault("memory", f"the script cannot be started: {error}"))
            return None

    def _build_job(self) -> dict[str, Any]:
        script = self._script
        limits = self._limits
        return {
            "run": script.code,
            "language": script.language,
            "namespaces": {name: list(functions) for name, functions in script.namespaces.items()},
            "state": dict(script.state),
            "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
        }

    def _handle_message(self, message: dict[str, Any], size: int) -> None:
        match message:
            case {
                "call": int(id),
                "namespace": str(namespace),
                "name": str(name),
                "args": list(),
                "kwargs": dict(),
            }:
                self._start_call(id, namespace, name, message["args"], message["kwargs"], size)
            case {"sleep": int(id), "seconds": int() | float() as seconds}:
                if self._is_call_allowed(id):
                    self._sleep_tasks.start(self._sleep(id, seconds))
            case {"print": str(text)}:
                self._record_output(text)
            case {"dropped": int(count)} if count >= 0:
                self._reported_dropped_chars = count
            case {"store": str(key), "value": value}:
                self._stored_bytes += size
                if self._stored_bytes > self._limits.answer_bytes:
                    self._kill(
                        Fault(
                            "output",
                            f"the script stored more than {self._limits.answer_bytes:,} bytes",
                        )
                    )
                elif key not in self._stored and len(self._stored) >= MAX_STORED_VALUES:
                    self._kill(
                        Fault("output", f"the script stored more than {MAX_STORED_VALUES:,} values")
                    )
                else:
                    self._stored[key] = value
            case _:
                raise BadFrame("a message of no known form")

    def _start_call(
        self, id: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any], size: int
    ) -> None:
        if not self._is_call_allowed(id):
            return
        self._pending_call_bytes += size
        if self._pending_call_bytes > 2 * self._limits.answer_bytes + SPARE_BYTES:
            self._kill(
                Fault(
                    "memory",
                    f"the script's calls under way carry {self._pending_call_bytes:,} bytes",
                )
            )
        else:
            call = self._run_call(id, namespace, name, args, kwargs, size)
            self._call_tasks.start(call)

    def _is_call_allowed(self, id: int) -> bool:
        """Record a call or timer; kills the worker if there were too many."""
        if id in self._call_ids:
            raise BadFrame("a call's number twice")
        self._call_ids.add(id)
        if len(self._call_ids) <= 2 * self._limits.calls + 1:
            return True
        calls = f"{self._limits.calls} calls and timers"
        self._kill(Fault("call", f"the script made more than {calls}"))
        return False

    async def _sleep(self, id: int, seconds: float) -> None:
        # Not longer than the script may run; a loop that sleeps for 0 s yields.
        await asyncio.sleep(max(0.0, min(seconds, self._limits.wall_s)))
        self._send_reply(json_codec.dumps({"reply": id, "value": None}))

    async def _run_call(
        self, id: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any], size: int
    ) -> None:
        await self._worker.drain()
        try:
            value = await self._handle_call(namespace, name, args, kwargs)
            self._send_reply(await _encode(value, b'{"reply":%d,"value":%%b}' % id))
        except CallFailed as error:
            self._send_error(id, str(error), fatal=error.fatal)
        except PorticoError as error:
            self._send_error(id, str(error))
        except (TypeError, ValueError) as error:
            self._send_error(id, f"the answer cannot be given to a script: {error}")
        except Exception as error:  # the script waits for a reply, whatever the error is
            logger.exception("a script's call of %s.%s failed in the gateway", namespace, name)
            self._send_error(id, f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS])
        finally:
            self._pending_call_bytes -= size

    def _send_reply(self, body: bytes) -> None:
        if self._is_over:
            return
        unread = self._worker.unread_bytes + len(body)
        if unread > self._limits.memory_bytes:
            message = f"the answers that the script has not taken yet have {unread:,} bytes"
            self._kill(Fault("memory", message))
        else:
            self._worker.send_frame(body)

    def _send_error(self, id: int, text: str, *, fatal: bool = False) -> None:
        if self._is_over:
            return
        if fatal and self._fatal_fault is None:
            self._fatal_fault = Fault("call", text)
            self._schedule(FATAL_GRACE_S, lambda: self._kill(Fault("call", text)))
        self._worker.send_frame(json_codec.dumps({"reply": id, "error": text, "fatal": fatal}))

    def _record_output(self, text: str) -> None:
        size = len(text.encode("utf-8", "replace"))
        if size > self._output_bytes_left:
            # An honest worker truncates its output itself.
            self._dropped_chars += len(text)
            return
        self._output_bytes_left -= size
        self._printed.append(text)

    def _check_limits(self) -> None:
        """Kill the worker if a time limit is exceeded, else schedule the next check."""
        used_cpu_s = (self._worker.get_cpu_seconds() or 0.0) - self._cpu_at_start
        remaining_s = self._get_remaining_s()
        if remaining_s <= 0:
            self._kill(Fault("time", f"the script took longer than {self._limits.wall_s:g} s"))
        elif used_cpu_s >= self._limits.cpu_s:
            self._kill(
                Fault("time", f"the script computed for longer than {self._limits.cpu_s:g} s")
            )
        else:
            interval_s = max(MIN_CHECK_INTERVAL_S, self._limits.cpu_s - used_cpu_s)
            if not self._script.clock.is_paused:
                interval_s = min(remaining_s, interval_s)
            self._schedule(interval_s, self._check_limits)

    def _get_remaining_s(self) -> float:
        return self._deadline + self._script.clock.paused_s - self._loop.time()

    def _schedule(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers = [timer for timer in self._timers if timer.when() > self._loop.time()]
        self._timers.append(self._loop.call_later(seconds, callback))

    def _kill(self, fault: Fault) -> None:
        self._kill_fault = self._kill_fault or fault
        self._worker.kill()

    async def _determine_fault(self, done: dict[str, Any] | None) -> Fault | None:
        if self._kill_fault is not None:
            return self._kill_fault
        reported = done["fault"] if done else None
        if self._fatal_fault is not None:
            return Fault("call", self._fatal_fault.message, reported.line if reported else None)
        if done:
            return reported
        return _explain_exit(await self._worker.wait_for_exit(), self._limits.cpu_s)


_DISCARDING_KINDS = ("memory", "crash")
"""Faults after which a worker is not used again."""


def _explain_exit(returncode: int | None, cpu_s: float) -> Fault:
    """Return the fault for a process that ended without being killed by the host."""
    if returncode == -getattr(signal, "SIGXCPU", 24):
        return Fault("time", f"the script computed for longer than {cpu_s:g} s")
    if returncode == -getattr(signal, "SIGSYS", 31):
        return Fault("crash", "the script's process tried what its jail forbids and was ended")
    if returncode == -9:
        return Fault(
            "crash",
            "the script's process was killed from outside, perhaps for the machine's memory",
        )
    return Fault("crash", "the script's process ended before the script did")


def _parse_done(done: Any) -> dict[str, Any]:
    match done:
        case {"value": _, "stored": dict(stored), "dropped": int(dropped), "fault": fault} if (
            dropped >= 0
        ):
            pass
        case _:
            raise BadFrame("an end of no known form")
    match fault:
        case None:
            parsed_fault = None
        case {"kind": str(kind), "message": str(message), "line": int() | None as line} if (
            kind in FAULT_KINDS
        ):
            parsed_fault = Fault(cast(FaultKind, kind), message[:MAX_MESSAGE_CHARS], line)
        case _:
            raise BadFrame("a fault of no known form")
    return {"value": done["value"], "stored": stored, "dropped": dropped, "fault": parsed_fault}


async def _encode(value: Any, template: bytes = b"%b") -> bytes:
    """Encode as JSON; large values in a thread and in parts, because encoding holds the
    interpreter's lock."""
    if estimate_size(value, LARGE_BYTES) < LARGE_BYTES:
        return template % json_codec.dumps(value)
    return await asyncio.to_thread(_encode_in_parts, value, template)


def _encode_in_parts(value: Any, template: bytes) -> bytes:
    return template % "".join(encode_lines(to_parts(value))).encode()


async def _parse_message(body: bytes) -> dict[str, Any]:
    try:
        if len(body) < LARGE_BYTES:
            message = orjson.loads(body)
        else:
            message = await asyncio.to_thread(_decode_in_parts, body)
    except ValueError as error:
        raise BadFrame(str(error)) from None
    if not isinstance(message, dict):
        raise BadFrame("a message that is no object")
    return cast("dict[str, Any]", message)


def _decode_in_parts(body: bytes) -> Any:
    depth = 0

    def limit_depth() -> Any:
        nonlocal depth
        for part in decode_parts(body.decode()):
            depth += {"open": 1, "close": -1}.get(part[0], 0)
            if depth > MAX_DEPTH:
                raise ValueError("it is nested too deeply")
            yield part

    return build_value(limit_depth())
