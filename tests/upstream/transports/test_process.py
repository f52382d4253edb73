"""Starting a server and ending it, with everything it started, as the operating system sees it."""

import asyncio
import ctypes
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import psutil
import pytest

from portico.config.inherited_environment import build_environment
from portico.errors import BackendUnavailable
from portico.upstream.transports import process
from portico.upstream.transports.process import ChildProcess, ProcessGuard
from tests.fixtures import broken_command
from tests.upstream.scripted import TEST_TIMEOUT_S, script

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and process groups are POSIX")
LIMIT = 64 * 1024


@pytest.fixture
async def guard() -> AsyncGenerator[ProcessGuard]:
    guard = ProcessGuard()
    yield guard
    guard.close()


async def begin(
    command: Sequence[str], guard: ProcessGuard, cwd: str | None = None, **env: str
) -> ChildProcess:
    child = await process.start(
        command[0], command[1:], build_environment(os.environ, env), cwd, LIMIT, guard
    )
    assert child.stdin.transport is not None
    return child


async def ready(child: ChildProcess) -> None:
    """The server has started up server enough to have installed what it wants to ignore."""
    child.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    async with asyncio.timeout(TEST_TIMEOUT_S):
        assert await child.stdout.readline()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - the operating system sends no events
            await asyncio.sleep(0.01)


async def stopped(child: ChildProcess, *, hurry: bool = False) -> int | None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await process.stop(child, short_grace=hurry)
    return child.returncode


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def members(group: int) -> list[int]:
    return [
        found.pid
        for found in psutil.process_iter()
        if _group(found.pid) == group and alive(found.pid)
    ]


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None


# --- starting


async def test_a_server_leads_a_group_of_its_own(guard: ProcessGuard):
    child = await begin(broken_command("healthy"), guard)
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    await stopped(child)


async def test_a_command_that_does_not_exist_is_named_with_advice(guard: ProcessGuard):
    with pytest.raises(BackendUnavailable, match="'no-such-command' does not exist") as caught:
        await begin(["no-such-command"], guard)
    assert "PATH" in caught.value.advice


@pytest.mark.parametrize("package", ["foo", "@scope/foo"])
async def test_a_command_with_arguments_in_it_gets_advice_where_they_go(
    guard: ProcessGuard, package: str
):
    with pytest.raises(BackendUnavailable, match="does not exist on PATH") as caught:
        await begin([f"no-such-npx -y {package}"], guard)
    assert f"command: no-such-npx, args: [-y, {package}]" in caught.value.advice


async def test_a_folder_that_does_not_exist_is_named_and_not_blamed_on_the_command(
    guard: ProcessGuard, tmp_path: Path
):
    with pytest.raises(
        BackendUnavailable, match=r"working directory .*absent' does not exist"
    ) as caught:
        await begin(broken_command("healthy"), guard, str(tmp_path / "absent"))
    assert "cwd" in caught.value.advice


async def test_a_file_that_may_not_be_run_is_not_said_to_be_missing(
    guard: ProcessGuard, tmp_path: Path
):
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(BackendUnavailable, match="is not executable"):
        await begin([str(program)], guard)


async def test_a_broken_interpreter_line_is_reported(guard: ProcessGuard, tmp_path: Path):
    program = tmp_path / "server"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BackendUnavailable, match="could not be started") as caught:
        await begin([str(program)], guard)
    assert "interpreter line" in caught.value.advice


async def test_a_nul_in_an_argument_is_a_clear_error(guard: ProcessGuard):
    with pytest.raises(BackendUnavailable, match="could not be started: embedded null byte"):
        await begin([*broken_command("healthy"), "a\0b"], guard)


async def test_a_relative_command_is_found_from_the_servers_own_folder(
    guard: ProcessGuard, tmp_path: Path
):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "server"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    child = await begin(["./bin/server"], guard, str(tmp_path))
    async with asyncio.timeout(TEST_TIMEOUT_S):
        assert await child.stdout.readline() == b"found\n"
    await stopped(child)


async def test_a_command_is_found_on_the_path_its_server_was_given(
    guard: ProcessGuard, tmp_path: Path
):
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    child = await begin(["only-here"], guard, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    async with asyncio.timeout(TEST_TIMEOUT_S):
        assert await child.stdout.readline() == b"found\n"
    await stopped(child)


async def test_nothing_is_read_by_a_shell(guard: ProcessGuard):
    child = await begin([*script("line(sys.argv[1])"), "$HOME; echo 'pwned' `id`"], guard)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        assert await child.stdout.readline() == b"$HOME; echo 'pwned' `id`\n"
    await stopped(child)


# --- stopping


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("healthy", 0),
        ("ignores_stdin_close", -signal.SIGTERM),
        ("ignores_sigterm", -signal.SIGKILL),
    ],
)
async def test_a_server_is_stopped_by_closed_stdin_then_sigterm_then_sigkill(
    name: str, code: int, guard: ProcessGuard, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "TERM_GRACE_S", 0.2)
    if code:
        monkeypatch.setattr(process, "STDIN_GRACE_S", 0.2)
    child = await begin(broken_command(name), guard)
    await ready(child)
    assert await stopped(child) == code
    assert not alive(child.pid)


@pytest.mark.parametrize("name", ["ignores_stdin_close", "ignores_sigterm"])
async def test_a_server_in_no_conversation_is_stopped_in_a_hurry(name: str, guard: ProcessGuard):
    child = await begin(broken_command(name), guard)
    await ready(child)
    await stopped(child, hurry=True)
    assert not alive(child.pid)


@pytest.mark.parametrize("name", ["leaves_child", "leaves_child_on_stdout"])
async def test_the_children_a_server_leaves_behind_go_with_it(name: str, guard: ProcessGuard):
    child = await begin(broken_command(name), guard)
    await ready(child)
    assert len(members(child.pid)) == 2
    assert await stopped(child) == 0
    assert members(child.pid) == []


async def test_a_child_that_ignores_sigterm_goes_too(guard: ProcessGuard):
    sleeper = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(flush=True); time.sleep(120)"
    )
    body = f"""
import subprocess
child = subprocess.Popen([sys.executable, "-S", "-c", {sleeper!r}], stdout=subprocess.PIPE)
child.stdout.readline()
read()
send(id=1, result={{}})
read()
"""
    child = await begin(script(body), guard)
    await ready(child)
    assert await stopped(child) == 0
    assert members(child.pid) == []


async def test_a_server_that_never_read_its_input_keeps_no_pipe_open(guard: ProcessGuard):
    ours = psutil.Process()
    before = ours.num_fds()
    child = await begin(script("time.sleep(120)"), guard)
    child.stdin.write(b"x" * 1_000_000)
    await stopped(child, hurry=True)
    await until(lambda: ours.num_fds() <= before + 1)  # the guard's own pipe


async def test_output_that_nobody_read_keeps_no_pipe_open(guard: ProcessGuard):
    ours = psutil.Process()
    before = ours.num_fds()
    child = await begin(script('line(b"x" * 1_000_000)\nread()'), guard)
    await stopped(child, hurry=True)
    await until(lambda: ours.num_fds() <= before + 1)


async def test_pipes_held_by_a_process_that_left_the_group_are_closed(guard: ProcessGuard):
    ours = psutil.Process()
    before = ours.num_fds()
    body = """
import subprocess
escaped = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"], start_new_session=True)
line(str(escaped.pid))
read()
"""  # noqa: E501
    child = await begin(script(body), guard)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        escaped = int(await child.stdout.readline())
    try:
        assert await stopped(child) == 0
        await until(lambda: ours.num_fds() <= before + 1)
    finally:
        os.kill(escaped, signal.SIGKILL)


async def test_two_may_stop_a_server_at_once(guard: ProcessGuard):
    child = await begin(broken_command("healthy"), guard)
    await ready(child)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await asyncio.gather(process.stop(child), process.stop(child))
    assert child.returncode == 0


async def test_a_server_that_has_died_already_is_stopped_at_once(guard: ProcessGuard):
    child = await begin(broken_command("crash_on_start"), guard)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await child.exited
    assert await stopped(child) == 3


async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(guard: ProcessGuard):
    guard.ensure_running()
    here = psutil.Process()
    before = {found.pid for found in here.children()}
    for steps in range(12):
        starting = asyncio.create_task(begin(broken_command("ignores_sigterm"), guard))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting}, timeout=TEST_TIMEOUT_S)
        if not starting.cancelled():
            await stopped(starting.result(), hurry=True)
    await until(lambda: {found.pid for found in here.children() if alive(found.pid)} <= before)


# --- the guard

_GATEWAY = """
import sys, time
from portico.upstream.transports.process import ProcessGuard
guard = ProcessGuard()
guard.ensure_running()
for group in sys.argv[1:]:
    guard.register(int(group))
print(guard._process.pid, flush=True)
time.sleep(120)
"""


def orphan(name: str) -> "subprocess.Popen[bytes]":
    """A server in a group of its own whose stdin never closes."""
    server = subprocess.Popen(
        broken_command(name),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    server.stdin.flush()
    server.stdout.readline()
    return server


def gateway_over(groups: Sequence[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _GATEWAY, *groups], stdout=subprocess.PIPE)


def end(server: "subprocess.Popen[bytes]") -> None:
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            pipe.close()


async def test_when_its_gateway_is_killed_the_guard_ends_every_group_and_then_itself():
    servers = [orphan(name) for name in ("healthy", "ignores_sigterm", "leaves_child")]
    groups = [str(server.pid) for server in servers]
    gateway = gateway_over(groups)
    try:
        assert gateway.stdout is not None
        guard = int(gateway.stdout.readline())
        assert os.getpgid(guard) != os.getpgid(gateway.pid)
        gateway.kill()
        await until(lambda: all(server.poll() is not None for server in servers))
        await until(lambda: not alive(guard) and not any(members(server.pid) for server in servers))
    finally:
        end(gateway)
        for server in servers:
            end(server)


async def test_a_guard_that_was_killed_is_replaced_by_one_that_knows_the_same_groups(
    guard: ProcessGuard,
):
    server = orphan("healthy")
    try:
        guard.ensure_running()
        guard.register(server.pid)
        old = guard._process  # pyright: ignore[reportPrivateUsage]
        assert old is not None
        old.kill()
        old.wait()
        guard.unregister(2**22 + 1)  # nobody reads this, and nobody minds
        guard.ensure_running()
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await asyncio.gather(
                asyncio.to_thread(guard.close), until(lambda: server.poll() is not None)
            )
    finally:
        end(server)


async def test_a_group_that_was_released_is_left_alone():
    guard = ProcessGuard()
    server = orphan("healthy")
    try:
        guard.ensure_running()
        guard.register(server.pid)
        guard.unregister(server.pid)
        guard.close()
        assert server.poll() is None
    finally:
        end(server)


def test_a_guard_that_never_had_work_was_never_started():
    before = {found.pid for found in psutil.Process().children()}
    ProcessGuard().close()
    assert {found.pid for found in psutil.Process().children()} <= before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can adopt orphans on request")
async def test_a_gateway_that_is_a_containers_first_process_buries_the_orphans_of_its_servers(
    guard: ProcessGuard,
):
    adopt_orphans = 36
    libc = ctypes.CDLL(None)
    libc.prctl(adopt_orphans, 1, 0, 0, 0)
    try:
        child = await begin(broken_command("leaves_child"), guard)
        await ready(child)
        orphans = [pid for pid in members(child.pid) if pid != child.pid]
        await stopped(child)
        assert not any(psutil.pid_exists(pid) for pid in orphans)
    finally:
        libc.prctl(adopt_orphans, 0, 0, 0, 0)
