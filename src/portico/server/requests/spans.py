"""Middleware that opens a span for every request; it does nothing while tracing is disabled."""

from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from portico.observability.tracing import is_disabled, mark_failed, start_request_span
from portico.server.sessions import get_connection, get_session

_LONG_LIVED_METHODS = ("subscriptions/listen",)
"""Requests that end with their client: a span of hours tells nothing."""


async def trace_request(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer one message, in a span of its own if it is a request."""
    if is_disabled() or ctx.request_id is None or ctx.method in _LONG_LIVED_METHODS:
        return await call_next(ctx)
    with start_request_span(
        ctx.method, ctx.params, _build_attributes(ctx), getattr(ctx.request, "headers", None)
    ) as span:
        result = await call_next(ctx)
        if ctx.method == "tools/call" and isinstance(result, Mapping) and result.get("isError"):
            mark_failed(span, "tool_error")
        return result


def _build_attributes(ctx: ServerRequestContext[Any, Any]) -> dict[str, str]:
    is_http = ctx.request is not None
    attributes = {
        "mcp.protocol.version": str(ctx.protocol_version),
        "jsonrpc.request.id": str(ctx.request_id)[:100],
        "network.transport": "tcp" if is_http else "pipe",
    }
    if is_http:
        attributes["network.protocol.name"] = "http"
    if not is_http or get_connection(ctx).session_id:
        # The gateway's own id: the one that the client sends authenticates its session.
        attributes["mcp.session.id"] = get_session(ctx).id
    return attributes
