"""Rows A11, A12, C4, D3, D4 and E5 of docs/requirements.md, through a client: what earlier projects
promised of calls and their results."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ResourceLink

from portico.config import Config
from portico.errors import BackendUnavailable, RemoteError
from portico.events import CatalogChanged, Event
from portico.gateway import GatewayRuntime
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw
from tests.gateways import TIMEOUT_S, wait_until
from tests.interaction.fake_servers import get_text, text, tool

COUNT = get_best_counter().count
ROWS = [
    {"number": n, "title": f"Issue {n}", "state": "open" if n % 2 else "closed"}
    for n in range(4_000)
]
LISTED: Raw = {**text(json.dumps(ROWS)), "structuredContent": {"r": ROWS}}
READ_ONLY = {"annotations": {"readOnlyHint": True}}


def make_github(answer: Raw) -> FakeBackend:
    """A server with a tool that reads and one that changes something."""
    backend = FakeBackend([{**tool("list_issues"), **READ_ONLY}, tool("close_issue")])
    for name in ("list_issues", "close_issue"):
        backend.on_call(name, lambda _: answer)
    return backend


def count_calls(backend: FakeBackend) -> int:
    return sum(method == "tools/call" for method, _ in backend.requests)


@asynccontextmanager
async def open_cached(
    backend: FakeBackend, folder: Path, **cache: Any
) -> AsyncGenerator[tuple[GatewayRuntime, Client]]:
    """A client of a gateway that reaches the server by a URL, with these settings of its cache."""
    plain = Config(exposure="full", prefix="never")
    async with gateway_over({"github": backend}, plain) as inner, serve_http(inner) as url:
        server: dict[str, Any] = {"url": url, **({"cache": cache} if cache else {})}
        servers = {"github": server, "briefly": {"url": url, "cache": {"ttl_s": 1e-6}}}
        config = Config.model_validate({"data_dir": folder, "trust": "always", "servers": servers})
        async with gateway_over(config=config) as gateway, connect(gateway) as client:
            yield gateway, client


async def call(
    client: Client, name: str, arguments: Mapping[str, Any] | None = None, **more: Any
) -> CallToolResult:
    request = {"name": name, "arguments": dict(arguments or {}), **more}
    result = await asyncio.wait_for(client.call_tool("call_tool", request), TIMEOUT_S)
    assert not result.is_error, result.content
    return result


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


def find_link(result: CallToolResult) -> ResourceLink:
    (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
    return link


async def test_a11_a_large_output_has_a_header_under_500_tokens_and_a_uri_for_the_details() -> None:
    async with gateway_over({"github": make_github(LISTED)}) as gateway, connect(gateway) as client:
        answer = await call(client, "github.list_issues")
    header, preview = texts(answer)
    assert COUNT(header) < 500
    assert "4,000 rows. Columns: number | title | state" in header
    assert COUNT(header + preview) < 8_000
    uri = str(find_link(answer).uri)
    assert uri.startswith("portico://result/")
    assert uri in header


async def test_a11_nothing_is_cut_off_and_lost() -> None:
    plain = text(json.dumps(ROWS))
    async with gateway_over({"github": make_github(plain)}) as gateway, connect(gateway) as client:
        uri = str(find_link(await call(client, "github.list_issues")).uri)
        content: Any = (await client.read_resource(uri)).contents[0]
        assert json.loads(content.text) == ROWS

        async def read(**how: Any) -> str:
            return get_text(await client.call_tool("read_result", {"result_id": uri, **how}))

        assert await read(path="[-1].title") == '"Issue 3999"'
        assert "Issue 2718" in await read(grep="Issue 2718")
        async with connect(gateway) as other:
            with pytest.raises(MCPError):
                await other.read_resource(uri)


async def test_a11_nothing_in_a_single_long_line_is_lost() -> None:
    line = {**text(repr(ROWS)), "structuredContent": {"r": repr(ROWS)}}
    async with gateway_over({"github": make_github(line)}) as gateway, connect(gateway) as client:
        uri = str(find_link(await call(client, "github.list_issues")).uri)
        search = {"result_id": uri, "grep": "'title': 'Issue 27"}
        found = get_text(await client.call_tool("read_result", search))
    assert found.startswith("[111 matches in 1 line: ")
    assert found.count("'title': 'Issue 27") == 111 + 1


async def test_a11_a_small_output_is_as_the_server_gave_it() -> None:
    small: Raw = {**text("done"), "structuredContent": {"ok": True}}
    async with gateway_over({"github": make_github(small)}) as gateway, connect(gateway) as client:
        answer = await call(client, "github.list_issues")
    assert (texts(answer), answer.structured_content) == (["done"], {"ok": True})


async def test_a12_a_repeated_call_is_answered_from_the_cache_and_marked(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path, ttl_s=60) as (_, client):
        assert texts(await call(client, "github.list_issues", {"state": "open"})) == ["12 issues"]
        again = await call(client, "github.list_issues", {"state": "open"})
        mark, answer = texts(again)
        assert re.fullmatch(r"\[cached \d+ s ago\]", mark)
        assert answer == "12 issues"
        assert (again.meta or {})["portico/cached"]["age_s"] >= 0
        assert count_calls(github) == 1


async def test_a12_the_time_is_the_backend_s_own(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path, ttl_s=60, tools={"close_*": 0}) as (_, client):
        for name, calls in (("github", 1), ("briefly", 2)):
            before = count_calls(github)
            for _ in range(2):
                await call(client, f"{name}.list_issues")
            assert count_calls(github) - before == calls, name


async def test_a12_nothing_is_kept_unless_it_is_asked_for_or_after_a_change(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path / "never") as (_, client):
        await call(client, "github.list_issues")
        await call(client, "github.list_issues")
        assert count_calls(github) == 2
    async with open_cached(github, tmp_path / "kept", ttl_s=60) as (_, client):
        for name in ("list_issues", "close_issue", "list_issues"):
            await call(client, f"github.{name}")
        assert count_calls(github) == 2 + 3


async def test_c4_the_structure_of_a_real_response_is_reported_instead_of_the_response() -> None:
    github = make_github({"content": [], "structuredContent": {"issues": ROWS, "next": None}})
    async with gateway_over({"github": github}) as gateway, connect(gateway) as client:
        answer = await call(client, "github.list_issues", {"state": "open"}, view="shape")
    (reported,) = texts(answer)
    assert count_calls(github) == 1
    assert (
        "{issues: [4,000 × {number: integer, title: string, state: string}], next: null}"
        in reported
    )
    assert 'issues[0]: {"number":0,"title":"Issue 0","state":"closed"}' in reported
    assert COUNT(reported) <= 600


async def test_c4_a_tool_that_may_change_things_is_not_called_to_be_looked_at() -> None:
    github = make_github({"content": [], "structuredContent": {"ok": True}})
    async with gateway_over({"github": github}) as gateway, connect(gateway) as client:
        shape: dict[str, Any] = {"name": "github.close_issue", "arguments": {}, "view": "shape"}
        refused = await client.call_tool("call_tool", shape)
        assert refused.is_error
        assert "read-only" in get_text(refused)
        assert count_calls(github) == 0
        await call(client, "github.close_issue", view="shape", confirm=True)
    assert count_calls(github) == 1


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


async def test_d3_arguments_are_validated_and_repaired_and_the_answer_is_validated():
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
    assert '[arguments repaired: number: "7" read as 7]' in get_text(answer)


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
    reported = (answer.meta or {})["portico/error"]
    assert (reported["kind"], reported["retryable"]) == (kind, retryable)
    assert reported["message"]
    assert get_text(answer).startswith(f"{kind}: ")
    assert ("number: integer" in get_text(answer)) is schema


# D4: a result cache by tool and argument hash


async def test_d4_the_same_arguments_in_any_order_are_the_same_question(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path, ttl_s=60) as (_, client):
        await call(client, "github.list_issues", {"state": "open", "page": 1})
        await call(client, "github.list_issues", {"page": 1, "state": "open"})
        assert count_calls(github) == 1
        await call(client, "github.list_issues", {"page": 2, "state": "open"})
        assert count_calls(github) == 2


async def test_d4_any_number_of_identical_calls_at_once_are_one(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path, ttl_s=60) as (_, client):
        calls = (call(client, "github.list_issues", {"state": "open"}) for _ in range(100))
        answers = await asyncio.gather(*calls)
    assert {texts(answer)[-1] for answer in answers} == {"12 issues"}
    assert count_calls(github) == 1


# E5: schema changes are found by hash at execution time, and caches are invalidated


async def test_e5_a_definition_that_changed_is_noticed_by_the_call_and_reported_once():
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
        first = get_text(await client.call_tool("call_tool", call))
        assert "The definition of github.list_issues changed since you saw it" in first
        second = await client.call_tool("call_tool", call)
        assert "changed since" not in get_text(second)
        assert (second.meta or {})["portico/error"]["kind"] == "invalid_arguments"
    assert sum(method == "tools/call" for method, _ in backend.requests) == 1


async def test_e5_what_was_kept_of_the_old_definition_is_not_given_again(tmp_path: Path) -> None:
    github = make_github(text("12 issues"))
    async with open_cached(github, tmp_path, ttl_s=60) as (gateway, client):
        for _ in range(2):
            await call(client, "github.list_issues")
        assert count_calls(github) == 1
        changed: set[str] = set()

        def note(event: Event) -> None:
            assert isinstance(event, CatalogChanged)
            changed.update(event.changed)

        # The other server with the same tool may be listed again before.
        gateway.bus.subscribe(note, CatalogChanged)
        github.change([{**tool("list_issues", page="integer"), **READ_ONLY}])
        await wait_until(lambda: "github.list_issues" in changed)
        await call(client, "github.list_issues")
        assert count_calls(github) == 2
