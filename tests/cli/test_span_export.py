"""Spans leave the process when the environment asks for it, and only then."""

import importlib.util
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from portico.cli.serving_process import export_spans, select_exporter
from tests.cli.conftest import EVERYTHING, Home, Start

INSTALLED = importlib.util.find_spec("opentelemetry.exporter") is not None
TIMEOUT_S = 240


@pytest.mark.parametrize(
    ("environment", "exporter"),
    [
        ({}, ""),
        ({"OTEL_SERVICE_NAME": "x"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://localhost:4318/v1/traces"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        (
            {
                "OTEL_TRACES_EXPORTER": "none",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318",
            },
            "",
        ),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, ""),
    ],
)
def test_the_environment_says_whether_spans_are_exported(
    environment: dict[str, str], exporter: str
) -> None:
    assert select_exporter(environment) == exporter


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "is not known here"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "use http/protobuf"),
    ],
)
def test_what_cannot_be_done_is_said_and_all_else_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    with caplog.at_level(logging.ERROR), export_spans():
        assert [said in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.skipif(INSTALLED, reason="the exporter is installed")
def test_where_the_exporter_is_missing_the_way_to_it_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level(logging.ERROR), export_spans():
        [record] = caplog.records
        assert "pip install 'portico-mcp[otel]'" in record.getMessage()


@dataclass
class Collector:
    """Takes whatever is exported."""

    url: str
    bodies: list[bytes] = field(default_factory=list[bytes])


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            here.bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    here = Collector(f"http://127.0.0.1:{server.server_port}")
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield here
    server.shutdown()
    serving.join(TIMEOUT_S)
    server.server_close()


@pytest.mark.skipif(not INSTALLED, reason="the otel extra is not installed")
def test_a_served_client_s_spans_have_arrived_when_the_command_ends(
    home: Home, start: Start, collector: Collector
) -> None:
    home.write({"servers": {"everything": EVERYTHING}})
    process = start("stdio", env={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "no_proxy": "*"})
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    }
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(asked)}\n".encode())
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err.decode()
    sent = b"".join(collector.bodies)
    assert b"initialize" in sent
    assert b"portico" in sent
