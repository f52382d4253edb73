"""Lines of the audit log sent on as they are written: to stderr or stdout, to syslog, as OTLP logs.

A thread of its own sends them, so that a slow receiver delays no call. It is a copy: what cannot be
sent is dropped, counted and logged, and stays in the file.
"""

import contextlib
import datetime
import importlib
import logging
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

from portico.errors import ConfigError

logger = logging.getLogger(__name__)

MAX_QUEUED = 10_000
LOG_INTERVAL_S = 60.0
CLOSE_TIMEOUT_S = 2.0
RECONNECT_S = 1.0
"""Seconds after a failure in which lines are dropped at once."""
_SEND_TIMEOUT_S = 5.0
_MAX_DATAGRAM_BYTES = 60_000
_SYSLOG_PRIORITY = 13 * 8 + 6
"""Facility `log audit`, severity `informational` (RFC 5424)."""
_DEFAULT_PORTS = {"udp": 514, "tcp": 601}


class Destination(Protocol):
    def send(self, line: bytes) -> None:
        """Send one line, without its line break; raises OSError."""
        ...

    def close(self) -> None: ...


class StreamDestination:
    """Writes lines to stderr, or to stdout once that is known to be free: it belongs to the
    protocol or to a command's output elsewhere."""

    def __init__(self, stream: BinaryIO | None = None, *, wants_stdout: bool = False) -> None:
        self._stream = stream or sys.stderr.buffer
        self._wants_stdout = wants_stdout

    def use_stdout(self) -> None:
        """Write to stdout from now on, if that is wanted."""
        if self._wants_stdout:
            self._stream = sys.stdout.buffer

    def send(self, line: bytes) -> None:
        self._stream.write(line + b"\n")
        self._stream.flush()

    def close(self) -> None:
        return


class SyslogDestination:
    """Sends lines as RFC 5424 messages over UDP, TCP (octet counting) or a local socket."""

    def __init__(self, address: str) -> None:
        """`address`: `udp://host:514`, `tcp://host:601`, or the path of a local socket."""
        self._address = address
        parts = urlsplit(address)
        self._kind = parts.scheme or "unix"
        if self._kind not in ("udp", "tcp", "unix") or not (parts.hostname or parts.path):
            raise ConfigError(
                f"{address!r} is no address of a syslog",
                advice="Write syslog:udp://HOST:514, syslog:tcp://HOST:601 or syslog:/dev/log.",
                key="audit.ship",
            )
        self._path = parts.path
        self._host = parts.hostname or ""
        self._port = parts.port or _DEFAULT_PORTS.get(self._kind, 0)
        self._name = socket.gethostname()[:255] or "-"
        self._socket: socket.socket | None = None

    def send(self, line: bytes) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        head = f"<{_SYSLOG_PRIORITY}>1 {now} {self._name} portico {os.getpid()} audit - "
        message = head.encode(errors="replace") + line
        connection = self._connect()
        try:
            if self._kind == "tcp":
                connection.sendall(b"%d %s" % (len(message), message))
            else:
                connection.send(message[:_MAX_DATAGRAM_BYTES])
        except OSError:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        if self._kind == "tcp":
            self._socket = socket.create_connection((self._host, self._port), _SEND_TIMEOUT_S)
            return self._socket
        if self._kind == "unix":
            found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            address: Any = self._path
        else:
            family, kind, _, _, address = socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_DGRAM
            )[0]
            found = socket.socket(family, kind)
        found.settimeout(_SEND_TIMEOUT_S)
        try:
            found.connect(address)
        except OSError:
            found.close()
            raise
        self._socket = found
        return found

    def close(self) -> None:
        found = self._socket
        self._socket = None
        if found is not None:
            found.close()


class OtlpDestination:
    """Sends lines as OTLP logs (http/protobuf), as OTEL_EXPORTER_OTLP_ENDPOINT and others say."""

    def __init__(self) -> None:
        try:
            api: Any = importlib.import_module("opentelemetry._logs")
            sdk: Any = importlib.import_module("opentelemetry.sdk._logs")
            batches: Any = importlib.import_module("opentelemetry.sdk._logs.export")
            exporters: Any = importlib.import_module(
                "opentelemetry.exporter.otlp.proto.http._log_exporter"
            )
            resources: Any = importlib.import_module("opentelemetry.sdk.resources")
        except ImportError as error:
            raise ConfigError(
                f"audit.ship: what sends OTLP logs cannot be loaded ({error})",
                advice="pip install 'portico-mcp[otel]'",
                key="audit.ship",
            ) from error
        resource = resources.Resource.create({"service.name": "portico"})
        self._provider = sdk.LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(
            batches.BatchLogRecordProcessor(exporters.OTLPLogExporter())
        )
        self._logger = self._provider.get_logger("portico.audit")
        self._make_record: Callable[..., Any] = api.LogRecord
        self._severity = api.SeverityNumber.INFO

    def send(self, line: bytes) -> None:
        record = self._make_record(
            timestamp=time.time_ns(),
            severity_number=self._severity,
            severity_text="INFO",
            body=line.decode(errors="replace"),
            attributes={"event.name": "portico.audit"},
        )
        self._logger.emit(record)

    def close(self) -> None:
        self._provider.force_flush(int(CLOSE_TIMEOUT_S * 1_000))
        self._provider.shutdown()


def make_destination(text: str) -> Destination:
    """Return what a configuration's `audit.ship` names; raises ConfigError."""
    if text in ("stderr", "stdout"):
        return StreamDestination(wants_stdout=text == "stdout")
    if text == "otlp":
        return OtlpDestination()
    return SyslogDestination(text.removeprefix("syslog:"))


class AuditShipper:
    """Sends lines to destinations, in a thread that starts with the first line."""

    def __init__(self, destinations: Sequence[Destination], max_queued: int = MAX_QUEUED) -> None:
        self.dropped = 0
        """Lines that were not sent everywhere."""
        self._destinations = destinations
        self._queue: queue.Queue[bytes | None] = queue.Queue(max_queued)
        self._thread: threading.Thread | None = None
        self._logged_at = float("-inf")

    def use_stdout(self) -> None:
        """Let what is meant for stdout go there; until then it goes to stderr."""
        for destination in self._destinations:
            if isinstance(destination, StreamDestination):
                destination.use_stdout()

    def put(self, line: bytes) -> None:
        """Hand a line over. Never blocks, never raises."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ship audit", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._drop("the receiver is too slow")

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Send what is waiting, within so many seconds."""
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        destinations = self._destinations
        failed_at = [float("-inf")] * len(destinations)
        while (line := self._queue.get()) is not None:
            for number, destination in enumerate(destinations):
                if time.monotonic() - failed_at[number] < RECONNECT_S:
                    self._drop("")
                    continue
                try:
                    destination.send(line)
                except (OSError, ValueError) as error:
                    failed_at[number] = time.monotonic()
                    self._drop(str(error))
        for destination in destinations:
            destination.close()

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        now = time.monotonic()
        if reason and now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            logger.error(
                "lines of the audit log are not sent on (%d so far), and stay in the file: %s",
                self.dropped,
                reason,
            )


def make_shipper(destinations: Sequence[str]) -> AuditShipper:
    """Return the shipper of a configuration; raises ConfigError for what cannot be used."""
    return AuditShipper([make_destination(text) for text in destinations])
