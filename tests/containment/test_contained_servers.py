"""Contained servers behind a gateway: they work, and where they cannot be contained they are not
started; what they failed at is told."""

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portico.config import Config, ContainmentConfig
from portico.containment import landlock
from portico.containment.home_links import link_into_home
from portico.errors import BackendUnavailable
from portico.upstream.containment.contained_start import (
    Containment,
    build_specification,
    list_own_ports,
)
from portico.upstream.containment.denials import find_denials
from tests.gateways import join_text, open_gateway, run_gateway
from tests.upstream.scripted import TEST_TIMEOUT_S, script

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux" or landlock.get_abi_version(ctypes.CDLL(None)) < landlock.SCOPE_ABI,
        reason="SKIPPED: containment needs Linux with Landlock 6",
    ),
    pytest.mark.timeout(TEST_TIMEOUT_S),
]

READER = """
shake()
for id, method, params in requests():
    if method == "tools/list":
        tool = {"name": "read_file", "inputSchema": {"type": "object"}}
        send(id=id, result={"tools": [tool]})
    else:
        try:
            text = open(params["arguments"]["path"]).read()
        except OSError as error:
            text = type(error).__name__
        text += " in " + os.environ["HOME"]
        send(id=id, result={"content": [{"type": "text", "text": text}]})
"""
NEEDY = """
open(sys.argv[1])
shake()
"""


def make_config(folder: Path, contain: Any, body: str = READER, *args: str) -> dict[str, Any]:
    command, *words = script(body)
    server = {"command": command, "args": [*words, *args], "contain": contain}
    return {"servers": {"s": server}, "data_dir": str(folder / "data")}


def make_secret(folder: Path) -> Path:
    (folder / "private").mkdir()
    secret = folder / "private" / "notes.txt"
    secret.write_text("a note")
    return secret


@pytest.mark.parametrize("granted", [True, False])
async def test_a_contained_server_reads_what_it_was_granted(tmp_path: Path, granted: bool) -> None:
    secret = make_secret(tmp_path)
    contain = {"read": [str(secret.parent)]} if granted else True
    config = Config.model_validate({**make_config(tmp_path, contain), "exposure": "full"})
    async with open_gateway(config=config, data_dir=tmp_path / "data") as opened:
        text = join_text(await opened.client.call_tool("s__read_file", {"path": str(secret)}))
    assert text.startswith("a note" if granted else ("FileNotFoundError", "PermissionError"))
    assert text.endswith(f" in {tmp_path}/data/contained/s/home")


async def test_a_server_that_fails_says_which_line_would_allow_it(tmp_path: Path) -> None:
    secret = make_secret(tmp_path)
    body = f"open({str(secret)!r})\n"
    config = Config.model_validate(make_config(tmp_path, True, body))
    async with run_gateway(config=config) as gateway:
        with pytest.raises(BackendUnavailable) as failed:
            await gateway.upstreams["s"].ensure_started()
    assert f"{secret}: add it to contain.read" in failed.value.message


def test_the_root_contains_all_that_say_nothing_else(tmp_path: Path) -> None:
    config = Config.model_validate(
        {
            "contain": {"network": "none"},
            "servers": {
                "plain": {"command": "a"},
                "open": {"command": "a", "contain": False},
                "own": {"command": "a", "contain": True},
                "remote": {"url": "https://x.example"},
            },
        }
    )
    networks = {
        name: server.containment and server.containment.network
        for name, server in config.servers.items()
    }
    assert networks == {"plain": "none", "open": None, "own": "all", "remote": None}


def test_only_commands_can_be_contained() -> None:
    with pytest.raises(ValueError, match="contain is for servers with a `command`"):
        Config.model_validate({"servers": {"s": {"url": "https://x.example", "contain": True}}})


# --- where the kernel cannot


WITHOUT_LANDLOCK = """
import ctypes, os, sys
from portico.containment import privileges, seccomp
libc = ctypes.CDLL(None, use_errno=True)
privileges.call_prctl(libc, privileges.SET_NO_NEW_PRIVILEGES, 1)
_, architecture = seccomp.MACHINES[os.uname().machine]
steps = seccomp.check_architecture(architecture)
steps += seccomp.decide_all((444,), seccomp.ENOSYS)
steps.append(seccomp.make_instruction(seccomp.RETURN, seccomp.ALLOW))
assert seccomp.install(libc, steps) == 0
os.execv(sys.executable, [sys.executable, "-m", "portico", *sys.argv[1:]])
"""


def run_without_landlock(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the kernel knows no Landlock: a filter says so, as old ones do."""
    command = [sys.executable, "-c", WITHOUT_LANDLOCK, *words, "--config", str(config)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TEST_TIMEOUT_S, check=False
    )


def test_without_landlock_the_server_is_not_started_and_doctor_says_why(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    body = f"open({str(mark)!r}, 'w').close()\n{READER}"
    config = tmp_path / "portico.json"
    config.write_text(json.dumps(make_config(tmp_path, {"write": str(tmp_path)}, body)))
    done = run_without_landlock(config, "doctor", "--json")
    report = json.loads(done.stdout)
    assert report["containment"].startswith("not possible: this kernel has no Landlock")
    findings = {one["id"]: one for one in report["findings"] if one["server"] == "s"}
    assert findings["containment.unavailable"]["severity"] == "broken"
    assert "contain: false" in findings["containment.unavailable"]["remedy"]
    assert "not possible here" in findings["server.failed"]["message"]
    assert not mark.exists()


# --- what a specification grants


def specify(folder: Path, program: str, *args: str, **settings: Any) -> tuple[str, ...]:
    containment = Containment(ContainmentConfig(**settings), folder / "data", "s")
    home = str(folder / "user")
    words = (program, *args)
    specification = build_specification(containment, words, os.environ, {}, None, home)
    return specification.read + specification.write


def make_environment(folder: Path, python: Path) -> Path:
    """Make what a virtual environment looks like; its `home` is the folder of that interpreter."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    program = folder / "bin" / "server"
    program.write_text(f"#!{folder}/bin/python\n")
    return program


def test_a_program_brings_its_environment_and_the_interpreter_of_it(tmp_path: Path) -> None:
    python = tmp_path / "user" / "python" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    (python.parents[1] / "lib").mkdir()
    python.touch()
    program = make_environment(tmp_path / "user" / "venv", python)
    granted = specify(tmp_path, str(program))
    assert {str(program.parents[1]), str(python.parents[1])} <= set(granted)


def test_what_a_server_can_write_does_not_widen_what_it_reads(tmp_path: Path) -> None:
    keys = tmp_path / "user" / "keys"
    (keys / "bin").mkdir(parents=True)
    (keys / "lib").mkdir()
    own = tmp_path / "user" / "project"
    program = make_environment(own / "venv", keys / "bin" / "python3")
    (own / "link").symlink_to(keys)
    settings = {"read": (str(own / "link"),), "write": (str(own),)}
    granted = specify(tmp_path, str(program), str(own / "link"), **settings)
    assert not [path for path in granted if path.startswith(str(keys)) or path.endswith("link")]


@pytest.mark.parametrize("named", ["", "user"])
def test_no_guess_grants_the_home_or_more(tmp_path: Path, named: str) -> None:
    (tmp_path / "user" / ".ssh").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "user")
    granted = specify(tmp_path, "/bin/sh", str(tmp_path / named), str(link), str(tmp_path / "data"))
    assert not [path for path in granted if path.startswith(str(tmp_path))]


@pytest.mark.parametrize("named", ["", "data", "data/credentials.key"])
@pytest.mark.parametrize("key", ["read", "write"])
def test_a_grant_with_the_data_folder_is_refused(tmp_path: Path, key: str, named: str) -> None:
    with pytest.raises(BackendUnavailable, match="own data folder"):
        specify(tmp_path, "/bin/sh", **{key: (str(tmp_path / named),)})


def test_links_into_its_home_follow_none_that_the_server_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    outside = tmp_path / "outside"
    for folder in (home, outside):
        folder.mkdir()
    (home / ".config").symlink_to(outside)
    link_into_home(str(home), [(".config/gh", "/usr"), (".cache/x/y", "/usr")])
    assert os.listdir(outside) == []
    assert os.readlink(home / ".cache" / "x" / "y") == "/usr"


def test_ports_of_this_process_are_known() -> None:
    with socket.socket() as bound, socket.create_server(("127.0.0.1", 0)) as listening:
        bound.bind(("127.0.0.1", 0))
        ports = {bound.getsockname()[1], listening.getsockname()[1]}
        assert ports <= list_own_ports()


def test_denials_name_the_file_and_the_setting(tmp_path: Path) -> None:
    secret = make_secret(tmp_path)
    containment = Containment(ContainmentConfig(network="none"), tmp_path / "data", "s")
    specification = build_specification(
        containment, ("/bin/sh",), {}, {}, None, str(tmp_path / "user")
    )
    lines = {
        f"Error: EACCES: permission denied, open '{secret}'": f"{secret}: add it to contain.read",
        f"PermissionError: [Errno 13] Permission denied: '{secret.parent}/new.txt'": (
            f"{secret.parent}/new.txt: add it to contain.write"
        ),
        "getaddrinfo EAI_AGAIN api.example.org": "the network: contain.network is none",
        f"reading {secret}": None,
        "Error: ENOENT: no such file or directory, open '/usr/none.txt'": None,
        f"PermissionError: '{specification.home}/x'": None,
    }
    for line, expected in lines.items():
        assert find_denials([line], specification) == ((expected,) if expected else ()), line
