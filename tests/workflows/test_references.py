"""References: what stands in a text, what it finds, and how it is read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.workflows.references import (
    BadReference,
    TextTemplate,
    iter_references,
    parse_condition,
    parse_expression,
    parse_value,
    resolve_references,
)

SCOPE = {
    "fetch": {
        "items": [{"name": "a", "n": 1}, {"name": "b", "n": 2}],
        "total": 2,
        "odd key": {"}": "brace"},
    },
    "my-step": {"x": 5},
    "text": "plain",
    "inputs": {"who": "me"},
}


def value_of(written: Any) -> Any:
    return resolve_references(parse_value(written), SCOPE)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${fetch.total}", 2),
        ("${fetch.items[0]}", {"name": "a", "n": 1}),
        ("${fetch.items[-1].name}", "b"),
        ("${fetch.items[*].name}", ["a", "b"]),
        ("${ fetch.items[?n==`2`].name | [0] }", "b"),
        ("${fetch.items[?n > 1] | [0].name}", "b"),
        ("${fetch.items[?name=='}'] | length(@)}", 0),
        ('${fetch."odd key"."}"}', "brace"),
        ("${fetch.items[0].{called: name, twice: [n, n]}}", {"called": "a", "twice": [1, 1]}),
        ('${`{"}": 1}`}', {"}": 1}),
        ("${length(fetch.items)}", 2),
        ("${my-step.x}", 5),
        ("${text}", "plain"),
        ("${inputs.who}", "me"),
        ("${inputs.other || 'nobody'}", "nobody"),
        ("${fetch.nothing}", None),
        ("${fetch.items.name}", None),
        ("${text.x}", None),
    ],
)
def test_a_text_that_is_one_reference_becomes_the_value_with_its_type(written: str, value: Any):
    assert value_of(written) == value


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("Hello ${inputs.who}!", "Hello me!"),
        ("${fetch.total} of ${fetch.total}", "2 of 2"),
        ("first: ${fetch.items[0]}", 'first: {"name":"a","n":1}'),
        ("${fetch.nothing}.", "null."),
        ("a $${x} b", "a ${x} b"),
        ("$${", "${"),
        ("$${${inputs.who}}", "${me}"),
        ("costs $5, {braces}, $ {x}", "costs $5, {braces}, $ {x}"),
    ],
)
def test_in_a_longer_text_values_are_written_out_and_an_escaped_reference_stays(
    written: str, value: str
):
    assert value_of(written) == value


def test_references_are_filled_wherever_they_are_in_objects_and_lists():
    tree = parse_value(
        {"a": ["${fetch.total}", {"b": "${inputs.who}"}], "${x": 1, "n": None, "t": True}
    )
    assert resolve_references(tree, SCOPE) == {
        "a": [2, {"b": "me"}],
        "${x": 1,
        "n": None,
        "t": True,
    }
    assert [reference.text for reference in iter_references(tree)] == ["fetch.total", "inputs.who"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("${", "not closed"),
        ("x ${fetch.items[0", "not closed"),
        ("${fetch.'}", "not closed"),
        ("${}", "empty"),
        ("${ }", "empty"),
        ("${fetch..x}", "not JMESPath"),
        ("${fetch.items[?]}", "not JMESPath"),
        ("${@}", "begins with"),
        ("${[0]}", "begins with"),
        ("${!fetch.x}", "!\\(a.b\\)"),
        (f"${{{'a' * 2_000}}}", "more than"),
    ],
)
def test_what_cannot_be_read_says_why(written: str, said: str):
    with pytest.raises(BadReference, match=said):
        parse_value(written)


def test_what_cannot_be_read_says_where_it_is():
    with pytest.raises(BadReference, match=r"^filter\.names\[1\]: "):
        parse_value({"filter": {"names": ["a", "${}"]}})


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("a.b.c", {"a"}),
        ("a.items[?b == c].d", {"a"}),
        ("[a.x, length(b.y)]", {"a", "b"}),
        ("sort_by(a.items, &b)", {"a"}),
        ("{x: a, y: b.c}", {"a", "b"}),
        ("a | b", {"a"}),
        ("a.x > b.y && !(c)", {"a", "b", "c"}),
        ("join('/', [inputs.base, a-b.path])", {"inputs", "a-b"}),
    ],
)
def test_an_expression_needs_the_names_it_begins_with_and_no_others(path: str, names: set[str]):
    assert parse_expression(path).names == names


def test_what_has_an_alternative_is_not_needed():
    assert parse_expression("a.x || b.x").needs == (frozenset({"a", "b"}),)
    assert parse_expression("a.x || 'none'").needs == ()
    assert set(parse_expression("[a.x, b.x]").needs) == {frozenset({"a"}), frozenset({"b"})}
    assert parse_expression("[inputs.x, inputs.y || 'z']").inputs == {"x"}


@pytest.mark.parametrize(
    "written", ["fetch.total > 1", "fetch.total > `1`", "${fetch.total >= 2}", "fetch.total == 2"]
)
def test_a_condition_is_an_expression_with_or_without_its_braces(written: str):
    assert parse_condition(written).resolve(SCOPE) is True


def test_a_condition_is_one_expression():
    with pytest.raises(BadReference, match="one expression"):
        parse_condition("${fetch.total} > 1")


@given(st.text())
def test_any_text_without_a_reference_is_itself_and_any_text_at_all_is_read_or_refused(text: str):
    try:
        found = parse_value(text)
    except BadReference:
        assert "${" in text
        return
    if "${" not in text:
        assert found == text


@given(st.text())
def test_an_escaped_text_comes_back_as_it_was(text: str):
    escaped = text.replace("${", "$${")
    found = parse_value(escaped)
    assert not isinstance(found, TextTemplate)
    assert found == text
