"""Differences between two configurations."""

from pathlib import Path
from typing import Any

import pytest

from portico.config import BackendConfig, Config
from portico.gateway.config_diff import RECONNECT_FIELDS, diff_configs

A = BackendConfig(command="a")


def config(**given: Any) -> Config:
    return Config(data_dir=Path("here"), **given)


def test_the_same_configuration_changes_nothing():
    assert not diff_configs(config(servers={"a": A}), config(servers={"a": A}))


def test_servers_come_and_go_by_name():
    change = diff_configs(config(servers={"a": A, "b": A}), config(servers={"b": A, "c": A}))
    assert (change.added, change.removed, change.restarted) == (("c",), ("a",), ())


def test_a_disabled_server_is_removed_and_an_enabled_one_added():
    off = BackendConfig(command="a", disabled=True)
    assert diff_configs(config(servers={"a": A}), config(servers={"a": off})).removed == ("a",)
    assert diff_configs(config(servers={"a": off}), config(servers={"a": A})).added == ("a",)


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
def test_a_changed_connection_field_restarts_the_server(other: dict[str, Any]):
    change = diff_configs(
        config(servers={"a": A}), config(servers={"a": {"command": "a", **other}})
    )
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
    change = diff_configs(
        config(servers={"a": A}), config(servers={"a": {"command": "a", **other}})
    )
    assert (change.restarted, change.adjusted) == ((), ("a",))


def test_every_server_key_either_restarts_or_adjusts():
    adjustable = {
        "title",
        "description",
        "category",
        "tags",
        "disabled",
        "tools",
        "resources",
        "prompts",
        "trust",
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
    assert set(BackendConfig.model_fields) == RECONNECT_FIELDS | adjustable


def test_what_clients_see_is_taken_at_once_and_where_the_gateway_listens_only_later():
    other = config(
        exposure="full",
        gateway={"port": 1, "host": "::1"},
        log_level="debug",
        limits={"requests": 1},
    )
    change = diff_configs(config(), other)
    assert change.has_view_changes
    assert change.pending_settings == ("gateway.host", "gateway.port")
    assert change.applied_settings == ("limits.requests", "log_level")
    assert "gateway.port" in str(change)
