"""Finding 19: a definition of megabytes costs nobody more than its server; what is cut is said."""

from typing import Any

from portico.testing import FakeBackend, connect, gateway_over


async def describe(definition: dict[str, Any], detail: str) -> str:
    backend = FakeBackend(tools=[{"inputSchema": {"type": "object"}, **definition, "name": "t"}])
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("describe_tools", {"names": ["s.t"], "detail": detail})
        return result.content[0].text


async def test_a_description_of_megabytes_is_cut_and_that_is_said():
    text = await describe({"description": "word " * 1_000_000}, "full")
    assert "cut to 32768 of its 5000000 characters" in text


async def test_a_schema_of_megabytes_is_left_out_and_that_is_said():
    properties = {f"parameter_{number}": {"type": "string"} for number in range(50_000)}
    text = await describe({"inputSchema": {"type": "object", "properties": properties}}, "full")
    assert "'inputSchema' was left out" in text
    assert "arguments are passed unchecked" in text


async def test_a_tool_whose_name_is_a_book_is_left_out_and_its_siblings_stay():
    backend = FakeBackend(
        tools=[
            {"name": "x" * 1_000_000, "inputSchema": {}},
            {"name": "t", "inputSchema": {"type": "object"}},
        ]
    )
    async with gateway_over({"s": backend}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("browse_tools", {"server": "s"})
        assert "s.t()" in result.content[0].text
        assert "xxxx" not in result.content[0].text


async def test_ten_large_tools_are_not_rendered_to_find_that_they_do_not_fit():
    definitions = [
        {
            "name": f"t{number}",
            "inputSchema": {
                "type": "object",
                "properties": {f"p{n}": {"description": "word " * 20} for n in range(400)},
            },
        }
        for number in range(10)
    ]
    async with (
        gateway_over({"s": FakeBackend(tools=definitions)}) as gateway,
        connect(gateway) as client,
    ):
        names = [f"s.t{number}" for number in range(10)]
        result: Any = await client.call_tool("describe_tools", {"names": names, "detail": "full"})
        assert "Left out to fit" in result.content[0].text
        assert "s.t9" in result.content[0].text
