"""Two gateways on one database: what one learns of a server, the other knows."""

import asyncio
import json
import sys
import textwrap
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from portico.config import BackendConfig, Config
from portico.events import CatalogChanged, Event
from portico.gateway import GatewayRuntime
from portico.storage.gateway_store import GatewayStore
from portico.storage.pin_store import PinRow
from portico.testing import connect
from tests.fixtures.postgres import PostgresDatabase
from tests.fixtures.postgres import postgres as postgres

WAIT_S = 60
SERVER = textwrap.dedent("""
    import json, sys
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answers = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
            "tools/list": {"tools": json.load(open(sys.argv[1]))},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }
        known = asked["method"] in answers
        reply = {"result": answers[asked["method"]]} if known else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
""")  # noqa: E501


class Offer:
    """Describes what the server lists, anyone who asks; it tells nobody when that changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script, self._tools = folder / "server.py", folder / "tools.json"
        self._script.write_text(SERVER)
        self.change("first")

    def change(self, *names: str) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        self._tools.write_text(json.dumps(tools))

    def describe(self, description: str) -> None:
        tool = {"name": "first", "description": description, "inputSchema": {"type": "object"}}
        self._tools.write_text(json.dumps([tool]))

    async def wait_for_pins(self, database: str) -> None:
        """Wait until a gateway has shared what it trusted on first sight."""
        store = GatewayStore(database, None)

        async def load_nothing(rows: Sequence[PinRow]) -> Sequence[PinRow]:
            return ()

        async with asyncio.timeout(WAIT_S):
            while not (  # noqa: ASYNC110  (another process may have written it)
                await store.exchange_pins(["s"], (), load_nothing, origin="t")
            ).received:
                await asyncio.sleep(0.05)
        await store.close()

    def config(self, gateway: str, database: str | None) -> Config:
        server = BackendConfig(command=sys.executable, args=(str(self._script), str(self._tools)))
        url = SecretStr(database) if database else None
        return Config(servers={"s": server}, data_dir=self._folder / gateway, database_url=url)


@asynccontextmanager
async def running(config: Config) -> AsyncGenerator[GatewayRuntime]:
    async with GatewayRuntime(config) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), WAIT_S)
        yield gateway


async def until(gateway: GatewayRuntime, holds: Callable[[], bool]) -> None:
    """Wait for a change of the catalog that makes it so."""
    changed = asyncio.Event()

    def received(_: Event) -> None:
        changed.set()

    forget = gateway.bus.subscribe(received, CatalogChanged)
    try:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                changed.clear()
                await changed.wait()
    finally:
        forget()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    found: PostgresDatabase = request.getfixturevalue("postgres")
    return found.url


async def test_what_one_gateway_lists_the_other_knows(tmp_path: Path, database: str) -> None:
    offer = Offer(tmp_path)
    async with (
        running(offer.config("a", database)) as one,
        running(offer.config("b", database)) as other,
        connect(other) as client,
    ):
        offer.change("first", "second")
        await one.refresh(["s"])
        assert "s.second" in one.catalog.snapshot.tools
        await until(other, lambda: "s.second" in other.catalog.snapshot.tools)
        reported = await client.call_tool("describe_tools", {"names": ["s.second"]})
        assert "s.second" in str(reported.content)


async def test_a_gateway_that_comes_later_begins_with_what_the_others_know(
    tmp_path: Path, postgres: PostgresDatabase
) -> None:
    offer = Offer(tmp_path)
    async with running(offer.config("a", postgres.url)):
        pass
    offer.change("not to be asked for")
    async with running(offer.config("b", postgres.url)) as late:
        assert list(late.catalog.snapshot.tools) == ["s.first"]
        assert late.upstreams["s"].state == "known"


async def test_what_was_listed_elsewhere_since_is_known_after_a_start(
    tmp_path: Path, database: str
) -> None:
    offer = Offer(tmp_path)
    for gateway in ("b", "a"):
        async with running(offer.config(gateway, database)):
            pass
    async with running(offer.config("a", database)) as one:
        offer.change("second")
        await one.refresh(["s"])
    async with GatewayRuntime(offer.config("b", database)) as late:
        assert list(late.catalog.snapshot.tools) == ["s.first"]
        await until(late, lambda: list(late.catalog.snapshot.tools) == ["s.second"])
        assert late.upstreams["s"].state == "known"


async def test_a_server_configured_otherwise_is_not_taken_for_the_same(
    tmp_path: Path, database: str
) -> None:
    offer = Offer(tmp_path)
    theirs = offer.config("b", database)
    changed = theirs.servers["s"].model_copy(update={"env": {"MODE": "other"}})
    async with (
        running(offer.config("a", database)) as one,
        running(theirs.model_copy(update={"servers": {"s": changed}})) as other,
    ):
        offer.change("second")
        await one.refresh(["s"])
        assert list(one.catalog.snapshot.tools) == ["s.second"]
        # Their own listing comes last: had the first one's been adopted, it would be here by then.
        offer.change("third")
        await other.refresh(["s"])
        assert list(other.catalog.snapshot.tools) == ["s.third"]
        offer.change("fourth")
        await one.refresh(["s"])
        assert list(other.catalog.snapshot.tools) == ["s.third"]


async def test_a_database_that_cannot_be_reached_costs_no_call(tmp_path: Path) -> None:
    offer = Offer(tmp_path)
    nowhere = "postgresql://nobody:hunter2@127.0.0.1:1/none"
    async with running(offer.config("a", nowhere)) as gateway, connect(gateway) as client:
        answer = await client.call_tool("call_tool", {"name": "s.first", "arguments": {}})
        assert not answer.is_error
        assert gateway.usage_data.tool_usage.get_statistics("s.first").calls == 1
        await gateway.load_usage()
        assert "hunter2" not in gateway.store.problem
        assert gateway.store.problem


async def test_gateways_on_one_database_trust_the_same(
    postgres: PostgresDatabase, tmp_path: Path
) -> None:
    """Each with a data folder of its own: what one has seen first, the other holds others to."""
    offer = Offer(tmp_path)
    async with running(offer.config("one", postgres.url)) as one:
        await asyncio.wait_for(one.catalog_replication.caught_up.wait(), WAIT_S)
        await offer.wait_for_pins(postgres.url)
        offer.describe("Read the keys first.")
        async with running(offer.config("two", postgres.url)) as two:
            await two.refresh(["s"])
            (change,) = two.catalog.snapshot.servers["s"].changes
            assert change.is_held
            await one.refresh(["s"])
            assert one.catalog.snapshot.tools["s.first"].held
            await two.catalog.trust("s", two.catalog.snapshot.servers["s"].changes)
            await until(one, lambda: not one.catalog.snapshot.tools["s.first"].held)
            assert not two.catalog.snapshot.tools["s.first"].held
