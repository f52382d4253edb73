"""One script on one worker: answer its calls, collect what it says, end it when it takes too much.

Nothing the worker says is believed: each message's form is checked, each flood has its bound, and a worker that breaks
either is killed.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from itertools import count
from typing import Any, NoReturn, cast, get_args

import orjson

from portico.errors import PorticoError
from portico.execution.json_stream import decoded, lines, parts, weight, whole
from portico.execution.sandbox.calling import Calling
from portico.execution.sandbox.script import MAX_STORED, Ask, CallFailed, Fault, FaultKind, Outcome, Script
from portico.execution.sandbox.worker.process import BadFrame, WorkerLost, WorkerProcess
from portico.execution.sandbox.worker.wire import MAX_FRAME
from portico.upstream import jsontext

logger = logging.getLogger(__name__)

KINDS: tuple[str, ...] = get_args(FaultKind)
LARGE = 256 * 1024
"""Bytes from which a message is encoded or decoded in a thread, bit by bit."""
FATAL_GRACE_S = 0.1
"""For a script that a call has ended: to end by itself, with its line and what it stored."""
SPARE = 1024**2
MAX_MESSAGE = 4000
MAX_DEPTH = 1000
SHORTEST_LOOK_S = 0.01
MESSAGES_AT_ONCE = 32
"""Then others have their turn: what has already arrived is read without ever waiting."""


class Running:
    """A script under way. Use once."""

    def __init__(self, worker: WorkerProcess, script: Script, ask: Ask, deadline: float) -> None:
        self._worker, self._script, self._ask = worker, script, ask
        self._limits = script.limits
        self._loop = asyncio.get_running_loop()
        self._deadline = deadline
        self._calling = Calling()
        self._cpu_at_start = worker.cpu() or 0.0
        self._timers: list[asyncio.TimerHandle] = []
        self._verdict: Fault | None = None
        """Why it was killed."""
        self._fatal: Fault | None = None
        self._calls: set[int] = set()
        self._carried = 0
        self._printed: list[str] = []
        self._room = self._limits.output_bytes
        self._dropped = 0
        self._told_dropped = 0
        self._stored: dict[str, Any] = {}
        self._stored_bytes = 0
        self.clean = False
        """Whether the worker ended the script by itself and may be given another."""

    async def run(self) -> Outcome:
        """Run it to its end; the worker is killed where it did not end by itself."""
        done: dict[str, Any] | None = None
        async with self._calling:
            try:
                done = await self._converse()
            finally:
                for timer in self._timers:
                    timer.cancel()
                if done is None:
                    self._worker.kill()
            unawaited = await self._calling.close()
        fault = await self._fault(done)
        self.clean = done is not None and self._verdict is None and (fault is None or fault.kind not in _SPOILS)
        stored = {**self._stored, **(done["stored"] if done else {})}
        value = done["value"] if done and fault is None else None
        dropped = self._dropped + (done["dropped"] if done else self._told_dropped)
        return Outcome(value, "".join(self._printed), dropped, stored, unawaited, fault)

    async def _converse(self) -> dict[str, Any] | None:
        """Its last message, in good form; None where it was killed or lost."""
        try:
            self._worker.scripts += 1
            self._worker.hold(self._limits.memory_bytes, self._limits.cpu_s)
            self._worker.send(await _encoded(self._job()))
            self._look()
            for number in count(1):
                body = await self._worker.read(min(MAX_FRAME, 2 * self._limits.answer_bytes + SPARE))
                message = await _message(body)
                if "done" in message:
                    return _done(message["done"])
                # What it printed before its end may arrive after it.
                if (self._verdict is None and self._fatal is None) or message.keys() & {"print", "dropped"}:
                    self._take(message, len(body))
                if number % MESSAGES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except WorkerLost:
            return None
        except BadFrame as error:
            self._kill(Fault("crash", f"the script's process said what no script can say: {error}"))
            return None
        except ValueError as error:
            self._kill(Fault("memory", f"the script cannot be started: {error}"))
            return None

    def _job(self) -> dict[str, Any]:
        script, limits = self._script, self._limits
        return {
            "run": script.code,
            "language": script.language,
            "namespaces": {name: list(functions) for name, functions in script.namespaces.items()},
            "state": dict(script.state),
            "limits": {name: getattr(limits, name) for name in limits.__dataclass_fields__},
        }

    def _take(self, message: dict[str, Any], size: int) -> None:
        match message:
            case {"call": int(id), "namespace": str(namespace), "name": str(name), "args": list(), "kwargs": dict()}:
                self._call(id, namespace, name, message["args"], message["kwargs"], size)
            case {"print": str(text)}:
                self._print(text)
            case {"dropped": int(count)} if count >= 0:
                self._told_dropped = count
            case {"store": str(key), "value": value}:
                self._stored_bytes += size
                if self._stored_bytes > self._limits.answer_bytes:
                    self._kill(Fault("output", f"the script stored more than {self._limits.answer_bytes:,} bytes"))
                elif key not in self._stored and len(self._stored) >= MAX_STORED:
                    self._kill(Fault("output", f"the script stored more than {MAX_STORED:,} values"))
                else:
                    self._stored[key] = value
            case _:
                raise BadFrame("a message of no known form")

    def _call(self, id: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any], size: int) -> None:
        if id in self._calls:
            raise BadFrame("a call's number twice")
        self._calls.add(id)
        self._carried += size
        if len(self._calls) > 2 * self._limits.calls + 1:
            self._kill(Fault("call", f"the script made more than {self._limits.calls} calls"))
        elif self._carried > 2 * self._limits.answer_bytes + SPARE:
            self._kill(Fault("memory", f"the script's calls under way carry {self._carried:,} bytes"))
        else:
            call = self._answer(id, namespace, name, args, kwargs, size)
            self._calling.start(call)

    async def _answer(
        self, id: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any], size: int
    ) -> None:
        await self._worker.room()
        try:
            value = await self._ask(namespace, name, args, kwargs)
            self._reply(await _encoded(value, b'{"reply":%d,"value":%%b}' % id))
        except CallFailed as error:
            self._refuse(id, str(error), fatal=error.fatal)
        except PorticoError as error:
            self._refuse(id, str(error))
        except (TypeError, ValueError) as error:
            self._refuse(id, f"the answer cannot be given to a script: {error}")
        except Exception as error:  # whatever it is, a script that waits must be told
            logger.exception("a script's call of %s.%s failed in the gateway", namespace, name)
            self._refuse(id, f"{type(error).__name__}: {error}"[:MAX_MESSAGE])
        finally:
            self._carried -= size

    def _reply(self, body: bytes) -> None:
        unread = self._worker.unread + len(body)
        if unread > self._limits.memory_bytes:
            self._kill(Fault("memory", f"the answers that the script has not taken yet have {unread:,} bytes"))
        else:
            self._worker.send(body)

    def _refuse(self, id: int, text: str, *, fatal: bool = False) -> None:
        if fatal and self._fatal is None:
            self._fatal = Fault("call", text)
            self._later(FATAL_GRACE_S, lambda: self._kill(Fault("call", text)))
        self._worker.send(jsontext.dumps({"reply": id, "error": text, "fatal": fatal}))

    def _print(self, text: str) -> None:
        size = len(text.encode("utf-8", "replace"))
        if size > self._room:
            self._dropped += len(text)  # a worker cuts what it prints; this one is not to be trusted with more
            return
        self._room -= size
        self._printed.append(text)

    def _look(self) -> None:
        """Kill what has had its time; else look again when it could have."""
        used = (self._worker.cpu() or 0.0) - self._cpu_at_start
        left = self._deadline - self._loop.time()
        if left <= 0:
            self._kill(Fault("time", f"the script took longer than {self._limits.wall_s:g} s"))
        elif used >= self._limits.cpu_s:
            self._kill(Fault("time", f"the script computed for longer than {self._limits.cpu_s:g} s"))
        else:
            self._later(min(left, max(SHORTEST_LOOK_S, self._limits.cpu_s - used)), self._look)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self._timers = [timer for timer in self._timers if timer.when() > self._loop.time()]
        self._timers.append(self._loop.call_later(seconds, do))

    def _kill(self, verdict: Fault) -> None:
        self._verdict = self._verdict or verdict
        self._worker.kill()

    async def _fault(self, done: dict[str, Any] | None) -> Fault | None:
        if self._verdict is not None:
            return self._verdict
        told = done["fault"] if done else None
        if self._fatal is not None:
            return Fault("call", self._fatal.message, told.line if told else None)
        return told if done else _ended(await self._worker.gone(), self._limits.cpu_s)


_SPOILS = ("memory", "crash")
"""A worker whose script ended so is not used again."""


def _ended(returncode: int | None, cpu_s: float) -> Fault:
    """Why a process that nobody killed is gone."""
    if returncode == -getattr(signal, "SIGXCPU", 24):
        return Fault("time", f"the script computed for longer than {cpu_s:g} s")
    if returncode == -getattr(signal, "SIGSYS", 31):
        return Fault("crash", "the script's process tried what its jail forbids and was ended")
    if returncode == -9:
        return Fault("crash", "the script's process was killed from outside, perhaps for the machine's memory")
    return Fault("crash", "the script's process ended before the script did")


def _done(last: Any) -> dict[str, Any]:
    match last:
        case {"value": _, "stored": dict(stored), "dropped": int(dropped), "fault": fault} if dropped >= 0:
            pass
        case _:
            raise BadFrame("an end of no known form")
    match fault:
        case None:
            told = None
        case {"kind": str(kind), "message": str(message), "line": int() | None as line} if kind in KINDS:
            told = Fault(cast(FaultKind, kind), message[:MAX_MESSAGE], line)
        case _:
            raise BadFrame("a fault of no known form")
    return {"value": last["value"], "stored": stored, "dropped": dropped, "fault": told}


async def _encoded(value: Any, within: bytes = b"%b") -> bytes:
    """As JSON; what is large, in a thread and in parts, since encoding holds the interpreter's lock."""
    if weight(value, LARGE) < LARGE:
        return within % jsontext.dumps(value)
    return await asyncio.to_thread(_parts_encoded, value, within)


def _parts_encoded(value: Any, within: bytes) -> bytes:
    return within % "".join(lines(parts(value))).encode()


async def _message(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body) if len(body) < LARGE else await asyncio.to_thread(_whole, body)
    except ValueError as error:
        raise BadFrame(str(error)) from None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else _no_object()


def _no_object() -> NoReturn:
    raise BadFrame("a message that is no object")


def _whole(body: bytes) -> Any:
    depth = 0

    def shallow() -> Any:
        nonlocal depth
        for part in decoded(body.decode()):
            depth += {"open": 1, "close": -1}.get(part[0], 0)
            if depth > MAX_DEPTH:
                raise ValueError("it is nested too deeply")
            yield part

    return whole(shallow())
