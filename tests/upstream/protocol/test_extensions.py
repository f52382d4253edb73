"""What each side declares is bounded, and relayed only where both declare it."""

from typing import Any

import pytest

from portico.upstream.protocol.envelope import (
    CLIENT_CAPABILITIES_KEY,
    filter_for_server,
    make_initialize_params,
    to_modern_params,
)
from portico.upstream.protocol.extensions import (
    EXTENSIONS,
    MAX_EXTENSIONS,
    MAX_SETTINGS_CHARS,
    OWN_EXTENSIONS,
    UI_EXTENSION,
    merge_declared,
    read_extensions,
    select_agreed,
)

DEEP: dict[str, Any] = {}
for _ in range(5_000):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    "declared",
    [
        None,
        [],
        {"noprefix": {}},
        {"/name": {}},
        {"com.example/": {}},
        {"com.example/x": None},
        {"com.example/x": {"long": "x" * MAX_SETTINGS_CHARS}},
        {"com.example/x": DEEP},
        {"com.example/" + "x" * 200: {}},
        {"com.example/\n": {}},
    ],
    ids=range(10),
)
def test_what_is_no_declaration_is_left_out(declared: Any) -> None:
    assert read_extensions({EXTENSIONS: declared}) == {}


def test_no_side_declares_more_than_its_share() -> None:
    many = {f"com.example/x{number}": {} for number in range(MAX_EXTENSIONS * 2)}
    assert len(read_extensions({EXTENSIONS: many})) == MAX_EXTENSIONS


def test_agreed_is_what_both_declare_with_the_servers_settings() -> None:
    client = {"com.example/a": {"from": "client"}, "com.example/b": {}}
    server = {"com.example/a": {"from": "server"}, "com.example/c": {}}
    assert select_agreed(client, server) == {"com.example/a": {"from": "server"}}


def test_servers_that_differ_in_settings_declare_what_they_have_in_common() -> None:
    one = {"com.example/a": {"version": 1, "fast": True}}
    other = {"com.example/a": {"version": 2, "fast": True}, "com.example/b": {"x": 1}}
    assert merge_declared([one, other]) == {
        "com.example/a": {"fast": True},
        "com.example/b": {"x": 1},
    }
    assert one == {"com.example/a": {"version": 1, "fast": True}}


def test_the_gateway_declares_apps_in_its_own_name_to_servers_of_both_eras() -> None:
    assert make_initialize_params()["capabilities"][EXTENSIONS] == OWN_EXTENSIONS
    meta = to_modern_params({})["_meta"]
    assert meta[CLIENT_CAPABILITIES_KEY] == {EXTENSIONS: OWN_EXTENSIONS}
    assert UI_EXTENSION in OWN_EXTENSIONS


def test_a_server_gets_with_a_clients_request_what_that_client_declares() -> None:
    declared = {"sampling": {}, EXTENSIONS: {"com.example/x": {"y": 1}, "nonsense": {}}}
    sent = to_modern_params(filter_for_server({"_meta": {CLIENT_CAPABILITIES_KEY: declared}}))
    assert sent["_meta"][CLIENT_CAPABILITIES_KEY] == {
        "sampling": {},
        EXTENSIONS: {"com.example/x": {"y": 1}},
    }
