"""A key: its text, its name, how long it is valid, and for whom it stands."""

from dataclasses import replace

import pytest

from portico.auth.keys import (
    PREFIX,
    create_key,
    get_key_state,
    is_text_of,
    parse_duration,
    parse_key_id,
    to_principal,
)
from portico.callers import LOCAL_USER, TOKEN_HOLDER
from portico.errors import PorticoError

NOW = 1_000_000.0


def test_the_text_of_a_key_can_be_recognised_and_is_not_in_what_is_kept() -> None:
    key, text = create_key("ci", NOW)
    assert text.startswith(f"{PREFIX}{key.id}_")
    assert parse_key_id(text) == key.id
    assert is_text_of(key, text)
    secret = text.rpartition("_")[2]
    assert secret not in repr(key)
    assert text not in repr(key)


def test_no_two_keys_are_alike() -> None:
    made = [create_key("ci", NOW) for _ in range(100)]
    assert len({key.id for key, _ in made}) == len({text for _, text in made}) == 100


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text.upper(),
        lambda text: text.replace(PREFIX, "portico-"),
        lambda text: f" {text}",
        lambda text: "",
    ],
)
def test_what_is_not_exactly_a_key_names_none(change: "object") -> None:
    _, text = create_key("ci", NOW)
    assert parse_key_id(change(text)) == ""  # type: ignore[operator]  # pyright: ignore


def test_another_secret_with_the_id_of_a_key_is_not_its_text() -> None:
    key, _ = create_key("ci", NOW)
    _, other = create_key("ci", NOW)
    assert not is_text_of(key, f"{PREFIX}{key.id}_{other.rpartition('_')[2]}")


@pytest.mark.parametrize("name", ["", " ci", "a b", "x" * 65, "-x", "a\nb", "ü", "a/b"])
def test_a_name_that_does_not_fit_into_lists_and_logs_is_refused(name: str) -> None:
    with pytest.raises(PorticoError, match="cannot be the name of a key"):
        create_key(name, NOW)


def test_a_key_is_valid_until_it_expires_or_is_revoked() -> None:
    key, _ = create_key("ci", NOW, expires_at=NOW + 60)
    assert get_key_state(key, NOW + 59) == "valid"
    assert get_key_state(key, NOW + 60) == "expired"
    assert get_key_state(replace(key, revoked_at=NOW + 1), NOW + 2) == "revoked"


def test_a_rotated_key_stands_for_the_same_principal() -> None:
    first, _ = create_key("ana@example.org", NOW, profiles=("work",), is_read_only=True)
    second, _ = create_key("ana@example.org", NOW)
    assert to_principal(first).id == to_principal(second).id
    assert to_principal(first).credential != to_principal(second).credential


def test_no_key_stands_for_the_local_user_or_the_holder_of_the_token() -> None:
    for principal in (LOCAL_USER, TOKEN_HOLDER):
        key, _ = create_key(principal.subject, NOW)
        assert to_principal(key).id != principal.id
        assert not to_principal(key).is_shared


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7_776_000), ("12h", 43_200), ("30 M", 1_800), ("1w", 604_800)]
)
def test_durations_are_written_with_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "0d", "1.5h", "9999999d", "1y"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(PorticoError, match="is no duration"):
        parse_duration(text)
