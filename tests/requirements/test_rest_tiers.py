"""Rows of docs/requirements.md that the REST routes answer for, each by its name. Where the
recorded fleet is
there, with it."""

import gzip
import itertools
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from portico.config import Config
from portico.rendering.token_budget import get_best_counter
from tests.api.api_client import V1, ApiClient, backend, make_tools, open_api
from tests.interaction.fake_servers import tool

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
COUNT = get_best_counter().count
MADE_UP = {
    "serena": [
        tool(
            "find_symbol",
            "Static analysis: find code symbols by name pattern.",
            name_path_pattern="string",
        ),
        tool(
            "find_referencing_symbols",
            "Static analysis: find all references to a symbol.",
            name_path="string",
        ),
        tool(
            "rename_everywhere",
            "Static analysis: rename a symbol in the whole project.",
            name_path="string",
        ),
    ],
    "playwright": [tool("browser_snapshot", "Capture an accessibility snapshot of a web page.")],
}


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["made up", pytest.param("fleet", marks=pytest.mark.slow)],
)
async def side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[ApiClient]:
    if request.param == "made up":
        large = {f"server-{at}": backend(*make_tools(f"t{at}", 40)) for at in range(5)}
        servers = {name: backend(*tools) for name, tools in MADE_UP.items()}
        async with open_api({**servers, **large}) as found:
            yield found
        return
    if not FLEET.exists():
        pytest.skip(f"the recorded fleet is not at {FLEET}")
    folder = tmp_path_factory.mktemp("fleet")
    async with open_api(
        {}, Config.model_validate({"data_dir": folder, "servers": _load_recorded(folder)})
    ) as found:
        yield found


def _load_recorded(folder: Path) -> dict[str, Any]:
    servers: dict[str, Any] = {}
    with gzip.open(FLEET) as lines:
        for line in lines:
            slug = orjson.loads(line)["slug"]
            (folder / f"{slug}.json").write_bytes(line)
            servers[slug] = {"recorded": str(folder / f"{slug}.json")}
    return servers


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def text(side: ApiClient, path: str) -> str:
    reply = await side.http.get(path if path.startswith("/api") else f"{V1}/{path}")
    assert reply.status_code == 200, reply.text
    return reply.text


async def test_b1_each_tier_fits_its_budget_together_with_those_before_it(side: ApiClient):
    hot, categories = (
        COUNT(await text(side, "tools/hot")),
        COUNT(await text(side, "tools/categories")),
    )
    assert hot <= 2_000
    assert hot + categories <= 4_000
    listed = (await side.get("tools/categories"))["categories"]
    worst = max(
        [
            COUNT(await text(side, f"tools/category/{one['category']}?page_size=100"))
            for one in listed
        ]
    )
    assert hot + categories + worst <= 8_000
    addresses = itertools.islice(sorted(side.gateway.catalog.snapshot.tools), 0, None, 7)
    for server, _, name in (address.partition(".") for address in addresses):
        whole = COUNT((await side.http.get(f"{V1}/tools/{server}/{_segment(name)}")).text)
        assert hot + categories + worst + whole <= 12_000, name


def _segment(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("?", "%3F").replace("#", "%23")


async def test_b2_the_four_endpoints_answer_with_their_tiers(side: ApiClient):
    snapshot = side.gateway.catalog.snapshot
    hot = (await side.get("tools/hot"))["tools"]
    assert 0 < len(hot) <= 15
    assert all(
        {"tool", "description"} <= card.keys() for card in hot if card["tool"] in snapshot.tools
    )
    categories = (await side.get("tools/categories"))["categories"]
    for_models = sum(len(server.for_models.tools) for server in snapshot.servers.values())
    assert sum(card["tools"] for card in categories) == for_models
    assert all(card["title"] and card["servers"] and card["popular_tools"] for card in categories)
    for card in categories:
        page = await side.get(f"tools/category/{card['category']}", page=1, page_size=5)
        assert page["pagination"]["total_count"] == card["tools"]
        assert page["tools"][0]["tool"] == card["popular_tools"][0]
    server, _, name = hot[0]["tool"].partition(".")
    whole = await side.get(f"{V1}/tools/{server}/{_segment(name)}", max_tokens=100_000)
    assert whole["input_schema"] == snapshot.resolve_tool(hot[0]["tool"]).definition["inputSchema"]
    assert {"schema", "usage", "category"} <= whole.keys()


async def test_b4_lists_are_loaded_until_the_budget_is_spent_and_go_on_where_it_was(
    side: ApiClient,
):
    categories = (await side.get("tools/categories"))["categories"]
    largest = categories[0]
    path = f"tools/category/{largest['category']}"
    seen: list[str] = []
    address = f"{V1}/{path}?page_size=100&max_tokens=1500"
    while address:
        body = orjson.loads(answer := await text(side, address))
        assert COUNT(answer) <= 1_500
        seen += [card["tool"] for card in body["tools"]]
        address = body.get("next")
    assert len(seen) == len(set(seen)) == largest["tools"]


async def test_b5_quick_tools_of_a_kind_are_found_in_one_request(side: ApiClient):
    snapshot = side.gateway.catalog.snapshot
    servers = {name: entry for name, entry in snapshot.servers.items() if entry.tools}
    kinds = {
        name: snapshot.get_category(f"{name}.{next(iter(entry.tools))}")
        for name, entry in servers.items()
    }
    server, kind, (quick, slow) = next(
        (name, kind, alike[:2])
        for name, kind in kinds.items()
        if len(
            alike := [
                one
                for one in snapshot.servers[name].tools.values()
                if snapshot.get_category(one.address) == kind
            ]
        )
        > 1
    )
    side.record_call(quick.address, ms=47)
    side.record_call(slow.address, ms=2_000)
    for given in (
        {"query": quick.name, "category": kind, "server": server},
        {"category": kind, "server": server},
    ):
        found = await side.get_all("tools", "tools", max_latency_ms=100, **given)
        names = [card["tool"] for card in found]
        assert quick.address in names
        assert slow.address not in names
        assert all(card.get("p50_ms", 0) <= 100 for card in found)
    side.record_call(quick.address, ms=47, ok=False)
    reliable = await side.get_all("tools", "tools", server=server, min_success_rate=0.99)
    assert quick.address not in [card["tool"] for card in reliable]
    assert slow.address in [card["tool"] for card in reliable]


async def test_b7_the_tiers_are_cached_for_their_lifetimes(side: ApiClient):
    (category, *_) = (await side.get("tools/categories"))["categories"]
    for path, seconds in (
        ("hot", 3_600),
        ("categories", 21_600),
        (f"category/{category['category']}", 3_600),
    ):
        reply = await side.http.get(f"{V1}/tools/{path}")
        assert reply.headers["cache-control"] == f"private, max-age={seconds}"
        again = await side.http.get(
            f"{V1}/tools/{path}", headers={"if-none-match": reply.headers["etag"]}
        )
        assert again.status_code == 304
