"""What a client can be asked, by what it declared."""

from typing import Any

import pytest

from portico.server.client_relay import (
    adapt_params,
    filter_relayed,
    find_missing_capability,
    make_missing_capability_error,
    make_unsupported_error,
)

URL = {"mode": "url", "url": "https://example.org", "message": "Go"}
FORM = {"message": "Who?", "requestedSchema": {}}


@pytest.mark.parametrize(
    ("declared", "method", "params", "missing"),
    [
        ({}, "roots/list", {}, {"roots": {}}),
        ({"roots": {}}, "roots/list", {}, {}),
        ({"elicitation": {}}, "elicitation/create", FORM, {}),
        ({"elicitation": {"form": {}}}, "elicitation/create", {**FORM, "mode": "form"}, {}),
        ({"elicitation": {}}, "elicitation/create", URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"url": {}}}, "elicitation/create", URL, {}),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, {"elicitation": {"form": {}}}),
        ({"sampling": {}}, "sampling/createMessage", {"messages": []}, {}),
        ({"sampling": {}}, "sampling/createMessage", {"tools": [{}]}, {"sampling": {"tools": {}}}),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": [{}]}, {}),
        ({"sampling": {}}, "tools/call", {}, {"tools/call": {}}),
    ],
)
def test_a_client_is_asked_only_for_declared_capabilities(
    declared: Any, method: str, params: Any, missing: Any
) -> None:
    assert find_missing_capability(filter_relayed(declared), method, params) == missing
    if missing:
        name = next(iter(missing))
        assert name in make_unsupported_error(missing).message
        assert make_missing_capability_error(missing).data == {"requiredCapabilities": missing}


@pytest.mark.parametrize(
    "declared", [None, "all", [], {"sampling": None, "roots": True, "elicitation": "form"}]
)
def test_what_is_no_declaration_offers_nothing(declared: Any) -> None:
    assert filter_relayed(declared) == {}


def test_a_visit_has_an_id_in_the_handshake_era_alone() -> None:
    assert adapt_params("elicitation/create", {**URL, "elicitationId": "1"}, "modern") == URL
    assert (
        adapt_params("elicitation/create", {**URL, "elicitationId": "1"}, "legacy")["elicitationId"]
        == "1"
    )
    made = adapt_params("elicitation/create", dict(URL), "legacy")
    assert {**made, "elicitationId": ""} == {**URL, "elicitationId": ""}
    assert made["elicitationId"]
    assert adapt_params("elicitation/create", FORM, "legacy") is FORM
