"""Which examples training sees, and which servers it does not."""

import json
import random
from pathlib import Path

import pytest
from training.examples import (
    WEIGHT,
    WEIGHT_NAME,
    WEIGHT_NOISY,
    WEIGHT_OTHER,
    examples,
    is_held,
    ours,
    read_given,
    read_recorded,
)

TEXTS = {
    "github/search_issues": "github: search issues.",
    "mapbox/directions": "mapbox: directions.",
}


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    row = {
        "id": "mapbox/directions",
        "queries": ["how do I get to the airport"],
        "other": ["wie komme ich hin?"],
    }
    unknown = {"id": "nobody/nothing", "queries": ["never seen"]}
    (tmp_path / "servers.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (row, unknown))
    )
    made_up = {
        "id": "shop/create_order",
        "text": "Places an order.",
        "queries": ["buy it\u2028now"],
        "other": [],
    }
    (tmp_path / "products.jsonl").write_text(
        json.dumps(made_up, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("server", "held"), [("mapbox", True), ("atlassian", True), ("github", False), ("git", False)]
)
def test_a_server_is_set_apart_by_its_name_alone(server: str, held: bool) -> None:
    assert is_held(f"{server}/one") is is_held(f"{server}/two/three") is held


def test_about_a_fifth_of_servers_is_set_apart() -> None:
    assert 0.17 < sum(is_held(f"server-{number}/tool") for number in range(5_000)) / 5_000 < 0.23


def test_every_query_comes_as_it_is_and_misspelt_and_every_tool_by_name(queries: Path) -> None:
    found = list(examples(TEXTS, random.Random(1), queries))
    assert [(example.weight, example.foreign, example.noisy) for example in found] == [
        (WEIGHT, False, False),
        (WEIGHT_NOISY, False, True),
        (WEIGHT_OTHER, True, False),
        (WEIGHT_NAME, False, True),
        (WEIGHT_NAME, False, True),
    ]
    assert all(example.held == example.tool.startswith("mapbox/") for example in found)


def test_a_tool_without_text_has_no_examples(queries: Path) -> None:
    assert all(example.tool in TEXTS for example in examples(TEXTS, random.Random(1), queries))


def test_the_same_seed_gives_the_same_examples(queries: Path) -> None:
    assert list(examples(TEXTS, random.Random(5), queries)) == list(
        examples(TEXTS, random.Random(5), queries)
    )


def test_texts_come_from_listings_from_given_lines_and_from_our_own(
    queries: Path, tmp_path: Path
) -> None:
    listing, lines = tmp_path / "listing.json", tmp_path / "lines.json"
    tools = [
        {"name": "getRoute", "description": "Finds a  route."},
        {"name": "ping", "title": "Alive?"},
    ]
    listing.write_text(json.dumps({"slug": "maps", "tools": tools}) + "\n")
    lines.write_text(json.dumps({"id": "pay.com/refund", "text": "Gives money back."}) + "\n")
    assert read_recorded(listing) == {
        "maps/getRoute": "maps: get Route. Finds a route.",
        "maps/ping": "maps: ping (Alive?). ",
    }
    assert read_given(lines) == {"pay.com/refund": "pay com: refund. Gives money back."}
    assert ours(queries) == {"shop/create_order": "shop: create order. Places an order."}
