"""`logs SERVER`: what a server wrote and how its state changed, from the running gateway."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.cli.conftest import TIMEOUT_S, Home, Start
from tests.cli.local_gateway.conftest import SERVERS, Serve, find, serve
from tests.upstream.scripted import script

__all__ = ["serve"]

PASSWORD = "three plain words"
WRITER = """
print("started with", os.environ["WORDS"], file=sys.stderr, flush=True)
shake()
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("write", "flood", "die")]
for id, method, params in requests():
    if method == "tools/list":
        send(id=id, result={"tools": TOOLS})
        continue
    if params["name"] == "die":
        sys.stderr.write("\\x1b[31mfatal: the disk is full\\x1b[0m")  # without an end of line
        sys.stderr.flush()
        os._exit(3)
    lines = 5_000 if params["name"] == "flood" else 1
    text = (params.get("arguments") or {}).get("text", "")
    sys.stderr.write("".join(f"{text} {number}\\n" for number in range(lines)))
    sys.stderr.flush()
    send(id=id, result={"content": [{"type": "text", "text": "written"}]})
"""


def write_config(home: Home) -> None:
    command, *args = script(WRITER)
    writer: dict[str, Any] = {"command": command, "args": args, "env": {"WORDS": PASSWORD}}
    home.write({"servers": {"writer": writer, **SERVERS}})


def wait_for_line(home: Home, text: str) -> list[str]:
    """Return the lines of the server's log once one contains a text."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        lines = home.run("logs", "writer", "-n", "300").out.splitlines()
        if any(text in line for line in lines):
            return lines
        time.sleep(0.05)
    raise AssertionError(f"{text!r} was not logged in time")


def test_lines_and_states_survive_a_crash_and_secrets_are_masked(home: Home, serve: Serve) -> None:
    write_config(home)
    serve()
    wait_for_line(home, "[ready]")
    assert home.run("call", "writer.die").code == 1
    wait_for_line(home, "[down] the server exited with code 3")
    wait_for_line(home, " fatal: the disk is full")
    assert home.run("restart", "writer").code == 0
    lines = [line.split(" ", 2)[2] for line in wait_for_line(home, "[ready]")]
    assert lines[0] == "[starting]"
    assert lines.count("started with ***") >= 2, "lines of before and after the crash"
    assert lines.count("[ready]") >= 2
    assert "fatal: the disk is full" in lines, "without its colours"
    assert PASSWORD not in "\n".join(lines)


def test_each_line_has_a_number_and_what_is_not_kept_is_said(home: Home, serve: Serve) -> None:
    write_config(home)
    serve()
    assert home.run("call", "writer.flood", '{"text": "wave"}').code == 0
    wait_for_line(home, "wave 4999")
    shown = home.run("logs", "writer", "-n", "300", "--json").out.splitlines()
    entries = [json.loads(line) for line in shown]
    numbers = [entry["sequence"] for entry in entries]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 300
    last = next(entry for entry in entries if entry["text"] == "wave 4999")
    assert last["sequence"] > 5_000, "lines that are not kept are counted"
    assert len(home.run("logs", "writer", "-n", "2").out.splitlines()) == 2
    assert home.run("logs", "writer", "-n", "0").out == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_following_repeats_and_loses_nothing(home: Home, serve: Serve, start: Start) -> None:
    write_config(home)
    gateway, _ = serve()
    assert home.run("call", "writer.write", '{"text": "before"}').code == 0
    wait_for_line(home, "before 0")
    following = start("logs", "WRITER", "-f", "-n", "300", interruptible=True)
    texts = read_until(following, "before 0")
    for number in range(3):
        assert home.run("call", "writer.write", f'{{"text": "line {number}"}}').code == 0
        texts += read_until(following, f"line {number} 0")
    following.send_signal(signal.SIGINT)
    assert following.wait(TIMEOUT_S) == 130
    written = [text for text in texts if text.endswith(" 0")]
    assert written == ["before 0", "line 0 0", "line 1 0", "line 2 0"]
    last = start("logs", "writer", "-f", "-n", "300")
    read_until(last, "line 2 0")
    gateway.terminate()
    assert last.wait(TIMEOUT_S) == 1
    assert last.stderr is not None
    assert b"The gateway has ended" in last.stderr.read()


def read_until(process: "subprocess.Popen[bytes]", wanted: str) -> list[str]:
    """Return the texts of lines up to one."""
    assert process.stdout is not None
    texts: list[str] = []
    while wanted not in texts:
        line = process.stdout.readline().decode()
        assert line, f"it ended after {texts}"
        texts.append(line.split(" ", 2)[2].strip())
    return texts


def test_without_a_gateway_or_such_a_server_it_says_what_to_do(home: Home, serve: Serve) -> None:
    write_config(home)
    failed = home.run("logs", "writer")
    assert (failed.code, "`portico start`" in failed.err) == (1, True)
    assert find(home) is None, "it starts nothing"
    serve()
    failed = home.run("logs", "writr")
    assert (failed.code, "Did you mean writer?" in failed.err) == (1, True)
    quiet = home.run("logs", "units")
    assert quiet.code == 0
