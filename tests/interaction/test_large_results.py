"""Results through real clients of both eras: large ones as summary, preview and handle; kept ones
from the cache."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from portico.config import Budgets, Config, Profile, ProfileBudgets, ResultsConfig
from portico.config_file import load
from portico.events import CatalogChanged, Event
from portico.gateway import GatewayRuntime
from portico.rendering.token_budget import count_tokens
from portico.testing import FakeBackend, Transport, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.interaction.fake_servers import ask, get_text, text, tool

TIMEOUT_S = 240.0
WAYS = [(era, transport) for era in ("legacy", "modern") for transport in ("memory", "http")]
ROWS = [
    {"number": n, "title": f"Issue {n}", "note": "words about it, and more of them " * 2}
    for n in range(30_000)
]
WHOLE = json.dumps(ROWS)
EVENTS = ("legacy", "http")
"""Answers come as events here, and the SDK's client takes none of more than a megabyte."""
PICTURE = base64.b64encode(bytes(range(256)) * 4).decode()
READ_ONLY = {"annotations": {"readOnlyHint": True}}


def image(data: str) -> Raw:
    return {"type": "image", "data": data, "mimeType": "image/png"}


def results(**answers: Raw) -> FakeBackend:
    """A server with one read-only tool for each answer, and one that says nothing of itself."""
    backend = FakeBackend([*({**tool(name), **READ_ONLY} for name in answers), tool("write")])
    for name, answer in {**answers, "write": text(json.dumps({"written": 1}))}.items():
        backend.on_call(name, lambda _, answer=answer: answer)
    return backend


def calls_of(backend: FakeBackend) -> int:
    return sum(method == "tools/call" for method, _ in backend.requests)


async def call(client: Client, name: str, **more: Any) -> CallToolResult:
    async with asyncio.timeout(TIMEOUT_S):
        return await client.call_tool("call_tool", {"name": name, **more})


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def links(result: CallToolResult) -> list[ResourceLink]:
    return [block for block in result.content if isinstance(block, ResourceLink)]


def id_of(result: CallToolResult) -> str:
    return str(links(result)[0].uri).removeprefix("portico://result/")


async def whole(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert str(content.uri) == uri
    assert isinstance(content, TextResourceContents)
    return content.text


# ── handles


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_three_megabytes_become_a_summary_a_preview_and_a_link_to_the_whole(
    era: Era, transport: Transport
) -> None:
    assert len(WHOLE) > 3_000_000
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}) as gateway,
        connect(gateway, transport, era) as client,
    ):
        answer = await call(client, "s.rows")
        assert not answer.is_error
        header, preview = texts(answer)
        assert count_tokens(header) <= 500
        assert "30,000 rows. Columns: number | title | note" in header
        assert "Issue 0" in preview
        assert count_tokens(header) + count_tokens(preview) <= 8_000
        (link,) = links(answer)
        if (era, transport) != EVENTS:
            assert json.loads(await whole(client, str(link.uri))) == ROWS
        assert (
            await ask(client, "read_result", result_id=id_of(answer), path="[-1].title")
            == '"Issue 29999"'
        )
        found = await ask(client, "read_result", result_id=id_of(answer), grep="Issue 27182")
        assert '"Issue 27182"' in found
        goes_on = re.search(r'cursor="([^"]+)"\) goes on', preview)
        assert goes_on, preview[-200:]
        following = await ask(client, "read_result", result_id=id_of(answer), cursor=goes_on[1])
        last = int(re.findall(r'"number":(\d+)', preview)[-1])
        assert f'"number":{last + 1},' in following.split("\n")[1]


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_a_file_that_comes_as_the_one_field_of_structured_content_is_read_as_the_file(
    era: Era, transport: Transport
) -> None:
    log = "".join(
        f"{'ERROR' if n % 100 == 7 else 'INFO'} {n} something happened here\n" for n in range(4_100)
    )
    orders = json.dumps({"orders": ROWS[:3_000]}, indent=2)
    backend = results(
        log={**text(log), "structuredContent": {"content": log}},
        orders={**text(orders), "structuredContent": {"content": orders}},
    )
    async with gateway_over({"s": backend}) as gateway, connect(gateway, transport, era) as client:
        result_id = id_of(await call(client, "s.log"))
        for path in ({}, {"path": "content"}):
            found = await ask(client, "read_result", result_id=result_id, grep="ERROR", **path)
            assert found.startswith("[41 lines match 'ERROR', as plain text, to line 4,100]")
        answer = await call(client, "s.orders")
        assert "orders has 3,000 rows. Columns: number | title | note" in texts(answer)[0]
        assert links(answer)[0].mime_type == "application/json"
        for path in ("orders[5].title", "content.orders[5].title"):
            assert (
                await ask(client, "read_result", result_id=id_of(answer), path=path) == '"Issue 5"'
            )


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_grep_in_a_result_of_one_line_goes_on_inside_the_line(
    era: Era, transport: Transport
) -> None:
    rows = repr([{"id": n, "name": f"Person {n}", "age": 20 + n % 50} for n in range(20_000)])
    async with (
        gateway_over({"s": results(rows=text(rows))}) as gateway,
        connect(gateway, transport, era) as client,
    ):
        result_id, cursor, found = id_of(await call(client, "s.rows")), None, list[str]()
        while True:
            more = {"cursor": cursor} if cursor else {}
            part = await ask(client, "read_result", result_id=result_id, grep="'age': 42", **more)
            assert part.startswith(f"[{400 - len(found)} matches in 1 line")
            assert count_tokens(part) <= 8_000
            found += re.findall(r"'id': (\d+)[^{}]*'age': 42}", part)
            following = re.search(r'cursor="([^"]+)"', part)
            if following is None:
                break
            assert following[1] != cursor
            cursor = following[1]
        assert found == [str(n) for n in range(22, 20_000, 50)]


async def test_pages_followed_to_their_end_are_the_whole() -> None:
    config = Config(budgets=Budgets(result=60_000))
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}, config) as gateway,
        connect(gateway) as client,
    ):
        result_id, cursor, parts = id_of(await call(client, "s.rows")), None, list[str]()
        while True:
            page = await ask(
                client, "read_result", result_id=result_id, **({"cursor": cursor} if cursor else {})
            )
            assert count_tokens(page) <= 60_000
            found = re.fullmatch(
                r'\[bytes [^\]]*\]\n(.*?)(?:\n\[more: .* cursor="([^"]+)"\)\])?', page, re.DOTALL
            )
            assert found, page[:200]
            parts.append(found[1])
            if (cursor := found[2]) is None:
                break
        assert len(parts) > 5
        assert json.loads("\n".join(parts)) == ROWS


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_a_large_error_is_still_an_error(era: Era, transport: Transport) -> None:
    failing = results(fail={**text("it went wrong\n" * 20_000), "isError": True})
    async with gateway_over({"s": failing}) as gateway, connect(gateway, transport, era) as client:
        answer = await call(client, "s.fail")
        assert answer.is_error
        assert "it says this is an error" in texts(answer)[0]
        assert await whole(client, str(links(answer)[0].uri)) == "it went wrong\n" * 20_000


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
async def test_a_result_is_its_callers_alone_and_unknown_to_others(era: Era, code: int) -> None:
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}) as gateway,
        connect(gateway, "http", era, client_info=Implementation(name="one", version="1")) as one,
        connect(gateway, "http", era, client_info=Implementation(name="two", version="1")) as two,
    ):
        result_id = id_of(await call(one, "s.rows"))
        for name in (result_id, "never", "", "../../etc/passwd", "x" * 10_000):
            if name:
                with pytest.raises(MCPError, match="Resource not found") as refused:
                    await two.read_resource(f"portico://result/{name}")
                assert refused.value.code == code
            answer = await two.call_tool("read_result", {"result_id": name})
            assert answer.is_error
            assert "there is no such result" in get_text(answer)
            assert "call the tool again" in get_text(answer)
        assert await ask(one, "read_result", result_id=result_id, path="[0].number") == "0"


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
async def test_a_result_over_its_time_is_gone(era: Era, code: int) -> None:
    config = Config(results=ResultsConfig(ttl_s=1e-6))
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}, config) as gateway,
        connect(gateway, "memory", era) as client,
    ):
        answer = await call(client, "s.rows")
        with pytest.raises(MCPError, match="there is no such result") as refused:
            await client.read_resource(str(links(answer)[0].uri))
        assert refused.value.code == code
        assert (await client.call_tool("read_result", {"result_id": id_of(answer)})).is_error


async def test_a_cursor_of_one_reading_does_not_continue_another() -> None:
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}) as gateway,
        connect(gateway) as client,
    ):
        mine, other = id_of(await call(client, "s.rows")), id_of(await call(client, "s.rows"))
        found = await ask(client, "read_result", result_id=mine, grep="Issue")
        cursor = re.findall(r'cursor="([^"]+)"', found)[-1]
        for wrong in (
            {"result_id": other, "grep": "Issue", "cursor": cursor},
            {"result_id": mine, "grep": "issue", "cursor": cursor},
            {"result_id": mine, "path": "[0]", "cursor": cursor},
            {"result_id": mine, "cursor": cursor},
        ):
            answer = await client.call_tool("read_result", wrong)
            assert answer.is_error
            assert "this cursor belongs to another question" in get_text(answer)
        for forged in (cursor[:-1], cursor[::-1], "x"):
            answer = await client.call_tool(
                "read_result", {"result_id": mine, "grep": "Issue", "cursor": forged}
            )
            assert answer.is_error
            assert "this cursor was not made here" in get_text(answer)
        assert "Issue" in await ask(
            client, "read_result", result_id=mine, grep="Issue", cursor=cursor
        )


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_who_lists_the_tools_themselves_gets_their_results_whole(
    era: Era, transport: Transport
) -> None:
    body = WHOLE if (era, transport) != EVENTS else WHOLE[:900_000]
    async with (
        gateway_over({"s": results(rows=text(body))}, Config(exposure="full")) as gateway,
        connect(gateway, transport, era) as client,
    ):
        assert get_text(await client.call_tool("s__rows", {})) == body


async def test_each_profile_has_its_own_budget_and_its_own_results() -> None:
    wide = Profile(budgets=ProfileBudgets(result=50_000))
    some = json.dumps(ROWS[:400])
    async with (
        gateway_over({"s": results(rows=text(some))}, Config(profiles={"wide": wide})) as gateway,
        connect(gateway) as narrow,
        connect(gateway, profile="wide") as broad,
    ):
        assert get_text(await call(broad, "s.rows")) == some
        result_id = id_of(await call(narrow, "s.rows"))
        assert (await broad.call_tool("read_result", {"result_id": result_id})).is_error


async def test_without_the_tool_that_reads_the_link_is_reported_instead() -> None:
    config = Config(profiles={"p": Profile(metatools={"read_result": False})})
    async with (
        gateway_over({"s": results(rows=text(WHOLE))}, config) as gateway,
        connect(gateway, profile="p") as client,
    ):
        answer = await call(client, "s.rows")
        assert not [part for part in texts(answer) if "read_result" in part]
        assert json.loads(await whole(client, str(links(answer)[0].uri))) == ROWS


async def test_pictures_pass_beside_a_large_text_and_a_huge_one_is_a_link() -> None:
    huge = base64.b64encode(bytes(3_000_000)).decode()
    backend = results(
        both={"content": [{"type": "text", "text": WHOLE}, image(PICTURE)]},
        huge={"content": [{"type": "text", "text": "the picture"}, image(huge)]},
        small={"content": [image(PICTURE)]},
    )
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        answer = await call(client, "s.both")
        assert [block.data for block in answer.content if isinstance(block, ImageContent)] == [
            PICTURE
        ]
        assert json.loads(await whole(client, str(links(answer)[0].uri))) == ROWS
        answer = await call(client, "s.huge")
        assert "the picture" in texts(answer)
        (link,) = links(answer)
        (content,) = (await client.read_resource(str(link.uri))).contents
        assert isinstance(content, BlobResourceContents)
        assert (content.blob, content.mime_type) == (huge, "image/png")
        answer = await call(client, "s.small")
        assert [block.type for block in answer.content] == ["image"]


async def test_results_on_disk_are_read_the_same_and_leave_nothing_behind(tmp_path: Path) -> None:
    backend = results(rows=text(WHOLE))
    async with (
        GatewayRuntime(Config(data_dir=tmp_path), backends={"s": backend}) as gateway,
        connect(gateway) as client,
    ):
        answer = await call(client, "s.rows")
        assert large_files(tmp_path)
        assert json.loads(await whole(client, str(links(answer)[0].uri))) == ROWS
    assert not large_files(tmp_path)


def large_files(folder: Path) -> list[Path]:
    return [
        file for file in folder.rglob("*") if file.is_file() and file.stat().st_size > 2_000_000
    ]


# ── shapes


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_a_tool_not_known_to_be_read_only_is_looked_at_only_with_leave(
    era: Era, transport: Transport
) -> None:
    backend = results(rows=text(WHOLE))
    async with gateway_over({"s": backend}) as gateway, connect(gateway, transport, era) as client:
        refused = await call(client, "s.write", view="shape")
        assert refused.is_error
        assert "confirm=true" in get_text(refused)
        assert calls_of(backend) == 0
        assert "{written: integer}" in get_text(
            await call(client, "s.write", view="shape", confirm=True)
        )
        reported = get_text(await call(client, "s.rows", view="shape"))
        assert "[30,000 × {number: integer, title: string" in reported
        assert count_tokens(reported) <= 600
        assert calls_of(backend) == 2


async def test_what_a_tool_was_seen_to_answer_is_reported_before_it_is_called_again() -> None:
    backend = results(one=text(json.dumps({"id": 7, "owner": {"name": "x"}})))
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        assert "learned" not in await ask(client, "describe_tools", names=["s.one"], detail="full")
        await call(client, "s.one")
        described = await ask(client, "describe_tools", names=["s.one"], detail="full")
        assert "returns (learned from 1 result): {id: integer, owner: {name: string}}" in described


# ── the cache


CONFIGURED = """
trust: always
servers:
  s:
    url: {url}
    cache: {{ttl_s: 60, tools: {{never_*: 0, lookup: 60}}}}
data_dir: {folder}
"""


@asynccontextmanager
async def caching(backend: FakeBackend, folder: Path) -> AsyncGenerator[GatewayRuntime]:
    """A gateway that was configured by a file to keep the answers of a server, which it reaches
    over HTTP."""
    transparent = Config(exposure="full", prefix="never")
    async with gateway_over({"s": backend}, transparent) as inner, serve_http(inner) as url:
        file = folder / "portico.yaml"
        file.write_text(CONFIGURED.format(url=url, folder=folder / "data"))
        config = load(file, environ={}).config
        async with gateway_over(config=config) as gateway:
            yield gateway


def counting(*names: str) -> FakeBackend:
    """A server whose answers tell how often it was asked."""
    backend = FakeBackend([{**tool(name, n="integer"), **READ_ONLY} for name in names])
    for name in names:
        backend.on_call(name, lambda _: text(f"answer {calls_of(backend)}"))
    return backend


@pytest.mark.parametrize(("era", "transport"), WAYS)
async def test_the_second_of_two_identical_calls_is_answered_from_the_cache_and_is_no_use(
    era: Era, transport: Transport, tmp_path: Path
) -> None:
    backend = counting("read")
    async with caching(backend, tmp_path) as gateway, connect(gateway, transport, era) as client:
        assert texts(await call(client, "s.read", arguments={"n": 1})) == ["answer 1"]
        again = await call(client, "s.read", arguments={"n": 1})
        mark, answer = texts(again)
        assert re.fullmatch(r"\[cached \d+ s ago\]", mark)
        assert answer == "answer 1"
        assert (again.meta or {})["portico/cached"]["age_s"] >= 0
        assert gateway.usage_data.tool_usage.get_statistics("s.read").calls == 1
        assert texts(await call(client, "s.read", arguments={"n": 2})) == ["answer 2"]


async def test_what_is_kept_follows_the_file_and_the_tools_own_word(tmp_path: Path) -> None:
    backend = counting("read", "never_read")
    backend.listing["tools"] += [tool("lookup"), tool("write")]
    for name in ("lookup", "write"):
        backend.on_call(name, lambda _: text(f"answer {calls_of(backend)}"))
    async with caching(backend, tmp_path) as gateway, connect(gateway) as client:
        for name, asked in (("read", 1), ("never_read", 2), ("lookup", 1), ("write", 2)):
            before = calls_of(backend)
            for _ in range(2):
                assert not (await call(client, f"s.{name}")).is_error
            assert calls_of(backend) - before == asked, name


async def test_errors_are_never_kept(tmp_path: Path) -> None:
    backend = counting("read")
    backend.on_call("read", lambda _: {**text(f"no {calls_of(backend)}"), "isError": True})
    async with caching(backend, tmp_path) as gateway, connect(gateway) as client:
        for number in (1, 2):
            answer = await call(client, "s.read")
            assert answer.is_error
            assert texts(answer) == [f"no {number}"]


async def test_a_tool_that_changed_is_asked_again(tmp_path: Path) -> None:
    backend = counting("read")
    changed = asyncio.Event()

    def received(event: Event) -> None:
        changed.set()

    async with caching(backend, tmp_path) as gateway, connect(gateway) as client:
        for _ in range(2):
            assert texts(await call(client, "s.read"))[-1] == "answer 1"
        gateway.bus.subscribe(received, CatalogChanged)
        backend.change([{**tool("read", n="integer", other="string"), **READ_ONLY}])
        await asyncio.wait_for(changed.wait(), TIMEOUT_S)
        remark, answer = texts(await call(client, "s.read"))
        assert "definition of this tool changed" in remark
        assert answer == "answer 2"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_two_identical_calls_at_the_same_time_reach_the_server_once(
    era: Era, tmp_path: Path
) -> None:
    backend, reached, gate = counting("read"), asyncio.Event(), asyncio.Event()

    async def slowly(arguments: Raw) -> Raw:
        reached.set()
        await asyncio.wait_for(gate.wait(), TIMEOUT_S)
        return text("one answer")

    backend.on_call("read", slowly)
    async with (
        caching(backend, tmp_path) as gateway,
        connect(gateway, "http", era) as one,
        connect(gateway, "http", era) as two,
    ):
        calling = [asyncio.create_task(call(client, "s.read")) for client in (one, two)]
        await asyncio.wait_for(reached.wait(), TIMEOUT_S)
        gate.set()
        answers = await asyncio.wait_for(asyncio.gather(*calling), TIMEOUT_S)
        assert [texts(answer)[-1] for answer in answers] == ["one answer"] * 2
        assert calls_of(backend) == 1


async def test_a_server_cannot_say_that_an_answer_was_kept(tmp_path: Path) -> None:
    backend = counting("read")
    backend.on_call(
        "read", lambda _: {**text("fresh"), "_meta": {"portico/cached": {"age_s": 5}, "own": 1}}
    )
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        answer = await call(client, "s.read")
        assert texts(answer) == ["fresh"]
        assert (answer.meta or {}).get("own") == 1
        assert gateway.usage_data.tool_usage.get_statistics("s.read").calls == 1
