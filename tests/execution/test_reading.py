"""Parts of a result: every character can be reached, and no expression costs more than its answer may."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.disclosure.tokens import count
from portico.errors import InvalidArguments
from portico.execution import reading
from portico.execution.reading import fitting, matcher, page, search

# Pages


@given(st.lists(st.text(max_size=200), max_size=20), st.integers(1, 60))
def test_pages_joined_are_the_whole(texts: list[str], tokens: int):
    read, start = "", 0
    for _ in range(10_000):
        part = page(texts, start, tokens, count)
        read += part.text
        if part.next is None:
            break
        assert part.next == start + len(part.text) > start
        start = part.next
    assert read == "".join(texts)


@given(st.text(min_size=1, max_size=2_000), st.integers(1, 100))
def test_a_page_fits_and_has_something(text: str, tokens: int):
    end = fitting(text, tokens, count)
    assert end >= 1
    assert end == 1 or count(text[:end]) <= tokens


def test_a_page_ends_with_a_line():
    text = "".join(f"line {n}\n" for n in range(1_000))
    assert page([text], 0, 50, count).text.endswith("\n")


def test_nothing_after_the_page_is_asked_for():
    def endless() -> Any:
        while True:
            yield "words and more words\n"

    part = page(endless(), 5_000, 100, count)
    assert part.next == 5_000 + len(part.text)


# Grep

LOG = [f"line {n} is fine" for n in range(100)]
LOG[40] = "line 40: ERROR (disk) is full"
LOG[60] = "line 60: error again"


def grep(pattern: str, lines: list[str] | None = None, **options: Any) -> list[str]:
    return search(lines or LOG, matcher(pattern), 0, 2_000, count, **options).text.splitlines()


def test_plain_words_find_lines_with_their_numbers():
    assert grep("error") == ["41:line 40: ERROR (disk) is full", "61:line 60: error again"]


def test_case_counts_where_a_capital_is_given():
    assert grep("ERROR") == ["41:line 40: ERROR (disk) is full"]


def test_signs_of_an_expression_make_it_one():
    assert grep(r"error.*(full|empty)$") == ["41:line 40: ERROR (disk) is full"]
    assert grep(r"line [46]0:") == ["41:line 40: ERROR (disk) is full", "61:line 60: error again"]


@pytest.mark.parametrize("pattern", ["(disk", "[", "ERROR (disk", "*", "a{3,1}"])
def test_what_is_no_expression_is_plain_text(pattern: str):
    assert matcher(pattern).plain
    assert len(grep(pattern)) == (1 if "disk" in pattern else 0)


def test_lines_around_a_match_are_shown():
    assert grep("error", context=1) == [
        "40-line 39 is fine",
        "41:line 40: ERROR (disk) is full",
        "42-line 41 is fine",
        "--",
        "60-line 59 is fine",
        "61:line 60: error again",
        "62-line 61 is fine",
    ]


def test_of_a_long_line_what_is_around_the_match_is_shown():
    (line,) = grep("needle", ["x" * 50_000 + "needle" + "y" * 50_000])
    assert "needle" in line
    assert len(line) < 500
    assert "characters)" in line


@given(st.lists(st.sampled_from(["a match", "nothing", "another match", ""]), max_size=60), st.integers(5, 40))
def test_every_match_is_reached_by_going_on(lines: list[str], tokens: int):
    numbers: list[int] = []
    start = 0
    for _ in range(1_000):
        found = search(lines, matcher("match"), start, tokens, count)
        numbers += [int(line.partition(":")[0]) for line in found.text.splitlines()]
        if found.next is None:
            break
        start = found.next
    assert numbers == [n for n, line in enumerate(lines, 1) if "match" in line]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(a+)+$", "a" * 5_000 + "b"),
        (r"(a|aa)+$", "a" * 5_000 + "b"),
        (r"(x+x+)+y", "x" * 5_000),
        (r"(.*)*,(.*)*;", "a" * 20_000),
        (r"(?:a?){500}a{500}b", "a" * 500),
    ],
)
def test_an_expression_that_would_take_years_is_given_up(pattern: str, line: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "GREP_S", 0.2)
    try:
        found = search([line], matcher(pattern), 0, 100, count)
        assert found.matches == 0
    except InvalidArguments as error:
        assert "too long" in error.message  # noqa: PT017


def test_when_time_is_up_what_was_found_is_told_and_the_rest_can_be_had(monkeypatch: pytest.MonkeyPatch):
    clock = iter(range(1_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 10)
    found = search(["a match"] * 100, matcher("match"), 0, 10_000, count)
    assert 0 < found.matches < 100
    assert found.next == found.matches


@pytest.mark.parametrize("pattern", ["(?R)x(", "(a(?1)?b)", "(?:foo){e<=2}", "(?&name)", "x" * 2_000])
def test_what_no_grep_has_is_refused(pattern: str):
    with pytest.raises(InvalidArguments):
        matcher(pattern)
