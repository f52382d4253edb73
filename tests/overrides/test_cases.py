"""Every case of the table of overrides and ways (`cases.py`), through a client, REST, the library
or the command."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from portico import Gateway
from portico.gateway.rest_app import RestApp
from portico.server.http.app import make_app
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.cli.conftest import Home, home
from tests.gateways import GatewayUnderTest, open_gateway
from tests.overrides.cases import CASES, Case
from tests.overrides.desk import TOOLS, get_sent, make_config, make_desk

__all__ = ["home"]

Test = Callable[..., Awaitable[None] | None]
TESTS: dict[Case, Test] = {}
BUG = "desk.report_bug"
SENT = {"owner": "acme", "priority": "low", "repo": "portico", "title": "x"}


def case(override: str, way: str, expected: str) -> Callable[[Test], Test]:
    """Register the test of a case."""

    def register(test: Test) -> Test:
        key = Case(override, way, expected)
        assert key in CASES
        TESTS[key] = test
        return test

    return register


@asynccontextmanager
async def desk(**settings: Any) -> AsyncGenerator[tuple[GatewayUnderTest, FakeBackend]]:
    backend = make_desk()
    encoded = settings.pop("encoded", False)
    data_dir = settings.pop("data_dir", None)
    config = make_config(**settings)
    async with open_gateway({"desk": backend}, config, encoded=encoded, data_dir=data_dir) as one:
        yield one, backend


async def describe(gateway: GatewayUnderTest, detail: str = "schema", name: str = BUG) -> str:
    return await gateway.call_text("describe_tools", names=[name], detail=detail)


async def call(gateway: GatewayUnderTest, name: str = BUG, **arguments: Any) -> Raw:
    return json.loads(await gateway.call_text("call_tool", name=name, arguments=arguments))


async def refuse(gateway: GatewayUnderTest, name: str = BUG, **arguments: Any) -> str:
    return await gateway.call_error("call_tool", name=name, arguments=arguments)


async def run_script(gateway: GatewayUnderTest, line: str) -> str:
    return (await gateway.call("run_code", code=line, language="python")).model_dump_json()


async def run_step(gateway: GatewayUnderTest, tool: str = BUG, **arguments: Any) -> str:
    steps = [{"id": "a", "tool": tool, "args": arguments}]
    return (await gateway.call("run_workflow", steps=steps)).model_dump_json()


async def list_one(gateway: GatewayUnderTest, name: str = "desk__report_bug") -> Raw:
    listed = {one.name: one for one in (await gateway.client.list_tools()).tools}
    return listed[name].model_dump(by_alias=True, exclude_none=True)


async def request_rest(gateway: GatewayUnderTest, method: str, path: str, body: Any = None) -> Any:
    runtime = gateway.runtime
    app = make_app(runtime.get_endpoints(), api=RestApp(runtime))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as http:
        return (await http.request(method, f"/api/v1/{path}", json=body)).json()


async def call_rest(gateway: GatewayUnderTest, tool: str = BUG, **arguments: Any) -> str:
    body = {"tool": tool, "arguments": arguments}
    return json.dumps(await request_rest(gateway, "POST", "calls", body))


# --- description and title


@case("description", "search", "the new words find the tool first")
async def _() -> None:
    async with desk(encoded=True) as (gateway, _):
        found = await gateway.call_text("search_tools", query="report a defect of our software")
        assert BUG in found.split("desk.list_issues")[0]


@case("description", "search brief", "the line of the tool has the new sentence")
async def _() -> None:
    async with desk() as (gateway, _):
        found = await gateway.call_text("search_tools", query="report a bug")
        assert "Reports a defect" in found
        assert "Files a ticket" not in found


@case("description", "describe schema", "the typed form begins with the new sentence")
async def _() -> None:
    async with desk() as (gateway, _):
        first = (await describe(gateway)).splitlines()[0]
        assert first.endswith("— Reports a defect of our software.")


@case("description", "describe full", "the new text, and nothing of the server's")
async def _() -> None:
    async with desk() as (gateway, _):
        text = await describe(gateway, "full")
        assert "Reports a defect" in text
        assert "Files a ticket" not in text


@case("title", "full exposure", "the listed title is the new one")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        assert (await list_one(gateway))["title"] == "Report a bug"


@case("title", "REST", "the definition has the new title")
async def _() -> None:
    async with desk() as (gateway, _):
        text = json.dumps(await request_rest(gateway, "GET", "tools/desk/report_bug"))
        assert "Report a bug" in text
        assert "Create issue" not in text


@case("title", "describe --original", "the server's own definition, with its own title")
def _(home: Home) -> None:
    write(home)
    shown = home.run("describe", "--original", "--detail", "full", BUG)
    assert shown.code == 0
    assert shown.out.startswith("desk.create_issue")
    assert "owner" in shown.out
    assert "Reports a defect" not in shown.out


# --- descriptions of parameters


@case("parameter description", "describe schema", "the parameter has the new text")
async def _() -> None:
    async with desk() as (gateway, _):
        assert "summary: string — What goes wrong, in a line." in await describe(gateway)


@case("parameter description", "full exposure", "the input schema has the new text")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        found = (await list_one(gateway))["inputSchema"]["properties"]["summary"]
        assert found == {"type": "string", "description": "What goes wrong, in a line."}


@case("parameter description", "search", "words of it find the tool")
async def _() -> None:
    async with desk() as (gateway, _):
        assert BUG in await gateway.call_text("search_tools", query="goes wrong line")


# --- defaults


@case("default", "describe schema", "the parameter is optional and shows its default")
async def _() -> None:
    async with desk() as (gateway, _):
        assert 'repo?: string = "portico"' in await describe(gateway)


@case("default", "full exposure", "it is not required, and `default` stands in the schema")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        schema = (await list_one(gateway))["inputSchema"]
        assert schema["required"] == ["summary"]
        assert schema["properties"]["repo"]["default"] == "portico"


@case("default", "call_tool", "left out, it is sent")
async def _() -> None:
    async with desk() as (gateway, _):
        assert await call(gateway, summary="x") == SENT


@case("default", "call_tool", "given, the given value is sent")
async def _() -> None:
    async with desk() as (gateway, _):
        found = await call(gateway, summary="x", repo="other", priority="high")
        assert (found["repo"], found["priority"]) == ("other", "high")


@case("default", "script", "left out, it is sent")
async def _() -> None:
    async with desk() as (gateway, backend):
        await run_script(gateway, "result(await desk.list_issues())")
        assert get_sent(backend)[0]["arguments"] == {"owner": "acme", "repo": "portico"}


@case("default", "workflow", "left out, it is sent")
async def _() -> None:
    async with desk() as (gateway, backend):
        await run_step(gateway, "desk.list_issues")
        assert get_sent(backend)[0]["arguments"] == {"owner": "acme", "repo": "portico"}


def make_rule(**when: Any) -> list[Raw]:
    return [{"tools": ["*"], "when": when, "may": "deny", "visible": True, "say": "Not so."}]


@case("default", "rules", "`when` sees the default")
async def _() -> None:
    async with desk(rules=make_rule(repo="portico")) as (gateway, backend):
        assert "Not so." in await refuse(gateway, summary="x")
        await call(gateway, summary="x", repo="other")
        assert len(get_sent(backend)) == 1


# --- fixed arguments


@case("fixed", "describe schema", "the parameter is not shown")
async def _() -> None:
    async with desk() as (gateway, _):
        assert "owner" not in await describe(gateway)


@case("fixed", "describe full", "neither its name nor its value is shown")
async def _() -> None:
    async with desk() as (gateway, _):
        text = await describe(gateway, "full")
        assert "owner" not in text
        assert "acme" not in text


@case("fixed", "full exposure", "it is not in the input schema")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        assert "owner" not in json.dumps(await list_one(gateway))


@case("fixed", "call_tool", "it is sent with the call")
async def _() -> None:
    async with desk() as (gateway, _):
        sent = await call(gateway, "desk.delete_issue", number=5)
        assert sent == {"number": 5, "owner": "acme", "repo": "portico"}


@case("fixed", "call_tool", "a caller that sends it is refused with the reason")
async def _() -> None:
    async with desk() as (gateway, backend):
        assert "owner is set by this gateway" in await refuse(gateway, summary="x", owner="eve")
        assert not get_sent(backend)


@case("fixed", "full exposure", "a caller that sends it is refused, and nothing is sent")
async def _() -> None:
    async with desk(exposure="full") as (gateway, backend):
        error = await gateway.call_error("desk__report_bug", summary="x", owner="eve")
        assert "owner is set by this gateway" in error
        assert not get_sent(backend)


@case("fixed", "script", "it is sent; a script that sends it gets the reason")
async def _() -> None:
    async with desk() as (gateway, backend):
        answer = await run_script(gateway, "result(await desk.report_bug(summary='x', owner='e'))")
        assert "owner is set by this gateway" in answer
        assert not get_sent(backend)
        await run_script(gateway, "result(await desk.report_bug(summary='x'))")
        assert get_sent(backend)[0]["arguments"] == SENT


@case("fixed", "workflow", "a step that gives it is refused before anything runs")
async def _() -> None:
    async with desk() as (gateway, backend):
        assert "owner is set by this gateway" in await run_step(gateway, summary="x", owner="eve")
        assert not get_sent(backend)


@case("fixed", "REST", "it is sent; a caller that sends it gets the reason")
async def _() -> None:
    async with desk() as (gateway, backend):
        assert "acme" in await call_rest(gateway, summary="x")
        assert "owner is set by this gateway" in await call_rest(gateway, summary="x", owner="eve")
        assert len(get_sent(backend)) == 1


@case("fixed", "library", "it is sent with the call")
async def _() -> None:
    desk = {"functions": "tests.overrides.desk:FUNCTIONS", "tools": TOOLS}
    async with Gateway({"servers": {"desk": desk}}, in_memory=True) as gateway:
        result = await gateway.call(BUG, {"summary": "x"})
        assert '["x", "acme", "portico", "low"]' in result.text


def write(home: Home) -> None:
    functions = {"functions": "tests.overrides.desk:FUNCTIONS", "tools": TOOLS}
    home.write({"servers": {"desk": functions}})


@case("fixed", "CLI", "`portico call` sends it")
def _(home: Home) -> None:
    write(home)
    ran = home.run("call", BUG, "summary=x")
    assert '["x", "acme", "portico", "low"]' in ran.out


@case("fixed", "call_tool", "its name in other letters is refused too")
async def _() -> None:
    async with desk() as (gateway, backend):
        assert "Owner is set by this gateway" in await refuse(gateway, summary="x", Owner="eve")
        assert not get_sent(backend)


@case("fixed", "arguments as text", "it is refused there too")
async def _() -> None:
    async with desk(exposure="full") as (gateway, backend):
        tool = gateway.runtime.catalog.snapshot.tools[BUG]
        with pytest.raises(Exception, match="owner is set by this gateway"):
            await gateway.runtime.calls.call(tool, '{"summary": "x", "owner": "eve"}')
        assert not get_sent(backend)


@case("fixed", "rules", "`when` does not see it")
async def _() -> None:
    async with desk(rules=make_rule(owner="acme")) as (gateway, _):
        assert await call(gateway, summary="x") == SENT


@case("fixed", "audit", "the line of the call does not have it")
async def _(tmp_path: Path) -> None:
    async with desk(audit={"arguments": "redacted"}, data_dir=tmp_path) as (gateway, _):
        await call(gateway, summary="x")
        line = (tmp_path / "audit.jsonl").read_text()
        assert '"summary"' in line
        assert "acme" not in line


# --- renamed parameters


@case("parameter name", "describe schema", "the new name only")
async def _() -> None:
    async with desk() as (gateway, _):
        text = await describe(gateway)
        assert "summary" in text
        assert "title" not in text


@case("parameter name", "call_tool", "the server gets its own name")
async def _() -> None:
    async with desk() as (gateway, backend):
        await call(gateway, summary="x")
        assert get_sent(backend)[0] == {"name": "create_issue", "arguments": SENT}


@case("parameter name", "call_tool", "the server's name is refused, with the new one")
async def _() -> None:
    async with desk() as (gateway, backend):
        assert "title is called summary here" in await refuse(gateway, title="x")
        assert not get_sent(backend)


@case("parameter name", "call_tool", "a misspelt new name is repaired")
async def _() -> None:
    async with desk() as (gateway, backend):
        arguments = {"Summary": "x"}
        text = await gateway.call_text("call_tool", name=BUG, arguments=arguments)
        assert "taken for 'summary'" in text
        assert get_sent(backend)[0]["arguments"] == SENT


@case("parameter name", "call_tool", "an error names the parameter as callers know it")
async def _() -> None:
    async with desk() as (gateway, _):
        error = await refuse(gateway, priority="low")
        assert '"summary" is a required property' in error
        assert "title" not in error


@case("parameter name", "script", "the new name is a keyword of the function")
async def _() -> None:
    async with desk() as (gateway, backend):
        await run_script(gateway, "result(await desk.report_bug(summary='x'))")
        assert get_sent(backend)[0]["arguments"]["title"] == "x"


@case("parameter name", "workflow", "a step that uses the new name runs")
async def _() -> None:
    async with desk() as (gateway, backend):
        await run_step(gateway, summary="x")
        assert get_sent(backend)[0]["arguments"] == SENT


@case("parameter name", "rules", "`when` sees the new name")
async def _() -> None:
    async with desk(rules=make_rule(summary="secret plan")) as (gateway, backend):
        assert "Not so." in await refuse(gateway, summary="secret plan")
        await call(gateway, summary="x")
        assert len(get_sent(backend)) == 1


@case("parameter name", "REST", "the new name works")
async def _() -> None:
    async with desk() as (gateway, backend):
        await call_rest(gateway, summary="x")
        assert get_sent(backend)[0]["arguments"] == SENT


# --- renamed tools


@case("tool name", "list", "full exposure lists the new flat name only")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        names = {one.name for one in (await gateway.client.list_tools()).tools}
        assert "desk__report_bug" in names
        assert "desk__create_issue" not in names


@case("tool name", "call_tool", "the new name works, and the server gets its own")
async def _() -> None:
    async with desk() as (gateway, backend):
        await call(gateway, summary="x")
        assert get_sent(backend)[0]["name"] == "create_issue"


@case("tool name", "call_tool", "the old name is answered with the new one")
async def _() -> None:
    async with desk() as (gateway, backend):
        for name in ("desk.create_issue", "desk__create_issue", "create_issue"):
            assert "is called desk.report_bug here" in await refuse(gateway, name, summary="x")
        assert not get_sent(backend)


@case("tool name", "full exposure", "the old flat name is answered with the new one")
async def _() -> None:
    async with desk(exposure="full", prefix="never") as (gateway, backend):
        with pytest.raises(MCPError, match=r"is called desk\.report_bug here"):
            await gateway.call("create_issue", title="x", owner="eve", repo="r")
        assert not get_sent(backend)


@case("tool name", "script", "the new identifier works")
async def _() -> None:
    async with desk() as (gateway, backend):
        await run_script(gateway, "result(await desk.report_bug(summary='x'))")
        assert get_sent(backend)[0]["name"] == "create_issue"


@case("tool name", "REST", "the old name is answered with the new one")
async def _() -> None:
    async with desk() as (gateway, _):
        assert "is called desk.report_bug here" in await call_rest(gateway, "desk.create_issue")


@case("tool name", "CLI", "`portico describe` of the old name says the new one")
def _(home: Home) -> None:
    write(home)
    shown = home.run("describe", "desk.create_issue")
    assert shown.code == 1
    assert "is called desk.report_bug here" in shown.err


# --- annotations, and nothing


@case("annotations", "full exposure", "the listed hints are the new ones")
async def _() -> None:
    async with desk(exposure="full") as (gateway, _):
        hints = (await list_one(gateway))["annotations"]
        assert hints == {"idempotentHint": True, "openWorldHint": False}


@case("annotations", "describe schema", "the hint is shown")
async def _() -> None:
    async with desk() as (gateway, _):
        assert (await describe(gateway)).startswith("desk.report_bug [idempotent]")


@case("none", "call_tool", "a tool without overrides is as its server lists it")
async def _() -> None:
    async with desk() as (gateway, backend):
        await call(gateway, "desk.ping", anything=1)
        assert get_sent(backend)[0] == {"name": "ping", "arguments": {"anything": 1}}
        tool = gateway.runtime.catalog.snapshot.tools["desk.ping"]
        assert (tool.own_blob, tool.translation) == (b"", None)


@case("any", "results", "a result passes as the server sent it")
async def _() -> None:
    async with desk(exposure="full") as (gateway, backend):
        result: Raw = {
            "content": [{"type": "text", "text": "title owner acme"}],
            "structuredContent": {"title": 1, "owner": "acme"},
        }
        backend.on_call("create_issue", lambda _: result)
        found = await gateway.call("desk__report_bug", summary="x")
        assert found.structured_content == result["structuredContent"]
        assert found.content[0].model_dump(exclude_none=True) == result["content"][0]


NEEDED = {test: test.__code__.co_varnames[: test.__code__.co_argcount] for test in TESTS.values()}


def test_every_case_of_the_table_has_a_test() -> None:
    assert [one for one in CASES if one not in TESTS] == []
    assert len(CASES) >= 40


def select(*needs: str) -> list[Any]:
    return [
        pytest.param(test, id=" | ".join(one))
        for one, test in TESTS.items()
        if NEEDED[test] == needs
    ]


@pytest.mark.parametrize("test", select())
async def test_through_the_gateway(test: Callable[[], Awaitable[None]]) -> None:
    await test()


@pytest.mark.parametrize("test", select("tmp_path"))
async def test_with_a_data_folder(test: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    await test(tmp_path)


@pytest.mark.parametrize("test", select("home"))
def test_with_the_command(test: Callable[[Home], None], home: Home) -> None:
    test(home)
