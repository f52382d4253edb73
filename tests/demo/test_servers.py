"""The demo servers as servers: every tool is well described, truly annotated, and answers through
the gateway."""

from collections.abc import AsyncIterator

import jsonschema_rs
import pytest

from portico.catalog.tool import Tool
from portico.config import Config
from portico.demo import make_demo_servers
from portico.gateway import GatewayRuntime
from portico.rendering.one_line_tool import render_brief
from portico.storage.manifests import ManifestStore
from portico.upstream.backends.factory import load_functions

TOOLS = [
    tool
    for server in make_demo_servers().values()
    for tool in load_functions(str(server.functions))
]


@pytest.fixture
async def gateway() -> AsyncIterator[GatewayRuntime]:
    async with GatewayRuntime(
        Config(servers=make_demo_servers()), manifests=ManifestStore(None)
    ) as running:
        await running.wait_until_listed()
        yield running


def test_there_are_enough_tools_for_disclosure_to_show() -> None:
    assert len(make_demo_servers()) == 4
    assert 20 <= len(TOOLS) <= 30


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.definition["name"])
def test_every_tool_and_parameter_is_described(tool: object) -> None:
    definition = tool.definition  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    jsonschema_rs.validator_for(definition["inputSchema"])
    assert definition["description"].split("\n")[0].endswith((".", "…", ","))
    assert definition["annotations"].keys() == {
        "title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
    }  # fmt: skip
    for name, parameter in definition["inputSchema"].get("properties", {}).items():
        assert parameter.get("description"), f"{definition['name']}.{name} is not described"


def test_only_what_destroys_is_marked_as_destructive() -> None:
    hints = {tool.definition["name"]: tool.definition["annotations"] for tool in TOOLS}
    assert {name for name, hint in hints.items() if not hint["readOnlyHint"]} == {
        "create_note", "update_note", "delete_note",
    }  # fmt: skip
    assert {name for name, hint in hints.items() if hint["destructiveHint"]} == {
        "update_note",
        "delete_note",
    }


async def test_every_server_is_listed(gateway: GatewayRuntime) -> None:
    assert {status.name: status.state for status in gateway.list_statuses()} == dict.fromkeys(
        make_demo_servers(), "ready"
    )
    assert len(gateway.get_view().snapshot.tools) == len(TOOLS)


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ("how many days between two dates", "clock.date_difference"),
        ("convert miles to kilometres", "units.convert_units"),
        ("remove a note", "notes.delete_note"),
        ("extract email addresses", "text.extract_from_text"),
    ],
)
async def test_a_task_finds_its_tool(gateway: GatewayRuntime, query: str, address: str) -> None:
    hits = gateway.get_view().snapshot.index.search(query, 3).hits
    assert address in [hit.id for hit in hits]


@pytest.mark.parametrize(
    ("address", "arguments", "answer"),
    [
        (
            "clock.add_to_date",
            {"start": "2024-02-28", "days": 2},
            {"date": "2024-03-01", "weekday": "Friday"},
        ),
        (
            "units.list_units",
            {"quantity": "mass"},
            {"mass": ["kg", "g", "mg", "t", "lb", "oz", "st"]},
        ),
        (
            "units.convert_units",
            {"value": 1, "from_unit": "km", "to_unit": "m"},
            {"value": 1000.0, "unit": "m", "quantity": "length"},
        ),
    ],
)
async def test_calls_answer_structured(
    gateway: GatewayRuntime, address: str, arguments: dict[str, object], answer: object
) -> None:
    result = await gateway.calls.call(gateway.get_view().snapshot.resolve_tool(address), arguments)
    assert result["structuredContent"] == answer


async def test_a_tool_that_fails_says_why(gateway: GatewayRuntime) -> None:
    tool: Tool = gateway.get_view().snapshot.resolve_tool("units.convert_units")
    result = await gateway.calls.call(tool, {"value": 1, "from_unit": "km", "to_unit": "kg"})
    assert result["isError"]
    assert "km measures length" in result["content"][0]["text"]
    assert render_brief(tool).startswith("units.convert_units(value: number, from_unit, to_unit")
