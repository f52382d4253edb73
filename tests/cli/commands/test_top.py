"""`top`: what the servers of the running gateway do."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import TIMEOUT_S, Home, Start, interruptible_command
from tests.cli.local_gateway.conftest import SERVERS, Serve, serve
from tests.upstream.scripted import script

__all__ = ["serve"]

WORKER = """
shake()
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("wait", "go", "fail")]
waiting = []
for id, method, params in requests():
    if method == "tools/list":
        send(id=id, result={"tools": TOOLS})
    elif params["name"] == "wait":
        waiting.append(id)
    elif params["name"] == "fail":
        send(id=id, result={"content": [], "isError": True})
    else:
        for one in (*waiting, id):
            send(id=one, result={"content": []})
        waiting = []
"""


def write_config(home: Home) -> None:
    command, *args = script(WORKER)
    worker: dict[str, Any] = {"command": command, "args": args}
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit('no such database')"]}
    home.write({"servers": {"worker": worker, "broken": broken, **SERVERS}})


def wait_for(home: Home, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the snapshot of `top --json` once a condition holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        snapshot = home.run("top", "--json").data
        if condition(snapshot):
            return snapshot
        time.sleep(0.05)
    raise AssertionError("what was waited for did not happen in time")


def find_server(snapshot: dict[str, Any], name: str) -> dict[str, Any]:
    return next(server for server in snapshot["servers"] if server["server"] == name)


def test_a_snapshot_has_calls_errors_memory_and_the_worst_server_first(
    home: Home, serve: Serve, start: Start
) -> None:
    write_config(home)
    _, gateway = serve()
    assert home.run("call", "worker.go").code == 0
    assert home.run("call", "worker.fail").code == 1
    waiting = start("call", "worker.wait")
    snapshot = wait_for(
        home,
        lambda found: (
            find_server(found, "worker")["running"] == 1
            and find_server(found, "broken")["state"] in ("down", "quarantined")
        ),
    )
    assert [server["server"] for server in snapshot["servers"]][:2] == ["broken", "worker"]
    assert "no such database" in snapshot["servers"][0]["reason"]
    worker = snapshot["servers"][1]
    assert (worker["calls"], worker["errors"]) == (2, 1)
    assert (worker["last_error"]["tool"], worker["last_error"]["error"]) == (
        "worker.fail",
        "tool_error",
    )
    assert worker["p50_ms"] <= worker["p95_ms"]
    assert worker["processes"] >= 1
    assert worker["memory_bytes"] > 1_000_000
    assert snapshot["gateway"]["pid"] == gateway.registration.pid
    assert snapshot["gateway"]["memory_bytes"] > worker["memory_bytes"]
    shown = home.run("top").out.splitlines()
    assert shown[0].startswith("Portico ")
    names = [line.split()[0] for line in shown[1:]]
    assert names[0] == "server"
    assert set(names[1:]) == {"broken", "worker", *SERVERS}
    assert home.run("call", "worker.go").code == 0
    assert waiting.wait(TIMEOUT_S) == 0


def test_without_a_gateway_it_says_how_to_start_one(home: Home) -> None:
    write_config(home)
    failed = home.run("top")
    assert (failed.code, "`portico start`" in failed.err) == (1, True)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX terminals")
def test_a_live_view_fits_the_terminal_and_ends_with_an_interrupt(home: Home, serve: Serve) -> None:
    import pty

    write_config(home)
    serve()
    ours, theirs = pty.openpty()
    environment = {**home.environment, "TERM": "xterm-256color", "COLUMNS": "70", "LINES": "5"}
    process = subprocess.Popen(
        [*interruptible_command(), "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home.folder,
        env=environment,
    )
    os.close(theirs)
    sent = b""
    with os.fdopen(ours, "rb", 0) as terminal:
        while b"more" not in sent:  # five servers do not fit
            chunk = terminal.read(65_536)
            assert chunk, sent
            sent += chunk
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    assert b"calls/s" in sent
    assert b"Traceback" not in sent
    code, once = home.run_in_terminal("top", "--once")
    assert code == 0
    assert all(name in once for name in ("broken", "worker", *SERVERS))
    assert all(column in once for column in ("server", "state", "running", "calls", "memory"))
    assert "quarantined" in once or "down" in once, "a long error leaves the states readable"
