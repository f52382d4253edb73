"""The jail: what a worker that was taken over could still do to the machine."""

import platform
import sys

import pytest

from portico.scripts.engines import WorkerEngine
from portico.scripts.sandbox.script import Script, ScriptLimits
from portico.scripts.sandbox.worker import jail, seccomp
from tests.scripts.sandbox.jail_probe import RUNTIME

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="needs Linux's Landlock and seccomp",
)

REFUSED = {
    "reading a file": "open('/etc/hostname').read()",
    "writing a file": "open('/tmp/portico-was-here', 'w').write('x')",
    "listing a folder": "os.listdir('/')",
    "looking at a file": "os.stat('/etc/passwd')",
    "reading another process": "open(f'/proc/{os.getppid()}/environ').read()",
    "removing a file": "os.unlink('/tmp/portico-was-never-here')",
    "importing": "import wave",
    "a pipe": "os.pipe()",
    "more limits": "resource.setrlimit(0, (1, 1))",
    "memory that can be executed": "mmap.mmap(-1, 4096, prot=7)",
}
FATAL = {
    "a socket": "socket.socket()",
    "a pair of sockets": "socket.socketpair()",
    "a fork": "os.fork()",
    "another program": "os.execv('/bin/true', ['true'])",
    "a signal to the gateway": "os.kill(os.getppid(), signal.SIGTERM)",
    "a signal to everybody": "os.kill(-1, signal.SIGTERM)",
    "a signal to the gateway's group": "os.killpg(os.getppid(), 0)",
    "a thread": "_thread.start_new_thread(print, ())",
    "a debugger": "libc.ptrace(16, os.getppid(), 0, 0)",
}


async def nobody(
    namespace: str, name: str, args: list[object], kwargs: dict[str, object]
) -> object:
    raise AssertionError("no script here calls anything")


async def test_what_reaches_for_the_machine_is_refused() -> None:
    engine = WorkerEngine(RUNTIME, workers=1)
    try:
        for what, code in REFUSED.items():
            outcome = await engine.run(Script(code, "lua"), nobody)
            assert outcome.fault is not None, f"{what}: {outcome}"
            assert outcome.fault.kind in ("runtime", "crash"), f"{what}: {outcome}"
            assert outcome.fault.kind == "crash" or _is_refusal(outcome.fault.message), (
                f"{what}: {outcome}"
            )
    finally:
        await engine.close()


def _is_refusal(message: str) -> bool:
    return message.startswith(
        ("PermissionError", "ModuleNotFoundError", "ImportError", "OSError", "ValueError")
    )


async def test_what_only_an_attack_would_try_ends_its_process() -> None:
    engine = WorkerEngine(RUNTIME, workers=1)
    try:
        for what, code in FATAL.items():
            outcome = await engine.run(Script(code, "lua"), nobody)
            assert outcome.fault is not None, f"{what}: {outcome}"
            assert outcome.fault.kind == "crash", f"{what}: {outcome}"
            assert "jail forbids" in outcome.fault.message, f"{what}: {outcome}"
    finally:
        await engine.close()


async def test_nothing_of_the_gateways_environment_is_in_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PORTICO_TEST_TOKEN", "secret")
    engine = WorkerEngine(RUNTIME, workers=1)
    try:
        outcome = await engine.run(Script("value = sorted(os.environ)", "lua"), nobody)
        assert set(outcome.value) <= {"LANG", "LC_CTYPE", "TZ"}
        inherited = await engine.run(Script(_OPEN_FILES, "lua"), nobody)
        assert inherited.value == [0, 1, 2, "source", "sink"]
    finally:
        await engine.close()


_OPEN_FILES = """
value = []
for number in range(64):
    if number in (channel._read_fd, channel._write_fd):
        value.append("source" if number == channel._read_fd else "sink")
        continue
    try:
        os.write(number, b"")
        value.append(number)
    except OSError as error:
        if error.errno != 9:
            value.append(number)
"""


async def test_memory_beyond_the_limits_is_a_fault_and_not_the_machines_trouble() -> None:
    engine = WorkerEngine(RUNTIME, workers=1)
    try:
        code = "value = len([bytearray(1024**2) for _ in range(2000)])"
        outcome = await engine.run(
            Script(code, "lua", limits=ScriptLimits(memory_bytes=8 * 1024**2)), nobody
        )
        assert outcome.fault is not None
        assert outcome.fault.kind == "memory"
        assert (await engine.run(Script("value = 1", "lua"), nobody)).value == 1
    finally:
        await engine.close()


async def test_the_jail_says_what_it_holds() -> None:
    engine = WorkerEngine(RUNTIME, workers=1)
    try:
        await engine.start()
        assert any(kept.startswith("seccomp") for kept in engine.restrictions)
        assert any(kept.startswith("rlimit") for kept in engine.restrictions)
        assert any("privileges" in kept for kept in engine.restrictions)
        assert set(jail.find_missing_layers(engine.restrictions)) <= {
            "landlock"
        }  # which a kernel may be built without
        assert jail.find_missing_layers(()) == jail.LAYERS
    finally:
        await engine.close()


ALLOW, EPERM, KILL = 0x7FFF_0000, 0x0005_0001, 0x8000_0000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, number: int, *, third: int = 0, architecture: int | None = None) -> int:
    """What the kernel would make of the filter: the same machine, in Python."""
    steps, at, held = seccomp.build_filter(machine), 0, 0
    given = {0: number, 4: architecture or ARCHITECTURES[machine], 32: third}
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


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_of_each_machine_does_what_its_tables_say(machine: str, column: int) -> None:
    allowed = {numbers[column] for numbers in seccomp.ALLOWED.values()} - {-1}
    fatal = {numbers[column] for numbers in seccomp.FATAL.values()} - {-1}
    careful = {numbers[column] for numbers in seccomp.NOT_EXECUTABLE.values()}
    assert not allowed & fatal
    for number in range(500):
        expected = ALLOW if number in allowed | careful else KILL if number in fatal else EPERM
        assert verdict(machine, number, third=3) == expected, number
    for number in careful:
        assert verdict(machine, number, third=7) == EPERM
    assert verdict(machine, 0, architecture=0x40000003) == KILL
    assert verdict(machine, 0x4000_0000) == KILL
