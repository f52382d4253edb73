"""State that a modern client carries between rounds is signed; pending requests are bounded."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest

from portico.callers import Caller
from portico.config import BackendConfig, Config, LimitsConfig, Timeouts
from portico.errors import RemoteError
from portico.gateway import GatewayRuntime
from portico.server.pending_requests import PendingRequests
from portico.server.state_signer import StateSigner, compute_binding
from portico.testing import FakeBackend, connect, gateway_over, serve_http
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.fixtures import everything_command
from tests.interaction.fake_servers import fake, get_text, text
from tests.interaction.raw_clients import RawLines, raw_http, raw_lines
from tests.interaction.upstreams import listening
from tests.upstream.loopback_server import advance_clock

pytestmark = pytest.mark.usefixtures("line_transport")

TIMEOUT_S = 240.0
CALL: Raw = {"name": "call_tool", "arguments": {"name": "s.run", "arguments": {"n": 1}}}
ANSWER: Raw = {"action": "accept", "content": {}}
QUESTION: Raw = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}


class Asking:
    """A handshake-era server that asks, and remembers how that went."""

    def __init__(self) -> None:
        self.backend: FakeBackend = fake("run", "other")
        self.backend.on("tools/call", self._run)
        self.calls = 0
        self.refused: asyncio.Queue[RemoteError] = asyncio.Queue()
        self.cancelled: asyncio.Queue[None] = asyncio.Queue()

    async def _run(self, params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        self.calls += 1
        try:
            try:
                await how.relay.request("elicitation/create", QUESTION)
            except RemoteError as error:
                self.refused.put_nowait(error)
                await asyncio.Event().wait()
            return text("answered")
        except asyncio.CancelledError:
            self.cancelled.put_nowait(None)
            raise


def stateful() -> tuple[FakeBackend, list[Raw]]:
    """A modern server with a state of its own, and what it was sent."""
    received: list[Raw] = []

    def run(params: Raw, how: RequestOptions) -> Raw:
        received.append(params)
        if "requestState" in params:
            return text(f"state: {params['requestState']}")
        request = {"method": "elicitation/create", "params": QUESTION}
        return {
            "resultType": "input_required",
            "inputRequests": {"who": request},
            "requestState": "höhle-1",
        }

    backend = fake("run", era="modern")
    backend.on("tools/call", run)
    return backend, received


@asynccontextmanager
async def parked_at(gateway: GatewayRuntime, **limits: Any) -> AsyncGenerator[RawLines]:
    """A client of a gateway with other limits."""
    gateway.pending_requests = PendingRequests(**limits)
    async with raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client:
        yield client


async def asked_by(client: Any, params: Raw = CALL) -> tuple[str, str]:
    """The key of the question a call is answered with, and the state to bring back."""
    result = (await client.request("tools/call", params))["result"]
    assert result["resultType"] == "input_required"
    ((key, _),) = result["inputRequests"].items()
    return key, result["requestState"]


def back(key: str, state: str, params: Raw = CALL) -> Raw:
    return {**params, "inputResponses": {key: ANSWER}, "requestState": state}


def tamper(state: str) -> list[str]:
    """Return what somebody might make of a state."""
    raw = bytearray(base64.urlsafe_b64decode(state + "=" * (-len(state) % 4)))
    raw[-1] ^= 1
    changed = base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")
    return [changed, state[:-2], state + "AAAA", "", "höhle", "A" * 200, "waiting"]


async def refusals(client: Any, *requests: Raw) -> None:
    for request in requests:
        refused = await client.request("tools/call", request)
        assert refused["error"]["code"] == types.INVALID_PARAMS, request
        assert "requestState" in refused["error"]["message"]


# --- signed


@pytest.mark.parametrize("modern", [False, True], ids=["parked", "wrapped"])
async def test_a_state_that_was_changed_is_refused_and_no_server_is_notified(modern: bool) -> None:
    asking, (server, received) = Asking(), stateful()
    backend = server if modern else asking.backend
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        key, state = await asked_by(client)
        await refusals(client, *(back(key, wrong) for wrong in tamper(state)))
        nonsense: Raw = {**CALL, "requestState": {"a": 1}}
        await refusals(client, nonsense)
        assert (asking.calls, len(received)) == ((0, 1) if modern else (1, 0))
        answered = (await client.request("tools/call", back(key, state)))["result"]
        assert ("state: höhle-1" if modern else "answered") in str(answered)


@pytest.mark.parametrize("modern", [False, True], ids=["parked", "wrapped"])
async def test_a_state_is_of_use_to_its_caller_and_its_request_alone(modern: bool) -> None:
    backend = stateful()[0] if modern else Asking().backend
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as stranger,
    ):
        key, state = await asked_by(client)
        await refusals(stranger, back(key, state))
        other_arguments: Raw = {
            "name": "call_tool",
            "arguments": {"name": "s.run", "arguments": {"n": 2}},
        }
        other_tool: Raw = {
            "name": "call_tool",
            "arguments": {"name": "s.other", "arguments": {"n": 1}},
        }
        await refusals(client, back(key, state, other_arguments), back(key, state, other_tool))
        assert "isError" not in (await client.request("tools/call", back(key, state)))["result"]


async def test_a_state_is_used_once() -> None:
    asking = Asking()
    async with (
        gateway_over({"s": asking.backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        key, state = await asked_by(client)
        assert "answered" in str((await client.request("tools/call", back(key, state)))["result"])
        await refusals(client, back(key, state))
        assert asking.calls == 1


async def test_without_a_session_the_state_is_what_a_client_is_known_by() -> None:
    async with (
        gateway_over({"s": Asking().backend}) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern", elicitation={}) as one,
        raw_http(url, "modern", elicitation={}) as two,
    ):
        first, second = await asked_by(one), await asked_by(two)
        assert first[1] != second[1]
        for client, mine in ((one, first), (two, second)):
            assert "answered" in str(await client.request("tools/call", back(*mine)))


def test_a_seal_is_bound_to_everything_it_is_given() -> None:
    now = 1_000.0
    seal = StateSigner(10, b"key", clock=lambda: now)
    params: Raw = {"name": "t", "arguments": {"n": 2**80, "half": "\ud800"}}
    bound = compute_binding(Caller("me"), "tools/call", params)
    state = seal.sign("wrapped", "theirs \ud800", bound)
    assert seal.verify(state, bound).value == "theirs \ud800"
    again = {**params, "_meta": {"progressToken": 1}, "inputResponses": {}, "requestState": state}
    assert compute_binding(Caller("me", name="another name"), "tools/call", again) == bound
    # A replica with the same key takes it for its own; one with another does not.
    assert StateSigner(10, b"key", clock=lambda: now).verify(state, bound).kind == "wrapped"
    for other in (
        compute_binding(Caller("you"), "tools/call", params),
        compute_binding(Caller("me", profile="p"), "tools/call", params),
        compute_binding(Caller("me"), "prompts/get", params),
        compute_binding(Caller("me"), "tools/call", {**params, "name": "u"}),
    ):
        with pytest.raises(RemoteError, match="another"):
            seal.verify(state, other)
    with pytest.raises(RemoteError, match="not issued here"):
        StateSigner(10, b"another", clock=lambda: now).verify(state, bound)
    now += 10
    with pytest.raises(RemoteError, match="longer than the 10 s"):
        seal.verify(state, bound)


# --- bounded


async def test_a_call_that_no_client_resumes_is_cancelled_and_its_server_notified() -> None:
    asking = Asking()
    async with (
        gateway_over({"s": asking.backend}) as gateway,
        parked_at(gateway, elicitation_timeout_s=0.2) as client,
    ):
        key, state = await asked_by(client)
        async with asyncio.timeout(TIMEOUT_S):
            await asking.cancelled.get()
        # Where both are late, the call ends before its question does.
        if not asking.refused.empty():
            assert "did not answer" in asking.refused.get_nowait().message
        await refusals(client, back(key, state))
        assert len(gateway.get_endpoint().pending_requests) == 0


async def test_a_legacy_client_that_does_not_answer_is_not_waited_for_either() -> None:
    asking = Asking()
    async with gateway_over({"s": asking.backend}) as gateway:
        gateway.pending_requests = PendingRequests(0.2)
        async with raw_lines(gateway.get_endpoint(), "legacy", elicitation={}) as client:
            await client.ask("tools/call", CALL)
            async with asyncio.timeout(TIMEOUT_S):
                assert "did not answer" in (await asking.refused.get()).message


async def test_one_call_too_many_is_turned_away_at_once_with_advice() -> None:
    asking = Asking()
    async with (
        gateway_over({"s": asking.backend}) as gateway,
        parked_at(gateway, max_pending=2, caller_share=1) as client,
    ):
        first, _ = await asked_by(client), await asked_by(client)
        refused = (await client.request("tools/call", CALL))["error"]
        assert refused["data"]["retryable"]
        assert "wait for their clients' answers" in refused["message"]
        async with asyncio.timeout(TIMEOUT_S):
            await asking.cancelled.get()
        await client.request("tools/call", back(*first))
        await asked_by(client)


async def test_one_client_leaves_room_for_others() -> None:
    async with (
        gateway_over({"s": Asking().backend}) as gateway,
        parked_at(gateway, max_pending=4, caller_share=2) as client,
    ):
        await asked_by(client)
        await asked_by(client)
        assert "of this client" in (await client.request("tools/call", CALL))["error"]["message"]
        async with raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as other:
            await asked_by(other)


async def test_a_client_that_hangs_up_ends_what_was_parked_for_it() -> None:
    asking = Asking()
    async with gateway_over({"s": asking.backend}) as gateway:
        async with raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client:
            await asked_by(client)
        async with asyncio.timeout(TIMEOUT_S):
            await asking.cancelled.get()
        assert len(gateway.get_endpoint().pending_requests) == 0


async def test_the_end_of_the_gateway_is_the_end_of_what_is_parked() -> None:
    asking = Asking()
    async with gateway_over({"s": asking.backend}) as gateway, serve_http(gateway) as url:
        async with raw_http(url, "modern", elicitation={}) as client:
            await asked_by(client)
        await gateway.close()
        async with asyncio.timeout(TIMEOUT_S):
            await asking.cancelled.get()


async def test_a_request_that_is_cancelled_after_the_answers_cancels_its_call() -> None:
    went_on, cancelled = asyncio.Event(), asyncio.Event()

    async def run(params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        await how.relay.request("elicitation/create", QUESTION)
        went_on.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return text("never")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        running = await client.ask("tools/call", back(*await asked_by(client)))
        async with asyncio.timeout(TIMEOUT_S):
            await went_on.wait()
            await client.send(
                {"method": "notifications/cancelled", "params": {"requestId": running}}
            )
            await cancelled.wait()


async def test_a_call_whose_server_dies_while_it_waits_is_answered_with_that() -> None:
    dead = asyncio.Event()

    async def run(params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        asking = asyncio.create_task(how.relay.request("elicitation/create", QUESTION))
        await dead.wait()
        asking.cancel()
        raise RemoteError(-32000, "the server died")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        question = await asked_by(client)
        dead.set()
        assert "the server died" in str(await client.request("tools/call", back(*question)))


async def test_what_needs_no_answer_is_not_parked() -> None:
    async def never(_: Any, params: Any) -> types.ElicitResult:
        raise AssertionError("nobody asked")

    async with gateway_over({"s": fake("run")}) as gateway:
        async with connect(gateway, "http", "modern", elicitation_callback=never) as client:
            answers = await asyncio.gather(
                *(client.call_tool("call_tool", {"name": "s.run"}) for _ in range(20))
            )
        assert not any(answer.is_error for answer in answers)
        assert len(gateway.get_endpoint().pending_requests) == 0


# --- real servers


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_may_take_longer_than_a_server_may(era: Era) -> None:
    command, *arguments = everything_command("--stdio", "--era", "legacy")
    bounds = Timeouts(call_s=30)

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        advance_clock(100)
        await asyncio.sleep(0.05)  # whatever is due by then has its turn
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with listening(*everything_command("--port", "0", "--era", "legacy")) as url:
        servers = {
            "pipe": BackendConfig(command=command, args=tuple(arguments), timeouts=bounds),
            "http": BackendConfig(url=url, timeouts=bounds),
        }
        config = Config(servers=servers, limits=LimitsConfig(call_s=60))
        async with (
            gateway_over(config=config) as gateway,
            connect(gateway, era=era, elicitation_callback=elicit) as client,
        ):
            for server in servers:
                arguments = {"name": f"{server}.ask_client", "arguments": {"kind": "form"}}
                async with asyncio.timeout(100 + TIMEOUT_S):
                    answered = await client.call_tool("call_tool", arguments)
                assert "Ada" in get_text(answered)


async def test_a_client_without_a_session_is_asked_by_the_instance_it_gets() -> None:
    command, *arguments = everything_command("--stdio", "--era", "legacy")
    server = BackendConfig(command=command, args=tuple(arguments), isolation="session")
    async with (
        gateway_over(config=Config(servers={"s": server})) as gateway,
        serve_http(gateway) as url,
        raw_http(url, "modern", roots={}) as client,
    ):
        call: Raw = {
            "name": "call_tool",
            "arguments": {"name": "s.ask_client", "arguments": {"kind": "roots"}},
        }
        key, state = await asked_by(client, call)
        more = {
            "inputResponses": {key: {"roots": [{"uri": "file:///mine"}]}},
            "requestState": state,
        }
        result = (await client.request("tools/call", {**call, **more}))["result"]
        assert "file:///mine" in str(result["content"])
        assert result["_meta"]["portico/session"]
