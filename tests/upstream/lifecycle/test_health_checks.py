"""A server is looked after: asked how it is, left alone when it keeps dying, replaced without
losing a call."""

import asyncio
import os
import signal
from typing import Any

import pytest
from pydantic import ByteSize

from portico.config import HealthConfig, RestartConfig
from portico.errors import BackendBusy, BackendUnavailable, RemoteError
from portico.events import EventBus
from portico.testing import FakeBackend
from portico.upstream.backend import Era
from portico.upstream.lifecycle.connection_attempt import StartSlots
from portico.upstream.lifecycle.health_checks import is_busy, needs_check
from portico.upstream.lifecycle.instances import Instance
from portico.upstream.lifecycle.server_lifecycle import UpstreamOptions
from portico.upstream.lifecycle.supervisor import Upstream
from tests.upstream.loopback_server import advance_clock, run_pending_callbacks
from tests.upstream.scripted import TEST_TIMEOUT_S, faulty_server, scripted
from tests.upstream.supervised import ANSWER, ECHO, Slow, alive, call, fake, until, upstream

OFTEN = HealthConfig(every_s=0.02, timeout_s=0.05, failures=2)
NEVER = HealthConfig(every_s=0)


class Command(FakeBackend):
    """A fake that passes for a command, so that it can be put in quarantine."""

    kind = "stdio"

    def __init__(self) -> None:
        super().__init__([ECHO])
        self.on_call("echo", lambda _: ANSWER)
        self.said: list[str] = []

    def diagnostics(self) -> dict[str, Any]:
        return {"stderr": self.said}


class Working(FakeBackend):
    """A server whose calls take until `gate` is set; `deaf` leaves every health check
    unanswered."""

    def __init__(self, **options: Any) -> None:
        super().__init__([ECHO], **options)
        self.gate = asyncio.Event()
        self.deaf = False
        self.checks = 0
        self.on_call("echo", lambda _: ANSWER)
        self.on_call("work", self._work)
        self.on("ping", self._ping)
        self.on("server/discover", self._ping)

    async def _work(self, _: Any) -> Any:
        await self.gate.wait()
        return ANSWER

    async def _ping(self, _: Any, __: Any) -> Any:
        self.checks += 1
        if self.deaf:
            await asyncio.Event().wait()
        return {}


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


# --- quarantine


async def test_a_command_that_cannot_be_started_is_quarantined_and_its_last_lines_are_shown():
    clock = Clock()
    rule = RestartConfig(tries=3, quarantine_s=600)
    async with upstream(faulty_server("crash_on_start"), restart=rule, clock=clock) as watched:
        for _ in range(3):
            with pytest.raises(BackendUnavailable):
                await call(watched)
            clock.now += 10
        status = watched.get_status()
        assert (status.state, status.breaker_phase, status.failures) == ("quarantined", "open", 3)
        assert status.stderr == ("fatal: EXAMPLE_API_KEY is not set",)
        assert "in quarantine after 3 failures within 10 min" in status.reason
        assert status.next_try_at is not None
        with pytest.raises(BackendUnavailable, match="EXAMPLE_API_KEY is not set") as refused:
            await call(watched)
        assert "`portico restart server` tries it at once" in refused.value.advice
        assert "The next try is in 10 min" in refused.value.advice


async def test_a_command_that_dies_of_every_call_is_not_restarted_for_ever():
    async with upstream(faulty_server("dies_mid_call"), restart=RestartConfig(tries=3)) as watched:
        pids: set[int] = set()
        for _ in range(6):
            with pytest.raises(BackendUnavailable):
                await call(watched)
            await until(lambda: watched.state in ("down", "quarantined"))
            pids.add(watched.get_status().diagnostics["pid"])
        assert (watched.state, len(pids)) == ("quarantined", 3)
        assert "exited with code 4" in watched.reason


async def test_a_server_that_works_well_in_between_may_die_as_often_as_it_likes():
    clock, backend = Clock(), Command()
    async with upstream(backend, restart=RestartConfig(tries=2), clock=clock) as watched:
        for _ in range(6):
            await call(watched)
            clock.now += 20
            await call(watched)
            backend.die("of old age")
        assert watched.state == "down"
        assert await call(watched) == "echoed"


async def test_a_server_elsewhere_is_never_put_in_quarantine():
    clock, backend = Clock(), fake()
    backend.refuses = BackendUnavailable("nobody is there")
    async with upstream(
        backend, restart=RestartConfig(tries=2, longest_s=5), clock=clock
    ) as watched:
        for _ in range(6):
            with pytest.raises(BackendUnavailable):
                await call(watched)
            clock.now += 5
        assert (watched.state, watched.get_status().breaker_phase) == ("down", "half-open")
        backend.refuses = None
        assert await call(watched) == "echoed"
        assert watched.get_status().breaker_phase == "closed"


async def test_a_quarantine_ends_with_one_try_when_its_time_is_up():
    clock, backend = Clock(), Command()
    backend.refuses = BackendUnavailable("no")
    async with upstream(
        backend, restart=RestartConfig(tries=1, quarantine_s=60), clock=clock
    ) as watched:
        with pytest.raises(BackendUnavailable):
            await call(watched)
        assert watched.state == "quarantined"
        clock.now += 61
        backend.refuses = None
        assert await call(watched) == "echoed"
        assert (watched.state, watched.get_status().breaker_phase) == ("ready", "closed")


async def test_of_a_second_try_there_is_one_and_everyone_else_is_answered_at_once():
    clock, backend = Clock(), Slow()
    backend.refuses = BackendUnavailable("the licence server is away")
    backend.gate.set()
    async with upstream(backend, clock=clock) as watched:
        with pytest.raises(BackendUnavailable):
            await call(watched)
        clock.now += 1
        backend.refuses = None
        backend.gate.clear()
        trial = asyncio.create_task(call(watched))
        await until(lambda: watched.state == "starting")
        with pytest.raises(BackendUnavailable, match="the licence server is away") as refused:
            await call(watched)
        assert "being tried again just now" in refused.value.advice
        backend.gate.set()
        assert await trial == "echoed"
        assert await call(watched) == "echoed"
        assert backend.connections == 2


async def test_who_is_wanted_comes_back_by_itself_once_the_pause_is_over():
    clock, backend = Clock(), fake()
    async with upstream(backend, clock=clock) as watched:
        await watched.connect()
        backend.die("the machine slept")
        await watched.maintain()
        assert backend.connections == 1, "nobody wants it"
        await watched.maintain(restart_if_down=True)
        assert watched.state == "down", (
            "it failed before it had answered anyone, so there is a pause"
        )
        clock.now += 1
        await watched.maintain(restart_if_down=True)
        await until(lambda: watched.state == "ready")
        assert (backend.connections, watched.get_status().restarts) == (2, 1)


async def test_another_configuration_ends_a_quarantine():
    backend = Command()
    backend.refuses = BackendUnavailable("no")
    async with upstream(backend, restart=RestartConfig(tries=1, quarantine_s=0)) as watched:
        with pytest.raises(BackendUnavailable):
            await call(watched)
        backend.refuses = None
        watched.configure(30, RestartConfig(tries=2), HealthConfig())
        assert watched.state == "configured"
        assert await call(watched) == "echoed"


# --- health


@pytest.mark.parametrize(("era", "method"), [("legacy", "ping"), ("modern", "server/discover")])
async def test_a_quiet_server_is_asked_how_it_is_in_the_words_of_its_era(era: Era, method: str):
    backend = Working(era=era)
    async with upstream(backend, health=OFTEN) as watched:
        await watched.connect()
        await until(lambda: backend.checks > 3)
        assert {name for name, _ in backend.requests} == {method}
        assert (watched.state, backend.connections) == ("ready", 1)


async def test_a_server_that_answers_with_an_error_is_there():
    backend = fake()

    def refuse(params: Any, ask: Any) -> Any:
        raise RemoteError(-32601, "what is a ping?")

    backend.on("ping", refuse)
    async with upstream(backend, health=OFTEN) as watched:
        await watched.connect()
        await until(lambda: len(backend.requests) > 5)
        assert (watched.state, backend.connections) == ("ready", 1)


async def test_a_server_that_no_longer_answers_is_restarted_and_says_why():
    backend = Working()
    async with upstream(backend, health=OFTEN) as watched:
        await watched.connect()
        backend.deaf = True
        await until(lambda: backend.connections > 1)
        backend.deaf = False
        await until(lambda: watched.state == "ready")
        assert watched.get_status().restart_reason.startswith(
            "it did not answer 2 health checks in a row"
        )
        assert watched.get_status().restarts >= 1
        assert await call(watched) == "echoed"


async def test_one_missed_check_is_shown_and_forgiven():
    backend = Working()
    async with upstream(backend, health=OFTEN.model_copy(update={"failures": 1_000})) as watched:
        await watched.connect()
        backend.deaf = True
        await until(lambda: watched.state == "degraded")
        assert "did not answer" in watched.reason
        backend.deaf = False
        await until(lambda: watched.state == "ready")
        assert backend.connections == 1


async def test_a_server_that_is_busy_with_a_call_is_not_asked_and_not_killed():
    backend = Working()
    async with upstream(backend, health=OFTEN) as watched:
        await watched.connect()
        await until(lambda: backend.checks > 1)
        backend.deaf = True
        working = asyncio.create_task(call(watched, "work"))
        await until(lambda: ("tools/call", {"name": "work", "arguments": {}}) in backend.requests)
        before = backend.checks
        await asyncio.sleep(
            20 * OFTEN.every_s
        )  # long enough to have been asked, and given up, several times
        assert backend.checks <= before + 1, "only one that was already on its way"
        backend.deaf = False
        backend.gate.set()
        assert await working == "echoed"
        assert backend.connections == 1


def test_silence_is_counted_from_the_last_sign_of_life_and_only_while_no_call_is_within_its_time():
    backend: Any = None
    instance = Instance(backend, last_used_at=0, started_at=0, last_heard_at=0)
    assert needs_check(instance, 10, 600)
    instance.heard_since_check = True
    instance.missed_checks = 2
    assert not needs_check(instance, 20, 600)
    assert (instance.heard_since_check, instance.last_heard_at, instance.missed_checks) == (
        False,
        20,
        0,
    )
    instance.pending_calls = 1
    assert not needs_check(instance, 100, 600)
    assert is_busy(instance, 619, 600)
    assert needs_check(instance, 620, 600), "no call may take as long as that"


async def test_a_call_of_a_frozen_process_fails_with_the_reason_and_another_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("portico.upstream.transports.process.STDIN_GRACE_S", 0.1)
    monkeypatch.setattr("portico.upstream.transports.process.TERM_GRACE_S", 0.1)
    # Only of the frozen one: another may be slow to answer on a busy machine, and is well.
    health = HealthConfig(every_s=0.05, timeout_s=0.1, failures=2)
    async with upstream(faulty_server("healthy"), health=NEVER, max_call_s=0.1) as watched:
        first = int(await call(watched, "pid"))
        os.kill(first, signal.SIGSTOP)
        watched.configure(TEST_TIMEOUT_S, RestartConfig(), health)
        with pytest.raises(
            BackendUnavailable, match=r"did not answer 2 health checks in a row, each within 0\.1 s"
        ):
            await call(watched)
        watched.configure(TEST_TIMEOUT_S, RestartConfig(), NEVER)
        second = int(await call(watched, "pid"))
        assert second != first
        assert not alive(first), (
            "the old one is gone before the new one starts: they may want the same port"
        )
        assert (watched.state, watched.get_status().restarts) == ("ready", 1)


async def test_nothing_is_asked_of_a_server_that_is_idle():
    backend = Working()
    async with upstream(backend, health=OFTEN) as watched:
        await watched.connect()
        await watched.stop_if_idle(0)
        checks = backend.checks
        await asyncio.sleep(5 * OFTEN.every_s)
        assert (backend.checks, backend.connections) == (checks, 1)


# --- restarting


async def test_a_restart_gives_a_new_process_and_ends_the_old_one():
    async with upstream(faulty_server("healthy")) as watched:
        first = int(await call(watched, "pid"))
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.restart()
        assert (watched.state, alive(first)) == ("ready", False)
        assert int(await call(watched, "pid")) != first
        assert (watched.get_status().restarts, watched.get_status().restart_reason) == (
            1,
            "a restart was asked for",
        )


async def test_calls_under_way_end_on_the_old_one_while_new_ones_go_to_the_new_one():
    body = """
shake()
for id, method, params in requests():
    if method == "tools/call" and params["name"] == "slow":
        waiting = id
    elif method == "tools/call":
        send(id=id, result={"content": [{"type": "text", "text": str(os.getpid())}]})
        if params["name"] == "finish":
            send(id=waiting, result={"content": [{"type": "text", "text": str(os.getpid())}]})
"""
    async with upstream(scripted(body, protocol="legacy"), health=NEVER) as watched:
        first = await call(watched)
        old = watched.any_connection
        assert old is not None
        slow = asyncio.create_task(call(watched, "slow"))
        await until(lambda: watched.get_status().calls == 2)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.restart()
        second = await call(watched)
        assert second != first
        assert alive(int(first)), "it is still at work"
        await old.request("tools/call", {"name": "finish"})
        assert await slow == first
        await until(lambda: not alive(int(first)))
        assert await call(watched) == second


async def test_a_call_that_outlasts_the_drain_fails_with_the_reason():
    silent = "shake()\nfor id, method, params in requests():\n    pass"
    backend = scripted(silent, protocol="legacy")
    async with upstream(backend, health=NEVER, restart=RestartConfig(drain_s=0.1)) as watched:
        slow = asyncio.create_task(call(watched))
        await until(lambda: watched.get_status().calls == 1)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.restart("a new version is installed")
            with pytest.raises(
                BackendUnavailable, match="it is restarted: a new version is installed"
            ):
                await slow


async def test_the_death_of_an_old_one_that_drains_is_no_loss_of_the_new_one():
    backend = Working()
    async with upstream(backend, health=NEVER) as watched:
        working = asyncio.create_task(call(watched, "work"))
        await until(lambda: watched.get_status().calls == 1)
        (old,) = backend._listeners  # pyright: ignore[reportPrivateUsage]
        await watched.restart()
        old.on_lost("of old age")
        assert watched.state == "ready"
        backend.gate.set()
        assert await working == "echoed"
        await until(lambda: backend.connected == 1)


async def test_a_restart_ends_a_quarantine_and_says_when_it_does_not_help():
    backend = Command()
    backend.refuses = BackendUnavailable("the key is missing", advice="Set KEY.")
    async with upstream(backend, restart=RestartConfig(tries=1, quarantine_s=0)) as watched:
        with pytest.raises(BackendUnavailable):
            await call(watched)
        assert watched.state == "quarantined"
        with pytest.raises(BackendUnavailable, match="the key is missing") as why:
            await watched.restart()
        assert why.value.advice == "Set KEY."
        backend.refuses = None
        await watched.restart()
        assert (watched.state, watched.get_status().breaker_phase) == ("ready", "closed")
        assert await call(watched) == "echoed"


async def test_whoever_restarts_a_server_that_is_being_restarted_gets_the_same_restart():
    backend = Slow()
    backend.gate.set()
    async with upstream(backend) as watched:
        await call(watched)
        backend.gate.clear()
        restarts = [asyncio.create_task(watched.restart()) for _ in range(5)]
        await until(lambda: watched.state == "starting")
        backend.gate.set()
        await asyncio.wait_for(asyncio.gather(*restarts), TEST_TIMEOUT_S)
        assert backend.connections == 2
        await watched.restart(requested_at=0.0)
        assert backend.connections == 2, "there was a restart since then"


async def test_a_server_whose_configuration_is_broken_says_so_when_it_is_restarted():
    async with upstream(fake()) as watched:
        watched.set_state("disabled", "HUB_TOKEN is not set")
        with pytest.raises(BackendUnavailable, match="HUB_TOKEN is not set"):
            await watched.restart()
        assert watched.state == "disabled"


async def test_a_restart_gives_every_client_of_an_isolated_server_a_new_instance():
    async with upstream(faulty_server("healthy"), isolated=True) as watched:
        before = [await call(watched, "pid", session) for session in ("one", "two")]
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.restart()
        after = [await call(watched, "pid", session) for session in ("one", "two")]
        assert not set(before) & set(after)
        await until(lambda: not any(alive(int(pid)) for pid in before))


# --- retiring


async def test_who_retires_answers_what_was_asked_and_takes_what_had_already_found_it():
    backend = Working()
    async with upstream(backend) as watched:
        working = asyncio.create_task(call(watched, "work"))
        await until(lambda: watched.get_status().calls == 1)
        retiring = asyncio.create_task(watched.retire(TEST_TIMEOUT_S))
        await asyncio.sleep(0)
        assert await call(watched) == "echoed"
        backend.gate.set()
        assert await working == "echoed"
        await asyncio.wait_for(retiring, TEST_TIMEOUT_S)
        assert backend.connected == 0
        with pytest.raises(BackendUnavailable, match="a new one has taken its place") as refused:
            await call(watched)
        assert refused.value.retryable


async def test_who_retires_does_not_wait_longer_than_it_was_given():
    backend = Working()
    async with upstream(backend) as watched:
        working = asyncio.create_task(call(watched, "work"))
        await until(lambda: watched.get_status().calls == 1)
        await asyncio.wait_for(watched.retire(0.05), TEST_TIMEOUT_S)
        assert backend.connected == 0
        working.cancel()
        await asyncio.wait({working})


async def test_waiting_for_the_last_answer_says_whether_it_came():
    backend = Working()
    async with upstream(backend) as watched:
        assert await watched.wait_until_drained(0)
        working = asyncio.create_task(call(watched, "work"))
        await until(lambda: watched.get_status().calls == 1)
        assert not await watched.wait_until_drained(0.01)
        draining = asyncio.create_task(watched.wait_until_drained(TEST_TIMEOUT_S))
        backend.gate.set()
        assert await draining
        assert await working == "echoed"


# --- memory


async def test_a_command_that_has_grown_too_large_is_replaced_after_its_calls():
    body = """
shake()
kept = []
for id, method, params in requests():
    if method == "tools/call" and params["name"] == "grow":
        kept.append(bytearray(os.urandom(1024)) * (64 * 1024))
    if method == "tools/call":
        send(id=id, result={"content": [{"type": "text", "text": str(os.getpid())}]})
"""
    async with upstream(
        scripted(body, protocol="legacy"), restart=RestartConfig(memory=ByteSize(60 * 1024**2))
    ) as watched:
        first = int(await call(watched))
        await watched.maintain()
        assert 0 < watched.get_status().memory_bytes < 60 * 1024**2
        assert int(await call(watched)) == first
        await call(watched, "grow")
        await watched.maintain()
        assert watched.get_status().memory_bytes > 60 * 1024**2
        await until(lambda: not alive(first))
        second = int(await call(watched))
        assert second != first
        assert "over its restart.memory of 60 MiB" in watched.get_status().restart_reason
        assert (watched.state, watched.get_status().restarts) == ("ready", 1)
        await call(watched, "grow")
        await watched.maintain(restart_if_down=True)
        await until(lambda: watched.state == "ready" and not alive(second))
        assert watched.get_status().restarts == 2, (
            "who is wanted is there again before anyone calls"
        )


# --- starting


async def test_only_so_many_servers_are_started_by_calls_at_the_same_time():
    starts, backends = StartSlots(2), [Slow() for _ in range(4)]
    watched = [
        Upstream(f"s{at}", backend, EventBus(), UpstreamOptions(start_slots=starts))
        for at, backend in enumerate(backends)
    ]
    calls = [asyncio.create_task(call(one)) for one in watched]
    try:
        await until(lambda: sum(one.begun.is_set() for one in backends) == 2)
        await asyncio.sleep(0.05)
        assert sum(one.begun.is_set() for one in backends) == 2
        for backend in backends:
            backend.gate.set()
        assert await asyncio.gather(*calls) == ["echoed"] * 4
    finally:
        await asyncio.gather(*(one.stop() for one in watched))


async def test_starts_that_hang_give_up_their_place_and_a_start_nobody_called_needs_none():
    starts, hanging, quick, boot = StartSlots(1, slot_s=0.02), Slow(), fake(), fake()
    watched = [
        Upstream(name, one, EventBus(), UpstreamOptions(start_slots=starts))
        for name, one in (("a", hanging), ("b", quick), ("c", boot))
    ]
    hung = asyncio.create_task(call(watched[0]))
    try:
        await until(hanging.begun.is_set)
        await asyncio.wait_for(watched[2].connect(), TEST_TIMEOUT_S)
        assert await call(watched[1]) == "echoed"
        hanging.gate.set()
        assert await hung == "echoed"
    finally:
        await asyncio.gather(*(one.stop() for one in watched))


async def test_a_start_that_finds_no_slot_in_time_fails_and_the_server_is_not_to_blame():
    starts, hanging, other = StartSlots(1, slot_s=TEST_TIMEOUT_S), Slow(), fake()
    watched = [
        Upstream("a", hanging, EventBus(), UpstreamOptions(start_slots=starts)),
        Upstream("b", other, EventBus(), UpstreamOptions(start_slots=starts, start_timeout=20)),
    ]
    hung = asyncio.create_task(call(watched[0]))
    try:
        await until(hanging.begun.is_set)
        refused = asyncio.create_task(call(watched[1]))
        await run_pending_callbacks()  # it waits for a slot
        advance_clock(20)
        with pytest.raises(BackendBusy, match=r"as many as may be \(1\) are being started"):
            await refused
        assert (watched[1].state, watched[1].get_status().breaker_phase) == ("configured", "closed")
        hanging.gate.set()
        assert await hung == "echoed"
        assert await call(watched[1]) == "echoed"
    finally:
        await asyncio.gather(*(one.stop() for one in watched))
