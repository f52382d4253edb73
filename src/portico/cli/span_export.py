"""Spans to a collector, where the environment asks for it as OpenTelemetry says it is asked for.

`OTEL_EXPORTER_OTLP_ENDPOINT` (or its `_TRACES_` kind) or `OTEL_TRACES_EXPORTER` turns it on; `OTEL_SDK_DISABLED=true`
and `OTEL_TRACES_EXPORTER=none` turn it off. Everything else that the SDK reads from the environment
(headers, sampler, service name, batches) holds as ever. Without one of these, nothing is imported.
"""

import importlib
import logging
import os
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from portico import __version__

logger = logging.getLogger(__name__)

FLUSH_S = 3.0
"""How long the end waits for spans that are on their way."""
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_INSTALL_COMMAND = "pip install 'portico-mcp[otel]'"


def select_exporter(environment: Mapping[str, str]) -> str:
    """Which exporter the environment asks for: `otlp`, `console` or another's name; empty for none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ""
    chosen = environment.get(_EXPORTER_VARIABLE, "").strip().lower()
    if chosen:
        if chosen == "none":
            return ""
        return chosen
    if any(environment.get(name, "").strip() for name in _ENDPOINT_VARIABLES):
        return "otlp"
    return ""


@contextmanager
def export_spans() -> Generator[None]:
    """While this lasts, spans go where the environment says; at the end what is left is sent,
    within a few seconds."""
    if name := select_exporter(os.environ):
        provider = _install_provider(name)
    else:
        provider = None
    try:
        yield
    finally:
        if provider is not None:
            # In a thread, since a collector that takes no notice holds the SDK up for longer than
            # anybody waits.
            ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
            ending.start()
            ending.join(FLUSH_S)
            if ending.is_alive():
                logger.warning(
                    "the last spans could not be sent within %g s, and are lost", FLUSH_S
                )


def _install_provider(name: str) -> Any:
    """A provider that exports, installed for the process; None, with the reason logged, where there
    can be none."""
    if name != "otlp":
        logger.error(
            "%s=%s is not known here, no spans are exported: use otlp, or none",
            _EXPORTER_VARIABLE,
            name,
        )
        return None
    if (protocol := _read_protocol(os.environ)) != "http/protobuf":
        logger.error(
            "OTLP over %s is not spoken here, no spans are exported: use http/protobuf", protocol
        )
        return None
    try:
        exporters: Any = importlib.import_module(
            "opentelemetry.exporter.otlp.proto.http.trace_exporter"
        )
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        batches: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        resources: Any = importlib.import_module("opentelemetry.sdk.resources")
    except ImportError as error:
        logger.error(
            "spans are to be exported, but what does it cannot be loaded (%s): %s",
            error,
            _INSTALL_COMMAND,
        )
        return None
    from opentelemetry import trace

    given: dict[str, str] = {"service.version": __version__}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        given["service.name"] = "portico"
    # It would shut itself down once more when the process ends, and wait for as long as it likes.
    provider = sdk.TracerProvider(resource=resources.Resource.create(given), shutdown_on_exit=False)
    provider.add_span_processor(batches.BatchSpanProcessor(exporters.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def _read_protocol(environment: Mapping[str, str]) -> str:
    given = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    return (given or "http/protobuf").strip().lower()
