"""One server's life: started once however many want it, known by its state, gone when nobody needs
it."""

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from portico.config import BackendConfig, Config, LimitsConfig, Timeouts
from portico.errors import BackendUnavailable, RemoteError
from portico.events import Event, ServerStateChanged, UpstreamLost, UpstreamReady
from portico.gateway import GatewayRuntime
from portico.storage.manifests import ManifestStore
from portico.testing import FakeBackend, connect, gateway_over
from portico.upstream.backend import Connection, Era, Listener
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.transports.stdio import StdioBackend
from tests.fixtures import broken_command
from tests.upstream.loopback_server import advance_clock
from tests.upstream.scripted import TEST_TIMEOUT_S, faulty_server, methods, recorded_server, script
from tests.upstream.supervised import ANSWER, ECHO, Slow, alive, call, fake, until, upstream


class Unusual(FakeBackend):
    """A server that fails in a way nobody planned."""

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        raise KeyError("surprise")


def server(command: Sequence[str], **options: Any) -> BackendConfig:
    return BackendConfig(command=command[0], args=tuple(command[1:]), **options)


def running(config: Config) -> GatewayRuntime:
    return GatewayRuntime(config, manifests=ManifestStore(None))


async def listed(gateway: GatewayRuntime) -> None:
    await asyncio.wait_for(gateway.wait_until_listed(), TEST_TIMEOUT_S)


# --- starting


async def test_twenty_first_calls_at_once_start_one_process(tmp_path: Path):
    async with upstream(recorded_server("healthy", tmp_path / "heard")) as watched:
        assert watched.state == "configured"
        pids = await asyncio.gather(*(call(watched, "pid") for _ in range(20)))
        assert len(set(pids)) == 1
        assert watched.get_status().calls == 20
    assert len(methods(tmp_path / "heard")) == 1


async def test_a_caller_that_gives_up_does_not_stop_the_start_for_the_others():
    backend = Slow()
    async with upstream(backend) as watched:
        callers = [asyncio.create_task(call(watched)) for _ in range(3)]
        await backend.begun.wait()
        callers[0].cancel()
        await asyncio.wait({callers[0]})
        backend.gate.set()
        assert [await caller for caller in callers[1:]] == ["echoed", "echoed"]
        assert (callers[0].cancelled(), backend.connections, backend.cancelled) == (True, 1, 0)


async def test_a_start_that_everyone_has_given_up_is_there_for_the_next_caller():
    backend = Slow()
    async with upstream(backend) as watched:
        caller = asyncio.create_task(call(watched))
        await backend.begun.wait()
        caller.cancel()
        await asyncio.wait({caller})
        backend.gate.set()
        assert await call(watched) == "echoed"
        assert backend.connections == 1


async def test_a_start_nobody_waits_for_any_more_may_fail_without_a_complaint(
    caplog: pytest.LogCaptureFixture,
):
    backend = Slow()
    backend.refuses = BackendUnavailable("no")
    async with upstream(backend) as watched:
        caller = asyncio.create_task(call(watched))
        await backend.begun.wait()
        caller.cancel()
        await asyncio.wait({caller})
        backend.gate.set()
        await until(lambda: watched.state == "down")
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_states_follow_a_servers_life_and_say_why():
    backend = Slow()
    events: list[Event] = []
    async with upstream(backend, has_listing=True) as watched:
        watched._bus.subscribe(events.append)  # pyright: ignore[reportPrivateUsage]
        assert (watched.state, watched.reason) == ("known", "")
        caller = asyncio.create_task(call(watched))
        await backend.begun.wait()
        assert watched.state == "starting"
        backend.gate.set()
        await caller
        assert watched.state == "ready"
        assert watched.get_status().initialize_info is backend.initialize_info
        watched.degrade("it could not be listed")
        assert (watched.state, watched.reason) == ("degraded", "it could not be listed")
        watched.mark_listed()
        assert (watched.state, watched.reason) == ("ready", "")
        backend.die("it was stopped")
        assert (watched.state, watched.reason) == ("down", "it was stopped")
    assert events == [
        ServerStateChanged("server", "starting"),
        ServerStateChanged("server", "ready"),
        UpstreamReady("server"),
        ServerStateChanged("server", "degraded", "it could not be listed"),
        ServerStateChanged("server", "ready"),
        ServerStateChanged("server", "down", "it was stopped"),
        UpstreamLost("server", "it was stopped"),
    ]


async def test_a_server_that_is_not_up_cannot_be_degraded():
    async with upstream(fake()) as watched:
        watched.degrade("a listing came too late")
        assert watched.state == "configured"


# --- failing


async def test_after_a_failure_the_reason_is_answered_at_once_without_another_try():
    backend = fake()
    backend.refuses = BackendUnavailable("the key is missing", advice="Set KEY.")
    async with upstream(backend, clock=lambda: 1_000.0) as watched:
        with pytest.raises(
            BackendUnavailable, match=r"known but unavailable since \d\d:\d\d:\d\d: the key is m"
        ) as first:
            await call(watched)
        assert first.value.advice == "Set KEY."
        backend.refuses = None
        with pytest.raises(BackendUnavailable, match="the key is missing") as second:
            await call(watched)
        assert "The next try is in 1 s." in second.value.advice
        assert (backend.connections, watched.state) == (1, "down")


async def test_pauses_double_up_to_a_limit_and_an_answer_ends_them(monkeypatch: pytest.MonkeyPatch):
    now = 1_000.0
    monkeypatch.setattr("portico.upstream.lifecycle.restart_circuit_breaker._JITTER", 0)
    backend = fake()
    backend.refuses = BackendUnavailable("no")
    waits: list[int] = []
    async with upstream(backend, clock=lambda: now) as watched:
        for _ in range(8):
            with pytest.raises(BackendUnavailable):
                await call(watched)
            with pytest.raises(BackendUnavailable) as caught:
                await call(watched)
            waits.append(int(caught.value.advice.split()[-2]))
            now += waits[-1]
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
        backend.refuses = None
        assert await call(watched) == "echoed"
        backend.die()
        assert await call(watched) == "echoed"


async def test_a_server_that_never_answers_is_unavailable_when_its_time_is_up():
    async with upstream(faulty_server("never_answers"), start_timeout=1) as watched:
        with pytest.raises(BackendUnavailable, match=r"no answer to the handshake within 1 s"):
            await call(watched)
        assert watched.state == "down"
        assert not alive(watched.get_status().diagnostics["pid"])


async def test_a_server_that_asks_for_something_on_stderr_and_waits_is_quoted():
    command, *args = script(
        'sys.stderr.write("Enter your API key: ")\nsys.stderr.flush()\ntime.sleep(120)'
    )
    backend = StdioBackend("asks", command, tuple(args))
    async with upstream(backend, start_timeout=20) as watched:
        calling = asyncio.create_task(call(watched))
        await until(lambda: backend.diagnostics().get("stderr") == ["Enter your API key: "])
        advance_clock(20)
        with pytest.raises(BackendUnavailable, match="Enter your API key"):
            await calling
        assert watched.get_status().diagnostics["stderr"] == ["Enter your API key: "]


async def test_a_crash_at_the_start_says_what_the_server_said():
    async with upstream(faulty_server("crash_on_start")) as watched:
        with pytest.raises(
            BackendUnavailable, match=r"exited with code 3.*EXAMPLE_API_KEY is not set"
        ):
            await call(watched)
        assert watched.get_status().diagnostics["stderr"] == ["fatal: EXAMPLE_API_KEY is not set"]


async def test_a_refused_handshake_says_so_with_the_code():
    backend = fake()
    backend.refuses = RemoteError(-32000, "licence expired")
    async with upstream(backend) as watched:
        with pytest.raises(
            BackendUnavailable, match=r"refused the handshake: licence expired \(code -32000\)"
        ):
            await call(watched)


async def test_a_failure_nobody_planned_is_a_reason_too_and_not_a_start_without_end():
    async with upstream(Unusual()) as watched:
        with pytest.raises(BackendUnavailable, match="KeyError: 'surprise'"):
            await call(watched)
        assert watched.state == "down"


async def test_a_failed_start_forgets_the_era_it_was_tried_with():
    backend = fake()
    backend.refuses = BackendUnavailable("no")
    async with upstream(backend, era="legacy") as watched:
        with pytest.raises(BackendUnavailable):
            await call(watched)
        assert watched.era is None


async def test_a_server_that_died_is_started_again_by_the_next_call():
    async with upstream(faulty_server("healthy")) as watched:
        first = int(await call(watched, "pid"))
        os.kill(first, signal.SIGKILL)
        await until(lambda: watched.state == "down")
        assert "ended by SIGKILL" in watched.reason
        second = int(await call(watched, "pid"))
        assert second != first
        assert watched.state == "ready"


async def test_every_call_of_a_tool_that_kills_its_server_gets_its_own_try():
    async with upstream(faulty_server("dies_mid_call")) as watched:
        pids: set[int] = set()
        for _ in range(3):
            with pytest.raises(BackendUnavailable, match="exited with code 4"):
                await call(watched)
            pids.add(watched.get_status().diagnostics["pid"])
            await until(lambda: watched.state == "down")
        assert len(pids) == 3


async def test_a_server_that_dies_of_being_listed_is_not_started_over_and_over(tmp_path: Path):
    body = """
open(sys.argv[1], "a").write("x")
shake()
for id, method, params in requests():
    os._exit(5)
"""
    starts = tmp_path / "starts"
    config = Config(servers={"dies": server((*script(body), str(starts)), protocol="legacy")})
    async with running(config) as gateway:
        await listed(gateway)
        status = gateway.list_statuses()[0]
        assert (status.state, status.reason) == ("down", "the server exited with code 5")
    assert len(starts.read_text()) <= 2


# --- listing


async def test_a_server_that_cannot_be_listed_is_degraded_and_can_still_be_called():
    backend = fake()

    def refuse(params: Any, ask: Any) -> Any:
        raise RemoteError(-32603, "the database is locked")

    backend.on("tools/list", refuse)
    async with gateway_over({"server": backend}) as gateway:
        status = gateway.list_statuses()[0]
        assert (status.state, status.reason) == (
            "degraded",
            "it could not be listed: the database is locked",
        )
        assert await call(gateway.upstreams["server"]) == "echoed"
        backend.on("tools/list", lambda params, ask: {"tools": [ECHO]})
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await gateway.refresh()
        assert gateway.list_statuses()[0].state == "ready"
        assert "echo" in gateway.catalog.snapshot.servers["server"].tools


async def test_a_listing_that_takes_too_long_degrades_its_server_and_nobody_else():
    slow = server(broken_command("slow_list", 60), timeouts=Timeouts(list_s=0.2))
    async with running(
        Config(servers={"slow": slow, "well": server(broken_command("healthy"))})
    ) as gateway:
        await listed(gateway)
        states = {status.name: status.state for status in gateway.list_statuses()}
        assert states == {"slow": "degraded", "well": "ready"}
        assert await call(gateway.upstreams["slow"]) == "{}"


async def test_an_era_is_remembered_across_gateways(tmp_path: Path):
    heard = tmp_path / "heard"
    made = recorded_server("dies_on_discover", heard)
    config = Config(
        servers={"old": server((made.command, *made.args), start="boot")},
        data_dir=tmp_path / "data",
    )
    async with GatewayRuntime(config) as gateway:
        await listed(gateway)
        assert await call(gateway.upstreams["old"]) == "{}"
    assert [sent[0] for sent in methods(heard)] == ["server/discover", "initialize"]
    async with GatewayRuntime(config) as gateway:
        assert gateway.upstreams["old"].state == "known"
        await listed(gateway)
        assert await call(gateway.upstreams["old"]) == "{}"
    assert [sent[0] for sent in methods(heard)] == ["server/discover", "initialize", "initialize"]


# --- the gate


class Crowd:
    """Many slow servers and how many of them have been starting at the same time."""

    def __init__(self, count: int) -> None:
        self.members = {f"s{number:02}": Slow() for number in range(count)}

    @property
    def starting(self) -> int:
        return sum(
            member.begun.is_set() and not member.gate.is_set() for member in self.members.values()
        )

    def open(self) -> None:
        for member in self.members.values():
            if member.begun.is_set():
                member.gate.set()


async def test_only_so_many_servers_start_at_the_same_time():
    crowd = Crowd(10)
    config = Config(limits=LimitsConfig(start_concurrency=3))
    most = 0
    async with gateway_over(crowd.members, config, listed=False) as gateway:
        waiting = asyncio.create_task(listed(gateway))
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while not waiting.done():
                most = max(most, crowd.starting)
                if (
                    crowd.starting == 3
                    or sum(not member.begun.is_set() for member in crowd.members.values()) == 0
                ):
                    crowd.open()
                await asyncio.sleep(0)
        assert {status.state for status in gateway.list_statuses()} == {"ready"}
    assert most == 3


async def test_a_call_does_not_wait_at_the_gate():
    crowd = Crowd(3)
    async with gateway_over(
        crowd.members, Config(limits=LimitsConfig(start_concurrency=1)), listed=False
    ) as gateway:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await crowd.members["s00"].begun.wait()
            crowd.members["s02"].gate.set()
        assert await call(gateway.upstreams["s02"]) == "echoed"
        assert not crowd.members["s01"].begun.is_set()
        assert gateway.upstreams["s00"].state == "starting"


async def test_servers_that_never_answer_do_not_keep_the_others_outside_the_gate(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("portico.gateway.maintenance.START_SLOT_S", 0.05)
    backends: dict[str, Any] = {"a": Slow(), "b": Slow(), "c": fake()}
    async with gateway_over(
        backends, Config(limits=LimitsConfig(start_concurrency=1)), listed=False
    ) as gateway:
        await until(lambda: gateway.upstreams["c"].state == "ready")
        assert gateway.upstreams["a"].state == gateway.upstreams["b"].state == "starting"


# --- resting and stopping


async def test_an_idle_server_is_stopped_and_started_again_by_its_next_call():
    async with upstream(faulty_server("healthy"), has_listing=True) as watched:
        first = int(await call(watched, "pid"))
        await watched.stop_if_idle(idle_s=3_600)
        assert watched.state == "ready"
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.stop_if_idle(idle_s=0)
        assert watched.state == "known"
        assert not alive(first)
        assert int(await call(watched, "pid")) != first


async def test_a_busy_server_gets_no_rest():
    backend = fake()
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    backend.on_call("echo", lambda _: answered)
    async with upstream(backend) as watched:
        caller = asyncio.create_task(call(watched))
        await until(lambda: bool(backend.requests))
        await watched.stop_if_idle(idle_s=0)
        assert (watched.state, backend.connected) == ("ready", 1)
        answered.set_result(ANSWER)
        assert await caller == "echoed"


async def test_a_server_that_was_just_started_is_not_idle():
    async with upstream(fake()) as watched:
        await watched.connect()
        await watched.stop_if_idle(idle_s=600)
        assert watched.state == "ready"


async def test_a_server_that_is_idle_whose_offer_was_never_listed_is_only_configured():
    async with upstream(fake()) as watched:
        await call(watched)
        await watched.stop_if_idle(idle_s=0)
        assert watched.state == "configured"


class Lingering(FakeBackend):
    """A server whose conversations take until `gate` is set to close."""

    def __init__(self) -> None:
        super().__init__([ECHO])
        self.on_call("echo", lambda _: ANSWER)
        self.gate = asyncio.Event()

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        connection: Any = await super().connect(listener, era)
        close = connection.close

        async def linger() -> None:
            await self.gate.wait()
            await close()

        connection.close = linger
        return connection


async def test_a_rest_that_is_cut_short_is_still_waited_for_at_the_end():
    backend = Lingering()
    async with upstream(backend) as watched:
        await call(watched)
        resting = asyncio.create_task(watched.stop_if_idle(idle_s=0))
        await asyncio.sleep(0)
        resting.cancel()
        await asyncio.wait({resting})
        stopping = asyncio.create_task(watched.stop())
        await asyncio.wait({stopping}, timeout=0.05)
        assert not stopping.done()
        backend.gate.set()
        await asyncio.wait_for(stopping, TEST_TIMEOUT_S)
        assert backend.connected == 0


async def test_two_who_stop_a_server_at_once_both_wait_until_it_is_gone():
    backend = Lingering()
    async with upstream(backend) as watched:
        await call(watched)
        stopping = [asyncio.create_task(watched.stop()) for _ in range(2)]
        await asyncio.wait(stopping, timeout=0.05)
        assert not any(task.done() for task in stopping)
        backend.gate.set()
        await asyncio.wait_for(asyncio.gather(*stopping), TEST_TIMEOUT_S)
        assert backend.connected == 0


async def test_a_stopped_server_never_starts_again():
    backend = fake()
    async with upstream(backend) as watched:
        await watched.stop()
        with pytest.raises(BackendUnavailable, match="shutting down"):
            await call(watched)
        assert backend.connections == 0


async def test_a_stop_in_the_middle_of_a_start_ends_the_start():
    async with upstream(faulty_server("never_answers")) as watched:
        caller = asyncio.create_task(call(watched))
        await until(lambda: "pid" in watched.backend.diagnostics())
        pid = watched.backend.diagnostics()["pid"]
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.stop()
            await asyncio.wait({caller})
        assert not alive(pid)
        assert "shutting down" in str(caller.exception())


# --- one for each session


async def test_each_session_of_an_isolated_server_has_its_own_process_until_it_ends():
    async with upstream(faulty_server("healthy"), isolated=True) as watched:
        one, two, again = [
            int(await call(watched, "pid", session)) for session in ("one", "two", "one")
        ]
        assert one == again != two
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.end_session("one")
        assert (alive(one), alive(two)) == (False, True)
        assert watched.state == "ready"
        await watched.end_session("never-was")
        await watched.end_session("two")
        assert not alive(two)
        assert watched.state == "configured"


async def test_a_shared_server_does_not_end_with_a_session():
    async with upstream(faulty_server("healthy")) as watched:
        pid = int(await call(watched, "pid", "one"))
        assert int(await call(watched, "pid", "two")) == pid
        await watched.end_session("one")
        await watched.end_session("")
        assert alive(pid)


async def test_a_session_that_ends_while_its_server_starts_leaves_no_process():
    async with upstream(faulty_server("never_answers"), isolated=True) as watched:
        caller = asyncio.create_task(call(watched, session="one"))
        await until(lambda: "pid" in watched.backend.diagnostics())
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.end_session("one")
            await asyncio.wait({caller})
        assert not alive(watched.backend.diagnostics()["pid"])
        assert watched.state == "configured"


async def test_the_death_of_one_sessions_instance_leaves_the_others_ready():
    async with upstream(faulty_server("healthy"), isolated=True) as watched:
        one, two = [int(await call(watched, "pid", session)) for session in ("one", "two")]
        os.kill(one, signal.SIGKILL)
        await until(lambda: not alive(one))
        assert int(await call(watched, "pid", "two")) == two
        assert watched.state == "ready"
        await until(lambda: not watched.has_instance("one"))
        assert int(await call(watched, "pid", "one")) != one


async def test_instances_are_counted_while_they_start():
    backend = Slow()
    async with upstream(backend, isolated=True, max_instances=2) as watched:
        callers = [asyncio.create_task(call(watched, session=str(number))) for number in range(5)]
        await backend.begun.wait()
        backend.gate.set()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BackendUnavailable)]
    assert len(refused) == 3
    assert "isolation: shared" in refused[0].advice


async def test_for_the_sixty_fifth_instance_the_longest_unused_goes():
    backend = fake()
    async with upstream(backend, isolated=True) as watched:
        for number in range(64):
            await call(watched, session=str(number))
        await call(watched, session="0")
        await call(watched, session="the 65th")
        await until(lambda: backend.connected == 64)
        assert not watched.has_instance("1")
        assert all(watched.has_instance(key) for key in ("0", "2", "63", "the 65th"))
        assert watched.get_status().diagnostics["instances"] == 64


async def test_an_instance_that_somebody_waits_for_never_goes_for_another():
    backend, gate = fake(), asyncio.Event()

    async def wait(_: Any) -> dict[str, Any]:
        await gate.wait()
        return ANSWER

    backend.on_call("wait", wait)
    async with upstream(backend, isolated=True, max_instances=2) as watched:
        busy = [asyncio.create_task(call(watched, "wait", str(number))) for number in range(2)]
        await until(lambda: len(backend.requests) == 2)
        with pytest.raises(BackendUnavailable, match="all are busy"):
            await call(watched, session="one more")
        gate.set()
        await asyncio.gather(*busy)
        assert await call(watched, session="one more") == "echoed"


async def test_the_instance_a_server_is_listed_by_is_no_clients_and_is_not_counted():
    async with upstream(fake(), isolated=True, max_instances=1) as watched:
        await watched.connect()
        await call(watched, session="one")
        assert watched.get_connection("one") is not watched.get_connection("")


async def test_what_is_watched_gets_no_rest_and_the_others_do():
    backend = fake()
    async with upstream(backend, isolated=True) as watched:
        for session in ("watching", "idle"):
            await call(watched, session=session)
        await watched.stop_if_idle(0, watched_by={"watching"})
        assert (watched.has_instance("watching"), watched.has_instance("idle")) == (True, False)
        assert watched.state == "ready"


async def test_each_legacy_client_of_a_gateway_has_its_own_instance_and_takes_it_along():
    config = Config(
        servers={"own": server(broken_command("healthy"), isolation="session")}, exposure="full"
    )
    async with running(config) as gateway:
        await listed(gateway)

        async def pid_of(client: Any) -> int:
            result = await client.call_tool("own__pid", {})
            return int(result.content[0].text)

        async with asyncio.timeout(TEST_TIMEOUT_S), connect(gateway, era="legacy") as one:
            first = await pid_of(one)
            assert await pid_of(one) == first
            async with connect(gateway, era="legacy") as two:
                second = await pid_of(two)
                assert second != first
            await until(lambda: not alive(second))
            assert alive(first)
        await until(lambda: not alive(first))


async def test_status_shows_what_is_wrong_with_each_server_beside_a_healthy_one():
    config = Config(
        servers={
            "crash": server(broken_command("crash_on_start")),
            "garbage": server(broken_command("garbage_stdout")),
            "missing": server(["no-such-command"]),
            "silent": server(broken_command("never_answers"), timeouts=Timeouts(start_s=0.5)),
            "well": server(broken_command("healthy")),
        }
    )
    async with running(config) as gateway:
        await listed(gateway)
        found = {status.name: status for status in gateway.list_statuses()}
        assert {name: status.state for name, status in found.items()} == {
            "crash": "down",
            "garbage": "ready",
            "missing": "down",
            "silent": "down",
            "well": "ready",
        }
        assert "EXAMPLE_API_KEY is not set" in found["crash"].reason
        assert "'no-such-command' does not exist" in found["missing"].reason
        assert "no answer to the handshake" in found["silent"].reason
        assert found["garbage"].diagnostics["noise"] > 0
        assert json.loads(await call(gateway.upstreams["well"])) == {}


class Failing(FakeBackend):
    """A server that does not start while it is `broken`, each time with another port."""

    broken = True
    port = 5_000

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        if self.broken:
            self.port += 1
            raise BackendUnavailable(f"nothing listens at port {self.port}")
        return await super().connect(listener, era)


async def test_a_problem_is_logged_once_until_the_server_is_ready_again(
    caplog: pytest.LogCaptureFixture,
):
    backend = Failing([ECHO])

    async def restart(watched: Upstream, broken: bool) -> None:
        backend.broken = broken
        with contextlib.suppress(BackendUnavailable):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await watched.restart()

    with caplog.at_level(logging.WARNING, logger="portico.upstream"):
        async with upstream(backend) as watched:
            for _ in range(3):
                await restart(watched, True)
            await restart(watched, False)
            await restart(watched, True)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("(")[0].strip() for line in lines if "restarted" not in line] == [
        "server is down: nothing listens at port 5001",
        "server is ready",
        "server is down: nothing listens at port 5004",
    ]


async def test_its_log_has_every_change_of_state_with_its_reason():
    backend = Failing([ECHO])
    async with upstream(backend) as watched:
        with pytest.raises(BackendUnavailable):
            await watched.restart()
        backend.broken = False
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await watched.restart()
        entries = await watched.read_log(after=0)
        assert [entry.state for entry in entries] == ["starting", "down", "starting", "ready"]
        assert entries[1].text == "nothing listens at port 5001"
        assert [entry.state for entry in await watched.read_log(entries[2].sequence)] == ["ready"]
