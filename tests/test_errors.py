"""Errors are advice, in one tree, each with its place on the wire."""

import pytest

from portico import errors
from portico.errors import (
    BackendTimeout,
    BackendUnavailable,
    ConfigError,
    InvalidArguments,
    PorticoError,
    RecordedOnly,
    RemoteError,
    StaleCursor,
    UnknownName,
)

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, PorticoError)
]


def test_the_tree_in_the_docstring_is_the_tree_there_is():
    assert errors.__doc__ is not None
    assert all(error.__name__ in errors.__doc__ for error in ALL)


def test_every_kind_has_a_name_of_its_own():
    assert len({error.kind for error in ALL}) == len(ALL)


def test_an_error_says_what_happened_and_then_what_to_do():
    assert str(PorticoError("It broke.", advice="Mend it.")) == "It broke.\nMend it."
    assert str(PorticoError("It broke.")) == "It broke."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("Bad key.", file="p.yaml", line=3, key="x"), "p.yaml:3: Bad key."),
        (ConfigError("Bad file.", file="p.yaml"), "p.yaml: Bad file."),
        (ConfigError("Bad."), "Bad."),
    ],
)
def test_a_config_error_says_where(error: ConfigError, said: str):
    assert str(error) == said


@pytest.mark.parametrize("error", [UnknownName("x"), InvalidArguments("x"), StaleCursor("x")])
def test_what_the_caller_got_wrong_is_invalid_params_and_not_worth_repeating(error: PorticoError):
    assert error.code == errors.INVALID_PARAMS
    assert not error.retryable


@pytest.mark.parametrize(
    ("error", "again"), [(BackendUnavailable, True), (BackendTimeout, True), (RecordedOnly, False)]
)
def test_what_a_server_got_wrong_may_be_worth_repeating(
    error: type[BackendUnavailable], again: bool
):
    assert error("x").code == errors.INTERNAL_ERROR
    assert error("x").retryable is again
    assert isinstance(error("x"), BackendUnavailable)


def test_an_upstream_s_error_keeps_its_code_and_whether_it_had_data():
    assert (RemoteError(-32099, "no").code, RemoteError(-32099, "no").has_data) == (-32099, False)
    assert RemoteError(1, "no", {"a": 1}).has_data
    assert RemoteError(1, "no", None, has_data=True).has_data
    assert RemoteError(1, "no").message == "no"
