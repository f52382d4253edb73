"""Rows A11, A12 and C4 of the seeds: what earlier projects promised of calls and their results."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from portico.access import Caller
from portico.catalog.tool import Tool, make_tool
from portico.disclosure import cursor
from portico.disclosure.tokens import count
from portico.errors import InvalidArguments, UnknownName
from portico.events import Bus
from portico.execution.cache import Cache, CacheRule
from portico.execution.call import Calls, Origin
from portico.execution.handles import Handles
from portico.execution.learned import Shapes
from portico.execution.looking import shape_of_call
from portico.execution.reader import Reader
from portico.execution.results import ResultStore
from portico.storage.result_files import ResultFiles
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from portico.upstream.supervisor import Upstream

LIST = make_tool("github", {"name": "list_issues", "annotations": {"readOnlyHint": True}})
CLOSE = make_tool("github", {"name": "close_issue"})
ME = Caller("session", "client")
ROWS = [{"number": n, "title": f"Issue {n}", "state": "open" if n % 2 else "closed"} for n in range(4_000)]


class House:
    """Every part of the way a result goes, over one server that counts its calls."""

    def __init__(self, folder: Path, answer: Raw, rule: CacheRule | None = None) -> None:
        self.backend, self.now, bus = FakeBackend(), 0.0, Bus()
        for name in ("list_issues", "close_issue"):
            self.backend.on_call(name, lambda arguments: answer)
        upstream = Upstream("github", self.backend, bus)
        cache = Cache({"github": rule or CacheRule()}, clock=lambda: self.now)
        self.calls = Calls({"github": upstream}, {}, bus, cache=cache, shapes=Shapes())
        self.store = ResultStore(ResultFiles(folder))
        self.handles = Handles(self.store, count, cursor)
        self.reader = Reader(self.store, count, cursor)

    @property
    def asked(self) -> int:
        return sum(method == "tools/call" for method, _ in self.backend.requests)

    async def call(self, tool: Tool = LIST, **arguments: Any) -> Raw:
        async with asyncio.timeout(30):
            result = await self.calls.call(tool, arguments, Origin(ME))
            return await self.handles.fit(tool, result, ME)


def texts(result: Raw) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


async def test_a11_a_large_output_has_a_header_under_500_tokens_and_a_uri_for_the_details(tmp_path: Path):
    house = House(tmp_path, {"content": [{"type": "text", "text": json.dumps(ROWS)}], "structuredContent": {"r": ROWS}})
    answer = await house.call()
    header, preview = texts(answer)
    assert count(header) < 500
    assert "4,000 rows. Columns: number | title | state" in header
    assert count(header + preview) < 8_000
    (link,) = [block for block in answer["content"] if block["type"] == "resource_link"]
    assert link["uri"].startswith("portico://result/")
    assert link["uri"] in header


async def test_a11_nothing_is_cut_off_and_lost(tmp_path: Path):
    house = House(tmp_path, {"content": [{"type": "text", "text": json.dumps(ROWS)}]})
    uri = (await house.call())["content"][-1]["uri"]
    whole = (await house.reader.resource(ME, uri))["contents"][0]["text"]
    assert json.loads(whole) == ROWS
    assert await house.reader.read(ME, uri, path="[-1].title") == '"Issue 3999"'
    assert "Issue 2718" in await house.reader.read(ME, uri, grep="Issue 2718")
    with pytest.raises(UnknownName):
        await house.reader.read(Caller("another session"), uri)


async def test_a11_nothing_in_a_single_long_line_is_lost(tmp_path: Path):
    house = House(tmp_path, {"content": [{"type": "text", "text": repr(ROWS)}], "structuredContent": {"r": repr(ROWS)}})
    uri = (await house.call())["content"][-1]["uri"]
    found = await house.reader.read(ME, uri, grep="'title': 'Issue 27")
    assert found.startswith("[111 matches in 1 line: ")
    assert found.count("'title': 'Issue 27") == 111 + 1


async def test_a11_a_small_output_is_as_the_server_gave_it(tmp_path: Path):
    answer: Raw = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"ok": True}}
    assert await House(tmp_path, answer).call() is answer


async def test_a12_a_repeated_call_is_answered_from_the_cache_and_marked(tmp_path: Path):
    house = House(tmp_path, {"content": [{"type": "text", "text": "12 issues"}]}, CacheRule(ttl_s=60))
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
    (told,) = texts(await shape_of_call(house.calls, LIST, {"state": "open"}, Origin(ME), count=count))
    assert house.asked == 1
    assert "{issues: [4,000 × {number: integer, title: string, state: string}], next: null}" in told
    assert 'issues[0]: {"number":0,"title":"Issue 0","state":"closed"}' in told
    assert count(told) <= 600


async def test_c4_a_tool_that_may_change_things_is_not_called_to_be_looked_at(tmp_path: Path):
    house = House(tmp_path, {"content": [], "structuredContent": {"ok": True}})
    with pytest.raises(InvalidArguments, match="read-only"):
        await shape_of_call(house.calls, CLOSE, {}, Origin(ME), count=count)
    assert house.asked == 0
    await shape_of_call(house.calls, CLOSE, {}, Origin(ME), confirm=True, count=count)
    assert house.asked == 1
