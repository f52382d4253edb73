"""Suggestions for a wrong name, and none without rapidfuzz."""

import sys

import pytest

from portico.search import Index
from tests.search.catalog import CATALOG


def test_a_wrong_name_gets_the_nearest_names():
    assert Index.build(CATALOG).find_nearest_names("github.create_isue")[0] == "github.create_issue"


def test_without_the_library_that_compares_spellings_nothing_is_guessed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    assert Index.build(CATALOG).find_nearest_names("github.create_isue") == []
