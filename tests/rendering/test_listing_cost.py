"""What a listed tool costs is what its client's model is given of it, counted once; tiers add up to
their budgets."""

import threading
from typing import Any

import pytest

from portico.catalog.tool import Tool, make_tool
from portico.rendering.listing_cost import (
    TIER_BUDGETS,
    DefinitionCosts,
    TierResponse,
    compute_saved_share,
    compute_tier_sizes,
    count_definition_tokens,
    count_listed_tokens,
)
from portico.rendering.token_budget import count_tokens

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
}


def characters(text: str) -> int:
    return len(text)


def tool(name: str = "read", **more: Any) -> Tool:
    return make_tool(
        "files", {"name": name, "description": "Read a file.", "inputSchema": SCHEMA, **more}
    )


def test_a_tool_costs_its_name_description_and_input_schema() -> None:
    whole = (
        '{"name":"read","description":"Read a file.","inputSchema":{"type":"object",'
        '"properties":{"path":{"type":"string"}},"required":["path"]}}'
    )
    assert count_definition_tokens(tool(), characters) == len(whole)
    assert count_definition_tokens(tool()) == count_tokens(whole)


@pytest.mark.parametrize(
    "beside",
    [
        {"title": "Read"},
        {"annotations": {"readOnlyHint": True}},
        {"outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
        {"_meta": {"anything": "x" * 100}},
        {"icons": [{"src": "data:image/png;base64," + "A" * 500}]},
    ],
)
def test_what_no_model_is_given_costs_nothing(beside: dict[str, Any]) -> None:
    assert count_definition_tokens(tool(**beside)) == count_definition_tokens(tool())


def test_a_tool_costs_what_a_strict_client_can_take_of_it() -> None:
    broken = make_tool("files", {"name": "read", "description": 7, "inputSchema": "none"})
    assert count_definition_tokens(broken, characters) == len(
        '{"name":"read","inputSchema":{"type":"object"}}'
    )


def test_a_renamed_tool_costs_what_its_own_server_asks_for_it() -> None:
    renamed = make_tool("files", tool().definition, name="read_a_file_of_this_house")
    assert count_definition_tokens(renamed) == count_definition_tokens(tool())


def test_counting_a_catalog_does_not_keep_what_it_parsed() -> None:
    one = tool()
    parsed = one.definition
    assert one.definition is parsed
    DefinitionCosts().measure_all([one, *(tool(f"read_{number}") for number in range(1_000))])
    assert one.definition is not parsed
    assert one.definition == parsed


def test_our_own_listing_is_counted_by_the_same_rule() -> None:
    listed = {**tool().definition, "title": "Read", "_meta": {"anthropic/alwaysLoad": True}}
    assert count_listed_tokens(listed) == count_definition_tokens(tool())


def test_each_definition_is_counted_once() -> None:
    counted = list[str]()

    def counting(text: str) -> int:
        counted.append(text)
        return 10

    costs = DefinitionCosts(counting)
    assert costs.measure_all([tool(), tool("write"), tool()]) == 30
    assert costs.measure_all([tool(), tool("write")]) == 20
    assert costs.measure(tool()) == 10
    assert len(counted) == 2


def test_nothing_is_known_until_all_was_counted_and_asking_counts_nothing() -> None:
    costs, tools = DefinitionCosts(lambda text: 10), [tool(f"t{number}") for number in range(5)]
    assert costs.get_known_total(tools) == 0
    assert costs.find_uncounted(tools) == tools
    costs.measure_all(tools[:3])
    assert costs.find_uncounted(tools) == tools[3:]
    assert costs.get_known_total(tools) == 0
    costs.measure_all(tools[3:])
    assert costs.find_uncounted(tools) == []
    assert costs.get_known_total(tools) == 50


def test_a_thread_may_count_in_slices_while_another_reads() -> None:
    costs, tools = DefinitionCosts(lambda text: 1), [tool(f"t{number}") for number in range(500)]

    def fill() -> None:
        for start in range(0, len(tools), 7):
            costs.measure_all(tools[start : start + 7])

    thread = threading.Thread(target=fill)
    thread.start()
    seen = [costs.get_known_total(tools) for _ in range(50)]
    thread.join(30)
    assert not thread.is_alive()
    assert set(seen) <= {0, 500}
    assert costs.get_known_total(tools) == 500


def test_tools_that_are_gone_are_forgotten() -> None:
    costs = DefinitionCosts(lambda text: 10)
    costs.measure_all([tool(), tool("write")])
    costs.keep_only([tool("write")])
    assert costs.get_known_total([tool("write")]) == 10
    assert costs.find_uncounted([tool(), tool("write")]) == [tool()]


def test_tiers_add_up_in_their_order_whatever_the_order_they_were_measured_in() -> None:
    served = [
        TierResponse("T2", "c", 3_000),
        TierResponse("T0", "a", 1_500),
        TierResponse("T3", "d", 4_000),
        TierResponse("T1", "b", 1_000),
    ]
    sizes = compute_tier_sizes(served)
    assert [(size.response.tier, size.cumulative_tokens) for size in sizes] == [
        ("T0", 1_500), ("T1", 2_500), ("T2", 5_500), ("T3", 9_500),
    ]  # fmt: skip
    assert (
        [size.budget for size in sizes]
        == [2_000, 4_000, 8_000, 12_000]
        == list(TIER_BUDGETS.values())
    )
    assert not any(size.is_over_budget for size in sizes)


def test_a_tier_is_over_from_the_first_token_beyond() -> None:
    (at,) = compute_tier_sizes([TierResponse("T0", "a", 2_000)])
    (beyond,) = compute_tier_sizes([TierResponse("T0", "a", 2_001)])
    assert (at.is_over_budget, beyond.is_over_budget) == (False, True)


def test_a_large_first_tier_takes_the_room_of_later_ones() -> None:
    sizes = compute_tier_sizes(
        [
            TierResponse("T0", "a", 2_000),
            TierResponse("T1", "b", 2_001),
            TierResponse("T2", "c", 3_000),
        ]
    )
    assert [size.is_over_budget for size in sizes] == [False, True, False]


def test_what_is_saved_is_a_share_of_the_direct_cost() -> None:
    assert compute_saved_share(1_000, 50) == 0.95
    assert compute_saved_share(100, 150) == -0.5
    assert compute_saved_share(0, 0) == 0
