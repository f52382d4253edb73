"""Export of spans to a collector, if OpenTelemetry's environment variables ask for it.

`OTEL_EXPORTER_OTLP_ENDPOINT` (or its `_TRACES_` variant) or `OTEL_TRACES_EXPORTER` enables it;
`OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` disable it. The SDK reads its other
variables (headers, sampler, service name, batches) itself. When disabled, nothing is imported.
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
"""How long shutdown waits for unsent spans, in seconds."""
_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_INSTALL_COMMAND = "pip install 'portico-mcp[otel]'"


def select_exporter(environment: Mapping[str, str]) -> str:
    """Return the exporter that the environment selects, such as `otlp`; empty for none."""
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
    """Export spans within this context; at exit, send the remaining ones within `FLUSH_S`."""
    if name := select_exporter(os.environ):
        provider = _install_provider(name)
    else:
        provider = None
    try:
        yield
    finally:
        if provider is not None:
            # In a thread, because the SDK may block for long on a collector that does not answer.
            shutdown_thread = threading.Thread(
                target=provider.shutdown, name="last spans", daemon=True
            )
            shutdown_thread.start()
            shutdown_thread.join(FLUSH_S)
            if shutdown_thread.is_alive():
                logger.warning(
                    "the last spans could not be sent within %g s, and are lost", FLUSH_S
                )


def _install_provider(name: str) -> Any:
    """Install an exporting tracer provider; return None, with the reason logged, if impossible."""
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

    attributes: dict[str, str] = {"service.version": __version__}
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        attributes["service.name"] = "portico"
    # At exit it would shut down once more, without a time limit.
    provider = sdk.TracerProvider(
        resource=resources.Resource.create(attributes), shutdown_on_exit=False
    )
    provider.add_span_processor(batches.BatchSpanProcessor(exporters.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def _read_protocol(environment: Mapping[str, str]) -> str:
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    return (protocol or "http/protobuf").strip().lower()
