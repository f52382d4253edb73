"""The search service: loading the model blocks nobody, and searches are published."""

import asyncio
import threading

import pytest

from portico.callers import Caller
from portico.errors import UnknownName
from portico.events import Event, EventBus, ToolsFound
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.meta_tools.tool_definitions import META_TOOL_NAMES
from portico.search import Encoder, EncoderUnavailable, UsageFacts
from portico.search.dense import encoder as encoder_module
from portico.usage.tool_tiers import Standing, compute_popularity_boosts
from tests.meta_tools.search_catalog import ALL, by_meaning, by_words

TIMEOUT_S = 240
CALLER = Caller(session="s", name="n")


class Slow(Encoder):
    """One that is read only when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def load(self) -> None:
        self.begun.set()
        assert self.go_on.wait(TIMEOUT_S)
        super().load()


async def test_others_are_served_while_the_model_is_read():
    encoder = Slow()
    catalog = by_meaning(*ALL, encoder=encoder)
    asking = asyncio.create_task(
        SearchService().search(
            catalog, SearchRequest("send an e-mail"), CALLER, {}, 2_000, META_TOOL_NAMES
        ),
        name="ask",
    )
    assert await asyncio.to_thread(encoder.begun.wait, TIMEOUT_S)
    others = [
        await SearchService().search(
            by_words(*ALL), SearchRequest("issue"), CALLER, {}, 2_000, META_TOOL_NAMES
        )
        for _ in range(3)
    ]
    assert all("tracker" in other.text for other in others)
    assert not asking.done()
    encoder.go_on.set()
    assert "mail.send" in (await asyncio.wait_for(asking, TIMEOUT_S)).text


async def test_a_model_is_not_read_for_a_catalog_without_vectors():
    encoder = Slow()
    catalog = by_words(*ALL)
    bare = type(catalog)(catalog.servers, type(catalog.index).build((), encoder=encoder))
    vector, _ = await SearchService().prepare_search(bare, SearchRequest("send an e-mail"), CALLER)
    assert vector is None
    assert not encoder.begun.is_set()


async def test_a_model_that_cannot_be_read_costs_only_the_meaning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encoder_module, "MODEL_FILE", "missing.onnx")
    encoder = Encoder()
    catalog = by_meaning(*ALL, encoder=encoder)
    for _ in range(2):
        vector, search = await SearchService().prepare_search(
            catalog, SearchRequest("create an issue"), CALLER
        )
        assert vector is None
        assert search.rank(1).hits[0].id == "tracker.create_issue"
    with pytest.raises(EncoderUnavailable):
        encoder.load()


async def test_a_search_publishes_the_tools_shown_and_the_embedding_of_the_query():
    heard: list[Event] = []
    bus = EventBus()
    bus.subscribe(heard.append, ToolsFound)
    catalog = by_meaning(*ALL)
    searching = SearchService(bus=bus)
    await searching.search(
        catalog,
        SearchRequest("translate a text into Greek", limit=1),
        CALLER,
        {},
        2_000,
        META_TOOL_NAMES,
    )
    (event,) = heard
    assert isinstance(event, ToolsFound)
    assert set(event.shown) == {f"lingua{number}.translate_text" for number in range(4)}
    vector = catalog.index.encode_query("translate a text into Greek")
    assert vector is not None
    assert event.vector is not None
    assert event.vector.tolist() == vector.tolist()
    await searching.search(catalog, SearchRequest("..."), CALLER, {}, 2_000, META_TOOL_NAMES)
    assert len(heard) == 1


async def test_a_wrong_tag_is_refused_before_anything_is_read():
    encoder = Slow()
    with pytest.raises(UnknownName):
        await SearchService().prepare_search(
            by_meaning(*ALL, encoder=encoder), SearchRequest("x", tags=("nope",)), CALLER
        )
    assert not encoder.begun.is_set()


@pytest.mark.parametrize("query", ["", "...", "the of and", "\ud800", "x" * 100_000])
async def test_a_query_that_means_nothing_has_no_vector_or_a_whole_one(query: str):
    vector, _ = await SearchService().prepare_search(by_meaning(*ALL), SearchRequest(query), CALLER)
    assert vector is None or len(vector) == 384


def test_a_query_is_cut_where_it_enters():
    assert len(SearchRequest("x" * 1_000_000).query) == 4_000
    assert SearchRequest.from_arguments({"query": "y" * 5_000, "limit": 3}) == SearchRequest(
        "y" * 4_000, limit=3
    )


# What everybody's use says


def used(*tools: str) -> SearchService:
    """Searches where these tools are as popular as any."""
    lifts = compute_popularity_boosts(
        {tool: Standing(1.0, "hot") for tool in tools}, dict.fromkeys(tools, 1_000)
    )
    return SearchService(get_popularity_boosts=lambda: lifts)


@pytest.mark.parametrize("better", [f"lingua{number}.translate_text" for number in range(4)])
async def test_of_tools_that_are_equal_the_used_one_comes_first(better: str):
    _, search = await used(better).prepare_search(
        by_words(*ALL), SearchRequest("translate a text"), CALLER
    )
    hit = search.rank(1).hits[0]
    assert hit.id == better
    assert hit.boost is not None
    assert hit.boost.reasons == ("used often here (+0.030)",)


@pytest.mark.parametrize("query", ["close_issue", "tracker.close_issue", "close-issue"])
async def test_a_popular_tool_hides_no_exact_match(query: str):
    everything_else = [tool for tool in by_words(*ALL).tools if tool != "tracker.close_issue"]
    _, search = await used(*everything_else).prepare_search(
        by_words(*ALL), SearchRequest(query), CALLER
    )
    hit = search.rank(1).hits[0]
    assert (hit.id, hit.is_name_match) == ("tracker.close_issue", True)


async def test_a_popular_tool_that_does_not_match_is_not_found():
    _, search = await used("mail.find").prepare_search(
        by_words(*ALL), SearchRequest("translate a text"), CALLER
    )
    assert "mail.find" not in {hit.id for hit in search.rank(50).hits}


async def test_filters_know_how_calls_went_though_nothing_is_learnt():
    searching = SearchService(
        get_facts=lambda: {
            "mail.send": UsageFacts(10, 10, 900.0),
            "mail.find": UsageFacts(10, 10, 90.0),
        }
    )
    _, search = await searching.prepare_search(
        by_words(*ALL), SearchRequest("e-mail", max_latency_ms=500), CALLER
    )
    found = {hit.id for hit in search.rank(50).hits}
    assert "mail.find" in found
    assert "mail.send" not in found
