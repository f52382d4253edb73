"""Resources, templates, prompts and completion of many servers in one namespace, both ways."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from portico.config import Config, Exposure
from portico.errors import RemoteError
from portico.profiles.resources import RESOURCES, TEMPLATES
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Era, Raw
from tests.gateways import open_gateway
from tests.interaction.fake_servers import fake, tool
from tests.interaction.raw_clients import RawLines, call, pages, raw_lines, result

ROOT = "portico://backend"
LINK = {"type": "resource_link", "uri": "lib://made-up", "name": "made up"}


def library(era: Era = "legacy") -> FakeBackend:
    backend = FakeBackend(
        [tool("find")],
        resources=[
            {
                "uri": "lib://book/1",
                "name": "book",
                "annotations": {"priority": 1},
                "_meta": {"a": None},
                "x-kept": 1,
            },
            {"uri": "shared://readme", "name": "readme"},
        ],
        templates=[{"uriTemplate": "lib://book/{number}", "name": "any book", "x-vendor": None}],
        prompts=[
            {"name": "review", "arguments": [{"name": "book", "required": True}], "x-vendor": {}}
        ],
        era=era,
    )
    backend.on("resources/read", _read(era))
    backend.on(
        "prompts/get",
        lambda params, _: {"messages": [], "description": json.dumps(params["arguments"])},
    )
    backend.on(
        "completion/complete",
        lambda params, _: {"completion": {"values": [json.dumps(params["ref"])]}},
    )
    backend.on_call("find", lambda _: {"content": [LINK]})
    return backend


def _read(era: Era) -> Any:
    def read(params: Raw, _: object) -> Raw:
        if "missing" in params["uri"]:
            raise RemoteError(
                -32602 if era == "modern" else -32002, "Resource not found", {"uri": params["uri"]}
            )
        return {
            "contents": [{"uri": params["uri"], "text": "once upon a time", "x-vendor": None}],
            "x-vendor": 2,
        }

    return read


@asynccontextmanager
async def open_client(
    era: Era = "legacy", exposure: Exposure = "meta", upstream: Era = "legacy"
) -> AsyncGenerator[RawLines]:
    other = FakeBackend(
        resources=[{"uri": "shared://readme", "name": "readme"}], prompts=[{"name": "review"}]
    )
    config = Config(exposure=exposure)
    servers = {
        "library": library(upstream),
        "other": other,
        "plain": fake("run", capabilities={"tools": {}}),
    }
    async with (
        gateway_over(servers, config) as gateway,
        raw_lines(gateway.get_endpoint(), era) as client,
    ):
        yield client


@pytest.mark.parametrize("exposure", ["meta", "full", "code"])
async def test_resources_are_listed_under_their_server_with_every_field(exposure: Exposure) -> None:
    async with open_client(exposure=exposure) as client:
        listed = await pages(client, "resources/list", "resources")
        assert [item["uri"] for item in listed[: len(RESOURCES)]] == [
            item["uri"] for item in RESOURCES
        ]
        resources = {item["uri"]: item for item in listed[len(RESOURCES) :]}
        assert list(resources) == [
            f"{ROOT}/library/resource/lib://book/1",
            f"{ROOT}/library/resource/shared://readme",
            f"{ROOT}/other/resource/shared://readme",
        ]
        book = resources[f"{ROOT}/library/resource/lib://book/1"]
        original = library().listing["resources"][0]
        assert book == {**original, "uri": f"{ROOT}/library/resource/lib://book/1"}
        templates = await pages(client, "resources/templates/list", "resourceTemplates")
        expected = f"{ROOT}/library/resource/lib://book/{{number}}"
        assert templates[: len(TEMPLATES)] == list(TEMPLATES)
        assert templates[len(TEMPLATES) :] == [
            {"uriTemplate": expected, "name": "any book", "x-vendor": None}
        ]


async def test_a_resource_is_read_by_its_outer_uri_and_answers_under_it() -> None:
    async with open_client() as client:
        for inner in ("lib://book/1", "lib://book/77"):
            read = await result(
                client, "resources/read", {"uri": f"{ROOT}/library/resource/{inner}"}
            )
            outer = f"{ROOT}/library/resource/{inner}"
            assert read == {
                "contents": [{"uri": outer, "text": "once upon a time", "x-vendor": None}],
                "x-vendor": 2,
            }


async def test_a_resource_is_read_by_its_own_uri_while_one_server_has_it() -> None:
    async with open_client() as client:
        assert "result" in await client.request("resources/read", {"uri": "lib://book/1"})
        assert (await client.request("resources/read", {"uri": "shared://readme"}))["error"][
            "code"
        ] == -32002


async def test_a_link_in_a_result_can_be_read_as_it_stands() -> None:
    async with open_client() as client:
        assert "error" in await client.request("resources/read", {"uri": LINK["uri"]})
        found = (await call(client, "call_tool", name="library.find"))["result"]
        assert found["content"] == [{**LINK, "annotations": {"priority": 0.7}}]
        assert "result" in await client.request("resources/read", {"uri": LINK["uri"]})


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("modern", -32602)])
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
async def test_an_unknown_uri_has_the_code_of_the_clients_era(
    era: Era, code: int, upstream: Era
) -> None:
    async with open_client(era, upstream=upstream) as client:
        for uri in (
            "nobody://has/this",
            f"{ROOT}/nowhere/resource/lib://book/1",
            f"{ROOT}/nowhere",
            "portico://unknown",
            f"{ROOT}/library/resource/lib://missing",
        ):
            error = (await client.request("resources/read", {"uri": uri}))["error"]
            assert error["code"] == code, uri
            assert "not found" in error["message"]


async def test_the_code_of_an_unknown_resource_means_nothing_in_a_tools_error() -> None:
    def refuse(_: object) -> Raw:
        raise RemoteError(-32002, "own meaning", {"uri": "x"})

    backend = fake("run")
    backend.on_call("run", refuse)
    full = Config(exposure="full")
    async with (
        gateway_over({"s": backend}, full) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        assert (await call(client, "s__run"))["error"]["code"] == -32002


async def test_prompts_of_the_same_name_are_distinguished() -> None:
    async with open_client() as client:
        prompts = await pages(client, "prompts/list", "prompts")
        names = ["discover", "find_tool", "backend_status", "library__review", "other__review"]
        assert [prompt["name"] for prompt in prompts] == names
        assert prompts[3] == {**library().listing["prompts"][0], "name": "library__review"}
        got = await result(
            client, "prompts/get", {"name": "library__review", "arguments": {"book": "Emma"}}
        )
        assert json.loads(got["description"]) == {"book": "Emma"}
        for unknown in ("review", "nobody__review"):
            assert (await client.request("prompts/get", {"name": unknown}))["error"][
                "code"
            ] == -32602


async def test_completion_reaches_the_server_under_its_own_names() -> None:
    argument = {"name": "number", "value": "1"}
    async with open_client() as client:
        for reference, inner in (
            (
                {"type": "ref/resource", "uri": f"{ROOT}/library/resource/lib://book/{{number}}"},
                {"type": "ref/resource", "uri": "lib://book/{number}"},
            ),
            (
                {"type": "ref/prompt", "name": "library__review"},
                {"type": "ref/prompt", "name": "review"},
            ),
        ):
            done = await result(
                client, "completion/complete", {"ref": reference, "argument": argument}
            )
            assert json.loads(done["completion"]["values"][0]) == inner


async def test_many_resources_come_in_pages() -> None:
    resources = [{"uri": f"many://{n}", "name": str(n)} for n in range(600)]
    backend = FakeBackend(resources=resources)
    async with (
        gateway_over({"many": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern") as client,
    ):
        first = await result(client, "resources/list")
        assert "nextCursor" in first
        assert len(first["resources"]) < 600
        listed = await pages(client, "resources/list", "resources")
        uris = [item["uri"] for item in listed if "/resource/" in item["uri"]]
        assert uris == [f"{ROOT}/many/resource/many://{n}" for n in range(600)]
        stolen = await client.request("prompts/list", {"cursor": first["nextCursor"]})
        assert stolen["error"]["code"] == -32602, "a cursor is good for the listing it came from"


async def test_a_server_without_resources_or_prompts_is_never_asked_for_them() -> None:
    backend = fake("run", capabilities={"tools": {}})
    async with gateway_over({"plain": backend}) as gateway, connect(gateway) as client:
        assert len((await client.list_resources()).resources) == len(RESOURCES)
    assert {method for method, _ in backend.requests} == {"tools/list"}


async def test_a_malformed_request_is_informed_what_is_wrong_with_it() -> None:
    async with open_client() as client:
        for method, params in (
            ("resources/read", {}),
            ("resources/read", {"uri": 7}),
            ("prompts/get", {}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}}),
            ("tools/call", {"name": 3}),
            ("tools/call", {"name": "call_tool", "arguments": []}),
        ):
            error = (await client.request(method, params))["error"]
            assert error["code"] == -32602, (method, error)
            assert method in error["message"]


async def test_a_method_nobody_knows_is_not_found() -> None:
    async with open_client() as client:
        for method in ("vendor/dance", "tasks/list"):
            assert (await client.request(method))["error"]["code"] == -32601
    async with open_client("modern") as client:
        assert (await client.request("resources/subscribe", {"uri": "lib://book/1"}))["error"][
            "code"
        ] == -32601


async def test_typed_clients_read_through_too() -> None:
    async with (
        gateway_over({"library": library()}) as gateway,
        connect(gateway, "http", "modern") as client,
    ):
        read = await client.read_resource(f"{ROOT}/library/resource/lib://book/1")
        assert str(read.contents[0].uri) == f"{ROOT}/library/resource/lib://book/1"
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource("nobody://has/this")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "[await box.__init__(), await box.__init__(x=1)]"),
        ("javascript", "return [await box.__init__(), await box.__init__({x: 1})]"),
        ("typescript", "return [await box.__init__(), await box.__init__({x: 1})]"),
        ("lua", "return {box.__init__():await(), box.__init__({x = 1}):await()}"),
    ],
)
async def test_a_tool_named_like_a_constructor_works_in_scripts(language: str, code: str):
    backend = FakeBackend([{"name": "__init__", "inputSchema": {"type": "object"}}])
    backend.on_call(
        "__init__", lambda arguments: {"content": [{"type": "text", "text": f"made {arguments}"}]}
    )
    async with open_gateway({"box": backend}) as gateway:
        answer = await gateway.call_text("run_code", code=code, language=language)
    assert "made {}" in answer
    assert "made {'x': 1}" in answer
    assert len([1 for method, _ in backend.requests if method == "tools/call"]) == 2


async def test_one_program_under_two_names_has_one_category_for_each_tool():
    names = ("send_invoice", "list_customers", "get_status", "run_report")
    tools = [
        {"name": name, "description": f"{name.replace('_', ' ')} now.", "inputSchema": {}}
        for name in names
    ]
    backends = {"postgres-db": FakeBackend(tools), "kubernetes": FakeBackend(tools)}
    async with open_gateway(backends) as gateway:
        snapshot = gateway.runtime.get_view().snapshot
        categories = {
            name: {snapshot.get_category(f"{server}.{name}") for server in backends}
            for name in names
        }
    assert all(len(found) == 1 for found in categories.values()), categories
