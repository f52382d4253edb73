"""What `portico doctor` says about the programs themselves: their age, an engine that sleeps, files
they are given."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import Home

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the programs are shell scripts")


def _program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def _found(home: Home, server: Mapping[str, object], *arguments: str) -> dict[str, str]:
    home.write({"servers": {"one": {"timeouts": {"start_s": 20}, **server}}})
    result = home.run("doctor", "--json", "--server", "one", *arguments)
    return {finding["id"]: finding["severity"] for finding in result.data["findings"]}


@pytest.mark.parametrize(
    ("version", "severity"),
    [("v16.20.0", "warning"), ("v18.19.1", "note"), ("v22.1.0", None), ("what?", None)],
)
def test_an_old_node_is_reported(
    home: Home, tmp_path: Path, version: str, severity: str | None
) -> None:
    _program(tmp_path / "bin", "node", f"echo {version}")
    _program(tmp_path / "bin", "npx", "exit 3")
    path = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    found = _found(home, {"command": "npx", "args": ["some-server@1.0.0"], "env": path})
    assert found.get("command.node_old") == severity
    assert "command.unpinned" not in found


def test_a_container_engine_that_does_not_run_is_broken_and_its_server_not_started(
    home: Home, tmp_path: Path
) -> None:
    _program(
        tmp_path / "bin",
        "docker",
        f"echo $1 >> {tmp_path}/asked; echo 'Cannot connect' >&2; exit 1",
    )
    path = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    found = _found(home, {"command": "docker", "args": ["run", "-i", "image:1.0"], "env": path})
    assert found == {"command.docker_down": "broken"}
    assert (tmp_path / "asked").read_text().split() == ["version"]


def test_a_package_that_may_change_is_a_note(home: Home, tmp_path: Path) -> None:
    _program(tmp_path / "bin", "uvx", "exit 3")
    path = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    assert _found(home, {"command": "uvx", "args": ["some-server"], "env": path}, "--offline") == {
        "command.unpinned": "note"
    }


def test_a_script_is_looked_for_where_the_server_will_stand(home: Home, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "server.py").write_text("")
    there = {"command": "python3", "args": ["-u", "server.py"], "cwd": str(tmp_path / "project")}
    assert "command.script_missing" not in _found(home, there, "--offline")
    assert "command.script_missing" in _found(home, {**there, "cwd": str(tmp_path)}, "--offline")
    assert "command.script_missing" not in _found(
        home, {**there, "args": ["-m", "server.py"]}, "--offline"
    )


def test_a_folder_that_uv_should_run_in_is_looked_for(home: Home, tmp_path: Path) -> None:
    _program(tmp_path / "bin", "uv", "exit 3")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "server.py").write_text("")
    path = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    args = ["--directory", str(tmp_path / "project"), "run", "server.py"]
    assert _found(home, {"command": "uv", "args": args, "env": path}, "--offline") == {}
    wrong = [args[0], str(tmp_path / "absent"), *args[2:]]
    assert "command.folder_missing" in _found(
        home, {"command": "uv", "args": wrong, "env": path}, "--offline"
    )


def test_nothing_a_server_says_steers_the_terminal(home: Home, tmp_path: Path) -> None:
    listing = {
        "tools": [{"name": "evil\u001b[2J", "description": "", "inputSchema": {"type": "object"}}]
    }
    (tmp_path / "listing.json").write_text(json.dumps(listing))
    home.write(
        {
            "gateway": {"port": 0},
            "pins": ["one.evil"],
            "servers": {"one": {"recorded": "listing.json"}},
        }
    )
    result = home.run("doctor")
    assert "pin.unknown" in result.out
    assert "\x1b" not in result.out
