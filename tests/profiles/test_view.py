"""The meta-tools as a client meets them: forgiving, honest about what is down, and never a dead
end."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from portico.calls.pipeline import CallContext
from portico.config import BackendConfig, Budgets, Config, Profile
from portico.errors import INVALID_PARAMS, BackendUnavailable
from portico.meta_tools import tool_definitions
from portico.profiles.view import PAGE_SIZE
from portico.rendering.token_budget import count_tokens
from portico.rendering.tool_result import LONG_TEXT_CHARS
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw
from tests.gateways import TIMEOUT_S, ContextHolder, GatewayUnderTest, open_gateway
from tests.profiles.viewing import ME, viewing


def tool(
    name: str, description: str = "Does it.", required: Sequence[str] = (), **properties: Any
) -> Raw:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "inputSchema": schema}


def issues() -> FakeBackend:
    backend = FakeBackend(
        [
            tool(
                "create_issue",
                "Create an issue.",
                ["title"],
                title={"type": "string"},
                count={"type": "integer"},
            ),
            tool("get-item", "Get an item."),
            tool("search", "Search issues.", text={"type": "string"}),
            {"name": "untyped", "description": "Takes anything."},
        ],
        prompts=[{"name": "greet"}],
        resources=[{"uri": "note:1", "name": "note"}],
    )
    for name in ("create_issue", "get-item", "search", "untyped"):
        backend.on_call(
            name,
            lambda arguments, name=name: answered(
                f"{name} {json.dumps(arguments, sort_keys=True)}"
            ),
        )
    return backend


def answered(text: str) -> Raw:
    return {"content": [{"type": "text", "text": text}]}


def recording(path: Path) -> BackendConfig:
    listing = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old"},
        },
        "tools": [tool("replay", "Replays a tape.")],
    }
    path.write_bytes(orjson.dumps(listing))
    return BackendConfig(recorded=path)


@dataclass
class TrackerGateway(GatewayUnderTest):
    backend: FakeBackend = field(default_factory=issues)


@pytest_asyncio.fixture
async def gateway(tmp_path: Path, contexts: ContextHolder) -> TrackerGateway:
    """A gateway over a healthy server, one that is down, one never listed, and a recording."""
    backend = issues()
    silent = FakeBackend()
    silent.refuses = BackendUnavailable("it has no licence")
    backends = {
        "tracker": backend,
        "data-server": FakeBackend([tool("get-item"), tool("search")]),
        "silent": silent,
    }
    config = Config(servers={"tape": recording(tmp_path / "tape.json")})
    opened = await contexts.hold(open_gateway(backends, config))
    return TrackerGateway(opened.runtime, opened.client, opened.events, backend)


# Calls


@pytest.mark.parametrize(
    "name",
    [
        "tracker.create_issue",
        "tracker::create_issue",
        "tracker/create_issue",
        "tracker:create_issue",
        "tracker__create_issue",
        "mcp__portico__tracker__create_issue",
        "Tracker.createIssue",
        "create_issue",
    ],
)
async def test_every_usual_spelling_of_a_name_is_called(gateway: TrackerGateway, name: str):
    assert (
        await gateway.call_text("call_tool", name=name, arguments={"title": "x"})
        == 'create_issue {"title": "x"}'
    )


async def test_an_identifier_is_called_as_the_tool_it_stands_for(gateway: TrackerGateway):
    assert await gateway.call_text("call_tool", name="tracker.get_item") == "get-item {}"


async def test_arguments_may_come_as_json_text(gateway: TrackerGateway):
    assert await gateway.call_text(
        "call_tool", name="tracker.create_issue", arguments='{"title": "x"}'
    ) == ('create_issue {"title": "x"}')


@pytest.mark.parametrize("arguments", [{}, None])
async def test_a_call_without_arguments_is_a_call(gateway: TrackerGateway, arguments: Any):
    assert (
        await gateway.call_text("call_tool", name="tracker.get-item", arguments=arguments)
        == "get-item {}"
    )


async def test_wrong_arguments_are_answered_with_where_why_and_the_parameters(
    gateway: TrackerGateway,
):
    text = await gateway.call_error(
        "call_tool", name="tracker.create_issue", arguments={"title": [3], "count": "x"}
    )
    assert text.splitlines() == [
        "invalid_arguments: the arguments do not fit tracker.create_issue: "
        'title: [3] is not of type "string"; count: "x" is not of type "integer"',
        "Correct the arguments and call again.",
        "tracker.create_issue — Create an issue.",
        " title: string",
        " count?: integer",
    ]
    assert not any(method == "tools/call" for method, _ in gateway.backend.requests)


async def test_a_tool_without_a_schema_takes_anything(gateway: TrackerGateway):
    assert (
        await gateway.call_text("call_tool", name="tracker.untyped", arguments={"a": [1]})
        == 'untyped {"a": [1]}'
    )


async def test_a_wrong_name_gets_the_nearest_names_back(gateway: TrackerGateway):
    text = await gateway.call_error("call_tool", name="tracker.create_isue")
    assert text.startswith(
        "unknown_name: there is no tool 'tracker.create_isue' here\nDid you mean "
        "tracker.create_issue"
    )


async def test_a_bare_name_of_several_servers_lists_them(gateway: TrackerGateway):
    text = await gateway.call_error("call_tool", name="search")
    assert text == (
        "unknown_name: 'search' can mean 2 tools\nSay which one: data-server.search, tracker.search"
    )


async def test_a_tool_whose_server_went_down_is_known_but_unavailable(gateway: TrackerGateway):
    gateway.backend.die("it fell over")
    gateway.backend.refuses = BackendUnavailable("it does not get up")
    assert "tracker.create_issue" in await gateway.call_text(
        "search_tools", query="create an issue"
    )
    text = await gateway.call_error(
        "call_tool", name="tracker.create_issue", arguments={"title": "x"}
    )
    assert re.match(
        r"unavailable: tracker is known but unavailable since \d\d:\d\d:\d\d: it does not get up",
        text,
    )
    again = await gateway.call_error(
        "call_tool", name="tracker.create_issue", arguments={"title": "x"}
    )
    assert "it does not get up" in again
    assert "tracker: 4 tools [down: it does not get up]" in await gateway.call_text("browse_tools")


async def test_a_tool_of_an_unlisted_server_is_not_called_unknown(
    gateway: TrackerGateway,
):
    for meta_tool, name in (
        ("call_tool", {"name": "silent.anything"}),
        ("describe_tools", {"names": ["silent.any"]}),
    ):
        text = await gateway.call_error(meta_tool, **name)
        assert re.search(
            r"silent is known but unavailable since \d\d:\d\d:\d\d: it has no licence", text
        )
    assert "Not searched, because not listed yet: silent (down)" in await gateway.call_text(
        "search_tools", query="issue"
    )
    assert "silent: not listed yet [down: it has no licence]" in await gateway.call_text(
        "browse_tools"
    )


async def test_a_recording_can_be_read_and_not_called(gateway: TrackerGateway):
    assert "tape.replay() — Replays a tape." in await gateway.call_text(
        "search_tools", query="replay a tape"
    )
    assert "tape.replay" in await gateway.call_text("describe_tools", names=["tape.replay"])
    text = await gateway.call_error("call_tool", name="tape.replay")
    assert text.startswith("recorded_only: tape is a recording")
    assert "Configure the real server" in text


async def test_a_tool_of_the_servers_is_not_in_the_list_and_says_how_to_call_it(
    gateway: TrackerGateway,
):
    with pytest.raises(MCPError) as caught:
        await gateway.client.call_tool("tracker.create_issue", {})
    assert caught.value.code == INVALID_PARAMS
    assert "call_tool(name, arguments)" in caught.value.message


# Discovery


async def test_a_misspelt_name_gets_the_nearest_names_back_whatever_else_is_found(
    gateway: TrackerGateway,
):
    assert "tracker.create_issue" in await gateway.call_text("search_tools", query="creatissue")


async def test_a_query_that_is_not_text_is_refused(gateway: TrackerGateway):
    text = await gateway.call_text("search_tools", query="...")
    assert text.startswith("No tool here matches '...'.")
    assert "browse_tools()" in text


async def test_mistakes_in_the_meta_tools_own_arguments_are_answered_with_what_they_take(
    gateway: TrackerGateway,
):
    assert await gateway.call_error("search_tools", q="x") == (
        "invalid_arguments: search_tools: 'q' is not a parameter; query is missing\n"
        "It takes: query, server?, category?, tags?, max_latency_ms?, "
        "min_success_rate?, limit?, detail?, cursor?."
    )
    assert "must be one of brief, schema, full" in await gateway.call_error(
        "describe_tools", names="x", detail="all"
    )


@pytest.mark.parametrize("server", ["trakcer", "TRACKERS"])
async def test_a_wrong_server_gets_the_nearest_back(gateway: TrackerGateway, server: str):
    for name, arguments in (("browse_tools", {}), ("search_tools", {"query": "x"})):
        text = await gateway.call_error(name, server=server, **arguments)
        assert "unknown_name: there is no server" in text
        assert "Did you mean tracker" in text


@pytest.mark.parametrize("cursor", ["garbage", "A" * 28, "é"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("search_tools", {"query": "x"}), ("browse_tools", {}), ("browse_tools", {"server": "tape"})],
)
async def test_a_cursor_that_is_none_of_ours_is_refused_with_advice(
    gateway: TrackerGateway, name: str, arguments: Raw, cursor: str
):
    text = await gateway.call_error(name, **arguments, cursor=cursor)
    assert text == "stale_cursor: this cursor was not made here\nAsk again without a cursor."


async def test_a_cursor_is_stale_once_the_tools_changed(gateway: TrackerGateway):
    cursor = re.findall(
        r'cursor="([\w-]+)"', await gateway.call_text("browse_tools", server="tracker", page_size=1)
    )[0]
    gateway.backend.listing["tools"].append(tool("new"))
    await asyncio.wait_for(gateway.runtime.refresh(["tracker"]), TIMEOUT_S)
    text = await gateway.call_error("browse_tools", server="tracker", page_size=1, cursor=cursor)
    assert "the tools changed since this cursor was made" in text


async def test_answers_say_whom_they_are_for():
    wordy = FakeBackend(
        [tool(f"t{n}", "Does a thing that takes a good many words to say. " * 3) for n in range(40)]
    )
    async with gateway_over({"wordy": wordy}) as gateway, connect(gateway) as client:
        for page_size in (1, 40):
            result = await client.call_tool(
                "browse_tools", {"server": "wordy", "page_size": page_size}
            )
            block: Any = result.content[0]
            long = len(block.text) > LONG_TEXT_CHARS
            assert long == (page_size == 40)
            assert block.annotations.priority == (0.3 if long else 0.7)
            assert block.annotations.audience == (["assistant"] if long else None)


async def test_the_budget_of_a_profile_holds():
    backend = FakeBackend([tool(f"t{n}", "Does something. ") for n in range(200)])
    config = Config(
        budgets=Budgets(discovery=400),
        profiles={"wide": Profile(budgets={"discovery": 3_000})},  # pyright: ignore
    )
    async with gateway_over({"s": backend}, config) as gateway:
        sizes: list[int] = []
        for profile in (None, "wide"):
            async with connect(gateway, profile=profile) as client:
                result = await client.call_tool("browse_tools", {"server": "s", "page_size": 200})
                sizes.append(count_tokens(result.content[0].text))  # pyright: ignore
    assert sizes[0] <= 400 < sizes[1] <= 3_000


# The list


async def test_the_list_is_byte_identical_whatever_happens_behind_it(gateway: TrackerGateway):
    before = (await gateway.client.list_tools()).model_dump_json()
    gateway.backend.change([tool("other")])
    await asyncio.wait_for(gateway.runtime.refresh(["tracker"]), TIMEOUT_S)
    gateway.backend.die()
    await gateway.call_text("search_tools", query="other")
    assert (await gateway.client.list_tools()).model_dump_json() == before
    assert [one.name for one in (await gateway.client.list_tools()).tools] == list(
        tool_definitions.META_TOOL_NAMES
    )


@pytest.mark.parametrize("exposure", ["meta", "full"])
async def test_a_cursor_for_the_list_that_is_none_of_ours_is_an_error(exposure: Any):
    async with (
        gateway_over({"s": issues()}, Config(exposure=exposure)) as gateway,
        connect(gateway) as client,
    ):
        for ask in (client.list_tools, client.list_prompts, client.list_resources):
            with pytest.raises(MCPError, match="not made here") as caught:
                await ask(cursor="garbage")
            assert caught.value.code == INVALID_PARAMS


async def test_a_meta_tool_that_is_switched_off_is_neither_listed_nor_mentioned():
    off = ("call_tool", "run_code", "run_workflow", "browse_tools")
    config = Config(metatools=dict.fromkeys(off, False))  # pyright: ignore[reportArgumentType]
    async with gateway_over({"s": issues()}, config) as gateway, connect(gateway) as client:
        assert [one.name for one in (await client.list_tools()).tools] == [
            "search_tools",
            "describe_tools",
        ]
        found = await client.call_tool("search_tools", {"query": "issue"})
        assert "call_tool" not in found.content[0].text  # pyright: ignore
        with pytest.raises(MCPError, match="there is no tool 'call_tool'") as caught:
            await client.call_tool("call_tool", {"name": "s.search"})
        assert "call_tool(name" not in caught.value.message


# Everything at once: the full exposure's pages


async def test_long_lists_are_paged_and_every_page_follows_the_one_before():
    many = range(PAGE_SIZE * 2 + 3)
    backend = FakeBackend(
        [tool(f"t{n}") for n in many],
        prompts=[{"name": f"p{n}"} for n in many],
        resources=[{"uri": f"r:{n}", "name": "r"} for n in many],
    )
    async with (
        gateway_over({"s": backend}, Config(exposure="full")) as gateway,
        connect(gateway) as client,
    ):
        tools = [page async for page in _pages(client.list_tools)]
        prompts = [page async for page in _pages(client.list_prompts)]
        resources = [page async for page in _pages(client.list_resources)]
        assert [one.name for page in tools for one in page.tools] == [f"s__t{n}" for n in many]
        ours = ["discover", "find_tool", "backend_status"]
        assert [one.name for page in prompts for one in page.prompts] == [
            *ours,
            *(f"s__p{n}" for n in many),
        ]
        uris = [str(one.uri) for page in resources for one in page.resources]
        assert [uri for uri in uris if "/resource/" in uri] == [
            f"portico://backend/s/resource/r:{n}" for n in many
        ]
        backend.listing["prompts"] = backend.listing["prompts"][1:]
        await asyncio.wait_for(gateway.refresh(["s"]), TIMEOUT_S)
        with pytest.raises(MCPError, match="changed since"):
            await client.list_prompts(cursor=prompts[0].next_cursor)
        assert await client.list_tools(cursor=tools[0].next_cursor)


async def _pages(ask: Any) -> AsyncGenerator[Any]:
    cursor = None
    for _ in range(10):
        page = await asyncio.wait_for(ask(cursor=cursor), TIMEOUT_S)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
    raise AssertionError("the pages never end")


async def test_prompts_and_tools_whose_flat_names_would_be_one_all_work():
    left = FakeBackend([tool("b__c")], prompts=[{"name": "b__c"}])
    right = FakeBackend([tool("c")], prompts=[{"name": "c"}])
    for side, backend in (("left", left), ("right", right)):
        backend.on("tools/call", lambda params, ask, side=side: answered(side))
        backend.on(
            "prompts/get", lambda params, ask, side=side: {"messages": [], "description": side}
        )
    async with (
        gateway_over({"a": left, "a__b": right}, Config(exposure="full")) as gateway,
        connect(gateway) as client,
    ):
        tools = [one.name for one in (await client.list_tools()).tools]
        prompts = [one.name for one in (await client.list_prompts()).prompts if "__" in one.name]
        answers = [(await client.call_tool(name, {})).content[0] for name in tools]
        assert {getattr(one, "text", "") for one in answers} == {"left", "right"}
        assert {(await client.get_prompt(name)).description for name in prompts} == {
            "left",
            "right",
        }


# Whatever a client says

names = st.one_of(
    st.sampled_from(
        [
            "tracker.create_issue",
            "search",
            "tracker/",
            "mcp__",
            "nobody.nothing",
            "tracker.create_issue " * 9,
        ]
    ),
    st.text(max_size=60),
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
parameters = [
    "query",
    "server",
    "category",
    "tags",
    "max_latency_ms",
    "limit",
    "detail",
    "cursor",
    "page_size",
    "names",
    "name",
    "arguments",
    "extra",
]
likely = {
    "search_tools": {
        "query": names,
        "server": names,
        "category": names,
        "tags": st.lists(names, max_size=3),
        "max_latency_ms": st.floats(allow_nan=False, allow_infinity=False),
        "min_success_rate": st.floats(0, 1),
        "limit": st.integers(),
        "detail": st.sampled_from(["brief", "schema", "explain", "x"]),
        "cursor": names,
    },
    "browse_tools": {
        "server": names,
        "category": names,
        "page_size": st.integers(),
        "cursor": names,
    },
    "describe_tools": {
        "names": st.lists(names, max_size=12) | names,
        "detail": st.sampled_from(["brief", "full", "x"]),
        "cursor": names,
    },
    "call_tool": {"name": names, "arguments": st.dictionaries(names, anything, max_size=4) | names},
}
calls = st.sampled_from(sorted(likely)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.fixed_dictionaries({}, optional=likely[name])
        | st.dictionaries(st.sampled_from(parameters), anything),
    )
)


def encodable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(calls.filter(encodable), min_size=20, max_size=40))
def test_anything_a_client_calls_a_meta_tool_with_is_a_result_or_a_clean_error(
    said: list[tuple[str, Raw]],
):
    async def ask_all() -> None:
        async with (
            asyncio.timeout(240),
            gateway_over({"tracker": issues()}) as gateway,
            connect(gateway) as client,
        ):
            for name, arguments in said:
                result = await client.call_tool(name, arguments)
                block: Any = result.content[0]
                assert block.text
                assert count_tokens(block.text) <= 2_000
            assert (await client.call_tool("search_tools", {"query": "issue"})).is_error is False

    asyncio.run(ask_all())


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(tool_definitions.META_TOOL_NAMES), anything),
        min_size=20,
        max_size=40,
    )
)
def test_arguments_of_any_shape_are_a_result_even_where_no_client_checks_them(
    said: list[tuple[str, Any]],
):
    """The view without a wire before it: also text that JSON cannot say, and arguments that are no
    object."""

    async def ask_all() -> None:
        async with asyncio.timeout(240), gateway_over({"tracker": issues()}) as gateway:
            for name, arguments in said:
                params = {"name": name, "arguments": arguments}
                result = await gateway.get_view().handle(
                    "tools/call", params, CallContext(), "modern"
                )
                assert isinstance(result["content"][0]["text"], str)

    asyncio.run(ask_all())


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "\ud800", "\0", "\x1b[31m", "𒀀" * 5_000, "a.b::c/d__e:" * 5_000]
)
async def test_texts_of_any_size_and_kind_are_answered_in_bounds(text: str):
    async with gateway_over({"tracker": issues()}) as gateway:
        for name, arguments in (
            ("search_tools", {"query": text}),
            ("search_tools", {"query": "issue", "server": text}),
            ("search_tools", {"query": "issue", "cursor": text}),
            ("search_tools", {"query": "issue", "category": text}),
            ("browse_tools", {"server": text}),
            ("browse_tools", {"category": text}),
            ("describe_tools", {"names": [text] * 10}),
            ("call_tool", {"name": text}),
            (
                "call_tool",
                {"name": "tracker.create_issue", "arguments": {"title": "x", text: text}},
            ),
            ("call_tool", {text: text}),
        ):
            params = {"name": name, "arguments": arguments}
            async with asyncio.timeout(TIMEOUT_S):
                result = await gateway.get_view().handle(
                    "tools/call", params, CallContext(), "modern"
                )
            answer = result["content"][0]["text"]
            assert count_tokens(answer) <= 2_000
            answer.encode()


# What clients were shown


async def test_discovery_is_published_as_shown_and_results_of_tools_are_not():
    async with viewing() as view:
        listed = await view.ask("tools/list")
        assert [(event.caller, event.content, event.is_listing) for event in view.shown] == [
            (ME, listed["tools"], True)
        ]
        view.shown.clear()
        answers = [
            await view.call("search_tools", query="issue"),
            await view.call("browse_tools"),
            await view.call("browse_tools", category="nowhere"),
            await view.call("describe_tools", names=["github.create_issue"], detail="full"),
        ]
        await view.call("call_tool", name="github.create_issue")
        await view.ask("resources/list")
        assert [event.content for event in view.shown] == answers
        assert not any(event.is_listing for event in view.shown)


async def test_in_full_the_first_page_of_the_list_is_the_listing():
    many = FakeBackend([tool(f"t{n}") for n in range(PAGE_SIZE + 1)])
    async with viewing({"s": many}, exposure="full") as view:
        first = await view.ask("tools/list")
        await view.ask("tools/list", {"cursor": first["nextCursor"]})
        await view.ask("tools/call", {"name": "s__t1", "arguments": {"no": "such"}})
        assert [(event.content, event.is_listing) for event in view.shown[:1]] == [
            (first["tools"], True)
        ]
        assert [event.is_listing for event in view.shown] == [True, False]


# Use


async def test_the_full_description_has_category_tags_use_and_freshness():
    async with viewing() as view:
        await view.use("github.create_issue", 2)
        text = await view.call("describe_tools", names=["create_issue"], detail="full")
        assert "\ncategory: version-control\n" in text
        assert re.search(r'\nusage: {"calls":2,"success_rate":1\.0,"p50_ms":2\d\.\d,', text)
        assert re.search(r"\nlisted: 20\d\d-\d\d-\d\dT", text)
        unused = await view.call("describe_tools", names=["close_issue"], detail="full")
        assert '\nusage: {"calls":0}\n' in unused


async def test_the_ranked_catalog_is_rebuilt_only_after_a_change():
    async with viewing() as view:
        before = view.view.ranked_catalog
        assert view.view.ranked_catalog is before
        await view.use("github.close_issue")
        assert view.view.ranked_catalog is not before
        assert view.view.ranked_catalog.hot_list.tools[0].address == "github.close_issue"
        assert view.view.ranked_catalog.version != before.version


async def test_the_index_keeps_a_server_where_it_was_when_its_tools_change_their_kind():
    backend = FakeBackend([tool("git_commit", "Commit to a git repository branch.")])
    async with viewing({"s": backend}) as view:
        before = (await view.ask("tools/list"))["tools"]
        assert "version-control (s)" in before[0]["description"]
        backend.listing["tools"] = [tool("send_mail", "Send an e-mail message.")]
        await asyncio.wait_for(view.gateway.refresh(["s"]), TIMEOUT_S)
        assert view.view.snapshot.get_category("s.send_mail") != "version-control"
        assert (await view.ask("tools/list"))["tools"] == before


async def test_servers_without_tools_come_last_in_the_index():
    silent = FakeBackend()
    silent.refuses = BackendUnavailable("it has no licence")
    async with viewing({"s": issues(), "empty": FakeBackend(), "silent": silent}) as view:
        index = (await view.ask("tools/list"))["tools"][0]["description"].partition(
            "Servers by category"
        )[2]
        assert index.rstrip(".").endswith("(empty, silent)")
