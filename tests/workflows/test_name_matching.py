"""Names fit parameters by their words: whatever their case, number or abbreviation."""

import pytest

from portico.workflows.planning.name_matching import (
    are_other_things,
    score_name,
    to_singular,
    to_words,
)
from tests.workflows.test_parameters import leaves, make_leaf

GOOD = 0.6


@pytest.mark.parametrize(
    ("word", "one"),
    [
        ("channels", "channel"),
        ("entries", "entry"),
        ("branches", "branch"),
        ("boxes", "box"),
        ("status", "status"),
        ("address", "address"),
        ("this", "this"),
        ("gas", "gas"),
    ],
)
def test_a_plural_is_read_as_its_singular(word: str, one: str):
    assert to_singular(word) == one


def test_a_name_is_read_as_its_words():
    assert to_words("openIssues_perPage") == ("open", "issue", "per", "page")


@pytest.mark.parametrize(
    ("name", "parameter", "context"),
    [
        ("issueId", "issue_id", ()),
        ("issue", "issue_id", ()),
        ("repo", "repository", ()),
        ("issue_title", "title", ("issue", "create")),
        ("channels", "channel", ()),
        ("base_id", "baseId", ()),
        ("userid", "user_id", ()),
    ],
)
def test_a_name_fits_a_parameter_that_says_the_same(
    name: str, parameter: str, context: tuple[str, ...]
):
    assert score_name(name, make_leaf({"type": "string"}, parameter), context) >= GOOD


@pytest.mark.parametrize(
    ("name", "parameter"),
    [("title", "body"), ("project_id", "issue_id"), ("id", "title"), ("", "title"), ("__", "id")],
)
def test_a_name_of_something_else_does_not_fit(name: str, parameter: str):
    assert score_name(name, make_leaf({"type": "string"}, parameter), ()) < GOOD


def test_the_same_name_fits_best_and_the_objects_around_it_count():
    (city,) = leaves(
        {"shipping": {"type": "object", "properties": {"city": {"type": "string"}}}}, "shipping"
    )
    assert score_name("city", city, ()) == 1
    assert score_name("shipping_city", city, ()) > score_name("billing_city", city, ())


def test_a_parameter_without_words_fits_no_name():
    assert score_name("title", make_leaf({"type": "string"}, "__"), ()) == 0


@pytest.mark.parametrize(
    ("name", "parameter", "other"),
    [
        ("board_id", "labelId", True),
        ("board_id", "boardId", False),
        ("board_id", "id", False),
        ("board", "labelId", False),
        ("repo_id", "repository_id", False),
    ],
)
def test_a_key_of_one_thing_is_no_key_of_another(name: str, parameter: str, other: bool):
    assert are_other_things(name, make_leaf({"type": "string"}, parameter)) is other
