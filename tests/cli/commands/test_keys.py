"""`portico keys`: made, listed, rotated and revoked, and known to running gateways."""

import asyncio
import re
from collections.abc import Callable

import httpx2
import pytest

from tests.cli.conftest import TIMEOUT_S, Home, Start

WORK = {"profiles": {"work": {}}}


@pytest.fixture
def own_home(home: Home) -> Home:
    home.write({"servers": {}, **WORK})
    return home


def test_a_key_is_shown_once_and_listed_without_its_text(own_home: Home) -> None:
    made = own_home.run("keys", "add", "ci", "-p", "work", "--expires", "90d", "--read-only")
    assert made.code == 0, made.err
    text = made.out.strip()
    assert re.fullmatch(r"portico_[0-9a-f]{10}_[A-Za-z0-9_-]{43}", text)
    assert "every request to this gateway over HTTP needs a key" in made.err
    listed = own_home.run("keys", "list")
    for shown in ("ci", text.split("_")[1], "valid", "work", "read-only", "never"):
        assert shown in listed.out
    assert text.rpartition("_")[2] not in listed.out
    [entry] = own_home.run("keys", "list", "--json").data["keys"]
    assert (entry["name"], entry["state"], entry["profiles"]) == ("ci", "valid", ["work"])
    assert entry["expires"] > entry["created"]


def test_a_name_has_one_key_until_it_is_rotated(own_home: Home) -> None:
    first = own_home.run("keys", "add", "ci", "--json").data
    again = own_home.run("keys", "add", "ci")
    assert (again.code, "portico keys rotate ci" in again.err) == (1, True)
    second = own_home.run("keys", "rotate", "ci", "--json").data
    assert second["replaced"] == [first["id"]]
    states = {key["id"]: key for key in own_home.run("keys", "list", "--json").data["keys"]}
    assert {key["state"] for key in states.values()} == {"valid"}, "both, for a day"
    assert states[first["id"]]["expires"] is not None
    assert states[second["id"]]["expires"] is None
    own_home.run("keys", "rotate", "ci", "--grace", "0")
    listed = own_home.run("keys", "list", "--json").data["keys"]
    assert [key["state"] for key in listed] == ["expired", "expired", "valid"]


def test_a_key_is_revoked_by_its_id_and_all_of_a_name_by_the_name(own_home: Home) -> None:
    first = own_home.run("keys", "add", "ci", "--json").data["id"]
    second = own_home.run("keys", "rotate", "ci", "--json").data["id"]
    assert own_home.run("keys", "revoke", first, "--json").data == {"revoked": [first]}
    assert own_home.run("keys", "revoke", "ci", "--json").data == {"revoked": [second]}
    gone = own_home.run("keys", "revoke", "ci")
    assert (gone.code, "there is no valid key ci" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "a b"), "cannot be the name of a key"),
        (("add", "ci", "--expires", "soon"), "is no duration"),
        (("add", "ci", "-p", "none"), "There is no profile 'none'"),
        (("rotate", "none"), "there is no valid key none"),
    ],
)
def test_what_cannot_be_done_is_said_and_makes_no_key(
    own_home: Home, arguments: tuple[str, ...], message: str
) -> None:
    ran = own_home.run("keys", *arguments)
    assert (ran.code, message in ran.err) == (1, True)
    assert own_home.run("keys", "list", "--json").data == {"keys": []}


async def _wait_for(url: str, key: str, is_expected: Callable[[int], bool]) -> None:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient() as http:
        while True:
            if is_expected((await http.get(url, headers=headers)).status_code):
                return
            await asyncio.sleep(0.05)


async def test_a_running_gateway_takes_over_what_is_done_to_keys(
    own_home: Home, start: Start
) -> None:
    process = start("serve", "--port", "0")
    assert process.stdout is not None
    url = re.search(r"http://\S+", process.stdout.readline().decode())
    assert url is not None
    servers = url[0].removesuffix("/mcp") + "/api/v1/servers"
    await _wait_for(servers, "", lambda status: status == 200)
    key = own_home.spawn("keys", "add", "ci").out.strip()
    await _wait_for(servers, "", lambda status: status == 401)
    await _wait_for(servers, key, lambda status: status == 200)
    second = own_home.spawn("keys", "rotate", "ci", "--grace", "0").out.strip()
    await _wait_for(servers, key, lambda status: status == 401)
    await _wait_for(servers, second, lambda status: status == 200)
    own_home.spawn("keys", "revoke", "ci")
    await _wait_for(servers, second, lambda status: status in (401, 429))


def test_with_a_key_a_gateway_listens_beyond_this_machine_without_a_token(
    own_home: Home, start: Start
) -> None:
    refused = own_home.spawn("serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.code, "portico keys add" in refused.err) == (2, True)
    own_home.run("keys", "add", "ci")
    process = start("serve", "--host", "0.0.0.0", "--port", "0")
    assert process.stdout is not None
    assert b"/mcp" in process.stdout.readline()
