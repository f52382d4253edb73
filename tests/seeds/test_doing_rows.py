"""Rows A11, A12, C4, D3, D4 and E5 of the seeds: what earlier projects promised of calls and their
results."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from portico.access import Caller
from portico.calls.cache import CacheRule, ResultCache
from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.shape_view import call_for_shape
from portico.catalog.tool import Tool, make_tool
from portico.errors import BackendUnavailable, InvalidArguments, RemoteError, UnknownName
from portico.events import CatalogChanged, EventBus
from portico.rendering import cursor
from portico.rendering.token_count import count_tokens
from portico.results.handles import ResultHandles
from portico.results.learned_shapes import LearnedShapes
from portico.results.reader import ResultReader
from portico.results.store import ResultStore
from portico.storage.result_files import ResultFiles
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Era, Raw
from portico.upstream.lifecycle.supervisor import Upstream
from tests.interaction.fakes import said

LIST = make_tool("github", {"name": "list_issues", "annotations": {"readOnlyHint": True}})
CLOSE = make_tool("github", {"name": "close_issue"})
ME = Caller("session", "client")
ROWS = [
    {"number": n, "title": f"Issue {n}", "state": "open" if n % 2 else "closed"}
    for n in range(4_000)
]


class House:
    """Every part of the way a result goes, over one server that counts its calls."""

    def __init__(self, folder: Path, answer: Raw, rule: CacheRule | None = None) -> None:
        self.backend, self.now, bus = FakeBackend(), 0.0, EventBus()
        for name in ("list_issues", "close_issue"):
            self.backend.on_call(name, lambda arguments: answer)
        upstream = Upstream("github", self.backend, bus)
        self.cache = ResultCache({"github": rule or CacheRule()}, clock=lambda: self.now)
        self.calls = CallPipeline(
            {"github": upstream}, {}, bus, cache=self.cache, shapes=LearnedShapes()
        )
        self.store = ResultStore(ResultFiles(folder))
        self.handles = ResultHandles(self.store, count_tokens, cursor)
        self.reader = ResultReader(self.store, count_tokens, cursor)

    @property
    def asked(self) -> int:
        return sum(method == "tools/call" for method, _ in self.backend.requests)

    async def call(self, tool: Tool = LIST, **arguments: Any) -> Raw:
        async with asyncio.timeout(30):
            result = await self.calls.call(tool, arguments, CallContext(ME))
            return await self.handles.fit_to_budget(tool, result, ME)


def texts(result: Raw) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


async def test_a11_a_large_output_has_a_header_under_500_tokens_and_a_uri_for_the_details(
    tmp_path: Path,
):
    house = House(
        tmp_path,
        {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": {"r": ROWS}},
    )
    answer = await house.call()
    header, preview = texts(answer)
    assert count_tokens(header) < 500
    assert "4,000 rows. Columns: number | title | state" in header
    assert count_tokens(header + preview) < 8_000
    (link,) = [block for block in answer["content"] if block["type"] == "resource_link"]
    assert link["uri"].startswith("portico://result/")
    assert link["uri"] in header


async def test_a11_nothing_is_cut_off_and_lost(tmp_path: Path):
    house = House(tmp_path, {"content": [{"type": "text", "text": json.dumps(ROWS)}]})
    uri = (await house.call())["content"][-1]["uri"]
    whole = (await house.reader.read_resource(ME, uri))["contents"][0]["text"]
    assert json.loads(whole) == ROWS
    assert await house.reader.read(ME, uri, path="[-1].title") == '"Issue 3999"'
    assert "Issue 2718" in await house.reader.read(ME, uri, grep="Issue 2718")
    with pytest.raises(UnknownName):
        await house.reader.read(Caller("another session"), uri)


async def test_a11_nothing_in_a_single_long_line_is_lost(tmp_path: Path):
    house = House(
        tmp_path,
        {"content": [{"type": "text", "text": repr(ROWS)}], "structuredContent": {"r": repr(ROWS)}},
    )
    uri = (await house.call())["content"][-1]["uri"]
    found = await house.reader.read(ME, uri, grep="'title': 'Issue 27")
    assert found.startswith("[111 matches in 1 line: ")
    assert found.count("'title': 'Issue 27") == 111 + 1


async def test_a11_a_small_output_is_as_the_server_gave_it(tmp_path: Path):
    answer: Raw = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"ok": True}}
    assert await House(tmp_path, answer).call() is answer


async def test_a12_a_repeated_call_is_answered_from_the_cache_and_marked(tmp_path: Path):
    house = House(
        tmp_path, {"content": [{"type": "text", "text": "12 issues"}]}, CacheRule(ttl_s=60)
    )
    assert texts(await house.call(state="open")) == ["12 issues"]
    house.now += 12
    again = await house.call(state="open")
    assert texts(again) == ["[cached 12 s ago]", "12 issues"]
    assert again["_meta"] == {"portico/cached": {"age_s": 12}}
    assert house.asked == 1


async def test_a12_the_time_is_the_backend_s_own(tmp_path: Path):
    house = House(tmp_path, {"content": []}, CacheRule(ttl_s=60, tools={"list_*": 5}))
    await house.call()
    house.now += 5
    await house.call()
    assert house.asked == 2


async def test_a12_nothing_is_kept_unless_it_is_asked_for_or_after_a_change(tmp_path: Path):
    unasked = House(tmp_path, {"content": []})
    await unasked.call()
    await unasked.call()
    assert unasked.asked == 2
    house = House(tmp_path, {"content": []}, CacheRule(ttl_s=60))
    for tool in (LIST, CLOSE, LIST):
        await house.call(tool)
    assert house.asked == 3


async def test_c4_the_structure_of_a_real_response_is_told_instead_of_the_response(tmp_path: Path):
    house = House(tmp_path, {"content": [], "structuredContent": {"issues": ROWS, "next": None}})
    (told,) = texts(
        await call_for_shape(
            house.calls, LIST, {"state": "open"}, CallContext(ME), count=count_tokens
        )
    )
    assert house.asked == 1
    assert "{issues: [4,000 × {number: integer, title: string, state: string}], next: null}" in told
    assert 'issues[0]: {"number":0,"title":"Issue 0","state":"closed"}' in told
    assert count_tokens(told) <= 600


async def test_c4_a_tool_that_may_change_things_is_not_called_to_be_looked_at(tmp_path: Path):
    house = House(tmp_path, {"content": [], "structuredContent": {"ok": True}})
    with pytest.raises(InvalidArguments, match="read-only"):
        await call_for_shape(house.calls, CLOSE, {}, CallContext(ME), count=count_tokens)
    assert house.asked == 0
    await call_for_shape(house.calls, CLOSE, {}, CallContext(ME), confirm=True, count=count_tokens)
    assert house.asked == 1


# D3: execution that validates input, resolves the backend, validates output, and has consistent
# errors


def tracker() -> FakeBackend:
    schema = {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    }
    declared = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }
    backend = FakeBackend(
        [
            {"name": name, "inputSchema": schema, "outputSchema": declared}
            for name in ("get_issue", "refuse", "hang")
        ]
    )

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(-32602, "no such issue", {"number": arguments["number"]})

    def lose(arguments: Raw) -> Raw:
        raise BackendUnavailable("github: it went away")

    backend.on_call(
        "get_issue",
        lambda arguments: {"content": [], "structuredContent": {"title": arguments["number"]}},
    )
    backend.on_call("refuse", refuse)
    backend.on_call("hang", lose)
    return backend


async def test_d3_arguments_are_checked_repaired_where_that_is_certain_and_the_answer_is_checked_too():
    backend = tracker()
    async with gateway_over({"github": backend}) as gateway, connect(gateway) as client:
        arguments = {"name": "github.get_issue", "arguments": {"number": "7"}}
        answer = await client.call_tool("call_tool", arguments)
    assert ("tools/call", {"name": "get_issue", "arguments": {"number": 7}}) in [
        (method, {key: params[key] for key in ("name", "arguments") if key in params})
        for method, params in backend.requests
    ]
    meta = answer.meta or {}
    assert meta["portico/repaired"] == ['number: "7" read as 7']
    assert meta["portico/output_mismatch"] == ['title: 7 is not of type "string"']
    assert answer.structured_content == {"title": 7}
    assert '[arguments repaired: number: "7" read as 7]' in said(answer)


@pytest.mark.parametrize(
    ("tool", "arguments", "kind", "retryable", "schema"),
    [
        ("github.get_issue", {"number": "seven"}, "invalid_arguments", False, True),
        ("github.get_issues", {"number": 7}, "unknown_name", False, False),
        ("github.refuse", {"number": 7}, "remote", False, True),
        # It may have run, and does not say that it may run twice.
        ("github.hang", {"number": 7}, "unavailable", False, False),
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_d3_every_error_says_its_kind_what_to_do_and_whether_to_try_again(
    tool: str, arguments: Raw, kind: str, retryable: bool, schema: bool, era: Era
):
    async with gateway_over({"github": tracker()}) as gateway, connect(gateway, era=era) as client:
        answer = await client.call_tool("call_tool", {"name": tool, "arguments": arguments})
    assert answer.is_error
    told = (answer.meta or {})["portico/error"]
    assert (told["kind"], told["retryable"]) == (kind, retryable)
    assert told["message"]
    assert said(answer).startswith(f"{kind}: ")
    assert ("number: integer" in said(answer)) is schema


# D4: a result cache by tool and argument hash


async def test_d4_the_same_arguments_in_any_order_are_the_same_question(tmp_path: Path):
    house = House(tmp_path, {"content": []}, CacheRule(ttl_s=60))
    await house.call(state="open", page=1)
    await house.call(page=1, state="open")
    assert house.asked == 1
    await house.call(page=2, state="open")
    await house.call(
        make_tool("github", {**LIST.definition, "description": "another"}), page=1, state="open"
    )
    assert house.asked == 3


async def test_d4_any_number_of_identical_calls_at_once_are_one(tmp_path: Path):
    house = House(tmp_path, {"content": []}, CacheRule(ttl_s=60))
    await asyncio.gather(*(house.call(state="open") for _ in range(200)))
    assert house.asked == 1


# E5: schema changes are found by hash at execution time, and caches are invalidated


async def test_e5_a_definition_that_changed_is_noticed_by_the_call_and_told_once():
    schema: Raw = {"type": "object", "properties": {"state": {"type": "string"}}}
    backend = FakeBackend([{"name": "list_issues", "inputSchema": schema}])

    def refuse(arguments: Raw) -> Raw:
        raise RemoteError(-32602, "Invalid arguments: repo is missing")

    backend.on_call("list_issues", refuse)
    async with gateway_over({"github": backend}) as gateway, connect(gateway) as client:
        backend.listing["tools"] = [
            {"name": "list_issues", "inputSchema": {**schema, "required": ["repo"]}}
        ]
        call = {"name": "github.list_issues", "arguments": {"state": "open"}}
        first = said(await client.call_tool("call_tool", call))
        assert "The definition of github.list_issues changed since you saw it" in first
        second = await client.call_tool("call_tool", call)
        assert "changed since" not in said(second)
        assert (second.meta or {})["portico/error"]["kind"] == "invalid_arguments"
    assert sum(method == "tools/call" for method, _ in backend.requests) == 1


async def test_e5_what_was_kept_of_the_old_definition_is_not_given_again(tmp_path: Path):
    house = House(tmp_path, {"content": []}, CacheRule(ttl_s=60))
    await house.call()
    house.cache.handle_event(CatalogChanged("github", changed=("github.list_issues",)))
    assert len(house.cache) == 0
    await house.call()
    assert house.asked == 2
