"""What each era wants around a result, as a pure function."""

from typing import Any

import pytest

from portico.errors import RemoteError
from portico.server.request import to_legacy_result, to_modern_result

INFO = {"name": "portico", "version": "1"}
KEY = "io.modelcontextprotocol/serverInfo"
LISTS = [
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
]


@pytest.mark.parametrize("method", [*LISTS, "resources/read"])
def test_a_modern_listing_says_how_long_it_is_good_and_for_whom(method: str) -> None:
    finished = to_modern_result({"tools": []}, method, INFO)
    assert (finished["resultType"], finished["cacheScope"]) == ("complete", "private")
    assert finished["ttlMs"] >= 0
    assert finished["_meta"] == {KEY: INFO}


@pytest.mark.parametrize(
    "method", ["tools/call", "prompts/get", "completion/complete", "vendor/own"]
)
def test_other_modern_results_are_stamped_only(method: str) -> None:
    assert to_modern_result({}, method, INFO) == {
        "resultType": "complete",
        "_meta": {KEY: INFO},
    }


def test_what_the_server_said_of_itself_stands() -> None:
    said = {
        "resultType": "complete",
        "ttlMs": 5,
        "cacheScope": "public",
        "_meta": {KEY: {"name": "own"}, "x": None},
    }
    assert to_modern_result(said, "resources/read", INFO) == said


def test_a_server_that_asks_back_is_passed_on_in_the_modern_era() -> None:
    asking = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    assert to_modern_result(asking, "resources/read", INFO) == {**asking, "_meta": {KEY: INFO}}


@pytest.mark.parametrize(
    ("kind", "words"), [("input_required", "needs an answer from the user"), ("task", "'task'")]
)
def test_what_the_handshake_era_cannot_carry_is_refused_in_words(kind: str, words: str) -> None:
    with pytest.raises(RemoteError, match=words):
        to_legacy_result({"resultType": kind}, "tools/call")


def test_a_result_for_the_handshake_era_has_no_modern_fields() -> None:
    modern = {
        "content": [],
        "resultType": "complete",
        "ttlMs": 1,
        "cacheScope": "public",
        "_meta": {KEY: INFO},
    }
    assert to_legacy_result(modern, "tools/call") == {"content": []}
    kept = {**modern, "_meta": {KEY: INFO, "x": None}}
    assert to_legacy_result(kept, "tools/call") == {"content": [], "_meta": {"x": None}}


@pytest.mark.parametrize("meta", [None, [], "text", 0])
def test_a_malformed_meta_is_left_alone(meta: Any) -> None:
    assert to_legacy_result({"_meta": meta}, "tools/call") == {"_meta": meta}


def test_the_object_it_was_given_is_never_changed() -> None:
    given = {
        "tools": [{"name": "a", "outputSchema": {"type": "array"}}],
        "_meta": {KEY: INFO, "x": 1},
        "ttlMs": 1,
    }
    before = repr(given)
    to_legacy_result(given, "tools/list")
    to_modern_result(given, "tools/list", {"name": "other"})
    assert repr(given) == before
