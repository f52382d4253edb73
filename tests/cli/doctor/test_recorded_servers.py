"""`portico doctor` over a recorded fleet of 182 real servers: no crash, and few findings."""

import gzip
import os
import re
from collections import Counter
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Home

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[4] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"


@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_real_listings_are_examined_without_a_false_alarm(home: Home) -> None:
    with gzip.open(FLEET) as lines:
        slugs = [orjson.loads(line)["slug"] for line in lines]
    servers = {
        re.sub(r"[^A-Za-z0-9_-]", "_", slug)[:40]: {"recorded": f"{FLEET}#{slug}"} for slug in slugs
    }
    home.write(
        {
            "gateway": {"port": 0},
            "metatools": {"run_code": False, "run_workflow": False},
            "servers": servers,
        }
    )
    result = home.run("doctor", "--json")
    assert result.code == 0, result.out
    assert all(server["ok"] for server in result.data["servers"])
    assert result.data["cost"]["tools"] > 4_000
    found = Counter(finding["id"] for finding in result.data["findings"])
    assert found["tool.name"] >= 1
    assert sum(found.values()) < len(slugs) / 2, found
