"""Python scripts run inside the jail of the other languages; looked at from outside, and by what it
refuses."""

import asyncio
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from portico.config import Config
from portico.containment import landlock
from portico.scripts.sandbox.python.engine import PythonEngine
from portico.scripts.sandbox.worker import seccomp
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Raw
from tests.scripts.sandbox.test_jail import ALLOW, ARCHITECTURES, EPERM, KILL

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="needs Linux's Landlock and seccomp",
)

TIMEOUT_S = 240.0
ENOSYS = 0x0005_0026


class Observer:
    """A server whose tool tells about the processes of scripts while a script waits for it."""

    def __init__(self) -> None:
        self.backend = FakeBackend(
            [{"name": "look", "description": "Look.", "inputSchema": {"type": "object"}}]
        )
        self.backend.on_call("look", self._look)
        self.seen: list[dict[str, Any]] = []

    async def _look(self, _: Raw) -> Raw:
        for process in psutil.Process().children(recursive=True):
            if process.name() == "monty" or "subprocess" in process.cmdline():
                self.seen.append(await asyncio.to_thread(inspect_process, process.pid))
        return {"content": [{"type": "text", "text": "1"}]}


def inspect_process(pid: int) -> dict[str, Any]:
    home = Path(f"/proc/{pid}")
    status = dict(
        line.split(":\t", 1) for line in (home / "status").read_text().splitlines() if ":\t" in line
    )
    return {
        "privileges": status["NoNewPrivs"].strip(),
        "seccomp": status["Seccomp"].strip(),
        "files": {int(one.name): os.readlink(one) for one in (home / "fd").iterdir()},
        "environment": (home / "environ").read_bytes(),
        "folder": os.readlink(home / "cwd"),
        "limits": {
            name: resource.prlimit(pid, getattr(resource, f"RLIMIT_{name}"))
            for name in ("NOFILE", "NPROC", "FSIZE", "CORE", "AS", "CPU")
        },
    }


async def observe() -> dict[str, Any]:
    """The process of a Python script, while the script runs."""
    observer = Observer()
    async with (
        gateway_over({"eye": observer.backend}, Config()) as gateway,
        connect(gateway) as client,
    ):
        asked = client.call_tool("run_code", {"code": "await eye.look()", "language": "python"})
        result = await asyncio.wait_for(asked, TIMEOUT_S)
        assert not result.is_error, result.content
    assert observer.seen
    return observer.seen[0]


async def test_the_process_of_a_script_has_a_filter_and_can_gain_no_privileges() -> None:
    seen = await observe()
    assert (seen["seccomp"], seen["privileges"]) == ("2", "1")


async def test_the_process_of_a_script_has_its_pipes_and_nothing_else_of_the_gateways() -> None:
    leaked = os.open("/etc/passwd", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        seen = await observe()
    finally:
        os.close(leaked)
    assert seen["files"].keys() == {0, 1, 2}
    assert seen["files"][0].startswith("pipe:")
    assert seen["files"][1].startswith("pipe:")
    assert seen["files"][2] == os.devnull
    assert seen["environment"] == b""
    assert seen["folder"] == "/"


async def test_the_kernel_stands_behind_the_limits_of_a_script() -> None:
    limits = (await observe())["limits"]
    assert limits["NOFILE"] == limits["NPROC"] == limits["FSIZE"] == (0, 0)
    assert max(limits["CORE"]) <= 1
    assert limits["AS"][0] < 2 * 1024**3
    assert limits["CPU"][0] < 30


async def test_the_jail_of_python_says_what_it_holds() -> None:
    engine = PythonEngine(1)
    try:
        from portico.scripts.sandbox.script import Script

        async def nobody(*_: Any) -> Any:
            raise AssertionError

        assert (await engine.run(Script("1 + 1", "python"), nobody)).value == 2
        kept = await asyncio.to_thread(lambda: engine.restrictions)
    finally:
        await engine.close()
    assert any(one.startswith("seccomp") for one in kept)
    assert any("privileges" in one for one in kept)


# --- what a program in that jail can do: a shell in place of the interpreter


@pytest.fixture
def shell() -> Iterator[str]:
    from portico.scripts.sandbox.python.launcher import Launcher

    launcher = Launcher(os.path.realpath("/bin/sh"))
    assert launcher.is_jailed
    yield launcher.path
    launcher.close()


def run_shell(shell: str, script: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [shell, "-c", script], capture_output=True, check=False, timeout=TIMEOUT_S, env={}
    )


def test_a_program_computes_in_the_jail(shell: str) -> None:
    done = run_shell(shell, "echo $((6 * 7))")
    assert (done.returncode, done.stdout) == (0, b"42\n")


def test_the_jail_is_closed_by_an_interpreter_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from portico.scripts.sandbox.python.launcher import Launcher

    folder = tmp_path / "somebody's own folder"
    folder.mkdir()
    interpreter = folder / "python"
    interpreter.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(interpreter))
    launcher = Launcher(os.path.realpath("/bin/sh"))
    assert run_shell(launcher.path, "echo $((6 * 7))").stdout == b"42\n"
    launcher.close()


def test_a_program_in_the_jail_writes_no_file(shell: str, tmp_path: Path) -> None:
    target = tmp_path / "written"
    run_shell(shell, f"echo here > {target}")
    assert not target.exists()


def test_a_program_in_the_jail_reads_no_file(shell: str, tmp_path: Path) -> None:
    import ctypes

    if not landlock.get_abi_version(ctypes.CDLL(None)):
        pytest.skip("a kernel without Landlock")
    secret = tmp_path / "secret"
    secret.write_text("told\n")
    assert b"told" not in run_shell(shell, f"read line < {secret}; echo $line").stdout
    assert b"root" not in run_shell(shell, "read line < /etc/passwd; echo $line").stdout


def test_a_program_in_the_jail_becomes_no_other(shell: str) -> None:
    import ctypes

    if not landlock.get_abi_version(ctypes.CDLL(None)):
        pytest.skip("a kernel without Landlock")
    assert run_shell(shell, "exec /bin/echo here").stdout == b""


def test_a_program_in_the_jail_starts_no_process(shell: str) -> None:
    done = run_shell(shell, "/bin/echo here; echo there")
    assert (done.returncode, done.stdout) == (-signal.SIGSYS, b"")


def test_a_program_in_the_jail_sends_no_signal(shell: str) -> None:
    assert run_shell(shell, "kill -0 $PPID; echo there").returncode == -signal.SIGSYS


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_for_a_program_adds_only_what_its_start_takes(machine: str, column: int) -> None:
    added = {numbers[column] for numbers in seccomp.LOADING.values()} - {-1}
    allowed = added | {numbers[column] for numbers in seccomp.ALLOWED.values()} - {-1}
    fatal = {numbers[column] for numbers in seccomp.FATAL.values()} - {-1} - added
    opening = [(257, 56)[column]] + ([2] if column == 0 else [])
    clone, clone3, mmap, mprotect = (56, 220)[column], 435, (9, 222)[column], (10, 226)[column]
    for number in set(range(500)) - {clone, clone3, mmap, mprotect, *opening}:
        expected = ALLOW if number in allowed else KILL if number in fatal else EPERM
        assert verdict(machine, number) == expected, number
    for number in opening:
        flags = 24 if number == 2 else 32
        assert verdict(machine, number, {flags: os.O_RDONLY | 0x8_0000}) == ALLOW
        for forbidden in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_PATH):
            assert verdict(machine, number, {flags: forbidden}) == EPERM
    assert verdict(machine, clone3) == ENOSYS
    assert verdict(machine, clone, {16: 0x1_0000}) == ALLOW
    assert verdict(machine, clone, {16: signal.SIGCHLD}) == KILL
    assert verdict(machine, mmap, {32: 3, 40: 0x22}) == ALLOW
    assert verdict(machine, mmap, {32: 5, 40: 2}) == ALLOW, "a library's code, from its file"
    assert verdict(machine, mmap, {32: 5, 40: 0x22}) == EPERM
    assert verdict(machine, mmap, {32: 7, 40: 2}) == EPERM
    assert verdict(machine, mprotect, {32: 5}) == EPERM


def verdict(machine: str, number: int, arguments: dict[int, int] | None = None) -> int:
    """Return what the kernel would make of the filter; arguments by where they stand in what it is
    given."""
    steps, at, held = seccomp.build_filter(machine, allow_loading=True), 0, 0
    given = {0: number, 4: ARCHITECTURES[machine], 16: 0, 24: 0, 32: 0, 40: 0, **(arguments or {})}
    while True:
        step = steps[at]
        at += 1
        match step.code:
            case 0x20:
                held = given[step.value]
            case 0x15:
                at += step.then if held == step.value else step.otherwise
            case 0x35:
                at += step.then if held >= step.value else step.otherwise
            case 0x45:
                at += step.then if held & step.value else step.otherwise
            case _:
                return step.value
