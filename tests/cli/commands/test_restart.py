"""`portico restart`: the running gateway restarts a server, and says how that went."""

import socket
import sys
import time
from typing import Any

import httpx2
import pytest

from portico.storage.data_files import RESTARTS_FOLDER, list_restart_requests
from tests.cli.commands.test_serve import _announced as announced  # pyright: ignore[reportPrivateUsage]
from tests.cli.conftest import Home, Start

GOOD = {"functions": "portico.demo.text:TOOLS"}
CRASH = "import sys; print('no disk', file=sys.stderr); sys.exit(3)"


def _marks(home: Home) -> set[str]:
    return set(list_restart_requests(home.folder / "data" / RESTARTS_FOLDER, 0))


def test_without_a_gateway_those_on_stdio_are_notified(home: Home) -> None:
    home.write({"servers": {"good": GOOD}})
    before = time.time() - 5
    ran = home.run("restart", "good")
    assert (ran.code, ran.err) == (0, "")
    assert "No gateway runs for this configuration" in ran.out
    assert list_restart_requests(home.folder / "data" / RESTARTS_FOLDER, before).keys() == {"good"}
    data = home.run("restart", "Good", "--json").data
    assert data == {
        "server": "good",
        "gateway": None,
        "state": None,
        "restarts": None,
        "marked": True,
    }


def test_an_unknown_server_gets_the_nearest_names_and_no_mark(home: Home) -> None:
    home.write({"servers": {"good": GOOD, "off": {"command": "x", "disabled": True}}})
    ran = home.run("restart", "godo", "--json")
    assert (ran.code, ran.data["error"]["nearest"]) == (1, ["good"])
    assert "switched off" in home.run("restart", "off").err
    assert _marks(home) == set()


def test_what_listens_at_the_configured_port_is_not_asked(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        home.write({"servers": {"good": GOOD}, "gateway": {"port": other.getsockname()[1]}})
        ran = home.run("restart", "good", "--json")
        with pytest.raises(BlockingIOError):
            other.accept()
    assert (ran.code, ran.data["gateway"]) == (0, None)


@pytest.mark.skipif(sys.platform == "win32", reason="signals end the gateway")
def test_the_running_gateway_restarts_it_and_status_shows_a_quarantine(
    home: Home, start: Start
) -> None:
    token = "open-sesame-42"
    broken: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-c", CRASH],
        "restart": {"tries": 1},
    }
    home.write(
        {
            "servers": {"good": GOOD, "crash": broken},
            "gateway": {"token": "${PORTICO_TOKEN}"},
        }
    )
    process = start("serve", "--port", "0", env={"PORTICO_TOKEN": token})
    url, _ = announced(process)
    _wait(url.replace("/mcp", "/api/v1/servers"), token)
    ran = home.run("restart", "good", env={"PORTICO_TOKEN": token})
    assert (ran.code, ran.out) == (0, "good was restarted: ready.\n")
    failed = home.run("restart", "crash", env={"PORTICO_TOKEN": token})
    assert failed.code == 1
    assert "It last wrote:\n  no disk" in failed.err
    status = home.run("status", env={"PORTICO_TOKEN": token})
    assert "crash: quarantined" in status.out
    assert "`portico restart crash` tries it again" in status.out
    assert token not in ran.out + ran.err + failed.err + status.out
    assert process.poll() is None


def _wait(url: str, token: str) -> None:
    """Until it is served, and both servers were listed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            reply = httpx2.get(url, headers={"authorization": f"Bearer {token}"}, timeout=30)
            if {one["state"] for one in reply.json()["servers"]} == {"ready", "quarantined"}:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError("the gateway was not there in time")
