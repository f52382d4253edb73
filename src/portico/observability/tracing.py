"""OpenTelemetry spans; almost free unless a provider is installed.

One span per client request, in it one per tool execution, in it one per request to a server. Names
and attributes follow OpenTelemetry's conventions for MCP and agent tools; none holds arguments,
results or URIs. A trace context in a client's request (`traceparent` in `_meta`, else the HTTP
header) becomes the parent, and servers receive ours in the same ways. Baggage in `_meta` is passed
on unchanged and goes nowhere else.
"""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    ProxyTracer,
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_trace_id,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from portico.upstream.backend import Raw

_TRACER = trace.get_tracer("portico")
"""Delegates to a provider that is installed later."""
_UNKNOWN = object()
_W3C = TraceContextTextMapPropagator()
_CONTEXT_KEYS = ("traceparent", "tracestate")
_MAX_NAME_CHARS = 100
_NO_SPAN: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)
_TARGET_ATTRIBUTES = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_ERROR_NAMES: Mapping[type, str] = {asyncio.CancelledError: "cancelled"}
_TRANSPORTS = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}


def is_disabled() -> bool:
    """Return whether no provider is installed."""
    # The API's own accessor is far slower: it reads the environment each time.
    return getattr(trace, "_TRACER_PROVIDER", _UNKNOWN) is None and isinstance(_TRACER, ProxyTracer)


def start_request_span(
    method: str,
    params: Mapping[str, Any] | None,
    attributes: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> AbstractContextManager[Span]:
    """Start the span of a client's request; its parent is the client's trace context."""
    meta = params.get("_meta") if params else None
    carrier = _extract_carrier(meta) or _extract_carrier(headers)
    # The current span may be that of the request that began the session: linked, not the parent.
    ambient = trace.get_current_span().get_span_context()
    target = params.get("name") if params and method in _TARGET_ATTRIBUTES else None
    name = target[:_MAX_NAME_CHARS] if isinstance(target, str) else ""
    span = _TRACER.start_span(
        f"{method[:_MAX_NAME_CHARS]} {name}".rstrip(),
        _W3C.extract(carrier, Context()),
        SpanKind.SERVER,
        links=[Link(ambient)] if ambient.is_valid else None,
    )
    if span.is_recording():
        span.set_attributes({"mcp.method.name": method[:_MAX_NAME_CHARS], **attributes})
        _set_target(span, method, name)
    return _enter_span(span)


def start_tool_span(tool: str, tool_hash: str, meta: Any = None) -> AbstractContextManager[Span]:
    """Start the span of one tool execution; an error that escapes sets its status.

    Its parent is the current request; if there is none, the trace context in `meta`.
    """
    if is_disabled():
        return _NO_SPAN
    context = None
    if (
        isinstance(meta, Mapping)
        and "traceparent" in meta
        and trace.get_current_span() is INVALID_SPAN
    ):
        context = _W3C.extract(_extract_carrier(meta), Context())
    span = _TRACER.start_span(f"execute_tool {tool}", context)
    if span.is_recording():
        span.set_attributes(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.type": "extension",
                "portico.server": tool.partition(".")[0],
                "portico.tool.hash": tool_hash,
            }
        )
    return _enter_span(span)


def start_upstream_span(
    method: str, target: str, server: str, kind: str
) -> AbstractContextManager[Span]:
    if is_disabled():
        return _NO_SPAN
    target = target[:_MAX_NAME_CHARS]
    span = _TRACER.start_span(f"{method} {target}" if target else method, None, SpanKind.CLIENT)
    if span.is_recording():
        span.set_attributes(
            {"mcp.method.name": method, "portico.server": server, "portico.transport": kind}
        )
        if transport := _TRANSPORTS.get(kind):
            span.set_attribute("network.transport", transport)
        _set_target(span, method, target)
    return _enter_span(span)


def get_current_span() -> Span:
    """Return the current span, to continue in it elsewhere."""
    if is_disabled():
        return INVALID_SPAN
    return trace.get_current_span()


def use_span(span: Span) -> AbstractContextManager[Any]:
    """Make a span of another task or thread current; it is not ended here."""
    if span is INVALID_SPAN:
        return _NO_SPAN
    return trace.use_span(span, record_exception=False, set_status_on_exception=False)


def mark_failed(span: Span, kind: str) -> None:
    """Mark a span whose request was answered with a failure."""
    if span.is_recording():
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, kind))


def set_call_attributes(
    span: Span, *, attempts: int, repaired: bool, mismatched: bool, cached: bool = False
) -> None:
    """Record attempts, repaired arguments, a result that violates its schema, and cache use."""
    if span.is_recording():
        span.set_attributes(
            {
                "portico.attempts": attempts,
                "portico.repaired": repaired,
                "portico.mismatched": mismatched,
                "portico.cached": cached,
            }
        )


def inject_meta(span: Span, params: Raw) -> Raw:
    """Return params with the span as trace context in `_meta`; unchanged if it does not record."""
    if not span.is_recording():
        return params
    meta = params.get("_meta")
    # The client's tracestate belongs to its own parent, and ours includes it already.
    rest = meta.items() if isinstance(meta, Mapping) else ()
    kept = {key: value for key, value in rest if key not in _CONTEXT_KEYS}
    return {**params, "_meta": {**kept, **_make_carrier(span)}}


def inject_headers(span: Span, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with the span as trace context; unchanged if it does not record."""
    if span.is_recording():
        return {**headers, **_make_carrier(span)}
    return headers


def get_trace_id(span: Span) -> str:
    """Return the trace id of a recording span, else an empty string."""
    if span.is_recording():
        return format_trace_id(span.get_span_context().trace_id)
    return ""


@contextmanager
def _enter_span(span: Span) -> Generator[Span]:
    """Make a span current and end it on exit.

    A span that does not record is entered too: otherwise inner spans would start a new trace.
    """
    with trace.use_span(
        span, end_on_exit=True, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield span
        except BaseException as error:
            if span.is_recording():
                name = _ERROR_NAMES.get(type(error), type(error).__name__)
                if (code := _get_error_code(error)) is not None:
                    span.set_attribute("rpc.response.status_code", str(code))
                mark_failed(span, str(code or getattr(error, "kind", None) or name))
            raise


def _get_error_code(error: BaseException) -> int | None:
    """Return the JSON-RPC code of a remote error; other errors get theirs at the HTTP layer."""
    kind = getattr(error, "kind", "remote")
    code = getattr(error, "code", None)
    return code if kind == "remote" and isinstance(code, int) else None


def _set_target(span: Span, method: str, target: str) -> None:
    if method == "tools/call":
        span.set_attribute("gen_ai.operation.name", "execute_tool")
    if target and method in _TARGET_ATTRIBUTES:
        span.set_attribute(_TARGET_ATTRIBUTES[method], target)


def _make_carrier(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span))
    return carrier


def _extract_carrier(source: Any) -> dict[str, str]:
    if not isinstance(source, Mapping) or not isinstance(source.get("traceparent"), str):
        return {}
    return {key: value for key in _CONTEXT_KEYS if isinstance(value := source.get(key), str)}
