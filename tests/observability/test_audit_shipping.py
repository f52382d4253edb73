"""Lines of the audit log that are sent on: to whom, in which form, and what if they cannot."""

import io
import json
import socket
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.errors import ConfigError
from portico.observability.audit import AuditEntry, AuditLog
from portico.observability.audit_shipping import (
    AuditShipper,
    StreamDestination,
    make_destination,
    make_shipper,
)
from portico.storage.audit_file import AuditFile

TIMEOUT_S = 60.0
ENTRY = AuditEntry("mail.send", "hash", {"to": "a"}, "ok", rule="rules[0]")


def write_lines(tmp_path: Path, shipper: AuditShipper, count: int = 2) -> list[Any]:
    """Write lines through a log, close it, and return what is in its file."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog(AuditFile(path, max_bytes=100_000, files=1), lambda: b"key", shipper=shipper)
    for _ in range(count):
        log.write(ENTRY)
    shipper.close(TIMEOUT_S)
    log.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_written_to_stderr_as_they_are_in_the_file(tmp_path: Path) -> None:
    stream = io.BytesIO()
    written = write_lines(tmp_path, AuditShipper([StreamDestination(stream)]))
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == written
    assert len(written) == 2


def test_lines_meant_for_stdout_go_to_stderr_until_that_is_free(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    shipper = make_shipper(["stdout", "stderr"])
    written = write_lines(tmp_path, shipper)
    assert len(capfdbinary.readouterr().err.splitlines()) == 2 * len(written)
    shipper = make_shipper(["stdout", "stderr"])
    shipper.use_stdout()
    write_lines(tmp_path, shipper)
    found = capfdbinary.readouterr()
    assert len(found.out.splitlines()) == len(found.err.splitlines()) == len(written)


@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_lines_are_sent_to_syslog_as_datagrams(tmp_path: Path, kind: str) -> None:
    if kind == "udp":
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        address = f"syslog:udp://127.0.0.1:{receiver.getsockname()[1]}"
    else:
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.bind(str(tmp_path / "log"))
        address = f"syslog:{tmp_path / 'log'}"
    receiver.settimeout(TIMEOUT_S)
    with receiver:
        written = write_lines(tmp_path, make_shipper([address]))
        for line in written:
            head, _, body = receiver.recv(65_536).partition(b" audit - ")
            assert head.startswith(b"<110>1 2")
            assert json.loads(body) == line


def test_lines_are_framed_over_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        shipper = make_shipper([f"syslog:tcp://127.0.0.1:{server.getsockname()[1]}"])
        written = write_lines(tmp_path, shipper)
        connection, _ = server.accept()
        connection.settimeout(TIMEOUT_S)
        with connection, connection.makefile("rb") as received:
            for line in written:
                length = b""
                while (byte := received.read(1)) != b" ":
                    length += byte
                message = received.read(int(length))
                assert json.loads(message.partition(b" audit - ")[2]) == line


def test_lines_are_sent_as_otlp_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http._log_exporter")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    bodies: list[bytes] = []
    arrived = threading.Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = zlib.decompress(body, 31)
            bodies.append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            arrived.set()

        def log_message(self, format: str, *args: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        written = write_lines(tmp_path, make_shipper(["otlp"]))
        assert arrived.wait(TIMEOUT_S)
        server.shutdown()
    found: list[Any] = []
    for body in bodies:
        request: Any = ExportLogsServiceRequest.FromString(body)
        for resource in request.resource_logs:
            for scope in resource.scope_logs:
                found += [json.loads(one.body.string_value) for one in scope.log_records]
    assert found == written


class _Stuck:
    """A receiver that takes nothing until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def send(self, line: bytes) -> None:
        self.gate.wait(TIMEOUT_S)

    def close(self) -> None:
        return


def test_a_receiver_that_takes_nothing_holds_nobody_up(tmp_path: Path) -> None:
    stuck = _Stuck()
    shipper = AuditShipper([stuck], max_queued=5)
    for _ in range(50):
        shipper.put(b"line")
    assert shipper.dropped >= 40
    stuck.gate.set()
    shipper.close()


class _Broken(_Stuck):
    def send(self, line: bytes) -> None:
        raise ConnectionRefusedError("nobody is there")


def test_what_cannot_be_sent_is_counted_and_stays_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.BytesIO()
    shipper = AuditShipper([_Broken(), StreamDestination(stream)])
    written = write_lines(tmp_path, shipper, 3)
    assert len(written) == 3
    assert shipper.dropped == 3
    assert len(stream.getvalue().splitlines()) == 3, "the other destination gets every line"
    assert "stay in the file: nobody is there" in caplog.text


def test_destinations_that_cannot_be_used_are_errors() -> None:
    with pytest.raises(ConfigError, match="no address"):
        make_destination("syslog:http://x")
    with pytest.raises(ValueError, match="no destination"):
        Config.model_validate({"audit": {"ship": ["stdin"]}})
    assert Config.model_validate({"audit": {"ship": "stderr"}}).audit.ship == ("stderr",)
