"""`portico tokens`: what the configured tools cost, directly and through Portico, and that the
tiers keep budget."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.cli.commands.tokens import describe_exceeded_budgets
from portico.cli.tier_costs import TierChannel
from portico.demo import make_demo_servers
from portico.rendering.listing_cost import TierResponse, compute_tier_sizes
from tests.cli.conftest import Home

SHARED = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).resolve().parents[4] / "shared")
TABLE = SHARED / "tokenizer"


def _large(number: int) -> dict[str, Any]:
    """A tool whose every parameter has many values to choose from, none of which may be left
    out."""
    choices = [f"choice {number} of {place}" for place in range(40)]
    properties = {f"field_{place}": {"type": "string", "enum": choices} for place in range(10)}
    return {
        "name": f"fill_{number}",
        "description": "Fill in a form.",
        "inputSchema": {"properties": properties},
    }


def _wide_open(home: Home) -> None:
    """An honest configuration whose schemas are over budget: answers ten times as long, and tools
    to fill them."""
    listing = home.folder / "forms.json"
    listing.write_text(
        json.dumps({"slug": "forms", "tools": [_large(number) for number in range(10)]})
    )
    home.write({"servers": {"forms": {"recorded": str(listing)}}, "budgets": {"discovery": 20_000}})


NO_TABLE = {"TIKTOKEN_CACHE_DIR": ""}
"""Tokens are estimated, wherever these tests run."""


def test_without_a_configuration_the_demo_servers_are_counted(home: Home) -> None:
    ran = home.run("tokens", env=NO_TABLE)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].endswith(" tools on 4 servers. Tokens are estimated, not counted.")
    assert any(line.startswith("total ") and line.endswith("100.0%") for line in lines)
    assert [line.split()[0] for line in lines if line.startswith(("meta ", "full ", "code "))] == [
        "meta",
        "full",
        "code",
    ]
    assert lines[-1] == "Every level of detail keeps its budget."


def test_as_json_the_figures_add_up(home: Home) -> None:
    data = home.run("tokens", "--json", env=NO_TABLE).data
    assert data.keys() == {
        "ok", "counter", "tools", "direct", "servers", "exposures", "ways", "over", "unlisted"
    }  # fmt: skip
    assert (data["ok"], data["counter"], data["over"], data["unlisted"]) == (
        True,
        "estimate",
        [],
        [],
    )
    assert {one["name"] for one in data["servers"]} == set(make_demo_servers())
    assert data["direct"]["tokens"] == sum(one["tokens"] for one in data["servers"])
    assert data["tools"] == sum(one["tools"] for one in data["servers"])
    assert [one["tokens"] for one in data["servers"]] == sorted(
        (one["tokens"] for one in data["servers"]), reverse=True
    )
    for one in (*data["exposures"], *data["servers"]):
        assert one["tokens"] == one.get("listing", one.get("definitions")) + one["instructions"]


def test_each_exposure_is_measured_whatever_is_configured(home: Home) -> None:
    home.write({"servers": {"text": {"functions": "portico.demo.text:TOOLS"}}, "exposure": "full"})
    data = home.run("tokens", "--json").data
    found = {one["exposure"]: one for one in data["exposures"]}
    assert found["full"]["tools"] == data["tools"]
    assert found["code"]["tools"] < found["meta"]["tools"]
    assert found["code"]["tokens"] < found["meta"]["tokens"]
    assert data["ways"][0]["tiers"]


def test_tiers_are_those_that_are_served_and_add_up(home: Home) -> None:
    (way, *_) = home.run("tokens", "--json").data["ways"]
    assert way["way"] == "meta-tools"
    assert [one["tier"] for one in way["tiers"]] == ["T0", "T1", "T2", "T3"]
    assert [one["budget"] for one in way["tiers"]] == [2_000, 4_000, 8_000, 12_000]
    together = 0
    for one in way["tiers"]:
        together += one["tokens"]
        assert one["together"] == together <= one["budget"]
        assert one["over"] is False
    assert way["tiers"][2]["asked"].startswith('browse_tools(category="')
    assert way["tiers"][3]["tokens"] > 500


def test_categories_that_do_not_fit_beside_the_hot_list_are_paid_for(home: Home) -> None:
    def tier(number: int) -> dict[str, Any]:
        one = {"functions": "portico.demo.text:TOOLS"}
        home.write(
            {
                "servers": {
                    f"text{place}": {**one, "category": f"kind {place}"} for place in range(number)
                }
            }
        )
        return home.run("tokens", "--json").data["ways"][0]["tiers"][1]

    assert (tier(3)["tokens"], tier(3)["asked"]) == (0, "the same answer")
    assert tier(60)["tokens"] > 500
    assert tier(60)["asked"] == "browse_tools(cursor=…), which goes on"


def test_each_resource_of_a_tier_is_a_way_of_its_own(home: Home) -> None:
    found = {way["way"]: way["tiers"] for way in home.run("tokens", "--json").data["ways"]}
    assert [one["asked"].split("/")[2] for one in found["resources"]] == [
        "hot",
        "categories",
        "category",
        "tool",
    ]
    assert all(one["tokens"] > 0 for one in found["resources"])


def test_the_side_door_is_a_way_of_its_own(home: Home) -> None:
    found = {way["way"]: way["tiers"] for way in home.run("tokens", "--json").data["ways"]}
    assert [one["tier"] for one in found["REST"]] == ["T0", "T1", "T2", "T3"]
    assert all(one["asked"].startswith("/api/v1/tools/") for one in found["REST"])


def test_a_profile_pays_for_its_own_tools(home: Home) -> None:
    home.write(
        {
            "servers": {
                name: {"functions": f"portico.demo.{name}:TOOLS"} for name in ("text", "units")
            },
            "profiles": {"words": {"servers": ["text"], "metatools": {"call_tool": False}}},
        }
    )
    data = home.run("tokens", "-p", "words", "--json").data
    assert [one["name"] for one in data["servers"]] == ["text"]
    found = {one["exposure"]: one["tools"] for one in data["exposures"]}
    assert found["full"] == data["tools"] == data["servers"][0]["tools"]
    whole = {
        one["exposure"]: one["tools"] for one in home.run("tokens", "--json").data["exposures"]
    }
    assert found["meta"] == whole["meta"] - 4, "who calls nothing has no result to read"


def test_what_is_switched_off_serves_no_tier(home: Home) -> None:
    home.write(
        {
            "servers": {"text": {"functions": "portico.demo.text:TOOLS"}},
            "metatools": {"browse_tools": False},
        }
    )
    ran = home.run("tokens", "--verify", "--json")
    assert ran.code == 0
    assert [one["tier"] for one in ran.data["ways"][0]["tiers"]] == ["T3"]


def test_the_dearest_ten_are_named_and_the_rest_is_added_up(home: Home) -> None:
    home.write(
        {
            "servers": {
                f"text{number:02}": {"functions": "portico.demo.text:TOOLS"} for number in range(13)
            }
        }
    )
    out = home.run("tokens").out
    assert "text09 " in out
    assert "text10 " not in out
    assert "\n3 others " in out
    assert len(home.run("tokens", "--json").data["servers"]) == 13


@pytest.mark.skipif(not TABLE.exists(), reason=f"the table of o200k_base is not at {TABLE}")
def test_where_the_table_is_at_hand_tokens_are_counted(home: Home) -> None:
    env = {"TIKTOKEN_CACHE_DIR": str(TABLE)}
    exact, rough = home.run("tokens", "--json", env=env).data, home.run("tokens", "--json").data
    assert exact["counter"] == "o200k_base"
    assert exact["direct"]["tokens"] == pytest.approx(rough["direct"]["tokens"], rel=0.1)
    assert "Tokens are counted with o200k_base." in home.run("tokens", env=env).out


def test_offline_what_was_listed_once_is_counted(home: Home) -> None:
    home.run("browse")
    assert home.run("tokens", "--offline", "--verify").code == 0


def test_nothing_known_is_nothing_verified(home: Home) -> None:
    ran = home.run("tokens", "--offline", "--json")
    assert (ran.code, ran.data["tools"], ran.data["ways"]) == (0, 0, [])
    assert set(ran.data["unlisted"]) == set(make_demo_servers())
    assert "Not counted, because not listed yet: clock, " in home.run("tokens", "--offline").out
    ran = home.run("tokens", "--offline", "--verify")
    assert (ran.code, ran.out) == (1, "")
    assert "nothing to verify" in ran.err


def test_a_server_that_is_down_is_named_and_the_others_are_counted(home: Home) -> None:
    home.write(
        {
            "servers": {
                "gone": {"command": "no-such-command-at-all"},
                "text": {"functions": "portico.demo.text:TOOLS"},
            }
        }
    )
    ran = home.run("tokens", "--json")
    assert (ran.code, ran.data["unlisted"], [one["name"] for one in ran.data["servers"]]) == (
        0,
        ["gone"],
        ["text"],
    )


def test_a_tier_over_its_budget_is_named_and_fails_when_verified(home: Home) -> None:
    _wide_open(home)
    ran = home.run("tokens", "--verify")
    assert ran.code == 1
    assert (
        "schemas is over its budget by meta-tools: describe_tools of the 10 largest, forms.fill_"
        in ran.out
    )
    assert "keeps its budget" not in ran.out
    assert home.run("tokens").code == 0
    data = home.run("tokens", "--verify", "--json").data
    assert data["ok"] is False
    assert [one["over"] for one in data["ways"][0]["tiers"]] == [False, False, False, True]


def test_every_tier_that_is_over_is_named_by_its_way() -> None:
    sizes = compute_tier_sizes(
        [
            TierResponse("T0", "browse_tools()", 2_500),
            TierResponse("T1", "more", 1_000),
            TierResponse("T2", "c", 9_000),
        ]
    )
    first, second = describe_exceeded_budgets(
        [
            TierChannel("meta-tools", sizes),
            TierChannel("resources", compute_tier_sizes([TierResponse("T0", "hot", 9)])),
        ]
    )
    assert first == (
        "hot list is over its budget by meta-tools: browse_tools() makes 2,500 tokens "
        "together, 2,000 are allowed"
    )
    assert second.startswith("one category is over its budget")


def test_counting_is_no_use_of_anything(home: Home) -> None:
    home.run("tokens")
    assert home.run("status", "--offline", "--json").data["tokens"]["sessions"] == 0
    assert home.run("usage", "--json").data == {"tools": [], "total": 0}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_narrow_terminal_figures_are_laid_out(home: Home) -> None:
    code, shown = home.run_in_terminal("tokens", env={"COLUMNS": "40"})
    assert code == 0
    assert "\x1b[" in shown
    assert "clock" in shown


def test_so_few_tools_that_listing_them_is_cheaper_are_said_to_be_so(home: Home) -> None:
    few = {"functions": "portico.demo.units", "tools": {"allow": ["list_units"]}}
    home.write({"servers": {"units": few}})
    assert "exposure full is for them" in home.run("tokens").out
