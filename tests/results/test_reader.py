"""Parts of a result: every character can be reached, and no expression costs more than its answer
may."""

import itertools
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.errors import InvalidArguments
from portico.rendering.token_budget import count_tokens
from portico.results import grep as reading
from portico.results.grep import (
    LONG_LINE_CHARS,
    compile_matcher,
    count_fitting_chars,
    grep_lines,
    take_page,
)

# Pages


@given(st.lists(st.text(max_size=200), max_size=20), st.integers(1, 60))
def test_pages_joined_are_the_whole(texts: list[str], tokens: int):
    read, start = "", 0
    for _ in range(10_000):
        part = take_page(texts, start, tokens, count_tokens)
        read += part.text
        if part.next_offset is None:
            break
        assert part.next_offset == start + len(part.text) > start
        start = part.next_offset
    assert read == "".join(texts)


@given(st.text(min_size=1, max_size=2_000), st.integers(1, 100))
def test_a_page_fits_and_has_something(text: str, tokens: int):
    end = count_fitting_chars(text, tokens, count_tokens)
    assert end >= 1
    assert end == 1 or count_tokens(text[:end]) <= tokens


def test_a_page_ends_with_a_line():
    text = "".join(f"line {n}\n" for n in range(1_000))
    assert take_page([text], 0, 50, count_tokens).text.endswith("\n")


def test_nothing_after_the_page_is_asked_for():
    def endless() -> Any:
        while True:
            yield "words and more words\n"

    part = take_page(endless(), 5_000, 100, count_tokens)
    assert part.next_offset == 5_000 + len(part.text)


# Grep

LOG = [f"line {n} is fine" for n in range(100)]
LOG[40] = "line 40: ERROR (disk) is full"
LOG[60] = "line 60: error again"


def grep(pattern: str, lines: list[str] | None = None, **options: Any) -> list[str]:
    return grep_lines(
        lines or LOG, compile_matcher(pattern), 0, 2_000, count_tokens, **options
    ).text.splitlines()


def test_plain_words_find_lines_with_their_numbers():
    assert grep("error") == ["41:line 40: ERROR (disk) is full", "61:line 60: error again"]


def test_case_counts_where_a_capital_is_given():
    assert grep("ERROR") == ["41:line 40: ERROR (disk) is full"]


def test_signs_of_an_expression_make_it_one():
    assert grep(r"error.*(full|empty)$") == ["41:line 40: ERROR (disk) is full"]
    assert grep(r"line [46]0:") == ["41:line 40: ERROR (disk) is full", "61:line 60: error again"]


@pytest.mark.parametrize("pattern", ["(disk", "[", "ERROR (disk", "*", "a{3,1}"])
def test_what_is_no_expression_is_plain_text(pattern: str):
    assert compile_matcher(pattern).is_plain
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
    assert line.startswith("1@50001:…xxx")
    assert "needle" in line
    assert line.endswith("yyy…")
    assert len(line) < 500


ROW_LINE = repr([{"id": n, "name": f"Person {n}", "age": 20 + n % 50} for n in range(5_000)])


def test_each_match_in_a_long_line_is_shown_as_its_own_row():
    found = grep_lines([ROW_LINE], compile_matcher("'age': 42"), 0, 100_000, count_tokens)
    rows = found.text.splitlines()
    assert (found.match_count, found.line_count, found.excerpt_count, found.next_offset) == (
        100,
        1,
        100,
        None,
    )
    assert rows[1].endswith(":…{'id': 72, 'name': 'Person 72', 'age': 42}…")
    place = int(rows[1].partition(":")[0].partition("@")[2])
    assert ROW_LINE[place - 1 :].startswith("'age': 42")


def test_an_excerpt_ends_with_whole_words_where_there_are_no_rows():
    (line,) = grep("needle", ["several words " * 100 + "needle " + "several words " * 100])
    assert re.fullmatch(r"1@1401:…(several|words) .* needle .* (several|words)…", line)


def test_what_does_not_fit_of_a_long_line_is_counted():
    found = grep_lines(["nothing", ROW_LINE], compile_matcher("'age': 42"), 0, 200, count_tokens)
    assert 0 < found.match_count < 100
    assert found.match_count + found.hidden_count == 100
    assert found.is_count_complete
    assert found.end_line == 2


@pytest.mark.parametrize(
    "pattern", ["'age': 42", r"'age': 4[2]", r"(?<='age': )42\b", "'AGE'", r"\bage': 42}, {'id': 1"]
)
def test_going_on_inside_a_line_finds_every_match_once(pattern: str):
    lines = ["before", ROW_LINE, "'age': 42 in a short line, 'age': 42", ROW_LINE.upper(), "after"]
    flags = re.IGNORECASE if pattern == pattern.lower() else 0
    wanted = [
        f"{number}@{hit.start() + 1}" if len(line) > LONG_LINE_CHARS else str(number)
        for number, line in enumerate(lines, 1)
        for hit in list(re.finditer(pattern, line, flags))[
            : None if len(line) > LONG_LINE_CHARS else 1
        ]
    ]
    assert wanted
    assert every_place(lines, pattern, 300) == wanted


def every_place(lines: list[str], pattern: str, tokens: int) -> list[str]:
    """Where matches were shown, over all pages."""
    places: list[str] = []
    start = 0
    for _ in range(10_000):
        found = grep_lines(lines, compile_matcher(pattern), start, tokens, count_tokens)
        places += [line.partition(":")[0] for line in found.text.splitlines()]
        if found.next_offset is None:
            return places
        assert found.next_offset > start
        start = found.next_offset
    raise AssertionError("it never ends")


@given(
    st.lists(
        st.lists(st.sampled_from(["ab", "aB", "İ", "b", "x" * 300, " ", "é"]), max_size=40),
        max_size=5,
    ),
    st.integers(20, 200),
    st.integers(1, 12),
)
def test_windows_and_pages_lose_no_match_and_repeat_none(
    pieces: list[list[str]], tokens: int, window: int
):
    lines = ["".join(some) for some in pieces]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_FOLD_WINDOW_CHARS", window)
        places = every_place(lines, "ab", tokens)
    assert places == [
        f"{number}@{hit.start() + 1}" if len(line) > LONG_LINE_CHARS else str(number)
        for number, line in enumerate(lines, 1)
        for hit in list(re.finditer("ab", line, re.IGNORECASE))[
            : None if len(line) > LONG_LINE_CHARS else 1
        ]
    ]


def test_when_time_is_up_inside_a_line_the_rest_can_be_had(monkeypatch: pytest.MonkeyPatch):
    ticks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) / 10)
    for pattern in ("'age': 42", r"'age': 4[2]"):
        found = grep_lines([ROW_LINE], compile_matcher(pattern), 0, 100_000, count_tokens)
        assert 0 < found.match_count < 100
        assert len(every_place([ROW_LINE], pattern, 100_000)) == 100
        cut = grep_lines([ROW_LINE], compile_matcher(pattern), 0, 100, count_tokens)
        assert not cut.is_count_complete


def test_matches_without_a_character_are_as_many_as_there_are_places():
    line = "x" * (LONG_LINE_CHARS + 1)
    assert len(every_place([line], r"$|^", 500)) == 2
    assert len(every_place([line, line], r"y*", 2_000)) == 2 * (len(line) + 1)


@given(
    st.lists(st.sampled_from(["a match", "nothing", "another match", ""]), max_size=60),
    st.integers(5, 40),
)
def test_every_match_is_reached_by_going_on(lines: list[str], tokens: int):
    numbers: list[int] = []
    start = 0
    for _ in range(1_000):
        found = grep_lines(lines, compile_matcher("match"), start, tokens, count_tokens)
        numbers += [int(line.partition(":")[0]) for line in found.text.splitlines()]
        if found.next_offset is None:
            break
        start = found.next_offset
    assert numbers == [n for n, line in enumerate(lines, 1) if "match" in line]


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
def test_an_expression_that_would_take_years_is_given_up(
    pattern: str, line: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reading, "GREP_TIMEOUT_S", 0.2)
    try:
        found = grep_lines([line], compile_matcher(pattern), 0, 100, count_tokens)
        assert found.match_count == 0
    except InvalidArguments as error:
        assert "too long" in error.message  # noqa: PT017


def test_at_the_deadline_matches_so_far_are_returned_with_a_cursor(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = iter(range(1_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) / 10)
    found = grep_lines(["a match"] * 100, compile_matcher("match"), 0, 10_000, count_tokens)
    assert 0 < found.match_count < 100
    assert found.next_offset == found.match_count * len("a match\n")


@pytest.mark.parametrize(
    "pattern", ["(?R)x(", "(a(?1)?b)", "(?:foo){e<=2}", "(?&name)", "x" * 2_000]
)
def test_what_no_grep_has_is_refused(pattern: str):
    with pytest.raises(InvalidArguments):
        compile_matcher(pattern)
