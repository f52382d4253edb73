"""A recorded fleet of 182 real servers behind one gateway: nothing lost, nothing changed,
everything in budget."""

import asyncio
import gzip
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from mcp.client import Client

from portico.catalog.address import assign_identifiers
from portico.catalog.entries import build_documents
from portico.catalog.snapshot import Snapshot
from portico.config import BackendConfig, Config, Profile, ProfileBudgets
from portico.gateway import GatewayRuntime
from portico.meta_tools import browse_tools, capability_index, tool_definitions
from portico.rendering.token_budget import get_best_counter
from portico.search import Index
from portico.testing import connect, gateway_over
from portico.upstream.backend import Raw
from portico.usage.tool_tiers import RankedCatalog
from tests.meta_tools import searching

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
QUERIES = SHARED / "fleet" / "queries_dev.jsonl.gz"
BUDGET = 2_000
TIMEOUT_S = 240
WARNING = "[The gateway warns: "
"""Begins what `describe_tools` adds where a definition has a finding."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}"),
    pytest.mark.asyncio(loop_scope="module"),
]


def lines_of(path: Path) -> list[Raw]:
    with gzip.open(path) as lines:
        return [orjson.loads(line) for line in lines]


@dataclass(frozen=True)
class Fleet:
    """The recordings, the gateway over them, and a client of it."""

    recordings: dict[str, Raw]
    gateway: GatewayRuntime
    client: Client
    wide: Client
    """A client of a profile with a larger budget, so that more tools fit one answer."""

    @property
    def snapshot(self) -> Snapshot:
        return self.gateway.get_view().snapshot


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fleet]:
    recordings = {record["slug"]: record for record in lines_of(FLEET)}
    config = Config(
        servers={slug: BackendConfig(recorded=FLEET, recorded_slug=slug) for slug in recordings},
        profiles={"wide": Profile(budgets=ProfileBudgets(discovery=60_000))},
        data_dir=tmp_path_factory.mktemp("data"),
    )
    ready: asyncio.Future[Fleet] = asyncio.get_running_loop().create_future()
    leave = asyncio.Event()

    async def live() -> None:
        # In a task of its own: a client has to be closed by the task that opened it, and a fixture
        # has two.
        async with (
            gateway_over(config=config) as gateway,
            connect(gateway) as client,
            connect(gateway, profile="wide") as wide,
        ):
            ready.set_result(Fleet(recordings, gateway, client, wide))
            await leave.wait()

    living = asyncio.create_task(live())
    await asyncio.wait({living, ready}, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT_S)
    if living.done():
        await living
    yield ready.result()
    leave.set()
    await asyncio.wait_for(living, TIMEOUT_S)


@pytest.fixture(scope="module")
def tokens() -> Iterator[Callable[[str], int]]:
    """Exact where the table is at hand, else the estimate."""
    with pytest.MonkeyPatch.context() as patch:
        if "TIKTOKEN_CACHE_DIR" not in os.environ:
            patch.setenv("TIKTOKEN_CACHE_DIR", str(SHARED / "tokenizer"))
        yield get_best_counter().count


async def ask(client: Client, name: str, /, **arguments: Any) -> tuple[str, bool]:
    result = await asyncio.wait_for(client.call_tool(name, arguments), TIMEOUT_S)
    block: Any = result.content[0]
    assert block.annotations.priority == (0.3 if len(block.text) > 2_000 else 0.7)
    return block.text, result.is_error


def cursor_in(answer: str) -> str | None:
    found = re.search(r'cursor="([\w-]{28})"', answer)
    return found[1] if found else None


def find_addresses(fleet: Fleet, answer: str) -> list[str]:
    """The addresses that lead a line of an answer, in order."""
    leading = re.findall(r"^([A-Za-z0-9_-]+\.[^(\n]+?)(?:\(| \[| — |$)", answer, re.MULTILINE)
    return [address for address in leading if address in fleet.snapshot.tools]


# Nothing lost, nothing changed


def is_for_models(tool: dict[str, Any]) -> bool:
    """Whether a tool is for others than apps (`_meta.ui.visibility` of MCP Apps)."""
    return "model" in tool.get("_meta", {}).get("ui", {}).get("visibility", ["model"])


async def test_every_server_loads_and_no_tool_is_lost(fleet: Fleet):
    offered = {
        slug: [tool["name"] for tool in record["tools"] if is_for_models(tool)]
        for slug, record in fleet.recordings.items()
    }
    known = {slug: list(entry.tools) for slug, entry in fleet.snapshot.servers.items()}
    assert len(known) == 182
    assert known == {slug: list(dict.fromkeys(names)) for slug, names in offered.items()}
    assert len(fleet.snapshot.tools) == sum(map(len, offered.values())) == 4_130
    assert len(fleet.snapshot.index) == 4_136  # with six that are for apps alone
    assert [entry.warnings for entry in fleet.snapshot.servers.values() if entry.warnings] == []


async def test_what_else_the_servers_offer_is_kept_as_it_came(fleet: Fleet):
    for slug, record in fleet.recordings.items():
        offers = fleet.snapshot.servers[slug].offers
        for kind, kept in (("prompts", offers.prompts), ("resources", offers.resources)):
            listed = record.get(kind)
            declared = kind in record["initialize"]["capabilities"] and isinstance(listed, list)
            assert list(kept) == (listed if declared else []), slug


async def test_the_full_description_of_every_tool_has_its_definition_unchanged(fleet: Fleet):
    upstream = {
        f"{slug}.{tool['name']}": tool
        for slug, record in fleet.recordings.items()
        for tool in record["tools"]
        if is_for_models(tool)
    }
    names = list(upstream)
    waiting = [
        names[start : start + tool_definitions.MAX_NAMES]
        for start in range(0, len(names), tool_definitions.MAX_NAMES)
    ]
    seen: set[str] = set()
    while waiting:
        batch = waiting.pop(0)
        answer, is_error = await ask(fleet.wide, "describe_tools", names=batch, detail="full")
        assert not is_error
        parts = answer.split("\n\n")
        if left := re.fullmatch(r"Left out to fit: (.*)\. Ask for them separately\.", parts[-1]):
            waiting += [[name] for name in left[1].split(", ")]
            parts.pop()
        for part in parts:
            address = find_addresses(fleet, part)[0]
            assert address in batch
            definition = upstream[address]
            # What the server said comes last, a line of JSON for each key but its name and
            # description.
            keys = [key for key in definition if key not in ("name", "description")]
            lines = [line for line in part.split("\n") if not line.startswith(WARNING)]
            raw = lines[-len(keys) :] if keys else []
            read = {key: line.removeprefix(f"{key}: ") for key, line in zip(keys, raw, strict=True)}
            assert {key: orjson.loads(text) for key, text in read.items()} == {
                key: definition[key] for key in keys
            }
            seen.add(address)
    assert seen == upstream.keys()


async def test_flat_names_are_legal_and_unique(fleet: Fleet):
    flat = fleet.snapshot.tools_by_flat_name
    assert len(flat) == len(fleet.snapshot.tools)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in flat)
    assert sum(re.fullmatch(r".*_[0-9a-f]{8}", name) is not None for name in flat) < 60


async def test_every_tool_is_found_by_address_flat_name_and_identifier(fleet: Fleet):
    snapshot = fleet.snapshot
    for flat, tool in snapshot.tools_by_flat_name.items():
        assert snapshot.resolve_tool(tool.address) is tool
        assert snapshot.resolve_tool(flat) is tool
    servers = assign_identifiers(snapshot.servers)
    assert sorted(servers.values()) == sorted(snapshot.servers)
    for word, server in servers.items():
        for tool_word, name in assign_identifiers(snapshot.servers[server].tools).items():
            assert snapshot.resolve_tool(f"{word}.{tool_word}").address == f"{server}.{name}"
            assert snapshot.resolve_tool(f"{word}__{tool_word}").address == f"{server}.{name}"


async def test_every_usual_separator_leads_to_every_tool(fleet: Fleet):
    snapshot = fleet.snapshot
    for tool in list(snapshot.tools.values())[::9]:
        for name in (
            f"{tool.server}::{tool.name}",
            f"{tool.server}:{tool.name}",
            f"{tool.server}/{tool.name}",
            f"{tool.server}__{tool.name}",
            f"mcp__portico__{tool.server}__{tool.name}",
        ):
            assert snapshot.resolve_tool(name) is tool


async def test_a_call_is_answered_as_recorded_only(fleet: Fleet):
    for slug in list(fleet.recordings)[::30]:
        name, tool = next(iter(fleet.snapshot.servers[slug].tools.items()))
        if not tool.input_schema.get("required"):
            text, is_error = await ask(fleet.client, "call_tool", name=f"{slug}.{name}")
            assert is_error
            assert text.startswith(f"recorded_only: {slug} is a recording")


# The list


async def test_the_list_is_byte_identical_from_call_to_call_and_from_client_to_client(fleet: Fleet):
    lists = [
        (await client.list_tools()).model_dump_json()
        for client in (fleet.client, fleet.client, fleet.wide)
    ]
    assert len(set(lists)) == 1
    assert [tool.name for tool in (await fleet.client.list_tools()).tools] == list(
        tool_definitions.META_TOOL_NAMES
    )


async def test_the_capability_index_fits_its_tokens(fleet: Fleet, tokens: Callable[[str], int]):
    index = capability_index.build_capability_index(fleet.snapshot.main_categories)
    assert tokens(index) <= capability_index.CAPABILITY_INDEX_TOKENS
    listed = (await fleet.client.list_tools()).tools[0]
    assert listed.description is not None
    assert listed.description.endswith(index)


# Budgets


@pytest.mark.parametrize("detail", ["brief", "schema"])
@pytest.mark.parametrize("limit", [1, 8, 50])
async def test_no_search_is_over_its_budget(
    fleet: Fleet, tokens: Callable[[str], int], detail: str, limit: int
):
    for query in (line["query"] for line in lines_of(QUERIES)):
        answer, is_error = await ask(
            fleet.client, "search_tools", query=query, detail=detail, limit=limit
        )
        assert not is_error
        assert tokens(answer) <= BUDGET or len(find_addresses(fleet, answer)) == 1, query
        assert len(find_addresses(fleet, answer)) <= limit


@pytest.mark.parametrize("budget", [300, 600])
async def test_smaller_budgets_hold_too(fleet: Fleet, tokens: Callable[[str], int], budget: int):
    for query in (line["query"] for line in lines_of(QUERIES)):
        for limit in (8, 50):
            assert (
                tokens(searching.search(fleet.snapshot, {}, budget, query, limit=limit)) <= budget
            ), query
        schemas = searching.search(fleet.snapshot, {}, budget, query, limit=8, detail="schema")
        assert tokens(schemas) <= budget or len(find_addresses(fleet, schemas)) == 1, query


async def test_browsing_leads_through_every_tool_exactly_once_and_in_budget(
    fleet: Fleet, tokens: Callable[[str], int]
):
    seen: list[str] = []
    for server in fleet.recordings:
        cursor: str | None = None
        own: list[str] = []
        again = 0
        while True:
            answer, is_error = await ask(fleet.client, "browse_tools", server=server, cursor=cursor)
            if is_error and cursor is not None and again < 3:
                # What comes first was computed again meanwhile: a client that sees it begins
                # again.
                assert "cursor" in answer, answer
                cursor, own, again = None, [], again + 1
                continue
            assert not is_error, answer
            assert tokens(answer) <= BUDGET, server
            own += [
                address
                for address in find_addresses(fleet, answer)
                if address.startswith(f"{server}.")
            ]
            cursor = cursor_in(answer)
            if cursor is None:
                break
        seen += own
    assert sorted(seen) == sorted(fleet.snapshot.tools)


@pytest.mark.parametrize("budget", [200, 500, BUDGET, 8_000])
async def test_categories_lead_through_every_tool_exactly_once_and_in_budget(
    fleet: Fleet, tokens: Callable[[str], int], budget: int
):
    shelves, seen = RankedCatalog(fleet.snapshot), list[str]()
    for category in shelves.categories:
        cursor: str | None = None
        while True:
            answer = browse_tools.browse(shelves, {}, budget, category=category, cursor=cursor)
            assert tokens(answer) <= budget, category
            seen += find_addresses(fleet, answer)
            cursor = cursor_in(answer)
            if cursor is None:
                break
    assert sorted(seen) == sorted(fleet.snapshot.tools)


async def test_the_overview_leads_through_every_server_exactly_once_and_in_budget(
    fleet: Fleet, tokens: Callable[[str], int]
):
    seen: list[str] = []
    cursor: str | None = None
    while True:
        answer, is_error = await ask(fleet.client, "browse_tools", cursor=cursor)
        assert not is_error
        assert tokens(answer) <= BUDGET
        seen += re.findall(
            r"^([\w-]+)(?: \[[^\]]*\]| \([^)]*\))?: \d+ tools?", answer, re.MULTILINE
        )
        cursor = cursor_in(answer)
        if cursor is None:
            break
    assert seen == sorted(fleet.recordings)


@pytest.mark.parametrize(
    ("query", "server"), [("delete", None), ("list the open issues", "gitlab-ref"), ("file", None)]
)
async def test_a_search_leads_through_every_match_exactly_once(
    fleet: Fleet, tokens: Callable[[str], int], query: str, server: str | None
):
    # By words: vectors come in while the gateway is new, and every one may move a tool to another
    # page.
    entries = fleet.snapshot.servers
    words = Snapshot(
        entries, Index.build(one for entry in entries.values() for one in build_documents(entry))
    )
    total = searching.rank(words, query, server).total
    seen: list[str] = []
    cursor: str | None = None
    while True:
        answer = searching.search(words, {}, BUDGET, query, server=server, limit=50, cursor=cursor)
        assert tokens(answer) <= BUDGET
        seen += find_addresses(fleet, answer)
        cursor = cursor_in(answer)
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == total
    assert total > 50 or server


@pytest.mark.parametrize("detail", ["brief", "schema"])
async def test_descriptions_of_ten_are_in_budget_or_of_one(
    fleet: Fleet, tokens: Callable[[str], int], detail: str
):
    addresses = list(fleet.snapshot.tools)
    for start in range(0, len(addresses), 97):
        answer, _ = await ask(
            fleet.client, "describe_tools", names=addresses[start : start + 10], detail=detail
        )
        described = [
            part for part in answer.split("\n\n") if not part.startswith("Left out to fit")
        ]
        assert tokens(answer) <= BUDGET or (detail == "schema" and len(described) == 1)
