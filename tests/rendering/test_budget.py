"""Packing what fits, and cutting what does not."""

from hypothesis import given
from hypothesis import strategies as st

from portico.rendering.token_budget import count_tokens, find_part_end, pack, truncate


def test_texts_are_packed_in_order_until_the_budget_is_spent():
    packed = pack(["one", "two", "three"], 4, measure=lambda text: 1)
    assert packed.texts == ("one", "two")
    assert packed.is_full


def test_everything_is_packed_where_there_is_room():
    packed = pack(["one", "two"], 100)
    assert packed.texts == ("one", "two")
    assert not packed.is_full


def test_the_first_text_is_kept_whatever_it_costs():
    assert pack(["word " * 1_000, "two"], -5).texts == ("word " * 1_000,)


def test_nothing_is_made_that_does_not_fit():
    made: list[int] = []

    def texts():
        for number in range(100):
            made.append(number)
            yield "word"

    pack(texts(), 10)
    assert len(made) < 10


def test_nothing_packs_to_nothing():
    assert pack([], 10).texts == ()


@given(st.lists(st.text(max_size=200), max_size=20), st.integers(0, 300))
def test_a_pack_of_more_than_one_is_within_its_budget(texts: list[str], budget: int):
    packed = pack(texts, budget)
    assert list(packed.texts) == texts[: len(packed.texts)]
    assert packed.is_full == (len(packed.texts) < len(texts))
    if len(packed.texts) > 1:
        assert sum(count_tokens(text) + 1 for text in packed.texts) <= budget


def test_text_that_fits_is_not_cut():
    assert truncate("Says it again.", 20) == "Says it again."


def test_text_is_cut_at_a_word_and_says_so():
    whole = "some words that come one after the other " * 50
    text = truncate(whole, 20)
    assert text.endswith(" …")
    assert whole.startswith(text.removesuffix("…"))


@given(st.text(max_size=3_000), st.integers(2, 60))
def test_no_text_is_longer_than_it_was_cut_to(text: str, tokens: int):
    assert count_tokens(truncate(text, tokens)) <= max(tokens, 3)


def test_scripts_without_spaces_are_cut_by_tokens_and_not_by_characters():
    assert count_tokens(truncate("将一个高德经纬度坐标转换为行政区划地址信息" * 50, 30)) <= 30


def test_a_megabyte_is_cut_at_once():
    assert count_tokens(truncate("x" * 1_000_000, 30)) <= 30


@given(st.lists(st.text(max_size=200), max_size=20), st.integers(1, 60))
def test_parts_end_after_lines_where_they_can_and_join_to_the_text(lines: list[str], tokens: int):
    text, start, parts = "\n".join(lines), 0, list[str]()
    while start < len(text):
        end = find_part_end(text, start, tokens)
        assert end > start
        parts.append(text[start:end])
        start = end
    assert "".join(parts) == text
    end = 0
    for one in parts[:-1]:
        end += len(one)
        assert count_tokens(one) <= tokens + one.count("\n") / 2 + 1 or len(one) == 1
        if not one.endswith("\n"):  # a line may be cut more than once
            cut_line = text[:end].rsplit("\n", 1)[-1] + text[end:].split("\n", 1)[0]
            assert count_tokens(cut_line) >= tokens or not cut_line.isascii()


def test_a_line_of_megabytes_is_parted_without_counting_it_all():
    assert 100 < find_part_end("x1 " * 2_000_000, 0, 100) < 800
