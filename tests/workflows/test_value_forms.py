"""The form of a value speaks for a parameter or against it, and decides how it is written."""

from typing import Any

import pytest

from portico.catalog.tool import make_tool
from portico.workflows.planning.parameters import Leaf, list_leaves
from portico.workflows.planning.said_values import SaidValue, ValueKind
from portico.workflows.planning.value_forms import convert_counted, convert_value, score_form
from portico.workflows.planning.values import NOTHING, Each


def make_leaf(name: str, schema: dict[str, Any], description: str = "") -> Leaf:
    definition = {
        "name": "t",
        "description": description,
        "inputSchema": {"type": "object", "properties": {name: schema}},
    }
    return list_leaves(make_tool("s", definition))[0]


def say(kind: ValueKind, text: str, *items: str) -> SaidValue:
    return SaidValue(kind, text, 0, 0, items)


def text_leaf(name: str, description: str = "") -> Leaf:
    return make_leaf(name, {"type": "string", "description": description})


def number_leaf(name: str) -> Leaf:
    return make_leaf(name, {"type": "integer"})


ARN = say(ValueKind.ARN, "arn:aws:sns:eu-west-1:4820:alerts")


def test_an_address_is_for_the_parameter_that_is_named_so():
    assert score_form(ARN, text_leaf("topic_arn")) > 0 > score_form(ARN, text_leaf("title"))
    assert score_form(say(ValueKind.NAME, "alerts-1"), text_leaf("topic_arn")) < 0
    link = say(ValueKind.URL, "https://acme.io")
    assert score_form(link, text_leaf("target", "URL of the page")) > 0


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string", "format": "date"}, "2026-11-25"),
        ({"type": "string", "description": "A day, YYYY-MM-DD"}, "2026-11-25"),
        ({"type": "string", "format": "date-time"}, "2026-11-25T08:00:00Z"),
        ({"type": "string", "description": "Start time in ISO 8601"}, "2026-11-25T08:00:00Z"),
    ],
)
def test_a_time_of_day_is_written_where_it_is_taken(schema: dict[str, Any], written: str):
    value = say(ValueKind.DATE, "2026-11-25T08:00:00Z")
    assert convert_value(value, make_leaf("when", schema)) == written


def test_a_day_becomes_a_time_where_one_is_needed():
    leaf = make_leaf("when", {"type": "string", "format": "date-time"})
    assert convert_value(say(ValueKind.DATE, "2026-11-25"), leaf) == "2026-11-25T00:00:00Z"


@pytest.mark.parametrize(
    ("leaf", "written"),
    [
        (make_leaf("expire_seconds", {"type": "integer"}), 7200),
        (make_leaf("wait", {"type": "integer", "description": "In minutes"}), 120),
        (make_leaf("ttl", {"type": "integer"}, "Touch.\n\nArgs:\n    ttl: Time in seconds"), 7200),
        (make_leaf("days", {"type": "integer"}), NOTHING),
        (make_leaf("count", {"type": "integer"}), 2),
        (text_leaf("timeframe", 'Like "12h" or "7d"'), "2h"),
        (text_leaf("title"), NOTHING),
    ],
)
def test_a_duration_is_counted_in_the_unit_of_the_parameter(leaf: Leaf, written: object):
    assert convert_value(say(ValueKind.DURATION, "2h"), leaf) == written


def test_a_list_is_one_value_or_a_step_for_each():
    both = say(ValueKind.NAME, "A-1 and B-2", "A-1", "B-2")
    many = make_leaf("ids", {"type": "array", "items": {"type": "string"}})
    assert convert_value(both, many) == ["A-1", "B-2"]
    assert convert_value(both, text_leaf("id")) == Each(["A-1", "B-2"])
    assert score_form(both, many) > score_form(both, text_leaf("id"))


@pytest.mark.parametrize(
    ("name", "value", "parameter", "wanted"),
    [
        ("retention_days", 90, "retention_seconds", 7_776_000),
        ("wait_minutes", "10", "timeout_seconds", 600),
        ("hours_back", 6, "period_hours", 6),
    ],
)
def test_the_number_of_an_input_is_converted_to_the_unit_of_its_parameter(
    name: str, value: object, parameter: str, wanted: int
):
    assert convert_counted(name, value, number_leaf(parameter)) == wanted


@pytest.mark.parametrize(
    ("name", "value"), [("count", 3), ("days", True), ("days", "ten"), ("days_per_hour", 2)]
)
def test_an_input_without_one_unit_and_a_whole_number_is_not_converted(name: str, value: object):
    assert convert_counted(name, value, number_leaf("timeout_seconds")) is NOTHING
