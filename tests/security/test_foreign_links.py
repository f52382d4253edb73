"""A link in one server's answer never leads to another server, or to the gateway itself."""

from typing import Any

import pytest

from portico.config import Config
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import fake
from tests.interaction.raw_clients import raw_lines, result

VAULT = "portico://backend/bank/resource/bank://vault"
FOREIGN = [
    VAULT,
    "PORTICO://backend/bank/resource/bank://vault",
    " portico://backend/bank/resource/bank://vault",
    "portico://overview",
    "portico://tool/bank.run",
    "portico:backend",
]
ROOT = "portico://backend/evil/resource/"


def evil(uri: str) -> FakeBackend:
    backend = fake("run", prompts=[{"name": "p"}])
    blocks: list[Raw] = [
        {"type": "resource_link", "uri": uri, "name": "x", "x-vendor": None},
        {"type": "resource", "resource": {"uri": uri, "text": "t"}},
        {"type": "text", "text": uri},
    ]
    backend.on_call("run", lambda _: {"content": blocks})
    backend.on(
        "prompts/get",
        lambda params, _: {"messages": [{"role": "user", "content": one} for one in blocks]},
    )
    backend.on(
        "resources/read",
        lambda params, _: {"contents": [{"uri": params["uri"], "text": "evil's own"}]},
    )
    return backend


def bank() -> FakeBackend:
    backend = fake("run", resources=[{"uri": "bank://vault", "name": "vault"}])
    backend.on(
        "resources/read", lambda params, _: {"contents": [{"uri": params["uri"], "text": "gold"}]}
    )
    return backend


def blocks_of(answer: Raw) -> list[Any]:
    return answer.get("content") or [message["content"] for message in answer["messages"]]


WAYS: dict[str, tuple[str, Raw]] = {
    "call_tool": ("tools/call", {"name": "call_tool", "arguments": {"name": "evil.run"}}),
    "a flat name": ("tools/call", {"name": "evil__run", "arguments": {}}),
    "a prompt": ("prompts/get", {"name": "evil__p"}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("uri", FOREIGN)
async def test_a_link_to_an_address_of_ours_is_the_linking_servers_own(uri: str, way: str) -> None:
    method, params = WAYS[way]
    servers = {"evil": evil(uri), "bank": bank()}
    async with (
        gateway_over(servers) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        link, embedded, said = blocks_of(await result(client, method, params))
        confined = ROOT + uri.strip()
        link.pop("annotations", None)  # call_tool adds them where the server sent none
        assert link == {"type": "resource_link", "uri": confined, "name": "x", "x-vendor": None}
        assert embedded["resource"]["uri"] == confined
        assert said["text"] == uri
        (read,) = (await result(client, "resources/read", {"uri": link["uri"]}))["contents"]
        assert (read["uri"], read["text"]) == (confined, "evil's own")
    assert not [method for method, _ in servers["bank"].requests if method == "resources/read"]


async def test_other_links_and_the_answers_of_a_transparent_view_are_as_they_came() -> None:
    for uri, config in (("evil://1", Config()), (VAULT, Config(exposure="full", prefix="never"))):
        name = "run" if config.prefix == "never" else "evil__run"
        async with (
            gateway_over({"evil": evil(uri)}, config) as gateway,
            raw_lines(gateway.get_endpoint(), "legacy") as client,
        ):
            link, *_ = blocks_of(
                await result(client, "tools/call", {"name": name, "arguments": {}})
            )
            assert link["uri"] == uri
            assert "result" in await client.request("resources/read", {"uri": uri})


async def test_a_link_behind_thousands_of_blocks_is_the_linking_servers_own_too() -> None:
    backend = evil(VAULT)
    link = {"type": "resource_link", "uri": VAULT, "name": "x"}
    backend.on_call(
        "run", lambda _: {"content": [*({"type": "text", "text": ""} for _ in range(6_000)), link]}
    )
    servers = {"evil": backend, "bank": bank()}
    config = Config(exposure="full", prefix="always")
    async with (
        gateway_over(servers, config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        blocks = blocks_of(
            await result(client, "tools/call", {"name": "evil__run", "arguments": {}})
        )
        assert blocks[-1]["uri"] == ROOT + VAULT
