"""Large descriptions of real APIs: every one in the folder that PORTICO_OPENAPI_SPECS names becomes
tools.

`python -m tests.upstream.backends.openapi.test_public_descriptions FOLDER` prints the table:
operations, tokens, seconds.
"""

import os
import sys
import time
from pathlib import Path

import jsonschema_rs
import pytest

from portico.json_text import json_codec
from portico.upstream.backends.openapi.loader import ApiDescription, load_description
from portico.upstream.backends.openapi.names import MAX_NAME_CHARS
from portico.upstream.backends.openapi.reader import DescriptionSource
from portico.upstream.backends.openapi.schemas import MAX_SCHEMA_BYTES
from portico.upstream.backends.openapi.tools import ConfiguredParameters

VARIABLE = "PORTICO_OPENAPI_SPECS"
ENDINGS = (".json", ".yaml", ".yml")


def specifications(folder: str | None) -> list[Path]:
    """The descriptions that lie directly in a folder."""
    return (
        sorted(path for path in Path(folder).iterdir() if path.suffix in ENDINGS) if folder else []
    )


def read(place: Path) -> ApiDescription:
    return load_description(
        DescriptionSource("api", str(place), base_url="http://127.0.0.1:1"),
        ConfiguredParameters((), ()),
    )


SPECIFICATIONS = specifications(os.environ.get(VARIABLE))


@pytest.mark.skipif(
    not SPECIFICATIONS, reason=f"{VARIABLE} names no folder with descriptions of APIs"
)
@pytest.mark.parametrize("place", SPECIFICATIONS, ids=lambda place: place.name)
def test_a_large_description_becomes_tools_that_every_client_can_take(place: Path):
    tools = read(place).load_definitions()
    assert len(tools) == len({tool["name"] for tool in tools}) > 10
    for tool in tools:
        assert len(tool["name"]) <= MAX_NAME_CHARS
        assert tool["inputSchema"]["type"] == "object"
        assert len(json_codec.dumps(tool["inputSchema"])) < 2 * MAX_SCHEMA_BYTES
        jsonschema_rs.validator_for(tool["inputSchema"])


def main(folder: str) -> None:
    """Print the table."""
    from portico.rendering.token_budget import get_best_counter

    counter = get_best_counter()
    for place in specifications(folder):
        began = time.perf_counter()
        api = read(place)
        took = time.perf_counter() - began
        tools = api.load_definitions()
        tokens = sum(counter.count(json_codec.dumps(tool).decode()) for tool in tools)
        kept = len(api.compressed_definitions) // 1024
        sys.stdout.write(
            f"{place.name:40} {took:6.2f} s {len(tools):6} operations {tokens:9} tokens "
            f"{kept:6} KiB kept\n"
        )


if __name__ == "__main__":
    main(sys.argv[1])
