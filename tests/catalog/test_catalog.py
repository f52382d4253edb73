"""The catalog is loaded from disk, updated from listings, and reports what changed."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.catalog.catalog import Catalog
from portico.catalog.entries import ServerSource
from portico.catalog.listing import ServerListing, salvage_tools
from portico.catalog.listing_sync import ServerSync
from portico.config import BackendConfig, Config, ToolRules
from portico.errors import BackendUnavailable
from portico.events import CatalogChanged, Event, EventBus, ListChangeAnnounced
from portico.gateway import MANIFEST_FILE, GatewayRuntime
from portico.meta_tools.describe_tools import describe
from portico.search import Index
from portico.storage.manifests import ManifestStore
from portico.storage.search_files import IndexFile
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import InitializeInfo, Raw
from portico.upstream.lifecycle.supervisor import Upstream
from tests.meta_tools import searching

TIMEOUT_S = 240


def tool(name: str, description: str = "Does it.", **more: Any) -> Raw:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def listing(*tools: Any) -> ServerListing:
    kept, warnings = salvage_tools(tools)
    return ServerListing(InitializeInfo("legacy", "2025-11-25"), kept, warnings=warnings)


class ReceivedEvents:
    """Every event, and a way to wait for one."""

    def __init__(self, bus: EventBus) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()
        bus.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    async def until(self, fits: Callable[[Event], bool]) -> Event:
        async with asyncio.timeout(TIMEOUT_S):
            while not (found := next((event for event in self.events if fits(event)), None)):
                self._more.clear()
                await self._more.wait()
        return found

    @property
    def changes(self) -> list[CatalogChanged]:
        return [event for event in self.events if isinstance(event, CatalogChanged)]


def listings(backend: FakeBackend) -> int:
    return sum(method == "tools/list" for method, _ in backend.requests)


@asynccontextmanager
async def remembering(folder: Path, **backends: FakeBackend) -> AsyncGenerator[GatewayRuntime]:
    async with GatewayRuntime(Config(data_dir=folder), backends=backends) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        yield gateway


async def asked(gateway: GatewayRuntime, name: str, /, **arguments: Any) -> str:
    async with connect(gateway) as client:
        result = await client.call_tool(name, arguments)
        return result.content[0].text  # pyright: ignore


# The manifest comes first


async def test_a_second_gateway_answers_everything_but_calls_with_no_server_started(tmp_path: Path):
    offer = [tool("send_mail", "Sends a letter."), tool("read_mail", "Reads a letter.")]
    first = FakeBackend(offer, prompts=[{"name": "greet"}], instructions="Write nicely.")
    async with remembering(tmp_path, post=first) as gateway:
        version = gateway.catalog.snapshot.version
    second = FakeBackend(offer)
    async with remembering(tmp_path, post=second) as gateway:
        assert gateway.catalog.snapshot.version == version
        assert gateway.upstreams["post"].state == "known"
        assert "post.send_mail" in await asked(gateway, "search_tools", query="send a letter")
        assert "post.read_mail" in await asked(gateway, "browse_tools", server="post")
        assert "Write nicely." in await asked(gateway, "browse_tools", server="post")
        assert "Reads a letter." in await asked(gateway, "describe_tools", names=["post.read_mail"])
        async with connect(gateway) as client:
            assert (await client.list_prompts()).prompts[-1].name == "post__greet"
        assert second.connections == 0


async def test_the_first_call_starts_a_remembered_server_and_lists_it_again(tmp_path: Path):
    async with remembering(tmp_path, post=FakeBackend([tool("old"), tool("kept")])):
        pass
    changed = FakeBackend([tool("kept"), tool("new")])
    changed.on_call("kept", lambda arguments: {"content": [{"type": "text", "text": "done"}]})
    async with remembering(tmp_path, post=changed) as gateway:
        received = ReceivedEvents(gateway.bus)
        assert await asked(gateway, "call_tool", name="post.kept") == "done"
        await received.until(lambda event: isinstance(event, CatalogChanged))
        assert received.changes == [
            CatalogChanged("post", added=("post.new",), removed=("post.old",))
        ]
        assert changed.connections == 1


async def test_the_era_a_server_spoke_is_remembered(tmp_path: Path):
    async with remembering(tmp_path, post=FakeBackend([tool("t")], era="modern")):
        pass
    async with remembering(tmp_path, post=FakeBackend([tool("t")], era="modern")) as gateway:
        assert gateway.upstreams["post"].era == "modern"


def index_file(path: Path) -> Path:
    return path.with_name("search.index")


def opened(path: Path, *sources: ServerSource) -> Catalog:
    catalog = Catalog(
        sources, ManifestStore(path), EventBus(), index_file=IndexFile(index_file(path))
    )
    catalog.load()
    return catalog


async def test_another_configuration_remembers_nothing(tmp_path: Path):
    path = tmp_path / "m.sqlite3"
    await opened(path, ServerSource("s", "before")).accept_listing("s", listing(tool("t")))
    assert list(opened(path, ServerSource("s", "before")).snapshot.tools) == ["s.t"]
    after = opened(path, ServerSource("s", "after"))
    assert not after.snapshot.servers["s"].is_listed
    assert len(after.snapshot.index) == 0


async def test_rules_and_texts_of_the_configuration_are_those_of_now(tmp_path: Path):
    path = tmp_path / "m.sqlite3"
    await opened(path, ServerSource("s", "f")).accept_listing("s", listing(tool("a"), tool("b")))
    now = ServerSource(
        "s", "f", title="Now", tags=("new",), rules=ToolRules(deny=("a",), rename={"b": "better"})
    )
    snapshot = opened(path, now).snapshot
    assert list(snapshot.tools) == ["s.better"]
    assert snapshot.tools["s.better"].tags == ("new",)
    assert snapshot.servers["s"].title == "Now"
    assert [hit.id for hit in snapshot.index.search("better").hits] == ["s.better"]


async def test_what_cannot_be_read_of_one_server_costs_only_that_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "m.sqlite3"
    sources = ServerSource("good", "f"), ServerSource("bad", "f"), ServerSource("worse", "f")
    catalog = opened(path, *sources)
    for source in sources:
        await catalog.accept_listing(source.name, listing(tool("t")))
    with sqlite3.connect(path) as db:
        db.execute(
            "update manifests set hello = ? where server = 'bad'", (b'{"no": "such field"}',)
        )
        db.execute("update manifests set offers = ? where server = 'worse'", (b"\xff",))
    snapshot = opened(path, *sources).snapshot
    assert [name for name, entry in snapshot.servers.items() if entry.is_listed] == ["good"]
    assert "what is remembered of bad cannot be read" in caplog.text


async def test_a_damaged_definition_is_shown_without_what_was_lost(tmp_path: Path):
    path = tmp_path / "m.sqlite3"
    await opened(path, ServerSource("s", "f")).accept_listing("s", listing(tool("t"), tool("u")))
    with sqlite3.connect(path) as db:
        db.execute("update tools set definition = ? where name = 't'", (b"{damaged",))
    index_file(path).unlink()
    snapshot = opened(path, ServerSource("s", "f")).snapshot
    assert describe(snapshot, 2_000, ["s.t", "s.u"])[0] == "s.t()\n\ns.u() — Does it."
    assert "s.t" in searching.search(snapshot, {}, 2_000, "t")


@pytest.mark.parametrize("body", [b"", b"no index", b"portico-index-2\n" + b"\0" * 64])
async def test_an_index_that_cannot_be_read_is_built_again(tmp_path: Path, body: bytes):
    path = tmp_path / "m.sqlite3"
    await opened(path, ServerSource("s", "f")).accept_listing("s", listing(tool("t")))
    index_file(path).write_bytes(body)
    assert [
        hit.id for hit in opened(path, ServerSource("s", "f")).snapshot.index.search("t").hits
    ] == ["s.t"]


@pytest.mark.parametrize(
    "content", [b"", b"this is no database" * 400, b"SQLite format 3\0" + b"\xff" * 4_096]
)
async def test_a_gateway_starts_whatever_lies_in_the_place_of_its_manifest(
    tmp_path: Path, content: bytes
):
    (tmp_path / MANIFEST_FILE).write_bytes(content)
    async with remembering(tmp_path, post=FakeBackend([tool("t")])) as gateway:
        assert "post.t" in await asked(gateway, "browse_tools", server="post")
    again = FakeBackend([tool("t")])
    async with remembering(tmp_path, post=again) as gateway:
        assert "post.t" in await asked(gateway, "browse_tools", server="post")
        assert again.connections == 0


async def test_a_gateway_starts_while_its_manifest_is_locked(tmp_path: Path):
    async with remembering(tmp_path, post=FakeBackend([tool("t")])):
        pass
    holder = sqlite3.connect(tmp_path / MANIFEST_FILE, isolation_level=None)
    holder.execute("pragma locking_mode = exclusive")
    holder.execute("begin exclusive")
    try:
        async with remembering(tmp_path, post=FakeBackend([tool("t"), tool("u")])) as gateway:
            assert "post.u" in await asked(gateway, "browse_tools", server="post")
    finally:
        holder.close()


async def test_two_gateways_share_one_manifest_file(tmp_path: Path):
    one, other = FakeBackend([tool("a")]), FakeBackend([tool("b")])
    async with remembering(tmp_path, left=one) as left, remembering(tmp_path, right=other) as right:
        received = ReceivedEvents(left.bus), ReceivedEvents(right.bus)
        one.change([tool("a2")])
        other.change([tool("b2")])
        for each in received:
            await each.until(lambda event: isinstance(event, CatalogChanged))
    silent = FakeBackend(), FakeBackend()
    async with remembering(tmp_path, left=silent[0], right=silent[1]) as gateway:
        assert sorted(gateway.catalog.snapshot.tools) == ["left.a2", "right.b2"]
    assert [backend.connections for backend in silent] == [0, 0]


# What changed


async def test_an_announced_change_is_one_listing_and_one_event():
    backend = FakeBackend([tool("same"), tool("gone"), tool("other", "Before.")])
    async with gateway_over({"s": backend}) as gateway:
        received, before = ReceivedEvents(gateway.bus), listings(backend)
        backend.change([tool("same"), tool("other", "After."), tool("new")])
        await received.until(lambda event: isinstance(event, ListChangeAnnounced))
        assert received.changes == [
            CatalogChanged("s", added=("s.new",), removed=("s.gone",), changed=("s.other",))
        ]
        assert sorted(gateway.catalog.snapshot.tools) == ["s.new", "s.other", "s.same"]
        assert listings(backend) == before + 1
        assert gateway.catalog.snapshot.index.search("new").hits[0].id == "s.new"


async def test_a_burst_of_announcements_is_one_listing():
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:
        received, before = ReceivedEvents(gateway.bus), listings(backend)
        for number in range(30):
            backend.change([tool(f"t{number}")])
        await received.until(lambda event: isinstance(event, ListChangeAnnounced))
        assert listings(backend) == before + 1
        assert received.changes == [CatalogChanged("s", added=("s.t29",), removed=("s.t",))]


async def test_what_changes_while_a_listing_is_under_way_is_listed_after_it():
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:
        received = ReceivedEvents(gateway.bus)
        asked_once = asyncio.Event()
        go_on = asyncio.Event()

        async def slow(params: Raw, ask: Any) -> Raw:
            found = list(backend.listing["tools"])
            asked_once.set()
            await asyncio.wait_for(go_on.wait(), TIMEOUT_S)
            return {"tools": found}

        backend.on("tools/list", slow)
        backend.change([tool("first")])
        await asyncio.wait_for(asked_once.wait(), TIMEOUT_S)
        backend.change([tool("second")])
        go_on.set()
        await received.until(
            lambda event: isinstance(event, CatalogChanged) and event.added == ("s.second",)
        )
        assert [change.added for change in received.changes] == [("s.first",), ("s.second",)]


async def test_an_announcement_without_a_change_is_no_event_of_the_catalog():
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:
        received, version = ReceivedEvents(gateway.bus), gateway.catalog.snapshot.version
        backend.say("notifications/tools/list_changed")
        await received.until(lambda event: isinstance(event, ListChangeAnnounced))
        assert received.changes == []
        assert gateway.catalog.snapshot.version == version


@pytest.mark.parametrize("kind", ["resources", "prompts"])
async def test_changes_of_the_lesser_lists_are_reported_as_such(kind: str):
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:
        received = ReceivedEvents(gateway.bus)
        backend.listing[kind] = [{"uri": "r:1", "name": "p"}]
        backend.say(f"notifications/{kind}/list_changed")
        await received.until(lambda event: isinstance(event, CatalogChanged))
        (change,) = received.changes
        assert (change.resources_changed, change.prompts_changed, change.tools_changed) == (
            kind == "resources",
            kind == "prompts",
            False,
        )


async def test_a_server_that_comes_back_is_listed_again():
    backend = FakeBackend([tool("t")])
    backend.on_call("t", lambda arguments: {"content": []})
    async with gateway_over({"s": backend}) as gateway:
        received = ReceivedEvents(gateway.bus)
        backend.die()
        backend.listing["tools"] = [tool("t", "It learned."), tool("u")]
        await gateway.calls.call(gateway.catalog.snapshot.resolve_tool("s.t"), {})
        await received.until(lambda event: isinstance(event, CatalogChanged))
        assert received.changes == [CatalogChanged("s", added=("s.u",), changed=("s.t",))]


async def test_the_tools_of_a_server_that_is_gone_stay_known():
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:
        backend.die("it was unplugged")
        assert list(gateway.catalog.snapshot.tools) == ["s.t"]


@asynccontextmanager
async def synced(
    backend: FakeBackend, ttl: float
) -> AsyncGenerator[tuple[ServerSync, ReceivedEvents, Catalog]]:
    bus = EventBus()
    catalog = Catalog([ServerSource("s", "f")], ManifestStore(None), bus)
    upstream = Upstream("s", backend, bus)
    sync = ServerSync(upstream, catalog, bus, timeout=TIMEOUT_S, ttl=ttl)
    received = ReceivedEvents(bus)
    yield sync, received, catalog
    await upstream.stop()
    await sync.close()
    await catalog.close()


async def test_a_listing_that_has_grown_old_is_asked_for_again():
    backend = FakeBackend([tool("t")])
    async with synced(backend, ttl=-1) as (sync, received, catalog):
        await sync.refresh()
        backend.listing["tools"] = [tool("u")]
        sync.refresh_if_expired()
        await received.until(
            lambda event: isinstance(event, CatalogChanged) and bool(event.removed)
        )
        assert received.changes[-1] == CatalogChanged("s", added=("s.u",), removed=("s.t",))
        assert list(catalog.snapshot.tools) == ["s.u"]


async def test_a_fresh_listing_and_a_server_that_sleeps_are_left_alone():
    backend = FakeBackend([tool("t")])
    async with synced(backend, ttl=3_600) as (sync, _, _):
        sync.refresh_if_expired()
        assert backend.connections == 0
        await sync.refresh()
        sync.refresh_if_expired()
        await sync.refresh()
        assert listings(backend) <= 3


async def test_concurrent_callers_wait_for_the_same_listing():
    backend = FakeBackend([tool("t")])
    async with synced(backend, ttl=3_600) as (sync, received, _):
        await asyncio.gather(*(sync.refresh() for _ in range(20)))
        assert listings(backend) <= 2
        assert len(received.changes) == 1


async def test_a_server_that_cannot_be_listed_is_degraded_and_keeps_what_is_known(
    caplog: pytest.LogCaptureFixture,
):
    backend = FakeBackend([tool("t")])
    async with gateway_over({"s": backend}) as gateway:

        def refuse(params: Raw, ask: Any) -> Raw:
            raise BackendUnavailable("out of order")

        backend.on("tools/list", refuse)
        with caplog.at_level(logging.WARNING):
            await asyncio.wait_for(gateway.refresh(["s"]), TIMEOUT_S)
        assert gateway.upstreams["s"].state == "degraded"
        assert "out of order" in gateway.upstreams["s"].reason
        assert list(gateway.catalog.snapshot.tools) == ["s.t"]


# Replacing the snapshot


async def test_listings_that_arrive_together_are_built_together():
    bus = EventBus()
    names = [f"s{number}" for number in range(40)]
    catalog = Catalog([ServerSource(name, "f") for name in names], ManifestStore(None), bus)
    received, seen = ReceivedEvents(bus), set[int]()
    bus.subscribe(lambda event: seen.add(id(catalog.snapshot)))
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*(catalog.accept_listing(name, listing(tool("t"))) for name in names))
    assert sorted(change.server for change in received.changes) == sorted(names)
    # They are compared with their pins in threads: how many are ready together is the machine's.
    assert len(seen) <= len(names) / 2
    assert len(catalog.snapshot.tools) == len(catalog.snapshot.index) == 40


async def test_of_two_listings_of_one_server_the_later_is_shown():
    catalog = Catalog([ServerSource("s", "f")], ManifestStore(None), EventBus())
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(catalog.accept_listing("s", listing(tool(f"t{number}"))) for number in range(5))
        )
    assert list(catalog.snapshot.tools) == ["s.t4"]


async def test_a_listing_that_is_long_compared_with_its_pins_does_not_replace_a_later_one():
    catalog = Catalog([ServerSource("s", "f")], ManifestStore(None), EventBus())
    steps = iter([20])

    async def take_longer_at_first():
        for _ in range(next(steps, 0)):
            await asyncio.sleep(0)

    catalog.wait_for_pins = take_longer_at_first
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(
            *(catalog.accept_listing("s", listing(tool(name))) for name in ("first", "second"))
        )
    assert list(catalog.snapshot.tools) == ["s.second"]


class SlowDisk(IndexFile):
    """A file that takes as long to write as a test wants."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writing, self.go_on = threading.Event(), threading.Event()

    def save(self, body: bytes) -> None:
        self.writing.set()
        assert self.go_on.wait(TIMEOUT_S)
        super().save(body)


async def test_a_listing_that_arrives_while_the_last_one_is_being_saved_is_not_lost(tmp_path: Path):
    disk, manifests = SlowDisk(tmp_path / "index"), ManifestStore(None)
    catalog = Catalog(
        [ServerSource("a", "f"), ServerSource("b", "f")], manifests, EventBus(), index_file=disk
    )
    first = asyncio.create_task(catalog.accept_listing("a", listing(tool("t"))))
    assert await asyncio.to_thread(disk.writing.wait, TIMEOUT_S)
    second = asyncio.create_task(catalog.accept_listing("b", listing(tool("t"))))
    await asyncio.sleep(0)
    disk.go_on.set()
    await asyncio.wait_for(asyncio.gather(first, second), TIMEOUT_S)
    assert sorted(catalog.snapshot.tools) == ["a.t", "b.t"]
    assert sorted(manifest for manifest in manifests.load({"a": "f", "b": "f"})) == ["a", "b"]
    stored = disk.load()
    assert stored is not None
    assert sorted(Index.load(stored).groups) == ["a", "b"]


async def test_a_query_that_runs_while_the_snapshot_is_replaced_sees_one_moment():
    offers = [
        [tool(f"t{number}_{turn}", f"Turn {turn}.") for number in range(60)] for turn in range(12)
    ]
    backend = FakeBackend(offers[0])
    async with gateway_over({"s": backend}) as gateway:
        stop = threading.Event()
        catalog = gateway.catalog

        def query() -> int:
            asked = 0
            while not stop.is_set() or not asked:
                snapshot = catalog.snapshot
                first = searching.search(snapshot, {}, 20_000, "turn", limit=50)
                # Every line is a tool of that one moment, however often the snapshot was replaced
                # meanwhile.
                shown = {line.split("(")[0] for line in first.splitlines() if line.startswith("s.")}
                assert len(shown) == 50
                assert shown <= snapshot.tools.keys()
                assert searching.search(snapshot, {}, 20_000, "turn", limit=50) == first
                asked += 1
            return asked

        askers = [asyncio.create_task(asyncio.to_thread(query)) for _ in range(2)]
        try:
            for offer in offers[1:]:
                backend.listing["tools"] = offer
                await asyncio.wait_for(gateway.refresh(["s"]), TIMEOUT_S)
        finally:
            stop.set()
        assert all(asked for asked in await asyncio.wait_for(asyncio.gather(*askers), TIMEOUT_S))
        assert catalog.snapshot.tools.keys() == {f"s.{one['name']}" for one in offers[-1]}


async def test_a_manifest_that_can_no_longer_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    manifests = ManifestStore(tmp_path / "m.sqlite3")
    bus = EventBus()
    catalog = Catalog([ServerSource("s", "f")], manifests, bus)
    received = ReceivedEvents(bus)
    manifests.close()
    await asyncio.wait_for(catalog.accept_listing("s", listing(tool("t"))), TIMEOUT_S)
    assert list(catalog.snapshot.tools) == ["s.t"]
    assert len(received.changes) == 1
    assert "cannot be written" in caplog.text


# Rules


async def ruled(rules: ToolRules, *names: str) -> Catalog:
    catalog = Catalog([ServerSource("s", "f", rules=rules)], ManifestStore(None), EventBus())
    await asyncio.wait_for(catalog.accept_listing("s", listing(*map(tool, names))), TIMEOUT_S)
    return catalog


async def renamed(rename: dict[str, str], *names: str) -> dict[str, str]:
    tools = (await ruled(ToolRules(rename=rename), *names)).snapshot.tools.values()
    return {one.upstream_name: one.name for one in tools}


@pytest.mark.parametrize(
    ("allow", "deny", "kept"),
    [
        (["*"], [], ["delete_all", "get_a", "get_b"]),
        (["get_*"], [], ["get_a", "get_b"]),
        (["*"], ["delete_*"], ["get_a", "get_b"]),
        (["get_*"], ["*_b"], ["get_a"]),
        ([], [], []),
    ],
)
async def test_only_allowed_tools_that_are_not_denied_exist(
    allow: list[str], deny: list[str], kept: list[str]
):
    catalog = await ruled(
        ToolRules(allow=tuple(allow), deny=tuple(deny)), "get_a", "get_b", "delete_all"
    )
    assert sorted(catalog.snapshot.servers["s"].tools) == kept
    assert len(catalog.snapshot.index) == len(kept)


async def test_a_renamed_tool_has_its_new_name_and_is_called_by_the_old():
    assert await renamed({"a": "b"}, "a", "c") == {"a": "b", "c": "c"}


async def test_tools_may_swap_their_names():
    assert await renamed({"a": "b", "b": "a"}, "a", "b") == {"a": "b", "b": "a"}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
async def test_a_new_name_that_is_another_tool_s_is_not_given_and_no_tool_is_lost(
    names: tuple[str, ...],
):
    catalog = await ruled(ToolRules(rename={"a": "b"}), *names)
    assert {one.upstream_name: one.name for one in catalog.snapshot.tools.values()} == {
        "a": "a",
        "b": "b",
    }
    assert "cannot be renamed 'b'" in catalog.snapshot.resolve_tool("s.a").warnings[-1]
    assert catalog.snapshot.resolve_tool("s.b").warnings == ()


async def test_refused_names_may_make_others_be_refused_and_still_no_tool_is_lost():
    assert await renamed({"a": "b", "c": "a"}, "a", "b", "c") == {"a": "a", "b": "b", "c": "c"}
    assert await renamed({"a": "b", "c": "a"}, "a", "c") == {"a": "b", "c": "a"}


async def test_a_denied_tool_s_name_is_free():
    catalog = await ruled(ToolRules(rename={"a": "better"}, deny=("b",)), "a", "b")
    assert {one.upstream_name: one.name for one in catalog.snapshot.tools.values()} == {
        "a": "better"
    }


# Definitions that cannot be kept


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"properties": {"a": value}}
    return value


BAD: Iterable[Any] = [
    pytest.param({"name": "bad", "inputSchema": nested(200)}, id="deep"),
    pytest.param({"name": "bad", "inputSchema": nested(3_000)}, id="deeper than Python"),
    pytest.param({"name": "bad", "description": "half \ud83d"}, id="half a character"),
    pytest.param({"name": "bad \ud83d"}, id="half a name"),
    pytest.param({"name": "bad", "x": object()}, id="no JSON"),
    pytest.param(None, id="nothing"),
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("exposure", ["meta", "full"])
async def test_a_definition_that_cannot_be_kept_costs_only_itself(
    tmp_path: Path, bad: Any, exposure: Any
):
    backend = FakeBackend([tool("before"), bad, tool("after")])
    config = Config(data_dir=tmp_path, exposure=exposure)
    async with GatewayRuntime(config, backends={"s": backend}) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        assert {"s.before", "s.after"} <= gateway.catalog.snapshot.tools.keys()
        entry = gateway.catalog.snapshot.servers["s"]
        assert any(
            "left out" in text
            for text in (*entry.warnings, *(w for t in entry.tools.values() for w in t.warnings))
        )
        async with connect(gateway, transport="stdio") as client:
            listed = [one.name for one in (await client.list_tools()).tools]
        assert (
            listed[0] == "search_tools"
            if exposure == "meta"
            else {"s__before", "s__after"} <= set(listed)
        )
    async with GatewayRuntime(config, backends={"s": FakeBackend()}) as gateway:
        assert {"s.before", "s.after"} <= gateway.catalog.snapshot.tools.keys()


async def test_a_greeting_that_cannot_be_kept_costs_only_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    backend = FakeBackend([tool("t")], capabilities={"tools": {}, "experimental": nested(300)})
    async with remembering(tmp_path, s=backend) as gateway:
        assert list(gateway.catalog.snapshot.tools) == ["s.t"]
    assert "cannot be kept" in caplog.text
    async with GatewayRuntime(Config(data_dir=tmp_path), backends={"s": FakeBackend()}) as gateway:
        assert not gateway.catalog.snapshot.servers["s"].is_listed


async def test_a_configured_server_that_is_switched_off_does_not_exist():
    config = Config(servers={"off": BackendConfig(command="true", disabled=True)})
    async with gateway_over({"s": FakeBackend([tool("t")])}, config) as gateway:
        assert list(gateway.catalog.snapshot.servers) == ["s"]
