"""Rows D6 and E3 of docs/requirements.md: tools in a chain, and a workflow from an intent."""

import asyncio
from typing import Any

from portico.config import Config
from portico.demo import make_demo_servers
from portico.testing import connect, gateway_over

TIMEOUT_S = 240


async def run(client: Any, **given: Any) -> Any:
    result = await asyncio.wait_for(client.call_tool("run_workflow", given), TIMEOUT_S)
    assert not result.is_error, result.content
    return result


async def test_d6_tools_run_in_a_chain_each_with_what_the_one_before_gave():
    steps = [
        {
            "id": "made",
            "tool": "notes.create_note",
            "arguments": {"title": "Milk", "body": "two bottles of milk"},
        },
        {"id": "read", "tool": "notes.read_note", "arguments": {"id": "${made.id}"}},
        {"id": "count", "tool": "text.count_text", "arguments": {"text": "${read.body}"}},
    ]
    async with (
        gateway_over(config=Config(servers=make_demo_servers())) as gateway,
        connect(gateway) as client,
    ):
        done = await run(client, steps=steps)
        assert done.structured_content["words"] == 4


async def test_e3_an_intent_finds_its_tools_suggests_the_steps_and_runs_them():
    intent = "how many business days are there between 2026-01-01 and 2026-02-01"
    async with (
        gateway_over(config=Config(servers=make_demo_servers())) as gateway,
        connect(gateway) as client,
    ):
        plan = await run(client, intent=intent)
        assert [step["tool"] for step in plan.structured_content["steps"]] == [
            "clock.count_business_days"
        ]
        assert plan.structured_content["missing"] == []
        passed_back = await run(client, steps=plan.structured_content["steps"])
        at_once = await run(client, intent=intent, run=True)
        assert passed_back.structured_content == at_once.structured_content is not None
