"""A server is told the trace that its call belongs to, where one is recorded; else nothing is added to what it gets."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import format_span_id, format_trace_id

from portico.observability import tracing
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw

PATIENCE_S = 30
TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS: Raw = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "some=thing", "own": 1}


async def sent(provider: TracerProvider, meta: Raw | None, monkeypatch: pytest.MonkeyPatch) -> Raw:
    """The params that a server gets; the process's own provider, set once for all, is left alone."""
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("portico"))
    backend = FakeBackend([{"name": "look"}])
    backend.on_call("look", lambda arguments: {"content": []})
    async with gateway_over({"eye": backend}) as gateway, connect(gateway, era="legacy") as client:
        given: Any = meta
        asking = client.call_tool("call_tool", {"name": "eye.look", "arguments": {}}, meta=given)
        await asyncio.wait_for(asking, PATIENCE_S)
    [params] = [params for method, params in backend.requests if method == "tools/call"]
    return params


@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without a context", "with a context"])
async def test_a_server_is_sent_our_span_as_its_parent(meta: Raw | None, monkeypatch: pytest.MonkeyPatch):
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    params = await sent(provider, meta, monkeypatch)
    [span] = [span for span in exported.get_finished_spans() if span.name == "execute_tool eye.look"]
    assert span.context is not None
    trace_id, span_id = format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)
    told = dict(span.attributes or {})
    assert (told["portico.attempts"], told["portico.repaired"], told["portico.mismatched"]) == (1, False, False)
    assert params["_meta"]["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
    if meta is not None:
        assert trace_id == TRACE
        assert span.parent is not None
        assert params["_meta"]["tracestate"] == "some=thing"
        assert params["_meta"]["own"] == 1


@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without a context", "with a context"])
async def test_where_nothing_records_a_server_gets_what_the_client_sent(
    meta: Raw | None, monkeypatch: pytest.MonkeyPatch
):
    params = await sent(TracerProvider(sampler=ALWAYS_OFF), meta, monkeypatch)
    got: Raw = {key: value for key, value in (params.get("_meta") or {}).items() if key in CLIENTS}
    assert got == (meta or {})
