"""MCP over a child process: real processes, some of them well-behaved."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from portico.errors import BackendTimeout, BackendUnavailable, RemoteError
from portico.upstream.backend import Raw, RequestOptions
from portico.upstream.protocol import handshake
from portico.upstream.transports import process, stdio
from portico.upstream.transports.stdio import STDERR_LINE_CHARS, STDERR_LINES, StdioBackend
from tests.fixtures import everything_command
from tests.upstream.loopback_server import Caller, RecordingListener, advance_clock, get_soon
from tests.upstream.scripted import (
    TEST_TIMEOUT_S,
    call,
    conversation,
    faulty_server,
    methods,
    recorded_server,
    scripted,
)
from tests.upstream.supervised import alive

ECHO = """
for id, method, params in requests():
    send(id=id, result={"content": [{"type": "text", "text": json.dumps(params)}]})
"""


def gone(backend: StdioBackend) -> bool:
    """Whether the process a backend last started is no more."""
    return not alive(backend.diagnostics()["pid"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 - what is awaited is another process's doing
            await asyncio.sleep(0.01)


async def refused(backend: StdioBackend, *, within: float = TEST_TIMEOUT_S) -> BackendUnavailable:
    try:
        with pytest.raises(BackendUnavailable) as caught:
            async with asyncio.timeout(within):
                await backend.connect(RecordingListener())
    finally:
        backend.guard.close()
    return caught.value


# --- the era


@pytest.mark.parametrize(
    ("name", "era", "version"),
    [
        ("healthy", "legacy", "2025-11-25"),
        ("modern_only", "modern", "2026-07-28"),
        ("dual", "modern", "2026-07-28"),
        ("discover_invalid_params", "legacy", "2025-11-25"),
        ("echoes_version", "legacy", "2025-11-25"),
        ("unknown_version", "legacy", "1999-01-01"),
        ("old_version", "legacy", "2024-11-05"),
    ],
)
async def test_each_server_is_met_in_its_era_with_one_process(
    name: str, era: str, version: str, tmp_path: Path
):
    async with conversation(recorded_server(name, tmp_path / "heard")) as (connection, _):
        assert (connection.initialize_info.era, connection.initialize_info.protocol_version) == (
            era,
            version,
        )
        assert json.loads(await call(connection, "echo", word="hello")) == {"word": "hello"}
    assert len(methods(tmp_path / "heard")) == 1


@pytest.mark.parametrize(
    "name",
    [
        "dies_on_discover",
        "discover_refuses_then_exits",
        "discover_refuses_then_refuses",
        "discover_refuses_then_silent",
    ],
)
async def test_a_server_that_the_probe_spoils_is_started_again_without_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio, "INITIALIZE_TIMEOUT_S", 0.5)
    async with conversation(recorded_server(name, tmp_path / "heard")) as (connection, _):
        assert connection.initialize_info.era == "legacy"
        assert await call(connection, "echo") == "{}"
    first, second = methods(tmp_path / "heard")
    assert first[0] == "server/discover"
    assert second[:2] == ["initialize", "notifications/initialized"]


async def test_a_remembered_era_spares_the_probe(tmp_path: Path):
    async with conversation(recorded_server("dies_on_discover", tmp_path / "heard"), "legacy") as (
        connection,
        _,
    ):
        assert connection.initialize_info.era == "legacy"
    assert methods(tmp_path / "heard") == [["initialize", "notifications/initialized"]]


async def test_a_server_that_ignores_the_probe_gets_the_handshake_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "PROBE_TIMEOUT_S", 0.2)
    async with conversation(recorded_server("ignores_discover", tmp_path / "heard")) as (
        connection,
        _,
    ):
        assert connection.initialize_info.era == "legacy"
        assert await call(connection, "echo") == "{}"
    (heard,) = methods(tmp_path / "heard")
    assert heard[:3] == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_slow_server_that_took_probe_and_handshake_is_restarted_in_the_modern_era(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "PROBE_TIMEOUT_S", 0.3)
    body = """
starts = sys.argv[1]
slow = not os.path.exists(starts)
open(starts, "a").write("x")
modern = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
legacy = {"protocolVersion": "2025-11-25", "capabilities": {}}
for id, method, params in requests():
    if method == "server/discover" and slow:
        probe = {"jsonrpc": "2.0", "id": id, "result": modern}
    elif method == "server/discover":
        send(id=id, result=modern)
    elif method == "initialize":  # both answers at once, as of one that has read both
        line(json.dumps(probe) + "\\n" + json.dumps({"jsonrpc": "2.0", "id": id, "result": legacy}))
    else:
        send(id=id, result={})
"""
    backend = scripted(body)
    backend = replace(backend, args=(*backend.args, str(tmp_path / "starts")))
    async with conversation(backend) as (connection, _):
        assert connection.initialize_info.era == "modern"
        assert await connection.request("tools/list") == {}
    assert (tmp_path / "starts").read_text() == "xx"


async def test_a_remembered_legacy_server_that_has_become_another_is_detected_again():
    body = """
for id, method, params in requests():
    if method == "server/discover":
        send(id=id, result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    else:
        send(id=id, error={"code": -32601, "message": "Method not found"})
"""
    async with conversation(scripted(body), "legacy") as (connection, _):
        assert connection.initialize_info.era == "modern"


async def test_a_server_that_refuses_everything_is_refused_with_its_own_words():
    body = (
        'for id, *_ in requests():\n    send(id=id, error={"code": -32600, "message": "Go away"})'
    )
    backend = scripted(body)
    with pytest.raises(RemoteError, match="Go away"):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await backend.connect(RecordingListener())
    assert gone(backend)
    backend.guard.close()


async def test_a_real_server_of_each_era_lists_and_calls():
    for options, era in ((("--stdio",), "modern"), (("--stdio", "--era", "legacy"), "legacy")):
        command, *args = everything_command(*options)
        async with conversation(StdioBackend("everything", command, tuple(args))) as (
            connection,
            _,
        ):
            assert connection.initialize_info.era == era
            assert (await connection.request("tools/list"))["tools"]


async def test_a_modern_server_announces_its_list_changes_without_our_subscription_id():
    async with conversation(faulty_server("list_changes_modern")) as (connection, listener):
        await connection.request("tools/list")
        await call(connection, "grow")
        while (heard := await get_soon(listener.notifications))[
            0
        ] != "notifications/tools/list_changed":
            assert heard[0] == "notifications/subscriptions/acknowledged"
        assert heard[1] == {}


# --- what is printed


async def test_noise_on_stdout_is_passed_over_and_counted():
    backend = faulty_server("garbage_stdout")
    async with conversation(backend) as (connection, _):
        assert (await connection.request("tools/list"))["tools"][0]["name"] == "echo"
        assert await call(connection, "echo", word="clear") == '{"word": "clear"}'
        found = backend.diagnostics()
        assert found["noise"] >= 15
        assert 0 < len(found["noise_samples"]) <= 5
        assert not any("\x1b" in sample for sample in found["noise_samples"])


@pytest.mark.parametrize(
    "answer",
    [
        b'Loading... 10%%{"jsonrpc": "2.0", "id": %d, "result": {"saved": true}}',
        b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": %d, "result": {"saved": true}}',
        b'{"jsonrpc": "2.0", "id": %d, "result": {"saved": true, "name": "caf\xe9"}}',
        b'{"jsonrpc": "2.0", "id": %d, "result": {"saved": true, "cut": "half \\ud83d"}}',
        b'{"jsonrpc": "2.0", "id": "%d", "result": {"saved": true}}\r',
        b'[{"jsonrpc": "2.0", "id": %d, "result": {"saved": true}}]',
    ],
    ids=[
        "text before",
        "byte order mark",
        "latin-1",
        "half a surrogate pair",
        "string id",
        "batch",
    ],
)
async def test_an_answer_that_is_nearly_right_is_saved(answer: bytes):
    body = f"shake()\nfor id, *_ in requests():\n    line({answer!r} % id)"
    async with conversation(scripted(body)) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            result = await connection.request("tools/call", {"name": "x"})
    assert result["saved"] is True
    json.dumps(result, ensure_ascii=False).encode()  # what arrived can be sent on


async def test_numbers_of_any_size_pass_both_ways():
    numbers = {"big": 2**80, "small": -(2**70), "float": 0.1}
    async with conversation(scripted(f"shake(){ECHO}")) as (connection, _):
        assert json.loads(await call(connection, "x", **numbers))["arguments"] == numbers


@pytest.mark.parametrize(
    "answer",
    [
        'b\'{"jsonrpc": "2.0", "id": %d, "result": {"text": "\' % id + b"x" * 3_000_000 + b\'"}}\'',
        'b\'{"result": {"id": 1, "text": "\' + b"x" * 3_000_000 + b\'"}, "jsonrpc": '
        '"2.0", "id": %d}\' % id',
        'b\'{"jsonrpc":"2.0","result":{"text":"\' + b"x" * 130_000 + b\'"},"id":%d}\' % id',
    ],
    ids=["id first", "id last", "barely over"],
)
async def test_an_answer_over_the_limit_fails_its_own_call_and_no_other(answer: str):
    body = f"""
shake()
waiting = []
for id, method, params in requests():
    if params["name"] == "big":
        line({answer})
        for other in waiting:
            send(id=other, result={{"ok": True}})
    elif params["name"] == "wait":
        waiting.append(id)
    else:
        send(id=id, result={{"ok": True}})
"""
    async with conversation(scripted(body, max_message_bytes=100_000)) as (connection, listener):
        waiting = asyncio.create_task(connection.request("tools/call", {"name": "wait"}))
        await connection.request("tools/call", {"name": "first"})
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(RemoteError, match="over 100000 bytes"):
                await connection.request("tools/call", {"name": "big"})
            assert await waiting == {"ok": True}
            assert await connection.request("tools/call", {"name": "after"}) == {"ok": True}
        assert listener.losses.empty()


@pytest.mark.parametrize(
    "message",
    [
        'b"x" * 300_000',
        'b\'{"jsonrpc": "2.0", "method": "notifications/message", "params": "\' + b"x" '
        "* 300_000 + b'\"}'",
        'b\'{"method":"log","params":"\' + b"x" * 300_000 + b\'"}\'',
    ],
    ids=["no message", "notification", "request"],
)
async def test_a_line_over_the_limit_that_is_no_answer_is_noise(message: str):
    backend = scripted(f"shake()\nline({message})" + ECHO, max_message_bytes=100_000)
    async with conversation(backend) as (connection, listener):
        await call(connection, "x")
        assert listener.losses.empty()
        assert backend.diagnostics()["noise"] == 1
        assert all(len(sample) <= 200 for sample in backend.diagnostics()["noise_samples"])


async def test_an_answer_over_the_limit_that_may_be_anybodys_ends_the_conversation_with_a_reason():
    body = """
shake()
read()
line(b'{"extra": {}, "id": 3, "result": "' + b"x" * 300_000 + b'", "extra": {}}')
read()
"""
    backend = scripted(body, max_message_bytes=100_000)
    async with conversation(backend) as (connection, listener):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(BackendUnavailable, match="a message over 100000 bytes"):
                await connection.request("tools/call", {"name": "x"})
        assert "a message over 100000 bytes" in await get_soon(listener.losses)


async def test_a_message_over_the_limit_is_not_held_in_memory():
    body = """
shake()
for id, method, params in requests():
    sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, "result": {"text": "' % id)
    for _ in range(200):
        sys.stdout.buffer.write(b"x" * 1_000_000)
    line(b'"}}')
"""
    async with conversation(scripted(body, max_message_bytes=1_000_000)) as (connection, _):
        before = psutil.Process().memory_info().rss
        with pytest.raises(RemoteError, match="over 1000000 bytes"):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.request("tools/call", {"name": "x"})
        assert psutil.Process().memory_info().rss - before < 50_000_000


async def test_a_large_answer_under_the_limit_arrives_whole():
    body = 'shake()\nfor id, *_ in requests():\n    send(id=id, result={"text": "x" * 10_000_000})'
    async with conversation(scripted(body)) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            assert (
                len((await connection.request("tools/call", {"name": "x"}))["text"]) == 10_000_000
            )


# --- stderr


async def test_a_flood_on_stderr_blocks_nothing_and_keeps_only_the_last_lines():
    backend = faulty_server("stderr_flood")
    async with conversation(backend) as (connection, _):
        await call(connection, "echo")
        before = psutil.Process().memory_info().rss
        for _ in range(40):  # 10 MB
            await call(connection, "echo")
        assert psutil.Process().memory_info().rss - before < 8_000_000
        kept = backend.diagnostics()["stderr"]
        assert len(kept) == STDERR_LINES
        assert set(kept) == {"x" * 99}


async def test_a_line_on_stderr_that_never_ends_is_cut():
    body = 'shake()\nsys.stderr.write("y" * 5_000_000 + "the end")\nsys.stderr.flush()' + ECHO
    backend = scripted(body)
    async with conversation(backend) as (connection, _):
        await call(connection, "x")
    assert [len(line) <= STDERR_LINE_CHARS for line in backend.diagnostics()["stderr"]] == [True]
    assert backend.diagnostics()["stderr"][-1].endswith("the end")


async def test_stderr_is_kept_without_colours_and_with_characters_that_were_cut_in_two():
    body = """
shake()
for piece in (b"\\x1b[31mcaf\\xc3", b"\\xa9 \\xff\\x07\\x1b[0m\\n"):
    sys.stderr.buffer.write(piece)
    sys.stderr.buffer.flush()
    time.sleep(.05)
"""
    backend = scripted(body + ECHO)
    async with conversation(backend) as (connection, _):
        await call(connection, "x")
        await until(lambda: backend.diagnostics()["stderr"] == ["café \ufffd"])


# --- the environment


async def test_a_server_sees_what_its_configuration_gives_it_and_no_secret_of_ours(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("EXAMPLE_SECRET_TOKEN", "s3cret")
    monkeypatch.setenv("EXAMPLE_WANTED", "wanted")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/company/ca.pem")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    backend = faulty_server("healthy", env={"OWN": "own"}, inherit_env=("EXAMPLE_W*",))
    async with conversation(backend) as (connection, _):
        seen = json.loads(await call(connection, "env"))
    assert (seen["OWN"], seen["EXAMPLE_WANTED"]) == ("own", "wanted")
    assert seen["SSL_CERT_FILE"] == "/etc/company/ca.pem"
    assert seen["https_proxy"] == "http://proxy.example:3128"
    assert "EXAMPLE_SECRET_TOKEN" not in seen
    assert "s3cret" not in json.dumps(seen)


# --- the end


async def test_a_crash_at_the_start_is_reported_with_its_code_and_last_words():
    backend = faulty_server("crash_on_start")
    error = await refused(backend)
    assert "exited with code 3" in error.message
    assert "EXAMPLE_API_KEY is not set" in error.message
    assert backend.diagnostics()["stderr"] == ["fatal: EXAMPLE_API_KEY is not set"]
    assert backend.diagnostics()["exit_code"] == 3


async def test_a_server_that_dies_before_it_is_written_to_is_reported_with_its_code():
    body = (
        "shake()\nos.close(0)\nsend(method='notifications/tools/list_changed')\n"
        "time.sleep(.1)\nos._exit(5)"
    )
    async with conversation(scripted(body)) as (connection, listener):
        await get_soon(listener.notifications)  # its input is closed, and it lives a moment longer
        with pytest.raises(BackendUnavailable, match="scripted: the server exited with code 5"):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.request("tools/call", {"name": "x"})


async def test_of_a_long_last_output_the_last_line_is_reported():
    body = (
        'sys.stderr.write("trace\\n" * 50 + "z" * 2_000 + "\\nValueError: the '
        'reason\\n")\nsys.exit(1)'
    )
    assert "ValueError: the reason" in (await refused(scripted(body))).message


async def test_a_server_that_dies_in_a_call_fails_that_call_with_its_exit_code():
    async with conversation(faulty_server("dies_mid_call")) as (connection, listener):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(BackendUnavailable, match="exited with code 4"):
                await connection.request("tools/call", {"name": "echo"})
            assert "exited with code 4" in await get_soon(listener.losses)
            with pytest.raises(BackendUnavailable, match="exited with code 4"):
                await connection.request("tools/call", {"name": "echo"})


async def test_half_a_line_and_then_death_fails_the_call():
    body = (
        'shake()\nread()\nsys.stdout.write(\'{"jsonrpc": "2.0", "id": 3, "resu\')\n'
        "sys.stdout.flush()\nos._exit(7)"
    )
    backend = scripted(body)
    async with conversation(backend) as (connection, listener):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(BackendUnavailable, match="exited with code 7"):
                await connection.request("tools/call", {"name": "x"})
        assert await get_soon(listener.losses)
        assert backend.diagnostics()["noise"] == 1


async def test_an_answer_given_just_before_the_exit_still_arrives():
    body = (
        "shake()\nfor id, *_ in requests():\n    send(id=id, result={'last': True})\n    "
        "os._exit(0)"
    )
    async with conversation(scripted(body)) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            assert await connection.request("tools/call", {"name": "x"}) == {"last": True}


async def test_a_server_that_closes_its_output_but_lives_is_lost():
    body = (
        'shake()\nread()\nos.close(1)\nsys.stderr.write("still here")\n'
        "sys.stderr.flush()\ntime.sleep(120)"
    )
    backend = scripted(body)
    async with conversation(backend) as (connection, listener):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            with pytest.raises(
                BackendUnavailable, match=r"closed its output \(stderr: still here\)"
            ):
                await connection.request("tools/call", {"name": "x"})
        assert await get_soon(listener.losses)
    assert gone(backend)


async def test_a_death_is_noticed_even_when_a_child_keeps_the_output_open():
    backend = faulty_server("leaves_child_on_stdout")
    async with conversation(backend) as (connection, listener):
        child = int(await call(connection, "child_pid"))
        asking = asyncio.create_task(connection.request("tools/call", {"name": "echo"}))
        os.kill(backend.diagnostics()["pid"], signal.SIGKILL)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await asyncio.wait({asking})
        assert "ended by SIGKILL" in await get_soon(listener.losses)
        if asking.exception() is None:  # it answered before it died
            asking.result()
    await until(lambda: not alive(child))


async def test_a_server_that_does_not_read_its_input_costs_a_call_its_time_and_no_more():
    backend = scripted("shake()\ntime.sleep(120)")
    async with conversation(backend) as (connection, _):
        with pytest.raises(BackendTimeout):
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await connection.request(
                    "tools/call",
                    {"name": "x", "arguments": {"a": "x" * 500_000}},
                    RequestOptions(0.2),
                )
    assert gone(backend)


async def test_closing_twice_at_once_stops_the_server_once():
    backend = faulty_server("ignores_stdin_close")
    async with conversation(backend) as (connection, listener):
        asking = asyncio.create_task(connection.request("tools/call", {"name": "absent"}))
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await asyncio.gather(connection.close(), connection.close())
            await asyncio.wait({asking})
        assert listener.losses.empty()  # who closes it needs no report
    assert backend.diagnostics()["exit_code"] == -signal.SIGTERM
    assert asking.exception() is not None


async def test_a_cancelled_close_still_closes():
    backend = faulty_server("ignores_stdin_close")
    async with conversation(backend) as (connection, _):
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait({closing})
        await until(lambda: gone(backend))


@pytest.mark.parametrize("name", ["never_answers", "ignores_discover", "ignores_sigterm"])
async def test_a_cancelled_start_leaves_no_process(name: str):
    backend = faulty_server(name)
    for steps in (0, 1, 3, 10, 100):
        starting = asyncio.create_task(backend.connect(RecordingListener()))
        for _ in range(steps):
            await asyncio.sleep(0)
        if steps == 100:
            await until(lambda: "pid" in backend.diagnostics())
        starting.cancel()
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await asyncio.wait({starting})
        if starting.cancelled():
            assert "pid" not in backend.diagnostics() or gone(backend)
        else:
            await starting.result().close()
    backend.guard.close()


async def test_a_start_cancelled_twice_still_leaves_no_process():
    backend = faulty_server("never_answers")
    starting = asyncio.create_task(backend.connect(RecordingListener()))
    await until(lambda: "pid" in backend.diagnostics())
    for _ in range(3):
        starting.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await asyncio.wait({starting})
    assert starting.cancelled()
    assert gone(backend)
    backend.guard.close()


async def test_the_notes_of_a_stopped_server_do_not_fall_on_its_successor():
    backend = faulty_server("healthy")
    async with conversation(backend) as (first, _):
        second = await backend.connect(RecordingListener())
        pid = backend.diagnostics()["pid"]
        await first.close()
        assert backend.diagnostics()["pid"] == pid
        assert "exit_code" not in backend.diagnostics()
        await second.close()
    assert backend.diagnostics()["exit_code"] == 0


# --- requests of the server


async def test_thirty_requests_for_roots_and_one_unknown_are_all_answered():
    backend = faulty_server("thirty_roots", roots=({"uri": "file:///work"},))
    async with conversation(backend) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            while (seen := json.loads(await call(connection, "answers_seen"))) != {
                "results": 30,
                "errors": 1,
            }:
                assert seen["results"] <= 30


ASKS_DURING_CALLS = """
shake()
for id, method, params in requests():
    if params["name"] == "ask":
        send(id="q", method="elicitation/create", params={"message": "Sure?"})
        while (answer := read()).get("id") != "q":
            pass
        send(id=id, result={"said": answer.get("result") or answer.get("error")})
"""


async def test_a_server_request_during_a_call_reaches_its_caller():
    caller = Caller({"elicitation/create": {"action": "accept"}})
    async with conversation(scripted(ASKS_DURING_CALLS)) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            result = await connection.request(
                "tools/call", {"name": "ask"}, RequestOptions(relay=caller)
            )
    assert result == {"said": {"action": "accept"}}


@pytest.mark.parametrize(
    "question",
    [
        'b\'{"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": '
        '{"x": [%s]}}\' % many',
        'b\'{"method": "elicitation/create", "params": {"x": [%s]}, "jsonrpc": "2.0", '
        '"id": "q"}\' % many',
    ],
    ids=["id first", "id last"],
)
async def test_a_server_request_with_too_many_values_is_refused_and_not_relayed(question: str):
    body = f"""
shake()
many = b"[]," * 30_000 + b"[]"
for id, method, params in requests():
    line({question})
    while (answer := read()).get("id") != "q":
        pass
    send(id=id, result={{"said": answer["error"]["message"]}})
"""
    caller = Caller({"elicitation/create": {"action": "accept"}})
    async with conversation(scripted(body)) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            result = await connection.request(
                "tools/call", {"name": "ask"}, RequestOptions(relay=caller)
            )
    assert "more than 25,000 JSON values" in result["said"]
    assert caller.requests.empty()


async def test_a_log_message_with_too_many_values_is_dropped_and_an_answer_with_as_many_arrives():
    body = """
shake()
many = [[]] * 30_000
for id, method, params in requests():
    send(method="notifications/message", params={"level": "error", "data": many})
    send(id=id, result={"many": many})
"""
    backend = scripted(body)
    caller = Caller()
    async with conversation(backend) as (connection, _):
        async with asyncio.timeout(TEST_TIMEOUT_S):
            result = await connection.request(
                "tools/call", {"name": "x"}, RequestOptions(relay=caller)
            )
        assert len(result["many"]) == 30_000
        assert not caller.notifications
        assert backend.diagnostics()["noise"] == 1


async def test_a_server_request_while_two_clients_wait_reaches_neither():
    callers: list[Any] = [
        Caller({"elicitation/create": {"action": "accept"}}, origin=name) for name in ("a", "b")
    ]
    async with conversation(scripted(ASKS_DURING_CALLS)) as (connection, _):
        other = asyncio.create_task(
            connection.request("tools/call", {"name": "wait"}, RequestOptions(relay=callers[0]))
        )
        await asyncio.sleep(0)
        async with asyncio.timeout(TEST_TIMEOUT_S):
            result = await connection.request(
                "tools/call", {"name": "ask"}, RequestOptions(relay=callers[1])
            )
        assert result["said"]["code"] == -32601
        assert all(caller.requests.empty() for caller in callers)
        other.cancel()


async def test_a_cancelled_call_is_cancelled_in_the_server():
    body = """
shake()
for id, method, params in requests():
    while (message := read()).get("method") != "notifications/cancelled":
        pass
    send(method="notifications/message", params={"data": message["params"]["requestId"] == id})
"""
    async with conversation(scripted(body)) as (connection, listener):
        asking = asyncio.create_task(connection.request("tools/call", {"name": "x"}))
        await asyncio.sleep(0)
        asking.cancel()
        assert await get_soon(listener.notifications) == ("notifications/message", {"data": True})


async def test_progress_keeps_a_long_call_alive_and_comes_before_its_answer(tmp_path: Path):
    body = """
shake()
for id, method, params in requests():
    for step in range(10):
        token = params["_meta"]["progressToken"]
        send(method="notifications/progress", params={"progressToken": token, "progress": step})
        while step < 9 and not os.path.exists(f"{sys.argv[1]}/{step}"):
            time.sleep(.01)
    send(id=id, result={"done": True})
"""

    class Slow(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            await super().notify(method, params)
            if params["progress"] < 9:
                advance_clock(50)
                (tmp_path / str(params["progress"])).touch()

    caller = Slow()
    params: Raw = {"name": "x", "_meta": {"progressToken": "mine"}}
    backend = scripted(body)
    async with conversation(replace(backend, args=(*backend.args, str(tmp_path)))) as (
        connection,
        _,
    ):
        assert await connection.request(
            "tools/call", params, RequestOptions(timeout=60, relay=caller)
        ) == {"done": True}
    assert [(told["progressToken"], told["progress"]) for _, told in caller.notifications] == [
        ("mine", n) for n in range(10)
    ]


# --- two servers, one machine


async def test_one_guard_serves_many_backends_and_is_gone_when_closed():
    guard = process.ProcessGuard()
    backends = [faulty_server("healthy", guard=guard) for _ in range(5)]
    here = psutil.Process()
    before = {found.pid for found in here.children()}
    connections = await asyncio.gather(
        *(backend.connect(RecordingListener()) for backend in backends)
    )
    assert len({found.pid for found in here.children()} - before) == 6
    await asyncio.gather(*(connection.close() for connection in connections))
    guard.close()
    assert {found.pid for found in here.children()} <= before


async def test_a_large_call_that_times_out_while_it_is_written_does_not_spoil_the_next(
    tmp_path: Path,
) -> None:
    reads = tmp_path / "reads"
    slow = f"shake()\nwhile not os.path.exists({str(reads)!r}): time.sleep(0.01)\n{ECHO}"
    async with conversation(scripted(slow)) as (connection, _):
        large = asyncio.create_task(
            connection.request("tools/call", {"name": "x", "arguments": {"a": "x" * 2**22}})
        )
        done, _ = await asyncio.wait({large}, timeout=0.2)
        assert not done
        large.cancel()
        reads.touch()
        assert json.loads(await call(connection, "echo", word="hello"))["arguments"] == {
            "word": "hello"
        }
