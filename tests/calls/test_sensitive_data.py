"""What is personal or secret in a text is found by its shape, and nothing else is."""

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.calls.sensitive_data import (
    FINDERS,
    OVERLAP_CHARS,
    WINDOW_CHARS,
    is_iban_valid,
    mask_text,
    mask_value,
)
from portico.config.rules import MaskKind

ALL: tuple[MaskKind, ...] = tuple(dict.fromkeys(kind for kind, _ in FINDERS))
FOUND = {
    "ana@example.org": "[email]",
    "Ana <ana.b+c@mail.example.co.uk>, bob": "Ana <[email]>, bob",
    "mailto:ana%40example.org": "mailto:[email]",
    "jürgen@bücher.example": "[email]",
    "4111 1111 1111 1111": "[card]",
    "card:4111111111111111.": "card:[card].",
    "4111-1111-1111-1111 exp 12/30": "[card] exp 12/30",
    "3782 822463 10005": "[card]",
    "order 12 4111 1111 1111 1111": "order 12 [card]",
    "4111 1111 1111 1111 5500 0055 5555 5559": "[card] [card]",
    "1 2 3 4 5 6 7 8 9 10 11 12 4111 1111 1111 1111 9": "1 2 3 [card] 9",
    "DE89 3704 0044 0532 0130 00 and more": "[iban] and more",
    "gb82west12345698765432": "[iban]",
    "AB12 DE89370400440532013000": "AB12 [iban]",
    "FR14 2004 1010 0505 0001 3M02 606": "[iban]",
    "+49 (0)30 1234567": "[phone]",
    "call 0049-30-1234567 now": "call [phone] now",
    "(415) 555-2671": "[phone]",
    "key sk-proj-abcdefgh12345678": "key [secret]",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "[secret]",
    "AKIAIOSFODNN7EXAMPLE": "[secret]",
    "xoxb-1234567890-abcdef": "[secret]",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_123": "[secret]",
    "postgres://ana:hunter22@db.example/x": "postgres://[secret]@db.example/x",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----\nend": "[secret]\nend",
}
NOT_FOUND = [
    "ana at example.org",
    "@ana and user@localhost",
    "git@",
    "4111 1111 1111 1112",
    "1700000000000",
    "12345678901234567890",
    "0.4111111111111111",
    "2026-11-19 07:00:00",
    "192.168.100.200:8080",
    "DE89 3704 1044 0532 0130 01",
    "XX89370400440532013000",
    "version 1.2.3.4.5.6.7.8.9.10.11.12",
    "b3c2f0e8-1111-4222-8333-944455566677",
    "e3b8c10135d04683dd5b14ca1755ad113346f062",
    "sk-learn and pk-only",
    "3 + 4 = 7, +1",
    "https://example.org/a/b?c=d",
]


@pytest.mark.parametrize("text", FOUND)
def test_what_is_sensitive_is_replaced(text: str) -> None:
    assert mask_text(text, ALL) == FOUND[text]
    assert mask_text(f"x {text} y", ALL) == f"x {FOUND[text]} y"


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_only_resembles_it_stays(text: str) -> None:
    assert mask_text(text, ALL) is text


@pytest.mark.parametrize("text", FOUND)
@pytest.mark.parametrize("at", [-40, -12, -1, 0, 1])
def test_it_is_found_across_windows(text: str, at: int) -> None:
    before = "x " * ((WINDOW_CHARS + at) // 2)
    assert mask_text(f"{before}{text} y", ALL) == f"{before}{FOUND[text]} y"


def test_only_the_kinds_that_are_asked_for_are_replaced() -> None:
    text = "ana@example.org 4111 1111 1111 1111"
    assert mask_text(text, ("card",)) == "ana@example.org [card]"
    assert mask_text(text, ()) is text


def test_structured_values_are_masked_at_every_depth_keys_and_numbers_too() -> None:
    value: Any = {
        "rows": [{"to": "ana@example.org", "n": 1, "card": 4111111111111111, "ok": True}],
        "ana@example.org": None,
        "requestState": "ana@example.org",
        "data": "4111111111111111" * 40,
    }
    assert mask_value(value, ALL) == {
        "rows": [{"to": "[email]", "n": 1, "card": "[card]", "ok": True}],
        "[email]": None,
        "requestState": "ana@example.org",
        "data": "4111111111111111" * 40,
    }
    untouched: Any = {"rows": [{"to": "nobody", "n": 4111111111111112}]}
    assert mask_value(untouched, ALL) is untouched


def test_what_is_nested_too_deep_is_not_passed_on() -> None:
    value: Any = "ana@example.org"
    for _ in range(200):
        value = [value]
    assert "ana@" not in str(mask_value(value, ALL))


@pytest.mark.parametrize(
    ("number", "is_valid"),
    [("4111111111111111", True), ("4111111111111112", False), ("0000000000000000", False)],
)
def test_check_digits_of_cards(number: str, *, is_valid: bool) -> None:
    assert mask_text(number, ("card",)) == ("[card]" if is_valid else number)


def test_check_digits_of_ibans() -> None:
    assert is_iban_valid("GB82WEST12345698765432")
    assert not is_iban_valid("GB82WEST12345698765433")


@settings(max_examples=150, deadline=None)
@given(st.text("4111 -.@%40ana.exmple+DE89\n", max_size=300))
def test_masking_a_masked_text_changes_nothing(text: str) -> None:
    masked = mask_text(text, ALL)
    assert mask_text(masked, ALL) == masked


@pytest.mark.parametrize(
    "piece",
    [
        "1 ",
        "a.",
        "a@",
        "DE89 ",
        "+1",
        "sk-",
        "eyJa.",
        "-eyJ",
        "6 ",
        "-----BEGIN ",
        "4111 ",
        "://a:",
        "x",
        "%40a.",
    ],
)
def test_hostile_text_costs_no_more_than_its_size(piece: str) -> None:
    assert OVERLAP_CHARS < WINDOW_CHARS
    text = piece * (400_000 // len(piece))
    begun = time.process_time()
    mask_text(text, ALL)
    # Quadratic work would take minutes.
    assert time.process_time() - begun < 30
