"""JMESPath over a stream: the same as over the value, and never more than an answer may cost."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from portico.errors import InvalidArguments
from portico.json_text import chunked_decoder
from portico.json_text.part_stream import JsonPart, decode_parts, encode_lines, to_parts
from portico.rendering.token_budget import count_tokens
from portico.results import path_selection
from portico.results.grep import take_page
from portico.results.path_selection import is_field_path, select_path
from tests.results.json_values import VALUES, issues, nested

VALUE = {"items": issues(50), "total": 50}


def select(value: Any, path: str) -> Any:
    return select_path(to_parts(value), path).value


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("total", 50),
        ("items[3].title", "Issue number 3"),
        ("items[10:12].id", [10, 11]),
        ("items[?id > `47`].{n: id}", [{"n": 48}, {"n": 49}]),
        ("length(items)", 50),
        ("keys(@)", ["items", "total"]),
        ("nothing.here", None),
        ("items[-1].id", 49),
        ("sort_by(items, &id)[0].id", 0),
        ("items[*].id | [0]", 0),
    ],
)
def test_a_path_selects(path: str, found: Any):
    assert select(VALUE, path) == found


@pytest.mark.parametrize(
    "path",
    [
        "items[",
        "items..x",
        "!",
        "length(total)",
        "nope(@)",
        "to_number(@, @)",
        "items[::0]",
        "a" * 5_000,
        "sort(items)",
    ],
)
def test_a_path_that_cannot_be_used_is_explained(path: str):
    with pytest.raises(InvalidArguments) as caught:
        select(VALUE, path)
    assert caught.value.advice


@pytest.mark.parametrize(
    "path",
    [
        "|".join(["[@,@][]"] * 60),
        "items[*].title | " + "|".join(["[@,@][]"] * 60),
        "items[0].title | " + "|".join(["join('', [@,@])"] * 60),
        "items | " + "|".join(["[*].[@,@,@][]"] * 60),
    ],
)
def test_a_path_that_would_never_end_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(path_selection, "PATH_TIMEOUT_S", 1.0)
    with pytest.raises(InvalidArguments):
        select(VALUE, path)


@pytest.mark.parametrize(
    "path", ["!" * 990 + "@", "(" * 490 + "@" + ")" * 490, "[" * 490 + "@" + "]" * 490]
)
def test_a_path_of_any_depth_is_answered_or_refused(path: str):
    try:
        select(VALUE, path)
    except InvalidArguments as error:
        assert error.advice  # noqa: PT017


def test_a_path_that_doubles_references_can_be_read_page_by_page():
    found = select(VALUE, "|".join(["[@,@]"] * 40))
    assert take_page(encode_lines(to_parts(found)), 0, 100, count_tokens).text.startswith("[\n")


LARGE = {
    "total": 50,
    "data": {
        "items": issues(50, body=700),
        "more": [[1, [2]], [3], 4, None],
        "by": {"a": issues(3), "b": issues(4)},
    },
    "nothing": None,
    "deep": nested(22, issues(9, body=900)),
}
PATHS = [
    "@", "total", "data", "data.items", "data.items[3]", "data.items[3].title", "data.items[99]",
        "data.items[-1].id",
    "data.items[0]", "[0]", "data[0]", "total.x", "nothing.x", "nothing[*]", "missing.a.b",
        "missing[*].a",
    "data.items[*].id", "data.items[*]", "data.items[5:9].id", "data.items[5:]",
        "data.items[:3].[id, title]",
    "data.items[::7].id", "data.items[-3:].id", "data.items[9:2:-2].id",
        "data.items[?id > `45`].{n: id, l: labels}",
    "data.items[?labels].labels[]", "data.items[*].labels[0]", "data.items[*].labels[*]",
        "data.items[].labels[]",
    "data.more[]", "data.more[*]", "data.more[][]", "data.*", "data.by.*[].id", "*.items",
    "data.items[*].id | [3]", "data.items | [0].id", "length(data.items)",
        "data.items[0:2] | length(@)", "data.total",
    "max_by(data.items, &id).id", "data.items[?id == `7`] | [0].title", "[data.items[0].id, total]",
        "{t: total}",
    "data.items[*].id || total", "nothing || total", "!nothing", "data.items[0].missing", "data[*]",
        "[*]", "[?x]", "*",
    "deep.deeper", "deep.deeper[0].deeper", "total[*]", "data.items[2:2]", "@.data.items[1].id",
        "data.items[1][0]",
    "data.more[0][1][0]", "data.more[0][1:]", "data.more[0][0:1].x", "data.items[*].labels[1:][]",
        "[0][1:]",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("window", [50, 256 * 1024])
def test_over_a_stream_it_selects_what_it_selects_from_the_value(
    path: str, window: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(chunked_decoder, "WINDOW_CHARS", window)
    for value in (
        LARGE,
        {"data": {"items": issues(2)}, "total": 1},
        issues(40, body=100),
        [],
        {},
        5,
        None,
    ):
        try:
            expected = jmespath.search(path, value)
        except JMESPathError:
            with pytest.raises(InvalidArguments):
                select(value, path)
            continue
        assert select(value, path) == expected
        assert select_path(decode_parts(json.dumps(value)), path).value == expected


@given(
    VALUES,
    st.sampled_from(["[*]", "*", "[0]", "[1:]", "[?@]", "a", "[]", "[*][*]", "*[]", "[0][0]", "@"]),
)
def test_over_any_value_it_selects_the_same(value: Any, path: str):
    for some in (value, [value] * 3, {"a": value}, [[value, "x" * 700]]):
        assert select(some, path) == jmespath.search(path, some)


STEPS = st.sampled_from(
    ["@", "a", "[0]", "[-1]", "[*]", "[]", "*", "[::2]", "[::-1]", "[1:]", "[?@]", "[?a == b]",
        "[?@ != `1`]", "[@, @]",
     "[a, `[1]`]", "{a: @, b: a}", "keys(@)", "values(@)", "reverse(@)", "sort(@)",
         "sort_by(@, &a)", "sort_by(@, &@)",
     "max(@)", "min(@)", "max_by(@, &@)", "sum(@)", "avg(@)", "to_string(@)", "to_number(@)",
     "to_array(@)", "join('-', @)",
     "map(&a, @)", "map(&[@], @)", "merge(@, @)", "merge(@, {a: `1`})", "contains(@, `1`)",
     "contains(@, 'a')", "length(@)",
     "contains([@], @)", "@ == @", "[@, @] | [0] == [1]", "[[@], [@]] | [0] == [1]", "[0] == [1]",
     "[0] != [1]", "[0] < [1]",
     "not_null(a, @)", "type(@)", "!@", "a || @", "a && @", "to_array(@)[]", "@ == `true`",
         "@ == `1`"]
)  # fmt: skip


@given(VALUES, st.lists(STEPS, min_size=1, max_size=4))
def test_any_steps_over_any_value_select_what_jmespath_selects(value: Any, steps: list[str]):
    path = " | ".join(steps)
    for some in (
        value,
        [value, value],
        {"a": value, "b": [value]},
        [3, 1, 2],
        ["b", "", "aa"],
        [1, True, 1.0, "1"],
    ):
        try:
            expected = jmespath.search(path, some)
        except (JMESPathError, TypeError, OverflowError):
            with pytest.raises(InvalidArguments):
                select(some, path)
            continue
        found = select(some, path)
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("size", [4_095, 4_096, 10_000])
def test_functions_over_many_items_are_those_of_jmespath(size: int):
    numbers = [(n * 7_919) % 1_009 for n in range(size)]
    texts = [f"{n:05}" * (1 + n % 40) for n in numbers]
    for items in (numbers, texts, [n / 7 for n in numbers]):
        rows = [{"n": item, "at": at} for at, item in enumerate(items)]
        for path in (
            "sort(@)",
            "reverse(@)",
            "max(@)",
            "min(@)",
            "[::-3]",
            "[@, @][]",
            "to_string(@)",
        ):
            assert select(items, path) == jmespath.search(path, items)
        for path in ("sort_by(@, &n)[*].at", "[*].{n: n}", "map(&n, @)"):
            assert select(rows, path) == jmespath.search(path, rows)
    assert select(texts, "join('+', @)") == "+".join(texts)
    assert select(numbers, "sum(@)") == sum(numbers)
    assert select(texts, "contains(join('', @), '00100')") is ("00100" in "".join(texts))
    assert select(dict.fromkeys(texts, 1), "keys(@)") == list(dict.fromkeys(texts))


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        f"{'|'.join(['[@,@][]'] * 18)}|[*].{{a: @, b: @, c: @, d: @}}",
        f"{'|'.join(['[@,@][]'] * 20)}|[*].[@, @, @]",
        f"{'|'.join(['[@,@][]'] * 17)}|join('', map(&to_string(@), @))",
    ],
)
def test_what_steps_make_is_counted_with_what_it_is_made_of(
    path: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(path_selection, "PATH_TIMEOUT_S", 10_000.0)
    with pytest.raises(InvalidArguments, match="yields too much"):
        select({"text": "x" * 90}, path)


def test_an_error_names_the_types_and_not_the_value():
    with pytest.raises(InvalidArguments, match=r"abs\(\) takes number, not array") as caught:
        select(VALUE, "abs(items)")
    assert "Issue" not in str(caught.value)


def test_the_first_of_many_are_had_without_reading_the_rest():
    read = 0

    def counted() -> Any:
        nonlocal read
        part: JsonPart
        for part in decode_parts(json.dumps({"items": issues(100_000)})):
            read += 1
            yield part

    assert select_path(counted(), "items[2:4].id").value == [2, 3]
    assert read < 20


def test_closing_takes_apart_what_was_built_and_nothing_else():
    text = json.dumps({"items": issues(50)})
    for path in ("items", "items[*]", "`[1, 2]`", "[items, `{}`]", "[`[[1]]`][]"):
        first = select_path(decode_parts(text), path)
        rendered = json.dumps(first.value)
        first.close()
        again = select_path(decode_parts(text), path)
        assert json.dumps(again.value) == rendered
        again.close()


# The text of a field


@pytest.mark.parametrize(
    "path",
    ["content.total", "content.items[3].title", "content.items[10:12].id",
        "content.items[?id > `47`].{n: id}",
     '"content".items[*].id | [0]', "content | length(items)", "content.items[].labels[]",
         "content.*", "content",
     "content.nothing.here", "content.items[-1].id"],
)  # fmt: skip
def test_a_path_below_a_field_selects_what_it_would_select_from_the_whole(path: str):
    assert select_path(to_parts(VALUE), path, member="content").value == jmespath.search(
        path, {"content": VALUE}
    )


@pytest.mark.parametrize(
    "path", ["total", "items.content", "[0]", "@", "keys(@)", "other.content", "[content]"]
)
def test_a_path_that_does_not_begin_with_the_field_finds_nothing_below_it(path: str):
    assert select_path(to_parts(VALUE), path, member="content").value is None


def test_a_field_is_named_bare_or_quoted():
    assert all(is_field_path(path, "näme") for path in ("näme", " näme ", '"näme"', '"n\\u00e4me"'))
    assert not any(
        is_field_path(path, "näme") for path in ("näme.x", "", '"näme', "[" * 5_000, "name")
    )
