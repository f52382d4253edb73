"""Commands answer the same through the running gateway as alone, and share its state."""

import os
import sys

import pytest

from tests.cli.conftest import Home
from tests.cli.local_gateway.conftest import SERVERS, Serve, find

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX")

COMMANDS = [
    ("search", "convert miles to kilometres"),
    ("search", "convert", "--json"),
    ("search", "convert", "--explain", "--tool", "units.nothing"),
    ("search",),
    ("browse",),
    ("browse", "units", "--json", "--offline"),
    ("browse", "nowhere"),
    ("describe", "units.list_units", "text.nothing"),
    ("tokens", "--json"),
    ("usage", "--profile", "nobody"),
    ("usage", "--days", "0"),
    ("call", "units.list_units", "--no-such-option"),
    ("call", "units.list_units", "quantity:=3", "--json"),
    ("call", "units.list_units", "quantity=speed"),
    ("call", "units.list_units", "-"),
]
"""Calls are last: use changes how tools rank."""


def test_the_output_is_the_same_byte_for_byte(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    stdin = '{"quantity": "length"}'
    home.run("search", "anything")  # so that listings and vectors are known
    serve()
    for arguments in COMMANDS:
        alone = home.run(*arguments, "--alone", stdin=stdin)
        assert home.spawn(*arguments, stdin=stdin) == alone, arguments


@posix
def test_a_terminal_shows_the_same(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    home.run("search", "anything")
    commands = (("search", "convert", "--offline"), ("browse", "--offline"))
    alone = [home.run_in_terminal(*arguments, "--alone") for arguments in commands]
    serve()
    assert [home.run_in_terminal(*arguments) for arguments in commands] == alone


def test_a_command_decides_in_the_running_gateway_which_logs_it(home: Home, serve: Serve) -> None:
    rules = [{"tools": ["units.list_units"], "may": "ask"}]
    home.write({"servers": SERVERS, "rules": rules, "approvals": {"wait_s": 0}})
    serve()
    asked = home.spawn("call", "units.list_units", "quantity=speed")
    assert asked.code != 0
    approval_id = (asked.out + asked.err).partition("portico approve ")[2][:10]
    assert home.spawn("approve", approval_id).code == 0
    assert home.spawn("call", "units.list_units", "quantity=speed").code == 0
    assert home.spawn("call", "units.list_units", "quantity=speed").code != 0
    assert home.spawn("approvals", "--json").data["approvals"][0]["state"] == "used"
    log = next(home.folder.rglob("audit.jsonl")).read_text()
    assert '"method":"approvals/approve"' in log


def test_what_a_command_does_is_known_to_the_gateway_at_once(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    process, gateway = serve()
    assert home.spawn("call", "units.list_units", "quantity=speed").code == 0
    used = home.spawn("usage", "--json").data
    assert [(one["tool"], one["calls"]) for one in used["tools"]] == [("units.list_units", 1)]
    reply = gateway.request("GET", "/api/v1/servers")
    assert {one["server"] for one in reply.body["servers"]} == set(SERVERS)
    process.kill()
    process.wait(60)
    assert home.spawn("search", "convert", "--offline").code == 0, "a dead gateway is not asked"


def test_a_changed_configuration_holds_for_the_next_command(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    serve()
    assert home.spawn("rename", "units", "measures").code == 0
    assert home.spawn("call", "measures.list_units", "quantity=speed").code == 0
    assert home.spawn("disable", "measures.list_units").code == 0
    refused = home.spawn("call", "measures.list_units", "quantity=speed")
    assert "switched off" in refused.err


def test_another_configuration_is_not_asked_of_this_gateway(home: Home, serve: Serve) -> None:
    home.write({"servers": SERVERS})
    home.write({"servers": {"clock": {"functions": "portico.demo.clock:TOOLS"}}}, "other.json")
    serve()
    found = home.spawn("browse", "--json", "-c", "other.json").data
    assert [one["name"] for one in found["servers"]] == ["clock"]
    assert find(home, "other.json") is None


@posix
def test_a_data_folder_with_a_long_path_works(home: Home, serve: Serve) -> None:
    folder = home.folder / ("long" * 40)
    folder.mkdir()
    (home.folder / "data").symlink_to(folder)
    home.write({"servers": SERVERS})
    process, gateway = serve()
    path = gateway.registration.address.removeprefix("unix:")
    assert os.stat(path).st_mode & 0o777 == 0o600
    process.terminate()
    assert process.wait(60) == 0
    assert not os.path.exists(os.path.dirname(path))
    assert os.listdir(folder / "gateways") == []
