"""Spans from a client's request to a server's: who is in whom, what they say, and what is sent on.

A server gets the trace that its call belongs to, where one is recorded; else nothing is
added to
what it gets.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from portico.errors import BackendUnavailable, RemoteError
from portico.observability import tracing
from portico.testing import FakeBackend, Transport, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions

TIMEOUT_S = 240
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CLIENTS: Raw = {
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "tracestate": "some=thing",
    "baggage": "who=me",
    "own": 1,
}
READ: Raw = {"name": "look", "annotations": {"readOnlyHint": True}}
DONE: Raw = {"content": []}


@dataclass
class Watch:
    """Whatever is recorded while a test runs."""

    exported: InMemorySpanExporter

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exported.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        [span] = self.all(name)
        return span

    def all(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


def get_attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def parent(span: ReadableSpan) -> str | None:
    return format_span_id(span.parent.span_id) if span.parent is not None else None


def record(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The process's own provider, set once for all, is left alone."""
    exported = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("portico"))
    return Watch(exported)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return record(TracerProvider(), monkeypatch)


def looking() -> tuple[FakeBackend, list[RequestOptions]]:
    """A server that can be looked at, and the options it was asked with."""
    backend, asked = FakeBackend([READ]), list[RequestOptions]()

    def answer(params: Raw, ask: RequestOptions) -> Raw:
        asked.append(ask)
        return DONE

    backend.on("tools/call", answer)
    return backend, asked


def sent_to(backend: FakeBackend) -> Raw:
    [params] = [params for method, params in backend.requests if method == "tools/call"]
    return params


@pytest.mark.parametrize(
    ("transport", "era"),
    [("memory", "modern"), ("http", "modern"), ("http", "legacy"), ("stdio", "legacy")],
)
@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without a context", "with a context"])
async def test_request_execution_and_upstream_request_are_one_trace(
    watch: Watch, transport: Transport, era: Era, meta: Raw | None
):
    backend, asked = looking()
    async with (
        gateway_over({"eye": backend}) as gateway,
        connect(gateway, transport, era) as client,
    ):
        given: Any = meta
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("call_tool", {"name": "eye.look", "arguments": {}}, meta=given)
    request, execution, upstream = (
        watch.one(name)
        for name in ("tools/call call_tool", "execute_tool eye.look", "tools/call look")
    )
    assert (request.kind, execution.kind, upstream.kind) == (
        SpanKind.SERVER,
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
    )
    assert (parent(execution), parent(upstream)) == (ids(request)[1], ids(execution)[1])
    assert ids(request)[0] == ids(execution)[0] == ids(upstream)[0]
    if meta is not None:
        assert (ids(request)[0], parent(request)) == (TRACE, PARENT)
    wire = {"network.transport": "tcp", "network.protocol.name": "http"}
    shown = get_attributes(request)
    assert shown["mcp.method.name"] == "tools/call"
    assert shown["gen_ai.tool.name"] == "call_tool"
    assert shown["mcp.protocol.version"] == ("2026-07-28" if era == "modern" else "2025-11-25")
    assert {key: shown[key] for key in wire if key in shown} == (
        wire if transport == "http" else {"network.transport": "pipe"}
    )
    assert ("mcp.session.id" in shown) == (era == "legacy" or transport != "http")
    assert get_attributes(execution)["gen_ai.tool.name"] == "eye.look"
    assert (
        get_attributes(execution)["portico.attempts"],
        get_attributes(execution)["portico.repaired"],
    ) == (
        1,
        False,
    )
    about = {
        "portico.server": "eye",
        "portico.transport": "fake",
        "portico.era": "legacy",
        "portico.attempt": 1,
    }
    assert about.items() <= get_attributes(upstream).items()
    # The server gets the innermost, in the message and in what HTTP servers get as
    # headers.
    trace_id, span_id = ids(upstream)
    inside, beside = sent_to(backend)["_meta"], asked[0].headers
    assert inside["traceparent"] == beside["traceparent"]
    assert inside["traceparent"].startswith(f"00-{trace_id}-{span_id}-")
    assert ("baggage" in beside, "own" in beside) == (False, False)
    if meta is not None:
        assert inside["tracestate"] == beside["tracestate"] == "some=thing"
        assert not {"baggage", "own"} & inside.keys(), (
            "what is not about the trace is not the server's"
        )


async def test_a_context_in_the_http_headers_is_taken_where_the_message_has_none(watch: Watch):
    backend, _ = looking()
    headers = {
        "traceparent": f"00-{TRACE}-{PARENT}-01",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "call_tool",
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body: Raw = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "call_tool",
            "arguments": {"name": "eye.look", "arguments": {}},
            "_meta": meta,
        },
    }
    async with (
        gateway_over({"eye": backend}) as gateway,
        serve_http(gateway) as url,
        httpx2.AsyncClient(timeout=240) as client,
    ):
        answer = await client.post(url, json=body, headers=headers, timeout=TIMEOUT_S)
        assert answer.status_code == 200, answer.text
        inner = f"00-{'1' * 32}-{'2' * 16}-01"
        body["params"]["_meta"]["traceparent"] = inner
        await client.post(url, json=body, headers=headers, timeout=TIMEOUT_S)
    first, second = watch.all("tools/call call_tool")
    assert (ids(first)[0], parent(first)) == (TRACE, PARENT)
    assert (ids(second)[0], parent(second)) == ("1" * 32, "2" * 16)


async def test_each_attempt_is_a_request_of_its_own(watch: Watch):
    backend, left = FakeBackend([READ]), [1]

    def answer(params: Raw, ask: RequestOptions) -> Raw:
        if left[0]:
            left[0] -= 1
            backend.die("it fell over")
            raise BackendUnavailable("eye: the conversation was lost")
        return DONE

    backend.on("tools/call", answer)
    async with gateway_over({"eye": backend}) as gateway:
        async with asyncio.timeout(TIMEOUT_S):
            await gateway.calls.call(gateway.catalog.snapshot.resolve_tool("eye.look"), {})
    first, second = watch.all("tools/call look")
    assert (
        get_attributes(first)["portico.attempt"],
        get_attributes(second)["portico.attempt"],
    ) == (1, 2)
    assert (get_attributes(first)["error.type"], first.status.is_ok) == ("unavailable", False)
    assert "error.type" not in get_attributes(second)
    assert get_attributes(watch.one("execute_tool eye.look"))["portico.attempts"] == 2


async def test_calls_of_a_script_are_in_the_request_that_brought_it(watch: Watch):
    backend, _ = looking()
    async with gateway_over({"eye": backend}) as gateway, connect(gateway) as client:
        for _ in range(2):
            async with asyncio.timeout(TIMEOUT_S):
                await client.call_tool(
                    "run_code", {"code": "eye.look()\neye.look()", "language": "python"}
                )
    requests = [ids(span)[1] for span in watch.all("tools/call run_code")]
    assert [parent(span) for span in watch.all("execute_tool eye.look")] == [
        one for request in requests for one in (request, request)
    ]


async def test_failures_are_seen_at_every_level(watch: Watch):
    backend = FakeBackend([READ, {"name": "refuse"}])
    backend.on_call("look", lambda _: {**DONE, "isError": True})

    def refuse(_: Raw) -> Raw:
        raise RemoteError(-32042, "no")

    backend.on_call("refuse", refuse)
    async with gateway_over({"eye": backend}) as gateway, connect(gateway) as client:
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("call_tool", {"name": "eye.look", "arguments": {}})
            with pytest.raises(Exception, match="no"):
                await client.call_tool("call_tool", {"name": "eye.refuse", "arguments": {}})
    answered, refused = watch.all("tools/call call_tool")
    assert (
        get_attributes(answered)["error.type"]
        == get_attributes(watch.one("execute_tool eye.look"))["error.type"]
        == "tool_error"
    )
    for span in (refused, watch.one("execute_tool eye.refuse"), watch.one("tools/call refuse")):
        assert (
            get_attributes(span)["error.type"],
            get_attributes(span)["rpc.response.status_code"],
        ) == (
            "-32042",
            "-32042",
        )


async def test_no_span_holds_what_was_said(watch: Watch):
    backend = FakeBackend(
        [{"name": "look", "inputSchema": {"type": "object"}}],
        resources=[{"uri": "file:///planted", "name": "r"}],
    )
    backend.on_call("look", lambda _: {"content": [{"type": "text", "text": "planted"}]})
    backend.on(
        "resources/read",
        lambda params, ask: {"contents": [{"uri": params["uri"], "text": "planted"}]},
    )
    async with gateway_over({"eye": backend}) as gateway, connect(gateway) as client:
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("call_tool", {"name": "eye.look", "arguments": {"a": "planted"}})
            [resource] = [
                one
                for one in (await client.list_resources()).resources
                if "planted" in str(one.uri)
            ]
            await client.read_resource(str(resource.uri))
    assert {"resources/list", "resources/read", "execute_tool eye.look"} <= {
        span.name for span in watch.spans
    }
    assert [span.kind for span in watch.all("resources/read")] == [SpanKind.CLIENT, SpanKind.SERVER]
    assert not [
        span.name
        for span in watch.spans
        if "planted" in json.dumps([span.name, get_attributes(span)])
    ]


@pytest.mark.parametrize("meta", [None, CLIENTS], ids=["without a context", "with a context"])
async def test_where_nothing_records_a_server_gets_the_context_that_the_client_sent(
    meta: Raw | None, monkeypatch: pytest.MonkeyPatch
):
    record(TracerProvider(sampler=ALWAYS_OFF), monkeypatch)
    backend, asked = looking()
    async with gateway_over({"eye": backend}) as gateway, connect(gateway, era="legacy") as client:
        given: Any = meta
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("call_tool", {"name": "eye.look", "arguments": {}}, meta=given)
    got: Raw = {
        key: value for key, value in (sent_to(backend).get("_meta") or {}).items() if key in CLIENTS
    }
    assert got == {
        key: value for key, value in (meta or {}).items() if key in ("traceparent", "tracestate")
    }
    assert not asked[0].headers


async def test_a_request_that_is_not_sampled_has_no_sampled_parts(monkeypatch: pytest.MonkeyPatch):
    class Never(TraceIdRatioBased):
        """Would let through whatever begins a trace but a client's request."""

        def should_sample(
            self, parent_context: Any, trace_id: int, name: str, *rest: Any, **more: Any
        ) -> Any:
            chosen = TraceIdRatioBased(0.0 if name.startswith("tools/call call_tool") else 1.0)
            return chosen.should_sample(parent_context, trace_id, name, *rest, **more)

    seen = record(TracerProvider(sampler=ParentBased(Never(1.0))), monkeypatch)
    backend, _ = looking()
    async with gateway_over({"eye": backend}) as gateway, connect(gateway) as client:
        async with asyncio.timeout(TIMEOUT_S):
            await client.call_tool("call_tool", {"name": "eye.look", "arguments": {}})
    assert not [span.name for span in seen.spans if "look" in span.name]


async def test_without_a_provider_there_is_nothing_to_do():
    assert tracing.is_disabled()
    with (
        tracing.start_tool_span("eye.look", "hash", CLIENTS) as span,
        tracing.start_upstream_span("tools/call", "look", "eye", "http") as in_it,
    ):
        params: Raw = {"_meta": CLIENTS}
        assert tracing.inject_meta(in_it, params) is params
        assert tracing.inject_headers(in_it, headers := {}) is headers
        assert not tracing.get_trace_id(span)
