"""The worker process: reads one script after the other from its pipe, runs each in a fresh engine, inside a jail.

Starts before it is needed, so it imports little: this package's plain modules, orjson, and the one engine it serves.
"""

import gc
import importlib
import os
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from portico.execution.sandbox.script import NICE
from portico.execution.sandbox.worker import jail
from portico.execution.sandbox.worker.wire import LENGTH, frame

RUNTIMES = {
    "lua": ("portico.execution.sandbox.lua.runtime", "LuaRuntime"),
    "javascript": ("portico.execution.sandbox.javascript.runtime", "JavaScriptRuntime"),
}

PROMPT_PRINTS = 64
"""So many prints of a script leave at once, even if it is killed right after; later ones leave in batches."""
PRINT_BATCH = 8192


class Runtime(Protocol):
    """An engine in the worker."""

    def prepare(self) -> None:
        """Read and import whatever is needed: no file can be opened afterwards."""
        ...

    def run(self, job: Mapping[str, Any], channel: "Channel") -> dict[str, Any]:
        """Run `{"run": code, "language", "namespaces", "state", "limits"}` in a fresh engine.

        Gives `{"value", "stored", "fault": {"kind", "message", "line"} | None}`, JSON values only.
        """
        ...


class HostGone(BaseException):
    """The pipe is closed: there is nobody left to work for."""


class TooLong(ValueError):
    """More than a script may pass at once; its text says so to the script."""


class Channel:
    """The worker's end of the two pipes; every method blocks until it is done."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._begin({})

    def _begin(self, limits: Mapping[str, Any]) -> None:
        self._next = 1
        self._pending: set[int] = set()
        self._replies: dict[int, tuple[bool, Any]] = {}
        self._room = int(limits.get("output_bytes", 0))
        self._most = int(limits.get("answer_bytes", 0))
        self._prints = 0
        self._printing: deque[str] = deque()
        self._batch = 0
        self.dropped = 0
        self._told = 0
        self.fatal: str | None = None
        """Why the script is over, whatever it catches; every call from now on fails with it."""

    def call(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        """Begin a call; its id. Raises TypeError for arguments that JSON cannot say, TooLong for too many."""
        id, self._next = self._next, self._next + 1
        body = self._short({"call": id, "namespace": namespace, "name": name, "args": args, "kwargs": kwargs})
        self.flush()
        self._pending.add(id)
        if self.fatal is not None:
            self._settle(id, False, self.fatal)
        else:
            self._write(body)
        return id

    def wait(self, id: int | None = None) -> tuple[int, bool, Any]:
        """The reply to that call, or the first of any: id, whether it went well, its value or the error's text.

        Raises LookupError where no reply is due: the call is unknown or was already waited for.
        """
        self.flush()
        while True:
            if id is None and self._replies:
                id = next(iter(self._replies))
            if id is not None and id in self._replies:
                return (id, *self._replies.pop(id))
            if not self._pending or (id is not None and id not in self._pending):
                raise LookupError("no reply is due")
            self._hear()

    @property
    def pending(self) -> int:
        """Calls without a reply yet, and replies that nobody waited for yet."""
        return len(self._pending) + len(self._replies)

    def print(self, text: str) -> None:
        """Send what the script printed, up to its limit; the characters beyond are only counted."""
        if self._room <= 0:
            self._drop(len(text))
            return
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if size > self._room:
            kept = text.encode("utf-8", "replace")[: self._room].decode("utf-8", "ignore")
            self._drop(len(text) - len(kept))
            text, size = kept, self._room
        self._room -= size
        self._prints += 1
        self._batch += size
        self._printing.append(text)
        if self._prints <= PROMPT_PRINTS or self._batch >= PRINT_BATCH or not self._room:
            self.flush()

    def _drop(self, count: int) -> None:
        self.dropped += count
        if self.dropped > 2 * self._told:  # a script that is killed later has dropped about so much
            self._told = self.dropped
            self._write(frame({"dropped": self.dropped}))

    def store(self, key: str, value: Any) -> None:
        """Keep a value for later scripts, at once. Raises TypeError for what JSON cannot say, TooLong for too much."""
        self._write(self._short({"store": key, "value": value}))

    def _short(self, message: dict[str, Any]) -> bytes:
        body = frame(message)
        if len(body) > self._most:
            raise TooLong(f"{len(body):,} bytes are too many: {self._most:,} may be passed")
        return body

    def flush(self) -> None:
        """Send what waits to be printed."""
        if self._printing:
            text = "".join(self._printing).encode("utf-8", "replace").decode()
            self._printing.clear()
            self._batch = 0
            self._write(frame({"print": text}))

    def _settle(self, id: int, ok: bool, value: Any) -> None:
        self._pending.discard(id)
        self._replies[id] = (ok, value)

    def _hear(self) -> None:
        message = self.read()
        id = message["reply"]
        if message.get("fatal"):
            self.fatal = message["error"]
            for waiting in list(self._pending):
                self._settle(waiting, False, self.fatal)
        elif "error" in message:
            self._settle(id, False, message["error"])
        else:
            self._settle(id, True, message["value"])

    def read(self) -> dict[str, Any]:
        """The next message of the host, which is trusted."""
        (size,) = LENGTH.unpack(self._take(LENGTH.size))
        return orjson.loads(self._take(size))

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._write(frame(message))

    def _take(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            part = os.readv(self._source, [view[at:]]) if hasattr(os, "readv") else self._plain(view[at:])
            if not part:
                raise HostGone
            at += part
        return data

    def _plain(self, into: memoryview) -> int:
        part = os.read(self._source, min(len(into), 1 << 20))
        into[: len(part)] = part
        return len(part)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._sink, view) :]
            except BrokenPipeError:
                raise HostGone from None


def _perform(runtime: Runtime, job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """One script, its outcome made fit for the pipe."""
    jail.hold_self(float(job["limits"]["cpu_s"]))
    channel._begin(job["limits"])  # pyright: ignore[reportPrivateUsage] - the script's channel, not the next one's
    try:
        outcome = runtime.run(job, channel)
    except MemoryError:
        outcome = {"fault": {"kind": "memory", "message": "the script used more memory than it may", "line": None}}
    except RecursionError:
        outcome = {"fault": {"kind": "recursion", "message": "the script's values nest too deep", "line": None}}
    channel.flush()
    return fit(outcome, int(job["limits"]["answer_bytes"])) | {"dropped": channel.dropped}


def fit(outcome: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The outcome with its values encoded, or the fault that they are no JSON or too large."""
    fault = outcome.get("fault")
    encoded: dict[str, Any] = {"value": None, "stored": {}}
    for key in ("stored", "value"):
        try:
            body = orjson.dumps(outcome.get(key, encoded[key]))
        except (TypeError, ValueError, RecursionError) as error:
            fault = fault or _fault("value", f"the script's answer is no JSON value: {error}")
            continue
        if len(body) > most:
            fault = fault or _fault(
                "output", f"the script's answer has {len(body):,} bytes, more than the {most:,} allowed"
            )
            continue
        encoded[key] = orjson.Fragment(body)
    return {**encoded, "fault": fault}


def _fault(kind: str, message: str) -> dict[str, Any]:
    return {"kind": kind, "message": message, "line": None}


def _pipes() -> Channel:
    """Take stdin and stdout away from whatever an engine might print."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(0, os.O_BINARY)
        msvcrt.setmode(1, os.O_BINARY)
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    return Channel(source, sink)


def serve(runtime: Runtime, channel: Channel) -> None:
    """Prepare, close the jail, then one script after the other until the host is gone."""
    try:
        runtime.prepare()
        size = jail.address_space()
        kept = jail.close()
    except Exception as error:
        channel.send({"failed": f"{type(error).__name__}: {error}"})
        return
    # Values are trees: nothing to collect while a script runs, and a walk over them costs more than their making.
    gc.freeze()
    gc.disable()
    channel.send({"ready": True, "kept": list(kept), "size": size})
    while True:
        message = channel.read()
        if "run" in message:  # else a reply that its script did not wait for
            channel.send({"done": _perform(runtime, message, channel)})
            del message
            gc.collect()


def main(name: str, parent: int = 0) -> None:
    """The process: `name` is a key of RUNTIMES, or `module:class` for a test's own."""
    jail.die_with(parent)
    if hasattr(os, "nice"):
        os.nice(NICE)
    channel = _pipes()
    module, _, kind = name.partition(":")
    if not kind:
        module, kind = RUNTIMES[name]
    try:
        try:
            runtime: Runtime = getattr(importlib.import_module(module), kind)()
        except Exception as error:
            channel.send({"failed": f"{type(error).__name__}: {error}"})
            return
        serve(runtime, channel)
    except HostGone:
        pass
    os._exit(0)


if __name__ == "__main__":
    # Under its own name: a runtime imports this module, and must find the same classes.
    importlib.import_module("portico.execution.sandbox.worker.inside").main(sys.argv[1])
