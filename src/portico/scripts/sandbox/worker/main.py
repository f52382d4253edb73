"""The worker process: runs scripts from its pipe one after another, each in a fresh engine, jailed.

Started in advance, so it imports little: plain modules of this package, orjson, and one engine.
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
    "lua": ("portico.scripts.sandbox.worker.lua", "LuaRuntime"),
    "javascript": ("portico.scripts.sandbox.worker.javascript", "JavaScriptRuntime"),
}

UNBATCHED_PRINTS = 64
"""Prints that are sent at once, so that they survive a kill; later ones are sent in batches."""
PRINT_BATCH_BYTES = 8192


class LanguageRuntime(Protocol):
    def prepare(self) -> None:
        """Read and import everything: no file can be opened afterwards."""
        ...

    def run(self, job: Mapping[str, Any], channel: "WorkerChannel") -> dict[str, Any]:
        """Run `{"run": code, "language", "namespaces", "state", "limits"}` in a fresh engine.

        Returns `{"value", "stored", "fault": {"kind", "message", "line"} | None}`, JSON values.
        """
        ...


class HostDisconnected(BaseException):
    """The pipe to the host is closed."""


class ScriptMessageTooLong(ValueError):
    """A message exceeds the limit of a script; its text is for the script."""


class WorkerChannel:
    """The worker's end of the pipes; every method blocks."""

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
        """Message of a fatal call error; every later call fails with it."""

    def begin_call(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> int:
        """Begin a call and return its id; raises TypeError for arguments that are not JSON, and
        ScriptMessageTooLong."""
        message = {"namespace": namespace, "name": name, "args": args, "kwargs": kwargs}
        return self._begin("call", message)

    def begin_sleep(self, seconds: float) -> int:
        """Begin to wait and return an id; the reply comes when the time is over."""
        return self._begin("sleep", {"seconds": seconds})

    def _begin(self, what: str, message: dict[str, Any]) -> int:
        id = self._next_call_id
        self._next_call_id = self._next_call_id + 1
        body = self._encode_bounded({what: id, **message})
        self.flush()
        self._pending.add(id)
        if self.fatal_error is not None:
            self._record_reply(id, False, self.fatal_error)
        else:
            self._write(body)
        return id

    def wait_for_reply(self, id: int | None = None) -> tuple[int, bool, Any]:
        """Wait for the reply to a call, or for any; returns id, success, and value or error text.

        Raises LookupError if no reply is due: the call is unknown or was already awaited.
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
        """Calls without a reply, and replies not yet taken."""
        return len(self._pending) + len(self._replies)

    def print(self, text: str) -> None:
        """Send printed text up to the limit; characters beyond it are only counted."""
        if self._output_bytes_left <= 0:
            self._count_dropped(len(text))
            return
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if size > self._output_bytes_left:
            shown = text.encode("utf-8", "replace")[: self._output_bytes_left].decode(
                "utf-8", "ignore"
            )
            self._count_dropped(len(text) - len(shown))
            text = shown
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
        # Reported at each doubling, so that the count of a killed script is about right.
        if self.dropped_chars > 2 * self._reported_dropped_chars:
            self._reported_dropped_chars = self.dropped_chars
            self._write(encode_frame({"dropped": self.dropped_chars}))

    def store(self, key: str, value: Any) -> None:
        """Store a value for later scripts; raises TypeError if it is not JSON, and
        ScriptMessageTooLong."""
        self._write(self._encode_bounded({"store": key, "value": value}))

    def _encode_bounded(self, message: dict[str, Any]) -> bytes:
        body = encode_frame(message)
        if len(body) > self._max_message_bytes:
            raise ScriptMessageTooLong(
                f"{len(body):,} bytes are too many: {self._max_message_bytes:,} may be passed"
            )
        return body

    def flush(self) -> None:
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
            for pending_id in list(self._pending):
                self._record_reply(pending_id, False, self.fatal_error)
        elif "error" in message:
            self._record_reply(id, False, message["error"])
        else:
            self._record_reply(id, True, message["value"])

    def read_message(self) -> dict[str, Any]:
        """Read the next message of the host, which is trusted."""
        (size,) = LENGTH_PREFIX.unpack(self._read_exactly(LENGTH_PREFIX.size))
        return orjson.loads(self._read_exactly(size))

    def send_message(self, message: dict[str, Any]) -> None:
        self._write(encode_frame(message))

    def _read_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        position = 0
        while position < size:
            count = self._read_into(view[position:])
            if not count:
                raise HostDisconnected
            position += count
        return data

    def _read_into(self, into: memoryview) -> int:
        if hasattr(os, "readv"):
            return os.readv(self._read_fd, [into])
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
    jail.limit_own_cpu_time(float(job["limits"]["cpu_s"]))
    channel._reset(job["limits"])  # pyright: ignore[reportPrivateUsage]
    try:
        outcome = runtime.run(job, channel)
    except MemoryError:
        outcome = {"fault": _make_fault("memory", "the script used more memory than it may")}
    except RecursionError:
        outcome = {"fault": _make_fault("recursion", "the script's values nest too deep")}
    channel.flush()
    return encode_outcome(outcome, int(job["limits"]["answer_bytes"])) | {
        "dropped": channel.dropped_chars
    }


def encode_outcome(outcome: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """Encode the values of an outcome; adds a fault if one is not JSON or too large."""
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
    """Take over stdin and stdout and replace them by the null device, against stray prints."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(0, os.O_BINARY)
        msvcrt.setmode(1, os.O_BINARY)
    read_fd = os.dup(0)
    write_fd = os.dup(1)
    null_fd = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null_fd, stream)
    os.close(null_fd)
    return WorkerChannel(read_fd, write_fd)


def serve(runtime: LanguageRuntime, channel: WorkerChannel) -> None:
    """Prepare, enter the jail, then run scripts until the host disconnects."""
    try:
        runtime.prepare()
        size = jail.get_address_space()
        restrictions = jail.confine_process()
    except Exception as error:
        channel.send_message({"failed": f"{type(error).__name__}: {error}"})
        return
    # Values are trees without cycles, and collecting while a script runs costs more than creating
    # them.
    gc.freeze()
    gc.disable()
    channel.send_message({"ready": True, "kept": list(restrictions), "size": size})
    while True:
        message = channel.read_message()
        if "run" in message:  # otherwise a reply that its script did not await
            channel.send_message({"done": _run_script(runtime, message, channel)})
            del message
            gc.collect()


def main(name: str, parent_pid: int = 0) -> None:
    """Run the worker; `name` is a key of RUNTIMES, or `module:class` in tests."""
    jail.exit_with_parent(parent_pid)
    if hasattr(os, "nice"):
        os.nice(WORKER_NICENESS)
    channel = _open_channel()
    module, _, class_name = name.partition(":")
    if not class_name:
        module, class_name = RUNTIMES[name]
    try:
        try:
            runtime: LanguageRuntime = getattr(importlib.import_module(module), class_name)()
        except Exception as error:
            channel.send_message({"failed": f"{type(error).__name__}: {error}"})
            return
        serve(runtime, channel)
    except HostDisconnected:
        pass
    os._exit(0)


if __name__ == "__main__":
    # Imported by its name: a runtime imports this module and must find the same classes.
    importlib.import_module("portico.scripts.sandbox.worker.main").main(sys.argv[1])
