"""Rows B1 and B8 of docs/requirements.md, by the command that a person runs: `portico tokens
--verify`."""

import gzip
import json
import os
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Home
from tests.cli.conftest import home as home

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[3] / "shared")
FLEET = SHARED / "fleet" / "servers.jsonl.gz"
TABLE = SHARED / "tokenizer"
BUDGETS = {"T0": 2_000, "T1": 4_000, "T2": 8_000, "T3": 12_000}


def test_b1_every_tier_of_the_demo_servers_keeps_its_budget(home: Home) -> None:
    ran = home.run("tokens", "--verify", "--json")
    assert (ran.code, ran.data["ok"], ran.data["over"]) == (0, True, [])
    for way in ran.data["ways"]:
        assert {one["tier"]: one["budget"] for one in way["tiers"]} == BUDGETS
        assert all(0 <= one["together"] <= one["budget"] for one in way["tiers"])


def test_b1_a_tier_that_is_over_fails_and_is_named(home: Home) -> None:
    """Answers are packed to their budget, so only anyone who allows longer ones can have a tier
    that
    is over."""
    choices = [f"the choice of number {number}" for number in range(60)]
    schema = {"properties": {f"field_{number}": {"enum": choices} for number in range(8)}}
    tools = [
        {"name": f"form_{number}", "description": "A form.", "inputSchema": schema}
        for number in range(10)
    ]
    listing = home.folder / "forms.json"
    listing.write_text(json.dumps({"slug": "forms", "tools": tools}), encoding="utf-8")
    home.write({"servers": {"forms": {"recorded": str(listing)}}, "budgets": {"discovery": 30_000}})
    ran = home.run("tokens", "--verify")
    assert ran.code == 1
    assert "schemas is over its budget by meta-tools: " in ran.out
    assert "T0 is over" not in ran.out


@pytest.mark.slow
@pytest.mark.skipif(not FLEET.exists(), reason=f"the recorded fleet is not at {FLEET}")
def test_b8_a_fleet_of_182_servers_costs_a_hundredth_and_all_tiers_together_12_000(
    home: Home,
) -> None:
    with gzip.open(FLEET) as lines:
        slugs = [orjson.loads(line)["slug"] for line in lines]
    home.write({"servers": {slug: {"recorded": f"{FLEET}#{slug}"} for slug in slugs}})
    exact = {"TIKTOKEN_CACHE_DIR": str(TABLE)} if TABLE.exists() else None
    ran = home.run("tokens", "--verify", "--json", env=exact)
    data = ran.data
    assert len(data["servers"]) == 182
    assert data["unlisted"] == []
    assert data["direct"]["tokens"] >= 1_000_000
    start = {one["exposure"]: one["tokens"] for one in data["exposures"]}
    assert start["meta"] <= 1_000
    assert start["code"] <= start["meta"]
    assert data["over"] == []
    for way in data["ways"]:
        assert way["tiers"][-1]["tier"] == "T3", way["way"]
        assert way["tiers"][-1]["together"] <= 12_000, way["way"]
    assert ran.code == 0
