"""Every definition of the recorded fleet, in every provider's format."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from portico.catalog.address import assign_flat_names
from portico.library.provider_formats import to_anthropic, to_openai, to_openai_chat
from portico.rendering.strict_definitions import to_strict_tool
from tests.library.test_portable_schema import assert_taken

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_every_provider_takes_every_tool_of_the_fleet():
    if not FLEET.is_file():
        pytest.skip("the recorded fleet is not here (../shared/fleet)")
    tools: dict[tuple[str, str], dict[str, Any]] = {}
    with gzip.open(FLEET, "rt", encoding="utf-8") as lines:
        for server in map(json.loads, lines):
            tools |= {(server["slug"], tool["name"]): tool for tool in server["tools"]}
    names = assign_flat_names(tools)
    assert len(names) == len(tools) > 4_000
    assert all(map(NAME.fullmatch, names))
    for name, key in names.items():
        definition = to_strict_tool(tools[key], name)
        theirs = to_anthropic(definition)
        assert_taken(theirs["input_schema"])
        assert to_openai(definition)["parameters"] == theirs["input_schema"]
        assert to_openai_chat(definition)["function"]["name"] == name
