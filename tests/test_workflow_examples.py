"""Every workflow in the documents runs, on the demo servers that they are written for."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.demo import servers
from portico.testing import connect, gateway_over

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
EXAMPLES = [json.loads(example) for example in re.findall(r"```json\n(.*?)```", WRITTEN, re.DOTALL)]


def test_there_are_examples_of_steps_and_of_intents():
    assert {"steps", "intent"} <= {key for example in EXAMPLES for key in example}


@pytest.mark.parametrize("example", EXAMPLES)
async def test_every_workflow_in_the_documents_runs(example: dict[str, Any]):
    async with gateway_over(config=Config(servers=servers())) as gateway, connect(gateway) as client:

        async def run(**given: Any) -> Any:
            result: Any = await asyncio.wait_for(client.call_tool("run_workflow", given), 60)
            assert not result.is_error, result.content
            return result

        result = await run(**example)
        if stopped := re.search(r'resume="([^"]+)"', result.content[0].text):
            assert any("delete" in step["tool"] for step in example["steps"])
            result = await run(resume=stopped[1])
        if "steps" in example or example.get("run"):
            assert "Workflow finished" in result.content[0].text
        else:
            assert result.structured_content["steps"]
