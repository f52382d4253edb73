"""Misspelt copies: like a typist's, and the same every time."""

import random

import pytest
from training.noise import misspelt

TEXT = "please restart the broken payment service before noon"


def test_the_same_seed_misspells_the_same_way() -> None:
    first, second = ([misspelt(TEXT, random.Random(3)) for _ in range(5)] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("seed", range(50))
def test_words_stay_in_place_and_each_slips_at_most_once(seed: int) -> None:
    before, after = TEXT.split(), misspelt(TEXT, random.Random(seed)).split()
    assert len(before) == len(after)
    changed = [(was, now) for was, now in zip(before, after, strict=True) if was != now]
    assert all(abs(len(was) - len(now)) <= 1 for was, now in changed)
    assert all(was[0] == now[0] and len(was) >= 4 for was, now in changed)


def test_a_text_of_one_long_word_is_misspelt_unless_the_slip_swaps_twins() -> None:
    slips = [misspelt("deploy", random.Random(seed)) for seed in range(200)]
    assert all(slip != "deploy" for slip in slips)
    assert len(set(slips)) > 10


@pytest.mark.parametrize("text", ["", "a to do", "配置文件管理工具", "v1.2.3 /var/log"])
def test_a_text_without_long_english_words_stays_as_it_is(text: str) -> None:
    assert misspelt(text, random.Random(1)) == text
