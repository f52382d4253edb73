"""One end of a JSON-RPC conversation; the test is the other end and writes its lines."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from portico.errors import BackendTimeout, BackendUnavailable, PorticoError, RemoteError
from portico.upstream.backend import Raw, Relay, RequestOptions
from portico.upstream.protocol.jsonrpc import PendingCall
from portico.upstream.protocol.server_requests import MAX_TASKS
from portico.upstream.protocol.session import JsonRpcSession
from tests.upstream.loopback_server import (
    TEST_TIMEOUT_S,
    Caller,
    RecordingListener,
    advance_clock,
    get_soon,
    run_pending_callbacks,
)


class FakeTransport:
    """A pipe that is one function."""

    max_tasks = MAX_TASKS
    sends_cancellation = True

    def __init__(self, send: Callable[[Raw], Awaitable[None]]) -> None:
        self._send = send

    async def send_request(self, call: PendingCall) -> None:
        call.was_sent = True
        await self._send(call.message)

    async def send(self, message: Raw) -> None:
        await self._send(message)

    async def close(self, was_open: bool) -> None:
        pass


class FakeServer:
    """The far end: what it was sent, and the ways in which it may answer."""

    def __init__(self, roots: tuple[Raw, ...] = ()) -> None:
        self.sent: asyncio.Queue[Raw] = asyncio.Queue()
        self.listener = RecordingListener()
        self.session = JsonRpcSession("far", FakeTransport(self._take), self.listener, roots)
        self._request_tasks: list[asyncio.Task[Raw]] = []

    async def _take(self, frame: Raw) -> None:
        self.sent.put_nowait(frame)

    def start_request(
        self,
        method: str = "tools/call",
        params: Raw | None = None,
        options: RequestOptions | None = None,
    ) -> "asyncio.Task[Raw]":
        request_task = asyncio.create_task(
            self.session.request(method, params, options or RequestOptions())
        )
        self._request_tasks.append(request_task)
        return request_task

    async def next(self) -> Raw:
        return await get_soon(self.sent)

    def send(self, **message: Any) -> None:
        self.session.receive({"jsonrpc": "2.0", **message})

    def progress(self, token: object, progress: int) -> None:
        self.send(
            method="notifications/progress", params={"progressToken": token, "progress": progress}
        )

    async def disconnect(self) -> None:
        self.session.end("the test is over")
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await asyncio.gather(*self._request_tasks, return_exceptions=True)
            await self.session.join()


@pytest.fixture
async def server() -> AsyncGenerator[FakeServer]:
    server = FakeServer()
    yield server
    await server.disconnect()


@pytest.fixture
async def server_with_roots() -> AsyncGenerator[FakeServer]:
    server = FakeServer(({"uri": "file:///work", "name": "work"},))
    yield server
    await server.disconnect()


async def outcome(request_task: "asyncio.Task[Raw]") -> Raw:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        return await request_task


# --- answers


async def test_answers_find_their_requests_in_whatever_order_they_come(server: FakeServer):
    request_task = [server.start_request(), server.start_request(), server.start_request()]
    ids = [(await server.next())["id"] for _ in request_task]
    for request_id in reversed(ids):
        server.send(id=request_id, result={"to": request_id})
    assert [(await outcome(task))["to"] for task in request_task] == ids


@pytest.mark.parametrize("as_sent_back", [str, float, lambda number: f"0{number}"])
async def test_ids_that_come_back_as_another_type_are_recognised(
    server: FakeServer, as_sent_back: Callable[[int], object]
):
    request_task = server.start_request()
    request_id = as_sent_back((await server.next())["id"])
    server.send(id=request_id, result={"ok": True})
    assert await outcome(request_task) == {"ok": True}


@pytest.mark.parametrize(
    "wrong",
    [
        99,
        -1,
        "99",
        "x",
        "",
        None,
        True,
        [1],
        {"id": 1},
        1.5,
        1e300,
        pytest.param("9" * 5_000, id="long"),
        "²",
    ],
)
async def test_answers_to_nobody_are_passed_over(server: FakeServer, wrong: object):
    request_task = server.start_request()
    right = (await server.next())["id"]
    server.send(id=wrong, result={"wrong": True})
    server.send(id=wrong, error={"code": 1, "message": "wrong"})
    server.send(id=right, result={"ok": True})
    assert await outcome(request_task) == {"ok": True}


async def test_the_first_of_two_answers_counts(server: FakeServer):
    request_task = server.start_request()
    request_id = (await server.next())["id"]
    server.send(id=request_id, result={"first": True})
    server.send(id=request_id, result={"first": False})
    server.send(id=request_id, error={"code": 1, "message": "second"})
    assert await outcome(request_task) == {"first": True}
    server.send(id=request_id, result={"late": True})


async def test_answers_may_come_in_a_batch(server: FakeServer):
    request_task = [server.start_request(), server.start_request()]
    ids = [(await server.next())["id"] for _ in request_task]
    server.session.receive(
        [{"jsonrpc": "2.0", "id": request_id, "result": {"to": request_id}} for request_id in ids]
    )
    assert [(await outcome(task))["to"] for task in request_task] == ids


async def test_a_batch_of_nonsense_is_noise_and_no_more(server: FakeServer):
    request_task = server.start_request()
    request_id = (await server.next())["id"]
    nested: object = []
    for _ in range(900):
        nested = [nested]
    server.session.receive([1, None, "x", [], {}, [[[]]]])
    server.session.receive(nested)
    server.send(id=request_id, result={"ok": True})
    assert await outcome(request_task) == {"ok": True}
    assert server.session.noise >= 4


@pytest.mark.parametrize("result", [None, "text", 7, [1, 2], True])
async def test_a_result_that_is_no_object_is_an_error_of_the_server(
    server: FakeServer, result: object
):
    request_task = server.start_request()
    server.send(id=(await server.next())["id"], result=result)
    with pytest.raises(RemoteError, match="without a result object"):
        await outcome(request_task)


async def test_an_error_arrives_with_its_code_message_and_data(server: FakeServer):
    request_task = server.start_request()
    server.send(
        id=(await server.next())["id"],
        error={"code": -31999, "message": "no", "data": {"why": [1]}},
    )
    with pytest.raises(RemoteError) as caught:
        await outcome(request_task)
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        -31999,
        "no",
        {"why": [1]},
    )
    assert caught.value.has_data


async def test_an_error_that_says_null_still_says_that_it_has_data(server: FakeServer):
    request_task = server.start_request()
    server.send(id=(await server.next())["id"], error={"code": 1, "message": "no", "data": None})
    with pytest.raises(RemoteError) as caught:
        await outcome(request_task)
    assert caught.value.has_data


@pytest.mark.parametrize("error", [{}, {"code": "x", "message": 7}, {"message": "no code"}])
async def test_a_malformed_error_is_an_error_all_the_same(server: FakeServer, error: Raw):
    request_task = server.start_request()
    server.send(id=(await server.next())["id"], error=error)
    with pytest.raises(RemoteError):
        await outcome(request_task)


async def test_a_result_beside_a_null_error_is_a_result(server: FakeServer):
    request_task = server.start_request()
    server.send(id=(await server.next())["id"], result={"ok": True}, error=None)
    assert await outcome(request_task) == {"ok": True}


# --- the end of a request


async def test_a_caller_that_leaves_cancels_the_request_upstream(server: FakeServer):
    request_task = server.start_request()
    request_id = (await server.next())["id"]
    request_task.cancel()
    cancelled = await server.next()
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == request_id
    assert "id" not in cancelled
    with pytest.raises(asyncio.CancelledError):
        await outcome(request_task)


async def test_a_request_out_of_time_is_cancelled_upstream_and_says_what_to_do(server: FakeServer):
    request_task = server.start_request(options=RequestOptions(timeout=0.01))
    request_id = (await server.next())["id"]
    with pytest.raises(BackendTimeout, match=r"did not answer tools/call within 0\.01 s") as caught:
        await outcome(request_task)
    assert "call_s" in caught.value.advice
    assert (await server.next())["params"]["requestId"] == request_id
    server.send(id=request_id, result={"late": True})


async def test_a_handshake_is_never_cancelled_upstream(server: FakeServer):
    request_task = server.start_request("initialize")
    await server.next()
    request_task.cancel()
    await asyncio.wait({request_task})
    await run_pending_callbacks()
    assert server.sent.empty()


async def test_every_waiting_call_fails_when_the_pipe_ends(server: FakeServer):
    request_task = [server.start_request(), server.start_request()]
    for _ in request_task:
        await server.next()
    server.session.end("it exited with code 4")
    for task in (*request_task, server.start_request()):
        with pytest.raises(BackendUnavailable, match="it exited with code 4"):
            await outcome(task)
    await server.session.notify("notifications/anything", None)
    assert server.sent.empty()


async def test_a_send_that_fails_is_the_callers_error_and_nobody_elses(
    caplog: pytest.LogCaptureFixture,
):
    async def broken(frame: Raw) -> None:
        raise BackendUnavailable("the pipe is broken")

    session = JsonRpcSession("far", FakeTransport(broken), RecordingListener())
    with pytest.raises(BackendUnavailable, match="the pipe is broken"):
        await session.request("tools/call", None, RequestOptions(timeout=TEST_TIMEOUT_S))
    session.end("over")
    await session.join()
    assert caplog.records == []


async def test_an_end_while_a_request_is_still_being_sent_leaves_no_unhandled_exception():
    """A future whose exception nobody fetches is complained about when it is thrown away."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ended = asyncio.Event()

    async def slow(frame: Raw) -> None:
        await ended.wait()
        raise BackendUnavailable("the pipe is broken")

    session = JsonRpcSession("far", FakeTransport(slow), RecordingListener())
    request_task = asyncio.create_task(session.request("tools/call", None))
    await run_pending_callbacks()
    session.end("over")
    ended.set()
    with pytest.raises(BackendUnavailable):
        await outcome(request_task)
    del request_task, session
    gc.collect()
    await run_pending_callbacks()
    assert complaints == []


async def test_a_request_given_up_as_the_end_comes_leaves_no_unhandled_exception_either():
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def never(frame: Raw) -> None:
        await asyncio.Event().wait()

    session = JsonRpcSession("far", FakeTransport(never), RecordingListener())
    request_task = asyncio.create_task(session.request("tools/call", None))
    await run_pending_callbacks()
    session.end("over")
    request_task.cancel()
    await asyncio.wait({request_task}, timeout=TEST_TIMEOUT_S)
    assert request_task.cancelled()
    del request_task, session
    gc.collect()
    await run_pending_callbacks()
    assert complaints == []


# --- progress


def with_token(token: object) -> Raw:
    return {"name": "work", "_meta": {"progressToken": token, "trace": "t"}}


async def test_two_clients_with_the_same_token_each_receive_their_own_progress(server: FakeServer):
    one, two = Caller(origin="one"), Caller(origin="two")
    request_task = [
        server.start_request(params=with_token(1), options=RequestOptions(relay=caller))
        for caller in (one, two)
    ]
    first, second = await server.next(), await server.next()
    tokens = [frame["params"]["_meta"]["progressToken"] for frame in (first, second)]
    assert len(set(tokens)) == 2
    assert first["params"]["_meta"]["trace"] == "t"
    server.progress(tokens[1], 2)
    server.progress(str(tokens[0]), 1)
    for frame in (first, second):
        server.send(id=frame["id"], result={})
    for task in request_task:
        await outcome(task)
    assert one.notifications == [("notifications/progress", {"progressToken": 1, "progress": 1})]
    assert two.notifications == [("notifications/progress", {"progressToken": 1, "progress": 2})]


async def test_a_token_that_nobody_gave_reaches_nobody(server: FakeServer):
    silent, caller = Caller(), Caller()
    without = server.start_request(params={"name": "work"}, options=RequestOptions(relay=silent))
    request_task = server.start_request(
        params=with_token("t"), options=RequestOptions(relay=caller)
    )
    ids = [(await server.next())["id"], (await server.next())["id"]]
    for token in (ids[0], 99, "nobody", None, [1], True, "9" * 5_000):
        server.progress(token, 1)
    for request_id in ids:
        server.send(id=request_id, result={})
    await outcome(without)
    await outcome(request_task)
    assert silent.notifications == []
    assert caller.notifications == []


class SlowCaller(Caller):
    """A client to whom every message takes longer than the next one."""

    def __init__(self, steps: Iterable[int]) -> None:
        super().__init__()
        self._steps = iter(steps)

    async def notify(self, method: str, params: Raw) -> None:
        for _ in range(next(self._steps)):
            await asyncio.sleep(0)
        await super().notify(method, params)


async def test_progress_reaches_the_caller_in_order_and_before_the_answer(server: FakeServer):
    caller = SlowCaller(range(20, 0, -1))
    request_task = server.start_request(
        params=with_token("t"), options=RequestOptions(relay=caller)
    )
    frame = await server.next()
    for step in range(20):
        server.progress(frame["params"]["_meta"]["progressToken"], step)
    server.send(id=frame["id"], result={"done": True})
    assert await outcome(request_task) == {"done": True}
    assert [params["progress"] for _, params in caller.notifications] == list(range(20))


async def test_a_caller_whose_way_back_is_broken_gets_its_answer_all_the_same(server: FakeServer):
    class Broken(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            raise RuntimeError("the stream is closed")

    request_task = server.start_request(
        params=with_token("t"), options=RequestOptions(relay=Broken())
    )
    frame = await server.next()
    server.progress(frame["params"]["_meta"]["progressToken"], 1)
    server.progress(frame["params"]["_meta"]["progressToken"], 2)
    server.send(id=frame["id"], result={"done": True})
    assert await outcome(request_task) == {"done": True}


async def test_progress_gives_a_request_its_timeout_again(server: FakeServer):
    request_task = server.start_request(
        params=with_token("t"), options=RequestOptions(timeout=60, relay=Caller())
    )
    frame = await server.next()
    for _ in range(3):  # two and a half times its timeout
        server.progress(frame["params"]["_meta"]["progressToken"], 1)
        advance_clock(50)
        await run_pending_callbacks()
        assert not request_task.done()
    server.send(id=frame["id"], result={"done": True})
    assert await outcome(request_task) == {"done": True}


async def test_progress_does_not_stretch_a_request_over_the_longest_a_call_may_take(
    server: FakeServer,
):
    request_task = server.start_request(
        params=with_token("t"),
        options=RequestOptions(timeout=TEST_TIMEOUT_S, relay=Caller(), total_timeout=0.1),
    )
    frame = await server.next()

    async def report() -> None:
        while True:
            server.progress(frame["params"]["_meta"]["progressToken"], 1)
            await asyncio.sleep(0.005)

    reporting = asyncio.create_task(report())
    with pytest.raises(
        BackendTimeout, match=r"within 0\.1 s, the longest a call may take"
    ) as caught:
        await outcome(request_task)
    reporting.cancel()
    assert "limits.call_s" in caught.value.advice


# --- what the other side asks


async def test_a_ping_is_answered(server: FakeServer):
    server.send(id="p", method="ping")
    assert await server.next() == {"jsonrpc": "2.0", "id": "p", "result": {}}


@pytest.mark.parametrize("method", ["log", "sampling/createMessage", "elicitation/create", "", 7])
async def test_a_request_nobody_can_answer_is_refused(server: FakeServer, method: object):
    server.send(id=1, method=method, params=["not", "an", "object"])
    assert (await server.next())["error"]["code"] == -32601


async def test_roots_outside_any_call_are_the_configured_ones(server_with_roots: FakeServer):
    for number in range(30):
        server_with_roots.send(id=f"roots-{number}", method="roots/list")
    answers = [await server_with_roots.next() for _ in range(30)]
    assert {answer["id"] for answer in answers} == {f"roots-{number}" for number in range(30)}
    assert all(
        answer["result"] == {"roots": [{"uri": "file:///work", "name": "work"}]}
        for answer in answers
    )


async def test_a_server_request_goes_to_the_one_client_whose_calls_are_in_flight(
    server: FakeServer,
):
    caller = Caller({"elicitation/create": {"action": "accept"}})
    server.start_request(options=RequestOptions(relay=caller))
    server.start_request(options=RequestOptions(relay=caller))
    server.start_request("tools/list")
    for _ in range(3):
        await server.next()
    server.send(id="q", method="elicitation/create", params={"message": "Sure?"})
    assert await get_soon(caller.requests) == ("elicitation/create", {"message": "Sure?"})
    assert await server.next() == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}


async def test_a_server_request_that_may_be_anybodys_is_sent_to_no_client(server: FakeServer):
    callers = [
        Caller({"elicitation/create": {"action": "accept"}}, origin=name) for name in ("one", "two")
    ]
    for caller in callers:
        server.start_request(options=RequestOptions(relay=caller))
        await server.next()
    server.send(id="q", method="elicitation/create", params={"message": "Sure?"})
    server.send(method="notifications/message", params={"level": "info", "data": "whose?"})
    assert (await server.next())["error"]["code"] == -32601
    assert all(caller.requests.empty() and caller.notifications == [] for caller in callers)
    assert await get_soon(server.listener.notifications) == (
        "notifications/message",
        {"level": "info", "data": "whose?"},
    )


async def test_a_log_message_during_a_call_goes_to_its_caller_only(server: FakeServer):
    caller = Caller()
    server.start_request(options=RequestOptions(relay=caller))
    await server.next()
    server.send(method="notifications/message", params={"level": "info", "data": "working"})
    await run_pending_callbacks()
    assert caller.notifications == [("notifications/message", {"level": "info", "data": "working"})]
    assert server.listener.notifications.empty()


class Raising(Caller):
    """A client that fails every question in its own way."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def request(self, method: str, params: Raw) -> Raw:
        raise self._error


@pytest.mark.parametrize(
    ("error", "code"),
    [(RemoteError(-1, "declined", {"a": 1}), -1), (PorticoError("the stream is closed"), -32603)],
)
async def test_a_client_that_fails_a_server_request_is_no_reason_to_leave_the_server_waiting(
    server: FakeServer, error: Exception, code: int
):
    server.start_request(options=RequestOptions(relay=Raising(error)))
    await server.next()
    server.send(id="q", method="sampling/createMessage", params={})
    answer = await server.next()
    assert (answer["id"], answer["error"]["code"]) == ("q", code)


async def test_roots_that_the_client_cannot_give_are_the_configured_ones(
    server_with_roots: FakeServer,
):
    relay: Relay = Raising(RemoteError(-32601, "no roots here"))
    server_with_roots.start_request(options=RequestOptions(relay=relay))
    await server_with_roots.next()
    server_with_roots.send(id="r", method="roots/list")
    assert (await server_with_roots.next())["result"] == {
        "roots": [{"uri": "file:///work", "name": "work"}]
    }


async def test_a_flood_of_server_requests_is_bounded_and_every_one_is_answered(server: FakeServer):
    caller = Caller()  # never answers
    server.start_request(options=RequestOptions(relay=caller))
    await server.next()
    for number in range(200):
        server.send(id=number, method="elicitation/create", params={})
    refused = [await server.next() for _ in range(200 - 64)]
    assert all("too many" in answer["error"]["message"] for answer in refused)
    server.session.end("over")
    await asyncio.wait_for(server.session.join(), TEST_TIMEOUT_S)


async def test_a_server_that_asks_endlessly_and_never_reads_costs_bounded_memory():
    writing = 0

    async def blocked(frame: Raw) -> None:
        nonlocal writing
        writing += 1
        await asyncio.Event().wait()

    session = JsonRpcSession("far", FakeTransport(blocked), RecordingListener())
    for number in range(5 * MAX_TASKS):
        session.receive({"jsonrpc": "2.0", "id": number, "method": "ping"})
        if number % 100 == 0:
            await run_pending_callbacks()
    await run_pending_callbacks()
    assert writing <= MAX_TASKS
    session.end("over")
    await asyncio.wait_for(session.join(), TEST_TIMEOUT_S)


@pytest.mark.parametrize(
    "request_id", [True, 1.5, [1], {"a": 1}, pytest.param("x" * 257, id="long")]
)
async def test_a_request_whose_id_no_answer_may_carry_is_not_answered(
    server: FakeServer, request_id: object
):
    server.send(id=request_id, method="ping")
    server.send(id="x" * 256, method="ping")
    assert (await server.next())["id"] == "x" * 256
    await run_pending_callbacks()
    assert server.sent.empty()


async def test_a_flood_of_progress_does_not_use_up_the_capacity_for_server_requests(
    server: FakeServer,
):

    class Stuck(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            await asyncio.Event().wait()

    server.start_request(
        params=with_token("t"), options=RequestOptions(relay=Stuck({"roots/list": {"roots": []}}))
    )
    frame = await server.next()
    for step in range(100):
        server.progress(frame["params"]["_meta"]["progressToken"], step)
    server.send(id="r", method="roots/list")
    assert await server.next() == {"jsonrpc": "2.0", "id": "r", "result": {"roots": []}}
    server.session.end("over")
    await asyncio.wait_for(server.session.join(), TEST_TIMEOUT_S)


# --- noise


@pytest.mark.parametrize(
    "noise",
    [
        None,
        42,
        "text",
        {},
        {"jsonrpc": "2.0"},
        {"level": "info"},
        {"id": 1},
        {"jsonrpc": "2.0", "id": 1},
    ],
)
async def test_what_is_not_json_rpc_is_counted(server: FakeServer, noise: object):
    server.session.receive(noise)
    assert server.session.noise == 1
