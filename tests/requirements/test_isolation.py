"""Rows C7 and E2 of docs/requirements.md: a state for each client, and lists of tools for a
purpose."""

from typing import Any

import pytest

from portico.config import BackendConfig, Config, Exposure
from portico.testing import FakeBackend, gateway_over, serve_http
from portico.upstream.backend import Era
from tests.fixtures.counter import counter
from tests.interaction.fake_servers import text, tool
from tests.interaction.raw_clients import RawClient, call, raw_http, raw_lines, result


def get_count(answer: Any) -> int:
    return int(answer["result"]["content"][0]["text"].split()[0])


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_c7_each_client_has_its_own_state_in_the_server(era: Era) -> None:
    command, *arguments = counter()
    server = BackendConfig(
        command=command, args=tuple(arguments), isolation="session", protocol="legacy"
    )
    async with gateway_over(config=Config(servers={"own": server})) as gateway:

        async def count(client: RawClient, **more: Any) -> Any:
            return await call(client, "call_tool", name="own.count", **more)

        async with (
            raw_lines(gateway.get_endpoint(), era) as one,
            raw_lines(gateway.get_endpoint(), era) as two,
        ):
            assert [get_count(await count(client)) for client in (one, one, two, one)] == [
                1,
                2,
                1,
                3,
            ]
        async with serve_http(gateway) as url, raw_http(url, era) as one, raw_http(url, era) as two:
            if era == "legacy":
                assert [get_count(await count(client)) for client in (one, one, two, one)] == [
                    1,
                    2,
                    1,
                    3,
                ]
                return
            mine = (await count(one))["result"]["_meta"]["portico/session"]
            other = (await count(two))["result"]["_meta"]["portico/session"]
            assert [
                get_count(await count(one, session=key)) for key in (mine, mine, other, mine)
            ] == [2, 3, 2, 4]


async def test_c7_a_shared_server_has_one_state_for_all() -> None:
    command, *arguments = counter()
    server = BackendConfig(command=command, args=tuple(arguments), protocol="legacy")
    async with (
        gateway_over(config=Config(servers={"all": server})) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as one,
        raw_lines(gateway.get_endpoint(), "modern") as two,
    ):
        answers = [await call(client, "call_tool", name="all.count") for client in (one, two, one)]
    assert [get_count(answer) for answer in answers] == [1, 2, 3]
    assert all("portico/session" not in str(answer) for answer in answers)


def offices() -> dict[str, FakeBackend]:
    office = FakeBackend(
        [
            tool("search_web", "Search the web for pages."),
            tool("send_mail", "Send an e-mail."),
            tool("add", "Add."),
        ]
    )
    for name in ("search_web", "send_mail", "add"):
        office.on_call(name, lambda arguments, name=name: text(f"did {name}"))
    return {"office": office}


@pytest.mark.parametrize(
    ("exposure", "listed", "queried"),
    [
        ("meta", [], ["office__search_web"]),
        ("semantic", ["office__send_mail"], ["office__search_web"]),
        (
            "full",
            ["office__search_web", "office__send_mail", "office__add"],
            ["office__search_web"],
        ),
        ("code", [], ["office__search_web"]),
    ],
)
async def test_e2_each_exposure_lists_its_own_and_a_query_what_serves_it(
    exposure: Exposure, listed: list[str], queried: list[str]
) -> None:
    config = Config(exposure=exposure, intent="send an e-mail", top_k=1)
    async with (
        gateway_over(offices(), config) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):

        async def names(**params: str) -> set[str]:
            found = await result(client, "tools/list", dict(params))
            return {tool["name"] for tool in found["tools"] if tool["name"].startswith("office")}

        assert await names() == set(listed)
        assert await names(query="search the web") == set(queried)
        answer = await call(client, "office__search_web")
        assert answer["result"]["content"][0]["text"] == "did search_web"
