"""A span for each execution of a tool, for whoever collects them: nothing is recorded unless a provider is installed.

Names and attributes are those that OpenTelemetry has for agents' tools. A client that sends a trace context with its
request (`traceparent` in `_meta`) finds our spans under its own, and a server is sent ours in the same way.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["Span", "described", "executing", "failed", "forwarded"]

_TRACER = trace.get_tracer("portico")
"""Whatever provider is installed later is asked by it."""
_W3C = TraceContextTextMapPropagator()
_CONTEXT = ("traceparent", "tracestate")


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


def described(span: Span, *, attempts: int, repaired: bool, mismatched: bool) -> None:
    """How it went: asked how often, with arguments that had to be made to fit, with an answer that was not declared."""
    if span.is_recording():
        span.set_attributes(
            {"portico.attempts": attempts, "portico.repaired": repaired, "portico.mismatched": mismatched}
        )


def forwarded(span: Span, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What goes to a server beside a call, with our span as its trace context; as it is where nothing records."""
    if not span.is_recording():
        return extra
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    meta = extra.get("_meta")
    # The client's state of the trace goes with its own parent, and ours has it already.
    rest = {key: value for key, value in meta.items() if key not in _CONTEXT} if isinstance(meta, Mapping) else {}
    return {**extra, "_meta": {**rest, **carrier}}


def _carried(meta: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key in _CONTEXT if isinstance(value := meta.get(key), str)}
