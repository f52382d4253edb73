"""What differs between two configurations."""

from pathlib import Path
from typing import Any

import pytest

from portico.app.changes import CONVERSATION, changes
from portico.config import BackendConfig, Config

A = BackendConfig(command="a")


def config(**given: Any) -> Config:
    return Config(data_dir=Path("here"), **given)


def test_the_same_configuration_changes_nothing():
    assert not changes(config(servers={"a": A}), config(servers={"a": A}))


def test_servers_come_and_go_by_name():
    change = changes(config(servers={"a": A, "b": A}), config(servers={"b": A, "c": A}))
    assert (change.added, change.removed, change.restarted) == (("c",), ("a",), ())


def test_a_server_that_is_switched_off_has_gone_and_comes_back():
    off = BackendConfig(command="a", disabled=True)
    assert changes(config(servers={"a": A}), config(servers={"a": off})).removed == ("a",)
    assert changes(config(servers={"a": off}), config(servers={"a": A})).added == ("a",)


@pytest.mark.parametrize(
    "other",
    [
        {"command": "b"},
        {"args": ["x"]},
        {"env": {"KEY": "1"}},
        {"cwd": "elsewhere"},
        {"isolation": "session"},
        {"protocol": "legacy"},
        {"roots": ["here"]},
    ],
)
def test_what_a_conversation_was_begun_with_starts_the_server_anew(other: dict[str, Any]):
    change = changes(config(servers={"a": A}), config(servers={"a": {"command": "a", **other}}))
    assert (change.restarted, change.adjusted) == (("a",), ())


@pytest.mark.parametrize(
    "other",
    [
        {"title": "A"},
        {"tools": {"deny": ["x"]}},
        {"timeouts": {"call_s": 5}},
        {"limits": {"concurrency": 1}},
        {"restart": {"tries": 9}},
        {"idle_s": 1},
        {"tags": ["x"]},
    ],
)
def test_everything_else_leaves_the_server_running(other: dict[str, Any]):
    change = changes(config(servers={"a": A}), config(servers={"a": {"command": "a", **other}}))
    assert (change.restarted, change.adjusted) == ((), ("a",))


def test_every_key_of_a_server_is_known_to_one_side_or_the_other():
    adjustable = {
        "title",
        "description",
        "category",
        "tags",
        "disabled",
        "tools",
        "resources",
        "prompts",
        "client_meta",
        "timeouts",
        "cache",
        "limits",
        "retry",
        "health",
        "restart",
        "start",
        "idle_s",
        "ttl_s",
        "written",
    }
    assert set(BackendConfig.model_fields) == CONVERSATION | adjustable


def test_what_clients_see_is_taken_at_once_and_where_the_gateway_listens_only_later():
    other = config(exposure="full", gateway={"port": 1, "host": "::1"}, log_level="debug", limits={"requests": 1})
    change = changes(config(), other)
    assert change.faces
    assert change.later == ("gateway.host", "gateway.port")
    assert change.house == ("limits.requests", "log_level")
    assert "gateway.port" in str(change)
