"""`portico restart`: the running gateway starts a server anew, and says how that went."""

import socket
import sys
import threading
import time
from typing import Any

import httpx2
import pytest

from portico.storage.restart_requests import FOLDER, list_restart_requests

from .conftest import Home, Start

GOOD = {"functions": "portico.demo.text:TOOLS"}
CRASH = "import sys; print('no disk', file=sys.stderr); sys.exit(3)"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def _marks(home: Home) -> set[str]:
    return set(list_restart_requests(home.folder / "data" / FOLDER, 0))


def test_without_a_gateway_those_on_stdio_are_told(home: Home) -> None:
    home.write({"servers": {"good": GOOD}, "gateway": {"port": _free_port()}})
    before = time.time() - 5
    ran = home.run("restart", "good")
    assert (ran.code, ran.err) == (0, "")
    assert "No gateway answers at http://127.0.0.1:" in ran.out
    assert list_restart_requests(home.folder / "data" / FOLDER, before).keys() == {"good"}
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


def test_something_else_that_listens_there_is_no_gateway(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        home.write({"servers": {"good": GOOD}, "gateway": {"port": other.getsockname()[1]}})
        thread = threading.Thread(target=lambda: other.accept()[0].close(), daemon=True)
        thread.start()
        ran = home.run("restart", "good")
        thread.join(10)
    assert ran.code == 1
    assert "does not answer as a gateway does" in ran.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals end the gateway")
def test_the_running_gateway_starts_it_anew_and_status_tells_of_a_quarantine(
    home: Home, start: Start
) -> None:
    port, token = _free_port(), "open-sesame-42"
    broken: dict[str, Any] = {
        "command": sys.executable,
        "args": ["-c", CRASH],
        "restart": {"tries": 1},
    }
    home.write(
        {
            "servers": {"good": GOOD, "crash": broken},
            "gateway": {"port": port, "token": "${PORTICO_TOKEN}"},
        }
    )
    process = start("serve", env={"PORTICO_TOKEN": token})
    _wait(port, token)
    refused = home.run("restart", "good", env={"PORTICO_TOKEN": "wrong"})
    assert refused.code == 1
    assert "PORTICO_TOKEN" in refused.err
    ran = home.run("restart", "good", env={"PORTICO_TOKEN": token})
    assert (ran.code, ran.out) == (0, "good was started anew: ready.\n")
    failed = home.run("restart", "crash", env={"PORTICO_TOKEN": token})
    assert failed.code == 1
    assert "It last wrote:\n  no disk" in failed.err
    status = home.run("status", env={"PORTICO_TOKEN": token})
    assert "quarantined in the running gateway since" in status.out
    assert "`portico restart crash` ends it" in status.out
    assert token not in ran.out + ran.err + failed.err + status.out
    assert process.poll() is None


def _wait(port: int, token: str) -> None:
    """Until it is served, and both servers were heard."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            reply = httpx2.get(
                f"http://127.0.0.1:{port}/api/v1/servers",
                headers={"authorization": f"Bearer {token}"},
                timeout=5,
            )
            if {one["state"] for one in reply.json()["servers"]} == {"ready", "quarantined"}:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError("the gateway was not there in time")
