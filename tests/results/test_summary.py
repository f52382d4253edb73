"""Headers of large results: under 500 tokens whatever comes, and worth reading."""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.json_text.part_stream import to_parts
from portico.rendering.token_budget import count_tokens, load_exact_counter
from portico.results.shape import ValueSampler
from portico.results.summary import (
    SUMMARY_TOKENS,
    ResultAccess,
    ResultFacts,
    collect_text_facts,
    find_matching_lines,
    render_summary,
)
from tests.results.json_values import VALUES, issues, nested

WAY = ResultAccess("jePHEzpX68W__NLnizrx1g", "portico://result/jePHEzpX68W__NLnizrx1g", 60)


@pytest.fixture(scope="module")
def exact() -> Callable[[str], int]:
    """The real tokenizer, where its table is at hand."""
    shared = Path(os.environ.get("PORTICO_SHARED") or Path(__file__).parents[2].parent / "shared")
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(shared / "tokenizer"))
    counter = load_exact_counter()
    if before is None:
        del os.environ["TIKTOKEN_CACHE_DIR"]
    if counter is None:
        pytest.skip("the o200k_base table is not at hand")
    return counter.count


def json_facts(value: Any, tool: str = "github.list_issues") -> ResultFacts:
    sampler = ValueSampler()
    for _ in sampler.watch(to_parts(value)):
        pass
    return ResultFacts(tool, "json", 10_000_000, 2_500_000, sampler.value)


def text_header(text: str, intent: str = "") -> str:
    lines, head, tail, matches = collect_text_facts(text, intent)
    return render_summary(
        ResultFacts("logs.read", "text", len(text), 100, None, lines, head, tail, matches),
        WAY,
        count_tokens,
    )


def test_a_uniform_list_is_rendered_as_columns_and_first_rows():
    rendered = render_summary(
        json_facts({"data": {"items": issues(5_321)}, "next": None}), WAY, count_tokens
    )
    assert "10.0 MB of JSON, about 2.5 million tokens" in rendered
    assert "items: [5,321 × {id: integer, title: string" in rendered
    assert "data.items has 5,321 rows. Columns: id | title | state | labels | body" in rendered
    assert "\n1 | Issue number 1 | open | [1] | xxxxxxxxxxxxxxxxxxxx\n" in rendered
    assert (
        'read_result(result_id="jePHEzpX68W__NLnizrx1g") with path="data.items[0:20].[id, title]"'
        in rendered
    )
    assert rendered.endswith("portico://result/jePHEzpX68W__NLnizrx1g")


def test_text_is_summarised_by_head_tail_and_lines_that_fit_the_intent():
    text = (
        "".join(f"line {n} all is well\n" for n in range(5_000))
        + "disk failure on sda\n"
        + "quiet\n" * 400
        + "the end\n"
    )
    rendered = text_header(text, "find the disk failures")
    assert "in 5,402 lines" in rendered
    assert "Begins: line 0 all is well line 1 all is well" in rendered
    assert rendered.count("Ends: quiet") == 1
    assert "the end\n" in rendered
    assert "Matches: disk failure on sda" in rendered


def test_matches_are_the_lines_with_most_words_of_the_intent():
    text = "a disk\nnothing\na full disk here\nfull of it\na Full Disk again\na disk\n"
    assert find_matching_lines(text, "which disk is full?") == (
        "a disk",
        "a full disk here",
        "a Full Disk again",
    )
    assert find_matching_lines(text, "the") == ()
    assert find_matching_lines(text, "absent") == ()


def test_the_one_field_that_a_text_came_in_is_named():
    rendered = render_summary(
        replace(json_facts({"orders": issues(50)}), member="content"), WAY, count_tokens
    )
    assert (
        "\nIt is the text of content, the only field of the answer.\nShape: {orders: [50 ×"
        in rendered
    )


def test_an_error_and_what_could_not_be_kept_are_said():
    rendered = render_summary(
        ResultFacts("a.b", "text", 90_000, 22_513, None, 9, is_error=True), None, count_tokens
    )
    assert rendered.startswith(
        "a.b answered (it says this is an error) with 90 KB of text in 9 lines, about 23,000 tokens"
    )
    assert rendered.endswith("Ask the tool for less: a filter, a limit, a page.")


def test_without_read_result_the_resource_is_named():
    rendered = render_summary(
        json_facts(issues(50)),
        ResultAccess("x", "portico://result/x", 60, has_read_result=False),
        count_tokens,
    )
    assert "read_result" not in rendered
    assert rendered.endswith("The whole is the resource portico://result/x.")


@given(VALUES, st.text(max_size=300))
def test_no_value_makes_a_header_too_long(exact: Callable[[str], int], value: Any, tool: str):
    for some in (value, [value] * 50, [{"a": value, "b": tool}] * 30):
        assert exact(render_summary(json_facts(some, tool), WAY, count_tokens)) <= SUMMARY_TOKENS


@given(st.text(max_size=3_000), st.text(max_size=60))
def test_no_text_makes_a_header_too_long(exact: Callable[[str], int], text: str, intent: str):
    assert exact(text_header(text, intent)) <= SUMMARY_TOKENS


ALPHABETS = {
    "punctuation": "!#$%&()*+,-./:;<=>?@[]^_`{|}~'\"\\",
    "base64": "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    "hex": "0123456789abcdef",
    "capitals": "QXZJKVWHBGYPF",
    "accents": "".join(map(chr, range(0x100, 0x250))),
    "combining": "".join(map(chr, range(0x300, 0x34F))),
    "cyrillic": "".join(map(chr, range(0x400, 0x52F))),
    "armenian to thai": "".join(map(chr, range(0x531, 0xE5B))),
    "ethiopic": "".join(map(chr, range(0x1200, 0x137C))),
    "symbols": "".join(map(chr, range(0x2100, 0x2BFF))),
    "chinese": "".join(map(chr, range(0x4E00, 0x9FFF))),
    "rare chinese": "".join(map(chr, range(0x3400, 0x4DBF))),
    "korean": "".join(map(chr, range(0xAC00, 0xD7A3))),
    "emoji": "".join(map(chr, range(0x1F300, 0x1FAFF))),
    "hieroglyphs": "".join(map(chr, range(0x13000, 0x1342F))),
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_no_alphabet_makes_a_header_too_long(exact: Callable[[str], int], alphabet: str):
    chance = random.Random(7)

    def word(length: int) -> str:
        return "".join(chance.choices(ALPHABETS[alphabet], k=length))

    for _ in range(30):
        rows = [
            {word(chance.randint(1, 30)): word(chance.randint(0, 60)) for _ in range(12)}
            for _ in range(3)
        ]
        same = [{name: word(20) for name in rows[0]} for _ in range(40)]
        for value in (
            rows,
            same,
            {"x": {word(9): same}},
            [word(40)] * 100,
            {word(8): word(30) for _ in range(40)},
        ):
            facts = json_facts(value, f"s.{word(120)}")
            for one in (facts, replace(facts, member=word(120))):
                assert exact(render_summary(one, WAY, count_tokens)) <= SUMMARY_TOKENS
        text = "\n".join(word(chance.randint(1, 200)) for _ in range(30))
        assert exact(text_header(text, text[:30])) <= SUMMARY_TOKENS


def test_what_is_deep_or_wide_makes_no_header_too_long(exact: Callable[[str], int]):
    wide = [{f"a_rather_long_column_name_{n}": "words of a cell " * 20 for n in range(300)}] * 50
    for value in (
        nested(22),
        nested(400),
        wide,
        {"rows": wide},
        {"k" * 5_000: wide},
        [[issues(30)] * 5] * 5,
    ):
        assert exact(render_summary(json_facts(value), WAY, count_tokens)) <= SUMMARY_TOKENS
