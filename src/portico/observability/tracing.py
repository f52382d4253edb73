"""A span for each execution of a tool, for whoever collects them: nothing is recorded unless a provider is installed.

Names and attributes are those that OpenTelemetry has for agents' tools. A client that sends a trace context with its
request (`traceparent` in `_meta`) finds our spans under its own.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

_TRACER = trace.get_tracer("portico")
"""Whatever provider is installed later is asked by it."""


@contextmanager
def executing(tool: str, tool_hash: str, meta: Any = None) -> Generator[Span]:
    """The span of one execution; an error that leaves it is its status. Never holds arguments or results."""
    context = extract(_carried(meta)) if isinstance(meta, Mapping) and "traceparent" in meta else None
    span = _TRACER.start_span(f"execute_tool {tool}", context, SpanKind.CLIENT)
    if not span.is_recording():
        yield span
        return
    server = tool.partition(".")[0]
    span.set_attributes(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "extension",
            "portico.server": server,
            "portico.tool.hash": tool_hash,
        }
    )
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except BaseException as error:
            kind = getattr(error, "kind", type(error).__name__)
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR, kind))
            raise


def failed(span: Span, kind: str) -> None:
    """The execution gave an answer, and the answer is a failure."""
    if span.is_recording():
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, kind))


def _carried(meta: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key in ("traceparent", "tracestate") if isinstance(value := meta.get(key), str)}
