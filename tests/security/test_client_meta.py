"""A client's `_meta` reaches a server only if the protocol or the configuration allows it."""

import pytest

from portico.config import BackendConfig, Config
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import raw_http, raw_lines, result

PREFIX = "io.modelcontextprotocol/"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PRIVATE: Raw = {
    "com.example/user": "ada@example.org",
    "baggage": "account=12",
    "portico/cached": {"age_s": 0},
    "portico/anything": True,
}
DEFINED: Raw = {
    "progressToken": 7,
    "traceparent": TRACE,
    "tracestate": "a=b",
    f"{PREFIX}related-task": {"taskId": "t"},
}


def server(era: Era = "legacy") -> FakeBackend:
    backend = fake(
        "run", resources=[{"uri": "r://1", "name": "r"}], prompts=[{"name": "p"}], era=era
    )
    backend.on("resources/read", lambda params, _: {"contents": []})
    backend.on("prompts/get", lambda params, _: {"messages": []})
    backend.on("completion/complete", lambda params, _: {"completion": {"values": []}})
    return backend


REQUESTS: list[tuple[str, Raw]] = [
    ("tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}}),
    ("tools/call", {"name": "s__run", "arguments": {}}),
    ("resources/read", {"uri": "portico://backend/s/resource/r://1"}),
    ("prompts/get", {"name": "s__p"}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "s__p"}, "argument": {"name": "a", "value": ""}},
    ),
]


def get_received_meta(backend: FakeBackend) -> list[Raw]:
    """The `_meta` of every request that was made for a client."""
    return [
        params.get("_meta", {})
        for method, params in backend.requests
        if not method.endswith("/list")
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_what_a_client_adds_of_its_own_reaches_no_server(era: Era, upstream: Era) -> None:
    backend = server(upstream)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        for method, params in REQUESTS:
            await result(client, method, {**params, "_meta": {**PRIVATE, **DEFINED}})
    metas = get_received_meta(backend)
    assert len(metas) == len(REQUESTS)
    for meta in metas:
        assert not PRIVATE.keys() & meta.keys(), meta
        assert DEFINED.keys() <= meta.keys(), meta


@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize(
    "rule", [{}, {"client_meta": ("*",)}], ids=["by default", "even where all is allowed"]
)
async def test_who_the_client_is_reaches_no_server(upstream: Era, rule: Raw) -> None:
    backend = server(upstream)
    config = Config(servers={"s": BackendConfig(functions="portico.demo.clock:TOOLS", **rule)})
    async with (
        gateway_over({"s": backend}, config) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern") as client,
    ):
        for method, params in REQUESTS:
            await result(client, method, {**params, "_meta": PRIVATE})
    assert len(get_received_meta(backend)) == len(REQUESTS)
    for meta in get_received_meta(backend):
        assert not {f"{PREFIX}clientInfo", "portico/cached", "portico/anything"} & meta.keys(), meta


async def test_a_key_that_the_configuration_names_reaches_the_server_that_it_is_named_for() -> None:
    one, other = server(), server()
    config = Config(
        servers={
            "s": BackendConfig(
                functions="portico.demo.clock:TOOLS", client_meta=("com.example/*",)
            ),
            "o": BackendConfig(functions="portico.demo.clock:TOOLS"),
        }
    )
    async with (
        gateway_over({"s": one, "o": other}, config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        for name in ("s.run", "o.run"):
            await result(
                client,
                "tools/call",
                {"name": "call_tool", "arguments": {"name": name}, "_meta": dict(PRIVATE)},
            )
    assert get_received_meta(one) == [{"com.example/user": "ada@example.org"}]
    assert get_received_meta(other) == [{}]
