"""Counting tokens: the estimate behaves, and the exact counter is never bought with a download."""

import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.rendering.token_budget import (
    ESTIMATE_COUNTER,
    count_tokens,
    get_best_counter,
    load_exact_counter,
)


def test_nothing_costs_nothing_and_something_costs_something():
    assert count_tokens("") == 0
    assert count_tokens(" ") == count_tokens("a") == count_tokens("\u200b") == 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Create a new issue in a repository.", 8),
        ('{"type":"object","properties":{"owner":{"type":"string"}},"required":["owner"]}', 20),
        ("2025-01-31T12:00:00Z", 13),
        ("创建一个新的问题并返回它的编号", 9),
        ("def count(text: str) -> int:\n    return len(text)\n", 16),
    ],
)
def test_common_texts_cost_about_what_o200k_base_says(text: str, tokens: int):
    """The figures are o200k_base's; a short text may be off by two tokens or a quarter."""
    assert abs(count_tokens(text) - tokens) <= max(2, tokens // 4)


def test_a_run_without_spaces_is_not_taken_for_a_word():
    assert (
        count_tokens(
            "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVoxMjM0NTY3ODkwYWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo"
            * 10
        )
        > 300
    )


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_more_text_never_costs_much_less(first: str, second: str):
    assert count_tokens(first + second) >= max(count_tokens(first), count_tokens(second)) - 2


@settings(deadline=None)
@given(st.text())
def test_any_text_has_a_cost_between_one_token_and_three_a_character(text: str):
    assert (1 if text else 0) <= count_tokens(text) <= 1 + 3 * len(text)


def test_the_estimate_says_that_it_is_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    assert load_exact_counter() is None
    assert get_best_counter() is ESTIMATE_COUNTER
    assert ESTIMATE_COUNTER.name == "estimate"


@pytest.mark.parametrize("content", [None, b"not the table"])
def test_without_the_table_at_hand_nothing_is_downloaded(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    table = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    if content is not None:
        table.write_bytes(content)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert load_exact_counter() is None
    assert content is None or table.read_bytes() == content
