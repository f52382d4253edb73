"""Results that fit: small ones untouched, large ones summed up and reachable to the last
character."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.callers import Caller
from portico.catalog.tool import make_tool
from portico.config import ResultsConfig
from portico.errors import InvalidArguments, StaleCursor, UnknownName
from portico.rendering import cursor
from portico.rendering.token_budget import count_tokens
from portico.results.handles import ResultHandles
from portico.results.reader import ResultReader
from portico.results.store import ResultStore
from portico.storage.data_files import ResultFiles
from portico.upstream.backend import Raw
from tests.results.json_values import VALUES, issues, nested

TOOL = make_tool("github", {"name": "list_issues"})
ME = Caller("session")
BUDGET = 1_000


class ResultParts:
    """A store, what fills it and what reads it."""

    def __init__(self, folder: Path | None = None, **settings: int) -> None:
        self.store = ResultStore(ResultFiles(folder), ResultsConfig.model_validate(settings))
        self.handles = ResultHandles(self.store, count_tokens, cursor, budget=BUDGET, preview=200)
        self.reader = ResultReader(self.store, count_tokens, cursor, budget=BUDGET)

    async def fit(self, result: Raw, **options: Any) -> Raw:
        async with asyncio.timeout(240):
            return await self.handles.fit_to_budget(TOOL, result, ME, **options)

    async def read(self, result_id: str, **options: Any) -> str:
        async with asyncio.timeout(240):
            return await self.reader.read(ME, result_id, **options)

    async def read_all(self, result_id: str, **options: Any) -> str:
        """Every page, without what is said around it."""
        read = ""
        following = ""
        for _ in range(2_000):
            part = await self.read(result_id, cursor=following, **options)
            assert count_tokens(part) <= BUDGET
            more = re.search(
                r'\n\[more: read_result\(result_id="[^"]+", cursor="([^"]+)"\).*\]$', part
            )
            body = part[: more.start()] if more else part
            body = re.sub(r"\A\[bytes [\d,–]+ of [\d,]+\]\n", "", body)
            read += body + "\n"
            if more is None:
                return read
            following = more[1]
        raise AssertionError("it never ends")


@pytest.fixture
def results(tmp_path: Path) -> ResultParts:
    return ResultParts(tmp_path / "results")


def texts(result: Raw) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def link(result: Raw) -> Raw:
    (found,) = [block for block in result["content"] if block["type"] == "resource_link"]
    return found


def words(count: int) -> str:
    return "".join(f"line {n} has some words\n" for n in range(count))


def text_result(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.parametrize(
    "result",
    [
        {"content": []},
        {},
        {"content": "odd"},
        text_result("hello"),
        text_result("x " * 900),
        {
            "content": [{"type": "odd", "x": 1}, 7, None],
            "structuredContent": {"a": [1, 2]},
            "_meta": {"m": 1},
        },
        {"content": [{"type": "image", "data": "A" * 100_000, "mimeType": "image/png"}]},
        {"content": [], "isError": True},
        text_result("a_word " * 440),
        {"content": [], "structuredContent": {"rows": ["some words of text"] * 180}},
    ],
)
async def test_what_fits_is_returned_untouched(results: ResultParts, result: Raw):
    assert await results.fit(result) is result
    assert len(results.store) == 0


async def test_a_large_result_becomes_a_summary_a_preview_and_a_link(results: ResultParts):
    answer = await results.fit(
        {"content": [], "structuredContent": {"items": issues(500)}, "_meta": {"kept": 1}}
    )
    summary, preview = texts(answer)
    stored = link(answer)
    assert answer["_meta"] == {"kept": 1}
    assert "structuredContent" not in answer
    assert "500 × {id: integer, title: string" in summary
    assert count_tokens(summary) <= 500
    assert preview.startswith('{\n "items": [\n  {"id":0,"title":"Issue number 0"')
    assert count_tokens(preview) < 300
    assert stored["uri"].startswith("portico://result/")
    assert stored["uri"] in summary
    assert stored["mimeType"] == "application/json"
    assert count_tokens("".join(texts(answer))) <= BUDGET


async def test_thousands_of_empty_blocks_are_a_large_result(results: ResultParts):
    blocks = [{"type": "text", "text": ""} for _ in range(10_000)]
    assert len((await results.fit({"content": blocks}))["content"]) < 10


async def test_the_preview_s_cursor_goes_on_where_it_ends(results: ResultParts):
    answer = await results.fit(text_result(words(2_000)))
    preview = texts(answer)[1]
    following = re.search(r'cursor="([^"]+)"', preview)
    assert following
    last = int(re.findall(r"line (\d+) has", preview)[-1])
    part = await results.read(link(answer)["uri"], cursor=following[1])
    assert int(re.findall(r"line (\d+) has", part)[0]) == last + 1


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"structuredContent": {"items": issues(300)}}, {"items": issues(300)}),
        (text_result(json.dumps(issues(300), indent=4)), issues(300)),
        (text_result(json.dumps(nested(22, issues(200)))), nested(22, issues(200))),
        ({"content": [{"type": "text", "text": json.dumps(one)} for one in issues(300)]}, issues(
            300)),
        ({**text_result(json.dumps(issues(300))), "structuredContent": {"r": issues(300)}}, {
            "r": issues(300)}),
        ({"content": [{"type": "resource_link", "uri": f"x://{n}"} for n in range(500)]}, None),
    ],
)  # fmt: skip
async def test_json_is_kept_as_json_whatever_it_came_as(
    results: ResultParts, result: Raw, value: Any
):
    answer = await results.fit(result)
    stored = link({"content": answer["content"][-1:]})
    assert len(results.store) == 1
    whole = (await results.reader.read_resource(ME, stored["uri"]))["contents"][0]
    assert (whole["uri"], whole["mimeType"]) == (stored["uri"], "application/json")
    assert json.loads(whole["text"]) == (value if value is not None else result["content"])


async def test_text_beside_structured_content_that_says_something_else_is_kept_too(
    results: ResultParts,
):
    answer = await results.fit(
        {**text_result(words(2_000)), "structuredContent": {"items": issues(300)}}
    )
    links = [block["uri"] for block in answer["content"] if block["type"] == "resource_link"]
    assert len(links) == 2
    assert (await results.reader.read_resource(ME, links[1]))["contents"][0]["text"] == words(2_000)
    assert len(texts(answer)) == 3


async def test_a_short_text_beside_large_structured_content_stays(results: ResultParts):
    answer = await results.fit(
        {**text_result("300 issues."), "structuredContent": {"items": issues(300)}}
    )
    assert texts(answer)[-1] == "300 issues."


@pytest.mark.parametrize(
    "text",
    [words(3_000), "x" * 50_000, "ü€😀" * 5_000, "[2026-01-01] INFO started\n" * 2_000,
        '{"a": 1}\n' * 3_000,
     "\n" * 20_000, "[" + words(2_000)],
)  # fmt: skip
async def test_every_character_of_text_can_be_read(results: ResultParts, text: str):
    answer = await results.fit(text_result(text))
    uri = link(answer)["uri"]
    assert (await results.reader.read_resource(ME, uri))["contents"][0]["text"] == text
    if "\n\n" not in text:
        read = await results.read_all(uri)
        assert read.replace("\n", "") == text.replace("\n", "")


@given(VALUES, st.integers(20, 60))
@settings(deadline=None, max_examples=25)
async def test_every_value_can_be_read_page_by_page(value: Any, times: int):
    results = ResultParts()
    whole = {"all": [value] * times, "more": "y" * 10_000}
    try:
        answer = await results.fit({"structuredContent": whole})
        uri = link(answer)["uri"]
        read = await results.read_all(uri)
        assert re.sub(r"\s", "", read) == re.sub(
            r"\s", "", (await results.reader.read_resource(ME, uri))["contents"][0]["text"]
        )
        assert (
            json.loads((await results.reader.read_resource(ME, uri))["contents"][0]["text"])
            == whole
        )
    finally:
        results.store.close()


async def test_an_error_stays_an_error(results: ResultParts):
    answer = await results.fit({**text_result(words(2_000)), "isError": True})
    assert answer["isError"] is True
    assert "it says this is an error" in texts(answer)[0]


async def test_pictures_pass_beside_a_large_text_and_large_ones_are_kept(results: ResultParts):
    small = {"type": "image", "data": "A" * 1_000, "mimeType": "image/png"}
    data = base64.b64encode(b"picture" * 600_000).decode()
    answer = await results.fit(
        {"content": [small, {"type": "image", "data": data, "mimeType": "image/png"}]}
    )
    assert small in answer["content"]
    stored = link(answer)
    assert "4.2 MB of image/png" in texts(answer)[0]
    assert stored["mimeType"] == "image/png"
    whole = (await results.reader.read_resource(ME, stored["uri"]))["contents"][0]
    assert whole["blob"] == data
    assert count_tokens(await results.read(stored["uri"])) <= BUDGET
    with pytest.raises(InvalidArguments, match="image/png"):
        await results.read(stored["uri"], path="@")


async def test_what_cannot_be_kept_is_shown_as_far_as_it_may_be_and_says_so(tmp_path: Path):
    results = ResultParts(tmp_path, result_bytes=5_000)
    answer = await results.fit(text_result(words(3_000)))
    summary, shown = texts(answer)
    assert "could not be kept" in summary
    assert 300 < count_tokens(shown) < BUDGET
    assert not [block for block in answer["content"] if block["type"] == "resource_link"]


async def test_a_disk_that_cannot_be_written_is_no_failure_of_the_tool(tmp_path: Path):
    (tmp_path / "results").write_text("a file where the folder should be")
    answer = await ResultParts(tmp_path / "results").fit(
        {"structuredContent": {"items": issues(500)}}
    )
    assert "could not be kept" in texts(answer)[0]


async def test_what_json_cannot_say_passes_unmeasured(results: ResultParts):
    result: Raw = {"structuredContent": {"odd": [{1, 2}] * 5_000}}
    assert await results.fit(result) is result


async def test_the_intent_shows_what_fits_it(results: ResultParts):
    text = words(2_000) + "the disk is full\n" + words(100)
    answer = await results.fit(text_result(text), intent="is the disk full?")
    assert "Matches: the disk is full" in texts(answer)[0]


async def test_without_read_result_the_resource_is_named(results: ResultParts):
    answer = await results.fit(text_result(words(2_000)), has_read_result=False)
    assert "read_result" not in "".join(texts(answer))
    assert link(answer)["uri"] in texts(answer)[0]


async def test_an_answer_that_was_kept_says_its_age_first(results: ResultParts):
    kept = {**text_result("hello"), "_meta": {"portico/cached": {"age_s": 12.2}}}
    assert texts(await results.fit(kept)) == ["[cached 12 s ago]", "hello"]
    large = {**text_result(words(2_000)), "_meta": {"portico/cached": {"age_s": 0}}}
    assert texts(await results.fit(large))[0] == "[cached 0 s ago]"


# Reading


@pytest.fixture
async def items(results: ResultParts) -> str:
    answer = await results.fit({"structuredContent": {"items": issues(1_000), "total": 1_000}})
    return link(answer)["uri"]


async def test_a_path_selects_from_a_stored_result(results: ResultParts, items: str):
    assert await results.read(items, path="items[997:].id") == "[997,998,999]"
    assert await results.read(items, path="total") == "1000"


async def test_what_a_path_selects_is_paged_too(results: ResultParts, items: str):
    read = await results.read_all(items, path="items[*].{n: id, t: title}")
    assert [one["n"] for one in json.loads(read.replace("\n", ""))] == list(range(1_000))


async def test_a_text_inside_json_is_read_as_text(results: ResultParts):
    uri = link(await results.fit({"structuredContent": {"name": "log", "body": words(2_000)}}))[
        "uri"
    ]
    assert (await results.read(uri, path="body")).startswith("line 0 has some words\nline 1 has")
    assert "1501:line 1500 has some words" in await results.read(
        uri, path="body", grep="line 1500 "
    )
    assert (await results.read_all(uri, path="body")).rstrip() == words(2_000).rstrip()


async def test_a_path_to_nothing_says_what_there_is(results: ResultParts, items: str):
    rendered = await results.read(items, path="rows[0]")
    assert rendered.startswith(
        "Nothing is at 'rows[0]': null. The whole result is {items: [1,000 × {id: integer"
    )


async def test_grep_finds_rows_and_goes_on(results: ResultParts, items: str):
    assert "number 777" in await results.read(items, grep="number 777")
    assert (await results.read(items, grep="absent")).startswith(
        "No line matches 'absent' (as plain text, 1,"
    )
    every = await results.read_all(items, grep=r"Issue number \d+\"")
    assert len(set(re.findall(r"Issue number (\d+)", every))) == 1_000


async def test_grep_looks_at_what_a_path_selected(results: ResultParts, items: str):
    rendered = await results.read(items, path="items[*].title", grep="number 99")
    assert re.findall(r"Issue number (\d+)", rendered) == ["99", *map(str, range(990, 1_000))]


async def test_a_cursor_is_valid_for_its_own_query_only(results: ResultParts, items: str):
    other = link(await results.fit({"structuredContent": {"items": issues(1_000)}}))["uri"]
    more = re.search(r'cursor="([^"]+)"', await results.read(items))
    assert more
    for options in ({"path": "items"}, {"grep": "x"}):
        with pytest.raises(StaleCursor):
            await results.read(items, cursor=more[1], **options)
    with pytest.raises(StaleCursor):
        await results.read(other, cursor=more[1])
    with pytest.raises(StaleCursor):
        await results.read(items, cursor=more[1][:-1] + "A")


async def test_another_caller_can_read_nothing(results: ResultParts, items: str):
    for read in (results.reader.read, results.reader.read_resource):
        reading: Callable[..., Any] = read
        with pytest.raises(UnknownName, match="no such result"):
            await reading(Caller("other"), items)


async def test_a_deleted_body_is_an_unknown_result_with_advice(results: ResultParts, items: str):
    results.store.files.delete(items.rpartition("/")[2])
    with pytest.raises(UnknownName, match="any more"):
        await results.read(items)
    with pytest.raises(UnknownName, match="no such result"):
        await results.reader.read_resource(ME, items)


async def test_a_path_into_text_is_refused_with_another_way(results: ResultParts):
    uri = link(await results.fit(text_result(words(2_000))))["uri"]
    with pytest.raises(InvalidArguments, match="this result is text") as caught:
        await results.read(uri, path="items")
    assert "grep" in caught.value.advice


async def test_grep_in_text_shows_the_lines_around(results: ResultParts):
    uri = link(await results.fit(text_result(words(2_000))))["uri"]
    rendered = await results.read(uri, grep="line 1500 ")
    assert "1500-line 1499 has" in rendered
    assert "1501:line 1500 has" in rendered
    assert "1503-line 1502 has" in rendered


async def test_every_match_in_a_result_of_one_line_is_shown_and_counted(results: ResultParts):
    rows = repr([{"id": n, "name": f"Person {n}", "age": 20 + n % 50} for n in range(2_800)])
    uri = link(await results.fit(text_result(rows)))["uri"]
    first = await results.read(uri, grep="'age': 42")
    assert re.match(
        r"\[56 matches in 1 line from here on, \d+ of them shown: \"'age': 42\", each at line@",
        first,
    ), first
    every = await results.read_all(uri, grep="'age': 42")
    assert re.findall(r"'id': (\d+)[^{}]*'age': 42}", every) == [
        str(n) for n in range(22, 2_800, 50)
    ]
    assert (await results.read(uri, grep="'id': 2222,")).startswith("[1 match in 1 line: ")


async def test_one_line_that_matches_is_said_to_be_one(results: ResultParts):
    uri = link(await results.fit(text_result(words(2_000))))["uri"]
    assert (await results.read(uri, grep="line 1500 ")).startswith(
        "[1 line matches 'line 1500 ', as plain text, to line"
    )


# Text that came as the one field of structured content


LOG = "".join(
    f"{'ERROR' if n % 50 == 7 else 'INFO'} {n} something happened\n" for n in range(2_000)
)


def wrapped(text: str, field: str = "content", *, beside: str | None = None) -> Raw:
    return {**text_result(text if beside is None else beside), "structuredContent": {field: text}}


@pytest.mark.parametrize(
    "result",
    [
        wrapped(LOG),
        wrapped(LOG, "result"),
        wrapped(LOG, "an odd; näme="),
        wrapped(LOG, beside=json.dumps({"content": LOG})),
        {"content": [], "structuredContent": {"content": LOG}},
        {**text_result(""), "content": [{"type": "text", "text": one} for one in LOG.split("\n")],
         "structuredContent": {"content": LOG}},
    ],
)  # fmt: skip
async def test_text_in_the_one_field_of_structured_content_is_read_as_text(
    results: ResultParts, result: Raw
):
    (field,) = result["structuredContent"]
    answer = await results.fit(result)
    summary = texts(answer)[0]
    stored = link(answer)
    assert "of text in 2,000 lines" in summary
    assert "the only field of the answer" in summary
    assert count_tokens(summary) <= 500
    assert stored["mimeType"] == "text/plain"
    whole = (await results.reader.read_resource(ME, stored["uri"]))["contents"][0]
    assert (whole["mimeType"], whole["text"]) == ("text/plain", LOG)
    for path in ("", field if field.isalpha() else json.dumps(field), json.dumps(field)):
        assert (await results.read_all(stored["uri"], path=path)).rstrip() == LOG.rstrip()
        found = await results.read_all(stored["uri"], path=path, grep="ERROR")
        assert len(re.findall(r"^\d+:ERROR", found, re.MULTILINE)) == 40
    with pytest.raises(InvalidArguments, match="this result is text"):
        await results.read(stored["uri"], path="other")


async def test_what_is_said_beside_such_a_text_stays(results: ResultParts):
    answer = await results.fit(wrapped(LOG, beside="read it all"))
    assert texts(answer)[-1] == "read it all"
    answer = await results.fit(wrapped(LOG, beside=words(2_000)))
    links = [block["uri"] for block in answer["content"] if block["type"] == "resource_link"]
    wholes = [(await results.reader.read_resource(ME, uri))["contents"][0]["text"] for uri in links]
    assert wholes == [LOG, words(2_000)]


async def test_a_short_field_beside_a_large_text_keeps_its_name(results: ResultParts):
    answer = await results.fit({**text_result(words(2_000)), "structuredContent": {"status": "ok"}})
    links = [block["uri"] for block in answer["content"] if block["type"] == "resource_link"]
    wholes = [(await results.reader.read_resource(ME, uri))["contents"][0]["text"] for uri in links]
    assert wholes == ['{"status":"ok"}\n', words(2_000)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("field", ["content", "result", "my-file"])
async def test_json_in_that_text_has_paths_with_and_without_the_field(
    results: ResultParts, field: str, indent: int | None
):
    orders = {"orders": issues(400), "next": None}
    answer = await results.fit(wrapped(json.dumps(orders, indent=indent), field))
    summary, uri = texts(answer)[0], link(answer)["uri"]
    assert "{orders: [400 × {id: integer, title: string" in summary
    assert "orders has 400 rows. Columns: id | title" in summary
    assert count_tokens(summary) <= 500
    name = field if field.isalpha() else json.dumps(field)
    assert json.loads(await results.read(uri, path="orders[5]")) == issues(400)[5]
    for path, found in (
        ("orders[5].id", "5"),
        ("orders[397:].id", "[397,398,399]"),
        ("orders[?id > `398`].id", "[399]"),
        ("orders | length(@)", "400"),
        ("keys(@)", '["orders","next"]'),
    ):
        assert await results.read(uri, path=path) == found
        assert await results.read(uri, path=f"{name} | {path}") == found
        if "(" not in path:
            assert await results.read(uri, path=f"{name}.{path}") == found
    assert json.loads((await results.read_all(uri, path=name)).replace("\n", "")) == orders
    assert "number 377" in await results.read(uri, path=name, grep="number 377")
    assert (await results.read(uri, path=f"{name}.absent")).startswith("Nothing is at ")
    assert (await results.read(uri, path="absent")).startswith(
        "Nothing is at 'absent': null. The whole result is {orders:"
    )


async def test_the_inner_field_of_the_same_name_comes_first(results: ResultParts):
    uri = link(await results.fit(wrapped(json.dumps({"content": issues(400), "more": 7}))))["uri"]
    assert await results.read(uri, path="content[3].id") == "3"
    assert await results.read(uri, path="content.content[3].id") == "3"
    assert await results.read(uri, path="content.more") == "7"


async def test_a_list_in_that_text_has_paths_too(results: ResultParts):
    uri = link(await results.fit(wrapped(json.dumps(issues(400)), "result")))["uri"]
    for path in (
        "[7].title",
        "result[7].title",
        "result[*].title | [7]",
        "[5:9].title | [2]",
        "result[5:9].title | [2]",
    ):
        assert await results.read(uri, path=path) == '"Issue number 7"'


# Sizes


async def test_fifty_megabytes_are_kept_summed_up_and_read(tmp_path: Path):
    results = ResultParts(tmp_path)
    text = json.dumps({"items": issues(180_000, body=200)})
    assert len(text) > 50_000_000
    answer = await results.fit(text_result(text))
    assert count_tokens(texts(answer)[0]) <= 500
    assert "180,000 rows" in texts(answer)[0]
    assert count_tokens("".join(texts(answer))) <= BUDGET
    assert "number 179999" in await results.read(link(answer)["uri"], grep="number 179999")


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize("kind", ["json", "text", "csv", "one line"])
async def test_no_size_makes_an_answer_larger_than_its_budget(
    results: ResultParts, size: int, kind: str
):
    text = {
        "json": lambda: json.dumps(issues(size // 90)),
        "text": lambda: words(size // 23),
        "csv": lambda: (
            "id,name,price\n" + "".join(f"{n},thing {n},{n / 7:.2f}\n" for n in range(size // 20))
        ),
        "one line": lambda: "word " * (size // 5),
    }[kind]()
    answer = await results.fit(text_result(text))
    assert count_tokens("".join(texts(answer))) <= BUDGET
    if size >= 10_000:
        assert count_tokens(texts(answer)[0]) <= 500
