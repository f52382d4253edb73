"""Every tool gets its vector in the background, once, and nothing waits for it."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portico.catalog.catalog import Catalog
from portico.catalog.embeddings import Embeddings
from portico.catalog.entries import ServerSource, build_documents
from portico.catalog.listing import ServerListing, salvage_tools
from portico.config import Config
from portico.events import EventBus
from portico.gateway import INDEX_FILE, VECTOR_FILE, GatewayRuntime
from portico.search import (
    Encoder,
    EncoderUnavailable,
    Index,
    Vector,
    compose_document_text,
    compute_text_key,
)
from portico.search.dense.encoder import VECTOR_WIDTH, get_shipped_encoder
from portico.storage.manifests import ManifestStore
from portico.storage.search_files import IndexFile, VectorFile
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import InitializeInfo, Raw

TIMEOUT_S = 240
OFFER = (
    ("send_mail", "Send an e-mail."),
    ("read_file", "Read a file as text."),
    ("get_weather", "The weather of a city."),
)


def tool(name: str, description: str) -> Raw:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def offer(*tools: tuple[str, str]) -> ServerListing:
    kept, warnings = salvage_tools([tool(*it) for it in tools])
    return ServerListing(InitializeInfo("legacy", "2025-11-25"), kept, warnings=warnings)


class Counting(Encoder):
    """The shipped encoder, and which documents it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def encode_document(self, text: str) -> Vector:
        self.read.append(text)
        return super().encode_document(text)


class Patient(Counting):
    """One that waits, at each document, for a test to let it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def encode_document(self, text: str) -> Vector:
        self.begun.set()
        assert self.go_on.wait(TIMEOUT_S)
        return super().encode_document(text)


class SlowDisk(IndexFile):
    """A file of which a save takes as long as a test wants, once it is switched on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.slow = False
        self.writing, self.go_on = threading.Event(), threading.Event()

    def save(self, body: bytes) -> None:
        if self.slow:
            self.writing.set()
            assert self.go_on.wait(TIMEOUT_S)
        super().save(body)


def opened(
    folder: Path,
    encoder: Encoder,
    *names: str,
    index_file: IndexFile | None = None,
    bus: EventBus | None = None,
) -> Catalog:
    catalog = Catalog(
        [ServerSource(name, "f") for name in names or ("s",)],
        ManifestStore(folder / "manifest"),
        bus or EventBus(),
        index_file=index_file or IndexFile(folder / "index"),
        embeddings=Embeddings(encoder, VectorFile(folder / "vectors", VECTOR_WIDTH)),
    )
    catalog.load()
    return catalog


async def encoded(catalog: Catalog) -> None:
    task = catalog.start_encoding()
    assert task is not None
    await asyncio.wait_for(asyncio.shield(task), TIMEOUT_S)


def fresh(catalog: Catalog) -> Index:
    """What the catalog's index should be."""
    read = [it for entry in catalog.snapshot.servers.values() for it in build_documents(entry)]
    vectors = {
        it.id: get_shipped_encoder().encode_document(compose_document_text(it)) for it in read
    }
    return Index.build(read, encoder=get_shipped_encoder()).with_vectors(vectors)


def is_up_to_date(catalog: Catalog) -> bool:
    expected, found = fresh(catalog), catalog.snapshot.index
    queries = (
        "send a letter by computer",
        "is it going to rain",
        "open a document",
        "tool",
        *catalog.snapshot.tools,
    )
    return catalog.unencoded_count == 0 and all(
        found.search(it, 50) == expected.search(it, 50) for it in queries
    )


async def eventually(catalog: Catalog) -> None:
    """Wait until every tool has its vector."""
    async with asyncio.timeout(TIMEOUT_S):
        while catalog.unencoded_count:
            await encoded(catalog)


def encoding_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("encode")]


# They arrive


async def test_words_are_searched_at_once_and_meaning_as_soon_as_it_is_there(tmp_path: Path):
    encoder = Patient()
    catalog = opened(tmp_path, encoder)
    await asyncio.wait_for(catalog.accept_listing("s", offer(*OFFER)), TIMEOUT_S)
    assert await asyncio.to_thread(encoder.begun.wait, TIMEOUT_S)
    assert catalog.unencoded_count == 3
    ranking = catalog.snapshot.index.search("send an e-mail")
    assert (ranking.hits[0].id, ranking.uses_embeddings) == ("s.send_mail", False)
    encoder.go_on.set()
    await encoded(catalog)
    assert is_up_to_date(catalog)
    assert catalog.snapshot.index.search("is it going to rain").uses_embeddings
    await catalog.close()


async def test_without_meanings_words_are_all_there_is():
    catalog = Catalog([ServerSource("s", "f")], ManifestStore(None), EventBus())
    await catalog.accept_listing("s", offer(*OFFER))
    assert catalog.start_encoding() is None
    assert catalog.unencoded_count == 0
    assert not catalog.snapshot.index.search("send an e-mail").uses_embeddings


async def test_an_encoder_that_cannot_be_loaded_leaves_words_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail() -> Any:
        raise OSError("no such library")

    monkeypatch.setattr("portico.search.dense.encoder._open_network", fail)
    catalog = opened(tmp_path, Encoder())
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    assert catalog.unencoded_count == 0
    assert catalog.snapshot.index.search("send an e-mail").hits[0].id == "s.send_mail"
    await catalog.accept_listing("s", offer(*OFFER, ("more", "More.")))
    await encoded(catalog)
    assert caplog.text.count("search by meaning is off") == 1
    await catalog.close()


async def test_a_server_whose_name_has_a_dot_is_encoded_too(tmp_path: Path):
    encoder = Counting()
    catalog = opened(tmp_path, encoder, "a.b", "a")
    await catalog.accept_listing("a.b", offer(*OFFER))
    await encoded(catalog)
    assert is_up_to_date(catalog)
    assert len(encoder.read) == 3
    await catalog.close()


# Once


async def test_a_second_start_encodes_nothing(tmp_path: Path):
    first = Counting()
    catalog = opened(tmp_path, first)
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    await catalog.close()
    assert len(first.read) == 3
    second = Counting()
    again = opened(tmp_path, second)
    assert is_up_to_date(again)
    await again.accept_listing("s", offer(*OFFER))
    await encoded(again)
    assert is_up_to_date(again)
    assert second.read == []
    await again.close()


@pytest.mark.parametrize("body", [None, b"", b"no index", b"portico-index-2\n" + b"\0" * 64])
async def test_vectors_outlive_an_index_that_is_lost(tmp_path: Path, body: bytes | None):
    catalog = opened(tmp_path, Counting())
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    await catalog.close()
    (tmp_path / "index").unlink() if body is None else (tmp_path / "index").write_bytes(body)
    second = Counting()
    again = opened(tmp_path, second)
    assert again.unencoded_count == 3
    await encoded(again)
    assert is_up_to_date(again)
    assert second.read == []
    await again.close()
    stored = IndexFile(tmp_path / "index").load()
    assert stored is not None
    assert Index.load(stored).list_unencoded("s") == []


async def test_a_gateway_starts_whatever_bit_of_its_index_was_flipped(tmp_path: Path):
    async with remembering(tmp_path, post=backend()) as gateway:
        await encoded(gateway.catalog)
    body = (tmp_path / INDEX_FILE).read_bytes()
    for at in (3, 17, 24, body.index(b'"ids"') + 1, body.index(b'"counts"') + 12, len(body) - 1):
        flipped = bytearray(body)
        flipped[at] ^= 1
        (tmp_path / INDEX_FILE).write_bytes(flipped)
        async with remembering(tmp_path, post=FakeBackend()) as gateway:
            await encoded(gateway.catalog)
            assert is_up_to_date(gateway.catalog)


async def test_a_changed_server_encodes_only_what_changed(tmp_path: Path):
    encoder = Counting()
    catalog = opened(tmp_path, encoder, "s", "t")
    await catalog.accept_listing("t", offer(("other", "Something else.")))
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    encoder.read.clear()
    await catalog.accept_listing(
        "s",
        offer(("get_weather", "Tomorrow's weather."), *OFFER[:2], ("play_song", "Play a song.")),
    )
    await encoded(catalog)
    assert sorted(encoder.read) == [
        "s: get weather. Tomorrow's weather.",
        "s: play song. Play a song.",
    ]
    assert is_up_to_date(catalog)
    encoder.read.clear()
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    assert encoder.read == []
    assert is_up_to_date(catalog)
    await catalog.close()


async def test_another_catalog_with_the_same_texts_finds_them_encoded(tmp_path: Path):
    first = opened(tmp_path, Counting())
    await first.accept_listing("s", offer(*OFFER))
    await encoded(first)
    await first.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "vectors").rename(tmp_path / "other" / "vectors")
    encoder = Counting()
    second = opened(tmp_path / "other", encoder)
    await second.accept_listing("s", offer(*OFFER[1:], ("new", "New.")))
    await encoded(second)
    assert encoder.read == ["s: new. New."]
    assert is_up_to_date(second)
    await second.close()


# Meanwhile


async def test_a_listing_that_arrives_while_another_is_encoded_is_neither_lost_nor_overwritten(
    tmp_path: Path,
):
    encoder = Patient()
    catalog = opened(tmp_path, encoder, "s", "t")
    await catalog.accept_listing("s", offer(*OFFER))
    assert await asyncio.to_thread(encoder.begun.wait, TIMEOUT_S)
    await catalog.accept_listing("s", offer(("send_mail", "Mow the lawn."), *OFFER[1:]))
    await catalog.accept_listing("t", offer(("play_song", "Play a song.")))
    encoder.go_on.set()
    await eventually(catalog)
    assert sorted(catalog.snapshot.tools) == [
        "s.get_weather",
        "s.read_file",
        "s.send_mail",
        "t.play_song",
    ]
    assert is_up_to_date(catalog)
    await catalog.close()


async def test_a_server_that_lost_its_tools_while_they_were_encoded_gets_none_back(tmp_path: Path):
    encoder = Patient()
    catalog = opened(tmp_path, encoder)
    await catalog.accept_listing("s", offer(*OFFER))
    assert await asyncio.to_thread(encoder.begun.wait, TIMEOUT_S)
    await catalog.accept_listing("s", offer())
    encoder.go_on.set()
    await encoded(catalog)
    assert len(catalog.snapshot.index) == 0
    assert catalog.unencoded_count == 0
    await catalog.close()


async def test_a_listing_that_arrives_while_the_encoded_index_is_saved_is_encoded_too(
    tmp_path: Path,
):
    disk = SlowDisk(tmp_path / "index")
    encoder = Patient()
    bus, arrived = EventBus(), asyncio.Event()
    catalog = opened(tmp_path, encoder, "s", "t", index_file=disk, bus=bus)
    await catalog.accept_listing("s", offer(*OFFER))
    bus.subscribe(lambda _: arrived.set())
    disk.slow = True
    encoder.go_on.set()
    assert await asyncio.to_thread(disk.writing.wait, TIMEOUT_S)
    first = catalog.start_encoding()
    assert first is not None
    assert not first.done()
    arriving = asyncio.create_task(
        catalog.accept_listing("t", offer(("play_song", "Play a song.")))
    )
    await asyncio.wait_for(arrived.wait(), TIMEOUT_S)
    assert "t.play_song" in catalog.snapshot.tools
    disk.go_on.set()
    await asyncio.wait_for(arriving, TIMEOUT_S)
    # Nobody lists anything more, and nobody asks for it.
    await asyncio.wait_for(asyncio.shield(first), TIMEOUT_S)
    assert is_up_to_date(catalog)
    await catalog.close()
    stored = disk.load()
    assert stored is not None
    assert [Index.load(stored).list_unencoded(group) for group in ("s", "t")] == [[], []]


async def test_many_listings_in_a_row_end_with_every_vector_in_its_place(tmp_path: Path):
    catalog = opened(tmp_path, Counting(), *(f"s{number}" for number in range(6)))
    async with asyncio.timeout(TIMEOUT_S):
        for turn in range(4):
            tools = [(f"tool_{at}", f"Turn {turn} of tool {at}.") for at in range(6)]
            await asyncio.gather(
                *(catalog.accept_listing(f"s{number}", offer(*tools)) for number in range(6))
            )
    await eventually(catalog)
    assert is_up_to_date(catalog)
    await catalog.close()


# When it goes wrong


class Failing(Counting):
    """One that fails at some document, as a native library does or as nobody foresaw."""

    def __init__(self, at: int, error: Exception) -> None:
        super().__init__()
        self.at, self.error = at, error

    def encode_document(self, text: str) -> Vector:
        if len(self.read) >= self.at:
            raise self.error
        return super().encode_document(text)


async def test_what_was_encoded_before_the_encoder_failed_is_kept(tmp_path: Path):
    catalog = opened(tmp_path, Failing(2, EncoderUnavailable("bad allocation")))
    await catalog.accept_listing("s", offer(*OFFER))
    await encoded(catalog)
    await catalog.close()
    second = Counting()
    again = opened(tmp_path, second)
    await encoded(again)
    assert len(second.read) == 1
    assert is_up_to_date(again)
    await again.close()


async def test_an_error_nobody_foresaw_is_said_once_and_the_next_listing_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    encoder = Failing(0, RuntimeError("something new"))
    catalog = opened(tmp_path, encoder)
    for number in range(3):
        await catalog.accept_listing("s", offer(*OFFER, (f"more_{number}", "More.")))
        await encoded(catalog)
    assert caplog.text.count("could not be encoded") == 1
    assert "something new" in caplog.text
    assert catalog.snapshot.index.search("send an e-mail").hits[0].id == "s.send_mail"
    encoder.at = 1_000
    await catalog.accept_listing("s", offer(*OFFER))
    await eventually(catalog)
    assert is_up_to_date(catalog)
    await catalog.close()


# In turn


async def test_a_server_of_many_tools_does_not_make_the_others_wait(tmp_path: Path):
    encoder = Patient()
    catalog = opened(tmp_path, encoder, "big", "small", "tiny")
    await catalog.accept_listing(
        "big", offer(*((f"tool_{number}", f"Tool {number}.") for number in range(300)))
    )
    await catalog.accept_listing("small", offer(*OFFER))
    await catalog.accept_listing("tiny", offer(OFFER[0]))
    meanings = Embeddings(Counting(), VectorFile(None, VECTOR_WIDTH))
    first = next(meanings.generate_vectors(catalog.snapshot))
    assert {it for it in catalog.snapshot.tools if not it.startswith("big.")} <= first.keys()
    assert sum(it.startswith("big.") for it in first) == len(first) - 4
    encoder.go_on.set()
    await asyncio.wait_for(catalog.close(), TIMEOUT_S)


# The end


async def test_closing_while_encoding_ends_it_leaves_no_thread_and_keeps_what_is_done(
    tmp_path: Path,
):
    encoder = Patient()
    catalog = opened(tmp_path, encoder)
    tools = [
        (f"tool_{number}", f"Tool number {number}. " + "It does a lot. " * 20)
        for number in range(1_000)
    ]
    await catalog.accept_listing("s", offer(*tools))
    assert await asyncio.to_thread(encoder.begun.wait, TIMEOUT_S)
    encoder.go_on.set()
    await asyncio.wait_for(catalog.close(), TIMEOUT_S)
    assert encoding_threads() == []
    task = catalog.start_encoding()
    assert task is not None
    await asyncio.wait_for(task, TIMEOUT_S)
    read = len(encoder.read)
    assert 0 < read < 200
    again = opened(tmp_path, Counting())
    assert len(again.snapshot.tools) == 1_000
    await again.close()
    assert len(encoder.read) == read


async def test_closing_before_anything_was_encoded_is_no_trouble(tmp_path: Path):
    await opened(tmp_path, Counting()).close()
    catalog = opened(tmp_path, Counting())
    await catalog.accept_listing("s", offer(*OFFER))
    await asyncio.wait_for(catalog.close(), TIMEOUT_S)
    assert encoding_threads() == []


# Through the gateway


@asynccontextmanager
async def remembering(folder: Path, **backends: FakeBackend) -> AsyncGenerator[GatewayRuntime]:
    async with GatewayRuntime(Config(data_dir=folder), backends=backends) as gateway:
        await asyncio.wait_for(gateway.wait_until_listed(), TIMEOUT_S)
        yield gateway


async def asked(gateway: GatewayRuntime, query: str) -> str:
    async with connect(gateway) as client:
        result = await client.call_tool("search_tools", {"query": query, "limit": 1})
        return result.content[0].text  # pyright: ignore


def backend() -> FakeBackend:
    return FakeBackend([tool(*it) for it in OFFER])


async def test_a_gateway_finds_by_meaning_what_shares_no_word_with_the_question():
    async with gateway_over({"post": backend()}) as gateway:
        await encoded(gateway.catalog)
        assert "post.get_weather" in await asked(gateway, "rain and temperature tomorrow?")
        assert "post.send_mail" in await asked(gateway, "enviar un correo")


async def test_a_second_gateway_knows_every_meaning_with_no_server_started(tmp_path: Path):
    async with remembering(tmp_path, post=backend()) as gateway:
        await encoded(gateway.catalog)
    kept = (tmp_path / VECTOR_FILE).read_bytes()
    silent = FakeBackend()
    async with remembering(tmp_path, post=silent) as gateway:
        assert gateway.catalog.unencoded_count == 0
        assert "post.get_weather" in await asked(gateway, "rain and temperature tomorrow?")
        assert silent.connections == 0
    assert (tmp_path / VECTOR_FILE).read_bytes() == kept


async def test_a_gateway_whose_index_was_lost_gets_its_meanings_back_with_no_server_started(
    tmp_path: Path,
):
    async with remembering(tmp_path, post=backend()) as gateway:
        await encoded(gateway.catalog)
    (tmp_path / INDEX_FILE).unlink()
    silent = FakeBackend()
    async with remembering(tmp_path, post=silent) as gateway:
        await eventually(gateway.catalog)
        assert gateway.catalog.unencoded_count == 0
        assert silent.connections == 0


async def test_a_changed_server_is_encoded_again_while_the_gateway_runs(tmp_path: Path):
    server = backend()
    async with remembering(tmp_path, post=server) as gateway:
        await encoded(gateway.catalog)
        size = (tmp_path / VECTOR_FILE).stat().st_size
        server.listing["tools"] = [*server.listing["tools"], tool("translate", "Translate a text.")]
        await asyncio.wait_for(gateway.refresh(["post"]), TIMEOUT_S)
        await eventually(gateway.catalog)
        assert "post.translate" in await asked(gateway, "say it in another language")
        assert (tmp_path / VECTOR_FILE).stat().st_size == size // 3 * 4


async def test_a_gateway_that_closes_while_it_encodes_leaves_no_thread(tmp_path: Path):
    many = FakeBackend([tool(f"tool_{number}", "It does a lot. " * 20) for number in range(400)])
    async with remembering(tmp_path, post=many):
        pass
    assert encoding_threads() == []


def test_what_is_brought_is_what_the_file_keeps(tmp_path: Path):
    """A batch at a time, each kept before it is given."""
    catalog = opened(tmp_path, Counting())
    tools = [(f"tool_{number}", f"Tool number {number}.") for number in range(150)]
    asyncio.run(catalog.accept_listing("s", offer(*tools)))
    bare = opened(tmp_path, encoder := Counting())
    meanings = Embeddings(encoder, kept := VectorFile(tmp_path / "mine", VECTOR_WIDTH))
    seen: dict[str, Vector] = {}
    for batch in meanings.generate_vectors(bare.snapshot):
        seen.update(batch)
        assert len(kept.find(map(compute_text_key, encoder.read))) == len(seen)
    assert sorted(seen) == sorted(bare.snapshot.tools)
    assert meanings.count_missing(bare.snapshot) == 150
    again = list(Embeddings(Counting(), kept).generate_vectors(bare.snapshot))
    assert len(again) == 1
    assert all(np.array_equal(again[0][address], row) for address, row in seen.items())
