"""The span of every request at a door: stands before it, and has nothing to do while nobody collects spans."""

from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from portico.observability.tracing import failed, requested, silent
from portico.server.sessions import connection_of, session_of

_LASTING = ("subscriptions/listen",)
"""Requests that are answered when the client has gone: a span of hours tells nothing."""


async def traced(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Answer one message, in a span of its own if it is a request."""
    if silent() or ctx.request_id is None or ctx.method in _LASTING:
        return await call_next(ctx)
    with requested(ctx.method, ctx.params, _attributes(ctx), getattr(ctx.request, "headers", None)) as span:
        result = await call_next(ctx)
        if ctx.method == "tools/call" and isinstance(result, Mapping) and result.get("isError"):
            failed(span, "tool_error")
        return result


def _attributes(ctx: ServerRequestContext[Any, Any]) -> dict[str, str]:
    http = ctx.request is not None
    told = {
        "mcp.protocol.version": str(ctx.protocol_version),
        "jsonrpc.request.id": str(ctx.request_id)[:100],
        "network.transport": "tcp" if http else "pipe",
    }
    if http:
        told["network.protocol.name"] = "http"
    if not http or connection_of(ctx).session_id:
        # Ours, which opens nothing: the one the client sends is as good as a password.
        told["mcp.session.id"] = session_of(ctx).id
    return told
