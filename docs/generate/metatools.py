"""The page of meta-tools: descriptions, parameters, costs, and answers on the demo servers."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from docs.generate.markdown import block, code, join_paragraphs, render_value, table, values
from portico.config import Config
from portico.demo import make_demo_servers
from portico.meta_tools.capability_index import build_capability_index
from portico.meta_tools.tool_definitions import (
    CALL_TOOL,
    META_TOOL_NAMES,
    PARAMETERS,
    READ_RESULT,
    SEARCH_TOOLS,
    build_definitions,
)
from portico.rendering.token_budget import ESTIMATE_COUNTER
from portico.testing import connect, gateway_over

_WIDTH = 120
_LARGE = {"name": "clock.list_time_zones"}
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "search_tools": {"query": "convert miles to kilometres", "limit": 2},
    "browse_tools": {"server": "units"},
    "describe_tools": {"names": ["units.convert_units"]},
    "call_tool": {
        "name": "units.convert_units",
        "arguments": {"value": 26.2, "from_unit": "mi", "to_unit": "km"},
    },
    "run_code": {
        "code": "far = [await units.convert_units(value=miles, from_unit='mi', to_unit='km') "
        "for miles in (1, 26)]\n[one['value'] for one in far]"
    },
    "run_workflow": {
        "steps": [
            {
                "id": "far",
                "tool": "units.convert_units",
                "arguments": {"value": 26.2, "from_unit": "mi", "to_unit": "km"},
            },
            {
                "id": "name",
                "tool": "text.slugify",
                "arguments": {"text": "A marathon is ${far.value} km"},
            },
        ]
    },
    "read_result": {"result_id": "…", "path": "result[?contains(zone, 'Tokyo')]"},
}
"""Arguments of each example. The id of a result is known only when there is one."""


def page() -> str:
    """Render a heading for each meta-tool."""
    answers = asyncio.run(_call_meta_tools())
    definitions = {
        definition["name"]: definition for definition in build_definitions(META_TOOL_NAMES, {})
    }
    search = definitions[SEARCH_TOOLS]
    # The index of servers is left out, because readers have other servers.
    definitions[SEARCH_TOOLS] = {
        **search,
        "description": search["description"].removesuffix(build_capability_index({})).strip(),
    }
    costs = {
        name: ESTIMATE_COUNTER.count(json.dumps(tool, separators=(",", ":")))
        for name, tool in definitions.items()
    }
    summary = (
        f"The {len(definitions)} definitions cost about {sum(costs.values()):,} tokens "
        "together (an estimate)."
    )
    parts = (
        part
        for name in META_TOOL_NAMES
        for part in _tool(definitions[name], costs[name], answers[name])
    )
    return join_paragraphs([summary, *parts])


def _tool(
    tool: Mapping[str, Any], cost: int, answer: tuple[Mapping[str, Any], str]
) -> Iterator[str]:
    name: str = tool["name"]
    listed = tool["inputSchema"]
    takes = PARAMETERS[name]
    hints = tool["annotations"]
    yield f"## `{name}`"
    yield f"> {tool['description']}"
    effect = "Read-only" if hints["readOnlyHint"] else "May do whatever the tool it calls does"
    yield f"{effect}. Listed, its definition costs about {cost} tokens."
    required = listed.get("required", ())
    rows = (
        (
            code(key),
            _type(shape),
            "required" if key in required else _default(shape),
            _meaning(shape),
        )
        for key, shape in takes["properties"].items()
    )
    yield table(("parameter", "type", "default", "meaning"), rows)
    arguments, text = answer
    yield "An example, on the servers of `portico demo`:"
    yield block("json", _render_arguments(arguments))
    yield block("text", text)


def _type(shape: Mapping[str, Any]) -> str:
    if "enum" in shape:
        return values(shape["enum"])
    kind = shape.get("type", "any")
    return f"{shape['items'].get('type', 'any')}[]" if kind == "array" else str(kind)


def _default(shape: Mapping[str, Any]) -> str:
    return code(render_value(shape["default"])) if "default" in shape else ""


def _meaning(shape: Mapping[str, Any]) -> str:
    low, high = (
        shape.get(one, shape.get(many))
        for one, many in (("minimum", "minItems"), ("maximum", "maxItems"))
    )
    bounds = f"{low:,} … {high:,}" if low is not None and high is not None else ""
    return " · ".join(part for part in (shape.get("description", ""), bounds) if part)


def _render_arguments(arguments: Mapping[str, Any]) -> str:
    """Render the arguments on one line, or with one line for each step if that is too long."""
    short = json.dumps(arguments, ensure_ascii=False)
    if len(short) <= _WIDTH:
        return short
    lines: list[str] = []
    for key, value in arguments.items():
        if isinstance(value, list):
            steps = ",\n".join(
                f"    {json.dumps(step, ensure_ascii=False)}" for step in cast("list[Any]", value)
            )
            lines.append(f'  "{key}": [\n{steps}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(lines) + "\n}"


def _replace_variable_parts(text: str) -> str:
    """Replace what differs from run to run: signed cursors, and durations."""
    return re.sub(r"\b\d+\.\d+ s\b", "0.01 s", re.sub(r'cursor="[\w-]+"', 'cursor="…"', text))


async def _call_meta_tools() -> dict[str, tuple[Mapping[str, Any], str]]:
    """Call every meta-tool on one gateway, so that a stored result can be read."""
    found: dict[str, tuple[Mapping[str, Any], str]] = {}
    config = Config(servers=make_demo_servers(), budgets={"result": 1000})  # pyright: ignore[reportArgumentType]
    async with gateway_over(config=config) as gateway, connect(gateway) as client:
        if (encoding := gateway.catalog.start_encoding()) is not None:
            await asyncio.wait_for(encoding, 60)

        async def call(name: str, arguments: Mapping[str, Any]) -> str:
            result: Any = await asyncio.wait_for(client.call_tool(name, dict(arguments)), 60)
            assert not result.is_error, result.content
            return _replace_variable_parts(
                "\n".join(block.text for block in result.content if block.type == "text")
            )

        for name in META_TOOL_NAMES:
            arguments = EXAMPLES[name]
            if name == READ_RESULT:
                large = await call(CALL_TOOL, _LARGE)
                result_id = re.findall(r"portico://result/([\w-]+)", large)[0]
                text = await call(name, {**arguments, "result_id": result_id})
                found[name] = arguments, text.replace(result_id, "…")
            else:
                found[name] = arguments, await call(name, arguments)
    return found
