"""The worker process: reads one script after the other from its pipe, runs each in a fresh engine,
inside a jail.

Starts before it is needed, so it imports little: this package's plain modules, orjson, and the one
engine it serves.
"""

import gc
import importlib
import os
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from portico.scripts.sandbox.script import WORKER_NICENESS
from portico.scripts.sandbox.worker import jail
from portico.scripts.sandbox.worker.protocol import LENGTH_PREFIX, encode_frame

RUNTIMES = {
    "lua": ("portico.scripts.sandbox.lua.runtime", "LuaRuntime"),
    "javascript": ("portico.scripts.sandbox.javascript.runtime", "JavaScriptRuntime"),
}

UNBATCHED_PRINTS = 64
"""So many prints of a script leave at once, even if it is killed right after; later ones leave in
batches."""
PRINT_BATCH_BYTES = 8192


class LanguageRuntime(Protocol):
    """An engine in the worker."""

    def prepare(self) -> None:
        """Read and import whatever is needed: no file can be opened afterwards."""
        ...

    def run(self, job: Mapping[str, Any], channel: "WorkerChannel") -> dict[str, Any]:
        """Run `{"run": code, "language", "namespaces", "state", "limits"}` in a fresh engine.

        Gives `{"value", "stored", "fault": {"kind", "message", "line"} | None}`, JSON values only.
        """
        ...


class HostDisconnected(BaseException):
    """The pipe is closed: there is nobody left to work for."""


class ScriptMessageTooLong(ValueError):
    """More than a script may pass at once; its text says so to the script."""


class WorkerChannel:
    """The worker's end of the two pipes; every method blocks until it is done."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._reset({})

    def _reset(self, limits: Mapping[str, Any]) -> None:
        self._next_call_id = 1
        self._pending: set[int] = set()
        self._replies: dict[int, tuple[bool, Any]] = {}
        self._output_bytes_left = int(limits.get("output_bytes", 0))
        self._max_message_bytes = int(limits.get("answer_bytes", 0))
        self._print_count = 0
        self._print_buffer: deque[str] = deque()
        self._buffered_bytes = 0
        self.dropped_chars = 0
        self._reported_dropped_chars = 0
        self.fatal_error: str | None = None
        """Why the script is over, whatever it catches; every call from now on fails with it."""

    def begin_call(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        """Begin a call; its id. Raises TypeError for arguments that JSON cannot say, TooLong for
        too many."""
        id = self._next_call_id
        self._next_call_id = self._next_call_id + 1
        body = self._encode_bounded(
            {"call": id, "namespace": namespace, "name": name, "args": args, "kwargs": kwargs}
        )
        self.flush()
        self._pending.add(id)
        if self.fatal_error is not None:
            self._record_reply(id, False, self.fatal_error)
        else:
            self._write(body)
        return id

    def wait_for_reply(self, id: int | None = None) -> tuple[int, bool, Any]:
        """The reply to that call, or the first of any: id, whether it went well, its value or the
        error's text.

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
            self._receive_reply()

    @property
    def pending_count(self) -> int:
        """Calls without a reply yet, and replies that nobody waited for yet."""
        return len(self._pending) + len(self._replies)

    def print(self, text: str) -> None:
        """Send what the script printed, up to its limit; the characters beyond are only counted."""
        if self._output_bytes_left <= 0:
            self._count_dropped(len(text))
            return
        if text.isascii():
            size = len(text)
        else:
            size = len(text.encode("utf-8", "replace"))
        if size > self._output_bytes_left:
            kept = text.encode("utf-8", "replace")[: self._output_bytes_left].decode(
                "utf-8", "ignore"
            )
            self._count_dropped(len(text) - len(kept))
            text = kept
            size = self._output_bytes_left
        self._output_bytes_left -= size
        self._print_count += 1
        self._buffered_bytes += size
        self._print_buffer.append(text)
        if (
            self._print_count <= UNBATCHED_PRINTS
            or self._buffered_bytes >= PRINT_BATCH_BYTES
            or not self._output_bytes_left
        ):
            self.flush()

    def _count_dropped(self, count: int) -> None:
        self.dropped_chars += count
        if (
            self.dropped_chars > 2 * self._reported_dropped_chars
        ):  # a script that is killed later has dropped about so much
            self._reported_dropped_chars = self.dropped_chars
            self._write(encode_frame({"dropped": self.dropped_chars}))

    def store(self, key: str, value: Any) -> None:
        """Keep a value for later scripts, at once. Raises TypeError for what JSON cannot say,
        TooLong for too much."""
        self._write(self._encode_bounded({"store": key, "value": value}))

    def _encode_bounded(self, message: dict[str, Any]) -> bytes:
        body = encode_frame(message)
        if len(body) > self._max_message_bytes:
            raise ScriptMessageTooLong(
                f"{len(body):,} bytes are too many: {self._max_message_bytes:,} may be passed"
            )
        return body

    def flush(self) -> None:
        """Send what waits to be printed."""
        if self._print_buffer:
            text = "".join(self._print_buffer).encode("utf-8", "replace").decode()
            self._print_buffer.clear()
            self._buffered_bytes = 0
            self._write(encode_frame({"print": text}))

    def _record_reply(self, id: int, ok: bool, value: Any) -> None:
        self._pending.discard(id)
        self._replies[id] = (ok, value)

    def _receive_reply(self) -> None:
        message = self.read_message()
        id = message["reply"]
        if message.get("fatal"):
            self.fatal_error = message["error"]
            for waiting in list(self._pending):
                self._record_reply(waiting, False, self.fatal_error)
        elif "error" in message:
            self._record_reply(id, False, message["error"])
        else:
            self._record_reply(id, True, message["value"])

    def read_message(self) -> dict[str, Any]:
        """The next message of the host, which is trusted."""
        (size,) = LENGTH_PREFIX.unpack(self._read_exactly(LENGTH_PREFIX.size))
        return orjson.loads(self._read_exactly(size))

    def send_message(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._write(encode_frame(message))

    def _read_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        at = 0
        while at < size:
            if hasattr(os, "readv"):
                part = os.readv(self._read_fd, [view[at:]])
            else:
                part = self._read_into(view[at:])
            if not part:
                raise HostDisconnected
            at += part
        return data

    def _read_into(self, into: memoryview) -> int:
        part = os.read(self._read_fd, min(len(into), 1 << 20))
        into[: len(part)] = part
        return len(part)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._write_fd, view) :]
            except BrokenPipeError:
                raise HostDisconnected from None


def _run_script(
    runtime: LanguageRuntime, job: dict[str, Any], channel: WorkerChannel
) -> dict[str, Any]:
    """One script, its outcome made fit for the pipe."""
    jail.limit_own_cpu_time(float(job["limits"]["cpu_s"]))
    channel._reset(job["limits"])  # pyright: ignore[reportPrivateUsage] - the script's channel, not the next one's
    try:
        outcome = runtime.run(job, channel)
    except MemoryError:
        outcome = {
            "fault": {
                "kind": "memory",
                "message": "the script used more memory than it may",
                "line": None,
            }
        }
    except RecursionError:
        outcome = {
            "fault": {
                "kind": "recursion",
                "message": "the script's values nest too deep",
                "line": None,
            }
        }
    channel.flush()
    return encode_outcome(outcome, int(job["limits"]["answer_bytes"])) | {
        "dropped": channel.dropped_chars
    }


def encode_outcome(outcome: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The outcome with its values encoded, or the fault that they are no JSON or too large."""
    fault = outcome.get("fault")
    encoded: dict[str, Any] = {"value": None, "stored": {}}
    for key in ("stored", "value"):
        try:
            body = orjson.dumps(outcome.get(key, encoded[key]))
        except (TypeError, ValueError, RecursionError) as error:
            fault = fault or _make_fault("value", f"the script's answer is no JSON value: {error}")
            continue
        if len(body) > max_bytes:
            fault = fault or _make_fault(
                "output",
                f"the script's answer has {len(body):,} bytes, more than the {max_bytes:,} allowed",
            )
            continue
        encoded[key] = orjson.Fragment(body)
    return {**encoded, "fault": fault}


def _make_fault(kind: str, message: str) -> dict[str, Any]:
    return {"kind": kind, "message": message, "line": None}


def _open_channel() -> WorkerChannel:
    """Take stdin and stdout away from whatever an engine might print."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(0, os.O_BINARY)
        msvcrt.setmode(1, os.O_BINARY)
    source = os.dup(0)
    sink = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
    return WorkerChannel(source, sink)


def serve(runtime: LanguageRuntime, channel: WorkerChannel) -> None:
    """Prepare, close the jail, then one script after the other until the host is gone."""
    try:
        runtime.prepare()
        size = jail.get_address_space()
        kept = jail.confine_process()
    except Exception as error:
        channel.send_message({"failed": f"{type(error).__name__}: {error}"})
        return
    # Values are trees: nothing to collect while a script runs, and a walk over them costs more than
    # their making.
    gc.freeze()
    gc.disable()
    channel.send_message({"ready": True, "kept": list(kept), "size": size})
    while True:
        message = channel.read_message()
        if "run" in message:  # else a reply that its script did not wait for
            channel.send_message({"done": _run_script(runtime, message, channel)})
            del message
            gc.collect()


def main(name: str, parent_pid: int = 0) -> None:
    """The process: `name` is a key of RUNTIMES, or `module:class` for a test's own."""
    jail.exit_with_parent(parent_pid)
    if hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)
    channel = _open_channel()
    module, _, kind = name.partition(":")
    if not kind:
        module, kind = RUNTIMES[name]
    try:
        try:
            runtime: LanguageRuntime = getattr(importlib.import_module(module), kind)()
        except Exception as error:
            channel.send_message({"failed": f"{type(error).__name__}: {error}"})
            return
        serve(runtime, channel)
    except HostDisconnected:
        pass
    os._exit(0)


if __name__ == "__main__":
    # Under its own name: a runtime imports this module, and must find the same classes.
    importlib.import_module("portico.scripts.sandbox.worker.main").main(sys.argv[1])
