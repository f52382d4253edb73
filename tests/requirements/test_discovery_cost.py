"""Row A14 of docs/requirements.md: from a question to the call for less than 4,000 tokens, and
every tool
still reachable."""

import re

import pytest
from mcp.client import Client

from portico.config import Config
from portico.demo import make_demo_servers
from portico.rendering.token_budget import get_best_counter
from portico.testing import connect, gateway_over
from tests.interaction.fake_servers import ask

QUESTIONS = (
    ("turn a title into something for a URL", "text.slugify", {"text": "Hello, World"}),
    (
        "how many kilometres are 26 miles",
        "units.convert",
        {"value": 26, "from_unit": "mile", "to_unit": "km"},
    ),
    ("write something down for later", "notes.create_note", {"title": "Milk"}),
)


def tokens(text: str) -> int:
    return get_best_counter().count(text)


@pytest.mark.parametrize(("question", "name", "arguments"), QUESTIONS)
async def test_a14_a_discovery_flow_costs_less_than_4_000_tokens(
    question: str, name: str, arguments: dict[str, object]
) -> None:
    async with (
        gateway_over(config=Config(servers=make_demo_servers())) as gateway,
        connect(gateway) as client,
    ):
        listed = tokens(
            "".join(tool.model_dump_json() for tool in (await client.list_tools()).tools)
        )
        found = await ask(client, "search_tools", query=question)
        assert name in found
        described = await ask(client, "describe_tools", names=[name])
        called = await ask(client, "call_tool", name=name, arguments=arguments)
    assert listed + sum(map(tokens, (found, described, called))) < 4_000


async def test_a14_every_tool_is_still_reachable() -> None:
    async with (
        gateway_over(config=Config(servers=make_demo_servers())) as gateway,
        connect(gateway) as client,
    ):
        tools = gateway.catalog.snapshot.tools
        browsed = [
            name for server in make_demo_servers() for name in await _browse_all(client, server)
        ]
        assert sorted(browsed) == sorted(tools)
        for name in tools:
            assert (await ask(client, "describe_tools", names=[name])).startswith(name)
            assert name in await ask(client, "search_tools", query=name)


async def _browse_all(client: Client, server: str) -> list[str]:
    """Every tool of a server, page after page."""
    names, more = list[str](), dict[str, str]()
    while True:
        page = await ask(client, "browse_tools", server=server, page_size=5, **more)
        names += re.findall(rf"^({server}\.\w+)\(", page, re.MULTILINE)
        cursor = re.search(r'cursor="([^"]+)"', page)
        if cursor is None:
            return names
        more = {"cursor": cursor[1]}
