"""One end of a JSON-RPC conversation; the test is the other end and writes its lines."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import pytest

from portico.errors import BackendTimeout, BackendUnavailable, PorticoError, RemoteError
from portico.upstream.backend import Raw, Relay, RequestOptions
from portico.upstream.protocol.session import MAX_TASKS, JsonRpcSession
from tests.upstream.loopback import PATIENCE_S, Caller, Ears, let_pass, soon


class Far:
    """The far end: what it was sent, and the ways in which it may answer."""

    def __init__(self, roots: tuple[Raw, ...] = ()) -> None:
        self.sent: asyncio.Queue[Raw] = asyncio.Queue()
        self.ears = Ears()
        self.peer = JsonRpcSession("far", self._take, self.ears, roots)
        self._asking: list[asyncio.Task[Raw]] = []

    async def _take(self, frame: Raw) -> None:
        self.sent.put_nowait(frame)

    def ask(
        self,
        method: str = "tools/call",
        params: Raw | None = None,
        ask: RequestOptions | None = None,
    ) -> "asyncio.Task[Raw]":
        asking = asyncio.create_task(self.peer.request(method, params, ask or RequestOptions()))
        self._asking.append(asking)
        return asking

    async def next(self) -> Raw:
        return await soon(self.sent)

    def say(self, **message: Any) -> None:
        self.peer.receive({"jsonrpc": "2.0", **message})

    def progress(self, token: object, progress: int) -> None:
        self.say(
            method="notifications/progress", params={"progressToken": token, "progress": progress}
        )

    async def hang_up(self) -> None:
        self.peer.end("the test is over")
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._asking, return_exceptions=True)
            await self.peer.join()


@pytest.fixture
async def far() -> AsyncGenerator[Far]:
    far = Far()
    yield far
    await far.hang_up()


@pytest.fixture
async def far_with_roots() -> AsyncGenerator[Far]:
    far = Far(({"uri": "file:///work", "name": "work"},))
    yield far
    await far.hang_up()


async def outcome(asking: "asyncio.Task[Raw]") -> Raw:
    async with asyncio.timeout(PATIENCE_S):
        return await asking


async def settled() -> None:
    """Everything that can happen now has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- answers


async def test_answers_find_their_requests_in_whatever_order_they_come(far: Far):
    asking = [far.ask(), far.ask(), far.ask()]
    ids = [(await far.next())["id"] for _ in asking]
    for request_id in reversed(ids):
        far.say(id=request_id, result={"to": request_id})
    assert [(await outcome(task))["to"] for task in asking] == ids


@pytest.mark.parametrize("as_sent_back", [str, float, lambda number: f"0{number}"])
async def test_ids_that_come_back_as_another_type_are_recognised(
    far: Far, as_sent_back: Callable[[int], object]
):
    asking = far.ask()
    request_id = as_sent_back((await far.next())["id"])
    far.say(id=request_id, result={"ok": True})
    assert await outcome(asking) == {"ok": True}


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
async def test_answers_to_nobody_are_passed_over(far: Far, wrong: object):
    asking = far.ask()
    right = (await far.next())["id"]
    far.say(id=wrong, result={"wrong": True})
    far.say(id=wrong, error={"code": 1, "message": "wrong"})
    far.say(id=right, result={"ok": True})
    assert await outcome(asking) == {"ok": True}


async def test_the_first_of_two_answers_counts(far: Far):
    asking = far.ask()
    request_id = (await far.next())["id"]
    far.say(id=request_id, result={"first": True})
    far.say(id=request_id, result={"first": False})
    far.say(id=request_id, error={"code": 1, "message": "second"})
    assert await outcome(asking) == {"first": True}
    far.say(id=request_id, result={"late": True})


async def test_answers_may_come_in_a_batch(far: Far):
    asking = [far.ask(), far.ask()]
    ids = [(await far.next())["id"] for _ in asking]
    far.peer.receive(
        [{"jsonrpc": "2.0", "id": request_id, "result": {"to": request_id}} for request_id in ids]
    )
    assert [(await outcome(task))["to"] for task in asking] == ids


async def test_a_batch_of_nonsense_is_noise_and_no_more(far: Far):
    asking = far.ask()
    request_id = (await far.next())["id"]
    nested: object = []
    for _ in range(900):
        nested = [nested]
    far.peer.receive([1, None, "x", [], {}, [[[]]]])
    far.peer.receive(nested)
    far.say(id=request_id, result={"ok": True})
    assert await outcome(asking) == {"ok": True}
    assert far.peer.noise >= 4


@pytest.mark.parametrize("result", [None, "text", 7, [1, 2], True])
async def test_a_result_that_is_no_object_is_an_error_of_the_server(far: Far, result: object):
    asking = far.ask()
    far.say(id=(await far.next())["id"], result=result)
    with pytest.raises(RemoteError, match="without a result object"):
        await outcome(asking)


async def test_an_error_arrives_with_its_code_message_and_data(far: Far):
    asking = far.ask()
    far.say(
        id=(await far.next())["id"], error={"code": -31999, "message": "no", "data": {"why": [1]}}
    )
    with pytest.raises(RemoteError) as caught:
        await outcome(asking)
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        -31999,
        "no",
        {"why": [1]},
    )
    assert caught.value.has_data


async def test_an_error_that_says_null_still_says_that_it_has_data(far: Far):
    asking = far.ask()
    far.say(id=(await far.next())["id"], error={"code": 1, "message": "no", "data": None})
    with pytest.raises(RemoteError) as caught:
        await outcome(asking)
    assert caught.value.has_data


@pytest.mark.parametrize("error", [{}, {"code": "x", "message": 7}, {"message": "no code"}])
async def test_a_malformed_error_is_an_error_all_the_same(far: Far, error: Raw):
    asking = far.ask()
    far.say(id=(await far.next())["id"], error=error)
    with pytest.raises(RemoteError):
        await outcome(asking)


async def test_a_result_beside_a_null_error_is_a_result(far: Far):
    asking = far.ask()
    far.say(id=(await far.next())["id"], result={"ok": True}, error=None)
    assert await outcome(asking) == {"ok": True}


# --- the end of a request


async def test_a_caller_that_leaves_cancels_the_request_upstream(far: Far):
    asking = far.ask()
    request_id = (await far.next())["id"]
    asking.cancel()
    cancelled = await far.next()
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"]["requestId"] == request_id
    assert "id" not in cancelled
    with pytest.raises(asyncio.CancelledError):
        await outcome(asking)


async def test_a_request_out_of_time_is_cancelled_upstream_and_says_what_to_do(far: Far):
    asking = far.ask(ask=RequestOptions(timeout=0.01))
    request_id = (await far.next())["id"]
    with pytest.raises(BackendTimeout, match=r"did not answer tools/call within 0\.01 s") as caught:
        await outcome(asking)
    assert "call_s" in caught.value.advice
    assert (await far.next())["params"]["requestId"] == request_id
    far.say(id=request_id, result={"late": True})


async def test_a_handshake_is_never_cancelled_upstream(far: Far):
    asking = far.ask("initialize")
    await far.next()
    asking.cancel()
    await asyncio.wait({asking})
    await settled()
    assert far.sent.empty()


async def test_everyone_who_waits_is_told_when_the_pipe_ends(far: Far):
    asking = [far.ask(), far.ask()]
    for _ in asking:
        await far.next()
    far.peer.end("it exited with code 4")
    for task in (*asking, far.ask()):
        with pytest.raises(BackendUnavailable, match="it exited with code 4"):
            await outcome(task)
    await far.peer.notify("notifications/anything", None)
    assert far.sent.empty()


async def test_a_send_that_fails_is_the_callers_error_and_nobody_elses(
    caplog: pytest.LogCaptureFixture,
):
    async def broken(frame: Raw) -> None:
        raise BackendUnavailable("the pipe is broken")

    peer = JsonRpcSession("far", broken, Ears())
    with pytest.raises(BackendUnavailable, match="the pipe is broken"):
        await peer.request("tools/call", None, RequestOptions(timeout=PATIENCE_S))
    peer.end("over")
    await peer.join()
    assert caplog.records == []


async def test_an_end_while_a_request_is_still_being_sent_leaves_nothing_unheard():
    """A future whose exception nobody fetches is complained about when it is thrown away."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ended = asyncio.Event()

    async def slow(frame: Raw) -> None:
        await ended.wait()
        raise BackendUnavailable("the pipe is broken")

    peer = JsonRpcSession("far", slow, Ears())
    asking = asyncio.create_task(peer.request("tools/call", None))
    await settled()
    peer.end("over")
    ended.set()
    with pytest.raises(BackendUnavailable):
        await outcome(asking)
    del asking, peer
    gc.collect()
    await settled()
    assert complaints == []


async def test_a_request_given_up_as_the_end_comes_leaves_nothing_unheard_either():
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def never(frame: Raw) -> None:
        await asyncio.Event().wait()

    peer = JsonRpcSession("far", never, Ears())
    asking = asyncio.create_task(peer.request("tools/call", None))
    await settled()
    peer.end("over")
    asking.cancel()
    await asyncio.wait({asking}, timeout=PATIENCE_S)
    assert asking.cancelled()
    del asking, peer
    gc.collect()
    await settled()
    assert complaints == []


# --- progress


def with_token(token: object) -> Raw:
    return {"name": "work", "_meta": {"progressToken": token, "trace": "t"}}


async def test_two_clients_with_the_same_token_each_hear_their_own_progress(far: Far):
    one, two = Caller(origin="one"), Caller(origin="two")
    asking = [
        far.ask(params=with_token(1), ask=RequestOptions(relay=caller)) for caller in (one, two)
    ]
    first, second = await far.next(), await far.next()
    tokens = [frame["params"]["_meta"]["progressToken"] for frame in (first, second)]
    assert len(set(tokens)) == 2
    assert first["params"]["_meta"]["trace"] == "t"
    far.progress(tokens[1], 2)
    far.progress(str(tokens[0]), 1)
    for frame in (first, second):
        far.say(id=frame["id"], result={})
    for task in asking:
        await outcome(task)
    assert one.told == [("notifications/progress", {"progressToken": 1, "progress": 1})]
    assert two.told == [("notifications/progress", {"progressToken": 1, "progress": 2})]


async def test_a_token_that_nobody_gave_reaches_nobody(far: Far):
    silent, caller = Caller(), Caller()
    without = far.ask(params={"name": "work"}, ask=RequestOptions(relay=silent))
    asking = far.ask(params=with_token("t"), ask=RequestOptions(relay=caller))
    ids = [(await far.next())["id"], (await far.next())["id"]]
    for token in (ids[0], 99, "nobody", None, [1], True, "9" * 5_000):
        far.progress(token, 1)
    for request_id in ids:
        far.say(id=request_id, result={})
    await outcome(without)
    await outcome(asking)
    assert silent.told == []
    assert caller.told == []


class SlowCaller(Caller):
    """A client to whom every message takes longer than the next one."""

    def __init__(self, steps: Iterable[int]) -> None:
        super().__init__()
        self._steps = iter(steps)

    async def notify(self, method: str, params: Raw) -> None:
        for _ in range(next(self._steps)):
            await asyncio.sleep(0)
        await super().notify(method, params)


async def test_progress_reaches_the_caller_in_order_and_before_the_answer(far: Far):
    caller = SlowCaller(range(20, 0, -1))
    asking = far.ask(params=with_token("t"), ask=RequestOptions(relay=caller))
    frame = await far.next()
    for step in range(20):
        far.progress(frame["params"]["_meta"]["progressToken"], step)
    far.say(id=frame["id"], result={"done": True})
    assert await outcome(asking) == {"done": True}
    assert [params["progress"] for _, params in caller.told] == list(range(20))


async def test_a_caller_whose_way_back_is_broken_gets_its_answer_all_the_same(far: Far):
    class Broken(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            raise RuntimeError("the stream is closed")

    asking = far.ask(params=with_token("t"), ask=RequestOptions(relay=Broken()))
    frame = await far.next()
    far.progress(frame["params"]["_meta"]["progressToken"], 1)
    far.progress(frame["params"]["_meta"]["progressToken"], 2)
    far.say(id=frame["id"], result={"done": True})
    assert await outcome(asking) == {"done": True}


async def test_progress_gives_a_request_its_time_anew(far: Far):
    asking = far.ask(params=with_token("t"), ask=RequestOptions(timeout=60, relay=Caller()))
    frame = await far.next()
    for _ in range(3):  # two and a half times its patience
        far.progress(frame["params"]["_meta"]["progressToken"], 1)
        let_pass(50)
        await settled()
        assert not asking.done()
    far.say(id=frame["id"], result={"done": True})
    assert await outcome(asking) == {"done": True}


async def test_progress_does_not_stretch_a_request_over_the_longest_a_call_may_take(far: Far):
    asking = far.ask(
        params=with_token("t"),
        ask=RequestOptions(timeout=PATIENCE_S, relay=Caller(), total_timeout=0.1),
    )
    frame = await far.next()

    async def report() -> None:
        while True:
            far.progress(frame["params"]["_meta"]["progressToken"], 1)
            await asyncio.sleep(0.005)

    reporting = asyncio.create_task(report())
    with pytest.raises(
        BackendTimeout, match=r"within 0\.1 s, the longest a call may take"
    ) as caught:
        await outcome(asking)
    reporting.cancel()
    assert "limits.call_s" in caught.value.advice


# --- what the other side asks


async def test_a_ping_is_answered(far: Far):
    far.say(id="p", method="ping")
    assert await far.next() == {"jsonrpc": "2.0", "id": "p", "result": {}}


@pytest.mark.parametrize("method", ["log", "sampling/createMessage", "elicitation/create", "", 7])
async def test_a_request_nobody_can_answer_is_refused(far: Far, method: object):
    far.say(id=1, method=method, params=["not", "an", "object"])
    assert (await far.next())["error"]["code"] == -32601


async def test_roots_outside_any_call_are_the_configured_ones(far_with_roots: Far):
    for number in range(30):
        far_with_roots.say(id=f"roots-{number}", method="roots/list")
    answers = [await far_with_roots.next() for _ in range(30)]
    assert {answer["id"] for answer in answers} == {f"roots-{number}" for number in range(30)}
    assert all(
        answer["result"] == {"roots": [{"uri": "file:///work", "name": "work"}]}
        for answer in answers
    )


async def test_a_question_goes_to_the_one_client_whose_calls_are_in_flight(far: Far):
    caller = Caller({"elicitation/create": {"action": "accept"}})
    far.ask(ask=RequestOptions(relay=caller))
    far.ask(ask=RequestOptions(relay=caller))
    far.ask("tools/list")
    for _ in range(3):
        await far.next()
    far.say(id="q", method="elicitation/create", params={"message": "Sure?"})
    assert await soon(caller.asked) == ("elicitation/create", {"message": "Sure?"})
    assert await far.next() == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept"}}


async def test_a_question_that_may_be_anybodys_is_put_to_nobody(far: Far):
    callers = [
        Caller({"elicitation/create": {"action": "accept"}}, origin=name) for name in ("one", "two")
    ]
    for caller in callers:
        far.ask(ask=RequestOptions(relay=caller))
        await far.next()
    far.say(id="q", method="elicitation/create", params={"message": "Sure?"})
    far.say(method="notifications/message", params={"level": "info", "data": "whose?"})
    assert (await far.next())["error"]["code"] == -32601
    assert all(caller.asked.empty() and caller.told == [] for caller in callers)
    assert await soon(far.ears.notifications) == (
        "notifications/message",
        {"level": "info", "data": "whose?"},
    )


async def test_a_log_message_during_a_call_goes_to_its_caller_only(far: Far):
    caller = Caller()
    far.ask(ask=RequestOptions(relay=caller))
    await far.next()
    far.say(method="notifications/message", params={"level": "info", "data": "working"})
    await settled()
    assert caller.told == [("notifications/message", {"level": "info", "data": "working"})]
    assert far.ears.notifications.empty()


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
async def test_a_client_that_fails_a_question_is_no_reason_to_leave_the_server_waiting(
    far: Far, error: Exception, code: int
):
    far.ask(ask=RequestOptions(relay=Raising(error)))
    await far.next()
    far.say(id="q", method="sampling/createMessage", params={})
    answer = await far.next()
    assert (answer["id"], answer["error"]["code"]) == ("q", code)


async def test_roots_that_the_client_cannot_give_are_the_configured_ones(far_with_roots: Far):
    relay: Relay = Raising(RemoteError(-32601, "no roots here"))
    far_with_roots.ask(ask=RequestOptions(relay=relay))
    await far_with_roots.next()
    far_with_roots.say(id="r", method="roots/list")
    assert (await far_with_roots.next())["result"] == {
        "roots": [{"uri": "file:///work", "name": "work"}]
    }


async def test_a_flood_of_questions_is_bounded_and_every_one_is_answered(far: Far):
    caller = Caller()  # never answers
    far.ask(ask=RequestOptions(relay=caller))
    await far.next()
    for number in range(200):
        far.say(id=number, method="elicitation/create", params={})
    refused = [await far.next() for _ in range(200 - 64)]
    assert all("too many" in answer["error"]["message"] for answer in refused)
    far.peer.end("over")
    await asyncio.wait_for(far.peer.join(), PATIENCE_S)


async def test_a_server_that_asks_endlessly_and_never_reads_costs_bounded_memory():
    writing = 0

    async def blocked(frame: Raw) -> None:
        nonlocal writing
        writing += 1
        await asyncio.Event().wait()

    peer = JsonRpcSession("far", blocked, Ears())
    for number in range(5 * MAX_TASKS):
        peer.receive({"jsonrpc": "2.0", "id": number, "method": "ping"})
        if number % 100 == 0:
            await settled()
    await settled()
    assert writing <= MAX_TASKS
    peer.end("over")
    await asyncio.wait_for(peer.join(), PATIENCE_S)


@pytest.mark.parametrize(
    "request_id", [True, 1.5, [1], {"a": 1}, pytest.param("x" * 257, id="long")]
)
async def test_a_request_whose_id_no_answer_may_carry_is_not_answered(far: Far, request_id: object):
    far.say(id=request_id, method="ping")
    far.say(id="x" * 256, method="ping")
    assert (await far.next())["id"] == "x" * 256
    await settled()
    assert far.sent.empty()


async def test_a_flood_of_progress_does_not_use_up_the_room_for_questions(far: Far):

    class Stuck(Caller):
        async def notify(self, method: str, params: Raw) -> None:
            await asyncio.Event().wait()

    far.ask(params=with_token("t"), ask=RequestOptions(relay=Stuck({"roots/list": {"roots": []}})))
    frame = await far.next()
    for step in range(100):
        far.progress(frame["params"]["_meta"]["progressToken"], step)
    far.say(id="r", method="roots/list")
    assert await far.next() == {"jsonrpc": "2.0", "id": "r", "result": {"roots": []}}
    far.peer.end("over")
    await asyncio.wait_for(far.peer.join(), PATIENCE_S)


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
async def test_what_is_not_json_rpc_is_counted(far: Far, noise: object):
    far.peer.receive(noise)
    assert far.peer.noise == 1
