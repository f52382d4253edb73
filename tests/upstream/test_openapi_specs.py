"""Large descriptions of real APIs: every one in the folder that PORTICO_OPENAPI_SPECS names becomes tools.

`python -m tests.upstream.test_openapi_specs FOLDER` prints the table: operations, tokens, seconds.
"""

import os
import sys
import time
from pathlib import Path

import jsonschema_rs
import pytest

from portico.upstream import jsontext
from portico.upstream.openapi.loading import Api, load
from portico.upstream.openapi.names import LONGEST_NAME
from portico.upstream.openapi.reading import Source
from portico.upstream.openapi.schemas import MAX_SCHEMA_BYTES
from portico.upstream.openapi.tools import Given

VARIABLE = "PORTICO_OPENAPI_SPECS"
ENDINGS = (".json", ".yaml", ".yml")


def specifications(folder: str | None) -> list[Path]:
    """The descriptions that lie directly in a folder."""
    return sorted(path for path in Path(folder).iterdir() if path.suffix in ENDINGS) if folder else []


def read(place: Path) -> Api:
    return load(Source("api", str(place), base_url="http://127.0.0.1:1"), Given((), ()))


SPECIFICATIONS = specifications(os.environ.get(VARIABLE))


@pytest.mark.skipif(not SPECIFICATIONS, reason=f"{VARIABLE} names no folder with descriptions of APIs")
@pytest.mark.parametrize("place", SPECIFICATIONS, ids=lambda place: place.name)
def test_a_large_description_becomes_tools_that_every_client_can_take(place: Path):
    tools = read(place).definitions()
    assert len(tools) == len({tool["name"] for tool in tools}) > 10
    for tool in tools:
        assert len(tool["name"]) <= LONGEST_NAME
        assert tool["inputSchema"]["type"] == "object"
        assert len(jsontext.dumps(tool["inputSchema"])) < 2 * MAX_SCHEMA_BYTES
        jsonschema_rs.validator_for(tool["inputSchema"])


def main(folder: str) -> None:
    """Print the table."""
    from portico.disclosure.tokens import best_counter

    counter = best_counter()
    for place in specifications(folder):
        began = time.perf_counter()
        api = read(place)
        took = time.perf_counter() - began
        tools = api.definitions()
        tokens = sum(counter.count(jsontext.dumps(tool).decode()) for tool in tools)
        kept = len(api.packed) // 1024
        sys.stdout.write(
            f"{place.name:40} {took:6.2f} s {len(tools):6} operations {tokens:9} tokens {kept:6} KiB kept\n"
        )


if __name__ == "__main__":
    main(sys.argv[1])
