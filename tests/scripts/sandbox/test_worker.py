"""The pool of workers: warm, bounded, replaced when a script was too much, and never believed."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from portico.scripts import engines as workers
from portico.scripts.engines import WorkerEngine
from portico.scripts.sandbox.script import CallFailed, Script, ScriptLimits, ScriptOutcome
from tests.scripts.sandbox import jail_probe
from tests.upstream.loopback_server import advance_clock

PATIENCE_S = 30.0
ROOT = str(Path(__file__).parents[3])
QUICK = ScriptLimits(cpu_s=0.2, wall_s=20.0)
SPIN = "while true do end"


class Host:
    """Answers calls: `echo` gives its arguments back, `hang` never ends, `fail` and `limit`
    fail."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended: list[str] = []

    async def ask(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            self.begun.set()
            match name:
                case "hang":
                    await asyncio.Event().wait()
                case "fail":
                    raise CallFailed("it is not there")
                case "limit":
                    raise CallFailed("20 calls are the limit", fatal=True)
                case _:
                    return args
        except asyncio.CancelledError:
            await asyncio.sleep(
                0
            )  # a call that is cancelled may still have something to put in order
            self.ended.append(name)
            raise


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
async def lua() -> AsyncIterator[WorkerEngine]:
    engine = WorkerEngine("lua", workers=2)
    yield engine
    await engine.close()


@pytest.fixture
async def probe() -> AsyncIterator[WorkerEngine]:
    engine = WorkerEngine(jail_probe.RUNTIME, workers=1)
    yield engine
    await engine.close()


def script(code: str, limits: ScriptLimits = QUICK, **more: Any) -> Script:
    return Script(
        textwrap.dedent(code),
        "lua",
        {"t": ("echo", "hang", "fail", "limit")},
        limits=limits,
        **more,
    )


def kind(outcome: ScriptOutcome) -> str | None:
    return outcome.fault.kind if outcome.fault else None


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> bool:
    async with asyncio.timeout(PATIENCE_S):
        while lives(pid):  # noqa: ASYNC110 - another process tells nobody of its end
            await asyncio.sleep(0.02)
    return True


PID = "value = os.getpid()"


async def test_a_worker_runs_one_script_after_the_other(probe: WorkerEngine, host: Host) -> None:
    first = await probe.run(script(PID), host.ask)
    assert (await probe.run(script("1 / 0"), host.ask)).fault is not None
    assert (await probe.run(script(PID), host.ask)).value == first.value


async def test_a_worker_is_replaced_after_many_scripts(
    probe: WorkerEngine, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_SCRIPTS_PER_WORKER", 2)
    pids = [(await probe.run(script(PID), host.ask)).value for _ in range(4)]
    assert pids[0] == pids[1] != pids[2]
    assert await gone(pids[0])


async def test_a_script_that_computes_too_long_is_killed_and_the_next_one_runs(
    lua: WorkerEngine, host: Host
) -> None:
    assert kind(await lua.run(script(SPIN), host.ask)) == "time"
    assert (await lua.run(script("return 1"), host.ask)).value == 1


async def test_computing_while_a_call_is_under_way_is_computing_too(
    lua: WorkerEngine, host: Host
) -> None:
    outcome = await lua.run(script(f"t.hang() {SPIN}"), host.ask)
    assert kind(outcome) == "time"
    assert host.ended == ["hang"]
    assert outcome.unawaited_calls == 1


async def test_a_script_that_waits_too_long_is_killed_and_its_call_is_cancelled(
    lua: WorkerEngine, host: Host
) -> None:
    running = asyncio.create_task(lua.run(script("t.hang():await()"), host.ask))
    async with asyncio.timeout(2 * PATIENCE_S):
        await host.begun.wait()
        advance_clock(QUICK.wall_s)
        assert kind(await running) == "time"
    assert host.ended == ["hang"]


async def test_what_was_printed_and_stored_before_a_kill_is_kept(
    lua: WorkerEngine, host: Host
) -> None:
    outcome = await lua.run(script(f"print('so far') store('page', 7) {SPIN}"), host.ask)
    assert kind(outcome) == "time"
    assert outcome.printed == "so far\n"
    assert outcome.stored == {"page": 7}


async def test_a_process_that_somebody_kills_is_a_fault_of_its_script_alone(
    probe: WorkerEngine, host: Host
) -> None:
    pid = (await probe.run(script(PID), host.ask)).value
    running = asyncio.create_task(
        probe.run(script("channel.begin_call('t', 'hang', [], {})\ntime.sleep(60)"), host.ask)
    )
    async with asyncio.timeout(PATIENCE_S):
        await host.begun.wait()
        os.kill(pid, signal.SIGKILL)
        assert kind(await running) == "crash"
        assert (await probe.run(script("value = 1"), host.ask)).value == 1


async def test_cancelling_a_script_kills_it_and_waits_for_its_calls(
    probe: WorkerEngine, host: Host
) -> None:
    code = "channel.begin_call('t', 'hang', [], {})\nwhile True: pass"
    pid = (await probe.run(script(PID), host.ask)).value
    running = asyncio.create_task(probe.run(script(code, ScriptLimits(cpu_s=60)), host.ask))
    async with asyncio.timeout(PATIENCE_S):
        await host.begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert host.ended == ["hang"]
    assert await gone(pid)
    assert (await probe.run(script("value = 1"), host.ask)).value == 1


async def test_closing_leaves_no_process(probe: WorkerEngine, host: Host) -> None:
    pid = (await probe.run(script(PID), host.ask)).value
    spinning = asyncio.create_task(
        probe.run(script("channel.begin_call('t', 'echo', [], {})\nwhile True: pass"), host.ask)
    )
    async with asyncio.timeout(PATIENCE_S):
        await host.begun.wait()
        await probe.close()
        assert kind(await spinning) in ("crash", "time")
    assert await gone(pid)
    assert kind(await probe.run(script(PID), host.ask)) == "crash"
    await probe.close()


GATEWAY = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from portico.scripts.sandbox.script import Script, ScriptLimits
from portico.scripts.engines import WorkerEngine

async def ask(namespace, name, args, kwargs):
    print(args[0], flush=True)

async def main():
    engine = WorkerEngine("tests.scripts.sandbox.jail_probe:Probe", workers=1)
    code = "channel.begin_call('', 'pid', [os.getpid()], {})\\nwhile True: pass"
    await engine.run(Script(code, "lua", limits=ScriptLimits(cpu_s=60)), ask)

asyncio.run(main())
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a computing process that its parent is gone"
)
async def test_a_worker_ends_with_a_gateway_that_is_killed_while_it_computes() -> None:
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, ROOT, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE_S):
        assert gateway.stdout is not None
        worker = int(await gateway.stdout.readline())
        assert lives(worker)
        gateway.kill()
        await gateway.wait()
        assert await gone(worker)


LIES = {
    "a frame too large": "channel._write(b'\\xff\\xff\\xff\\xff')",
    "no JSON": "channel._write(b'\\0\\0\\0\\3}{}')",
    "no text": "channel._write(b'\\0\\0\\0\\2\\xff\\xff')",
    "no object": "channel._write(b'\\0\\0\\0\\2[]')",
    "no known message": "channel.send_message({'hello': 1})",
    "no known call": ("channel.send_message({'call': 'x', 'namespace': 't', 'name': 'echo', 'args': "  # noqa: E501
"[], 'kwargs': {}})"),
    "arguments of no form": ("channel.send_message({'call': 1, 'namespace': 't', 'name': 'echo', 'args': 5, "  # noqa: E501
"'kwargs': {}})"),
    "a number twice": ("for _ in 'ab': channel._next_call_id = 1; channel.begin_call('t', 'hang', [], "  # noqa: E501
"{})"),
    "no known end": "channel.send_message({'done': {'value': 1}})",
    "no known fault": ("channel.send_message({'done': {'value': 1, 'stored': {}, 'dropped': 0, 'fault': "  # noqa: E501
"{'kind': 'x'}}})"),
    "values too deep": "channel._write((600000).to_bytes(4, 'big') + b'[' * 600000)",
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
async def test_a_worker_that_lies_is_killed(probe: WorkerEngine, host: Host, lie: str) -> None:
    outcome = await probe.run(script(f"{LIES[lie]}\ntime.sleep(60)"), host.ask)
    assert kind(outcome) == "crash", outcome
    assert (await probe.run(script("value = 1"), host.ask)).value == 1


async def test_a_flood_of_calls_is_stopped_whatever_the_host_answers(
    probe: WorkerEngine, host: Host
) -> None:
    code = "for _ in range(10**6): channel.begin_call('t', 'hang', [], {})"
    outcome = await probe.run(script(code, ScriptLimits(calls=20)), host.ask)
    assert kind(outcome) == "call"
    assert len(host.ended) <= 41


async def test_calls_that_carry_too_much_are_stopped(probe: WorkerEngine, host: Host) -> None:
    code = "for _ in range(50): channel.begin_call('t', 'hang', ['x' * 500_000], {})"
    assert (
        kind(await probe.run(script(code, ScriptLimits(answer_bytes=10**6)), host.ask)) == "memory"
    )


async def test_prints_beyond_the_limit_are_dropped_even_if_the_worker_sends_them(
    probe: WorkerEngine, host: Host
) -> None:
    limits = ScriptLimits(output_bytes=1000)
    honest = await probe.run(
        script("for _ in range(10): channel.print('é' * 100)", limits), host.ask
    )
    assert (honest.printed, honest.dropped_chars) == ("é" * 500, 500)
    liar = await probe.run(
        script("for _ in range(10): channel.send_message({'print': 'é' * 100})", limits), host.ask
    )
    assert (liar.printed, liar.dropped_chars) == ("é" * 500, 500)


async def test_a_flood_of_prints_that_is_killed_says_that_something_is_missing(
    lua: WorkerEngine, host: Host
) -> None:
    outcome = await lua.run(
        script("while true do print('xxxxxxxxxx') end", ScriptLimits(cpu_s=0.3, output_bytes=1000)),
        host.ask,
    )
    assert kind(outcome) == "time"
    assert len(outcome.printed) == 1000
    assert outcome.dropped_chars > 0


async def test_a_fatal_call_ends_the_script_whatever_it_catches(
    lua: WorkerEngine, host: Host
) -> None:
    code = (
        "store('k', 1)\nlocal ok = pcall(function() t.limit():await() end)\n"
        "print('caught')\nreturn 'went on'"
    )
    outcome = await lua.run(script(code), host.ask)
    assert outcome.fault is not None
    assert (outcome.fault.kind, outcome.fault.message, outcome.value) == (
        "call",
        "20 calls are the limit",
        None,
    )
    assert outcome.stored == {"k": 1}
    stubborn = await lua.run(
        script("while true do pcall(function() t.limit():await() end) end", ScriptLimits()),
        host.ask,
    )
    assert kind(stubborn) == "call"


async def test_replies_nobody_waited_for_do_not_reach_the_next_script(
    lua: WorkerEngine, host: Host
) -> None:
    for _ in range(3):
        assert (
            await lua.run(
                script("t.echo('stale') t.echo('stale') return t.echo('first'):await()"), host.ask
            )
        ).value == ["first"]
    assert (await lua.run(script("return t.echo('mine'):await()"), host.ask)).value == ["mine"]


async def test_large_values_pass_in_both_directions(lua: WorkerEngine, host: Host) -> None:
    text = "é" * 2_000_000
    rows = [{"id": at, "text": "x" * 100} for at in range(10_000)]
    outcome = await lua.run(
        script(
            "return t.echo(load('text'), load('rows')):await()",
            ScriptLimits(),
            state={"text": text, "rows": rows},
        ),
        host.ask,
    )
    assert outcome.fault is None
    assert outcome.value == [text, rows]


async def test_scripts_wait_for_a_free_worker_in_turn(probe: WorkerEngine, host: Host) -> None:
    order: list[int] = []

    async def one(number: int) -> None:
        outcome = await probe.run(script(f"value = {number}"), host.ask)
        order.append(outcome.value)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(one(number) for number in range(8)))
    assert order == list(range(8))


async def test_a_script_that_never_gets_a_worker_says_so(probe: WorkerEngine, host: Host) -> None:
    first = asyncio.create_task(
        probe.run(
            script("channel.begin_call('t', 'hang', [], {})\nchannel.wait_for_reply()"), host.ask
        )
    )
    async with asyncio.timeout(PATIENCE_S):
        await host.begun.wait()
        outcome = await probe.run(script("value = 1", ScriptLimits(wall_s=0.05)), host.ask)
        assert kind(outcome) == "time"
        assert outcome.fault is not None
        assert "no worker was free" in outcome.fault.message
        first.cancel()
        await asyncio.wait({first})


async def test_a_runtime_that_cannot_start_says_why(host: Host) -> None:
    for runtime, why in (
        (f"{jail_probe.__name__}:Broken", "lupa"),
        ("no.such.module:Runtime", "no.such"),
    ):
        engine = WorkerEngine(runtime)
        try:
            outcome = await engine.run(script("return 1"), host.ask)
            assert outcome.fault is not None
            assert outcome.fault.kind == "crash"
            assert why in outcome.fault.message or why.partition(".")[0] in outcome.fault.message
        finally:
            await engine.close()
