"""Every script in the documents runs, on the demo servers that they are written for."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config
from portico.demo import servers
from portico.execution.sandbox.script import LANGUAGES
from portico.testing import connect, gateway_over

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")


def scripts() -> list[tuple[str, str]]:
    return re.findall(rf"```({'|'.join(LANGUAGES)})\n(.*?)```", WRITTEN, re.DOTALL)


def test_every_language_has_an_example():
    assert {language for language, _ in scripts()} == set(LANGUAGES)


@pytest.mark.parametrize(("language", "code"), scripts())
async def test_every_script_in_the_documents_runs(language: str, code: str):
    async with gateway_over(config=Config(servers=servers())) as gateway, connect(gateway) as client:
        asked = client.call_tool("run_code", {"code": code, "language": language})
        result: Any = await asyncio.wait_for(asked, 60)
        assert not result.is_error, result.content
        assert "returned nothing" not in result.content[0].text
        assert "not awaited" not in result.content[-1].text
