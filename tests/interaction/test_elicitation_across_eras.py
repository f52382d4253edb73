"""A client of each era answers what a server of each era asks in the middle of a call.

Sampling, forms, addresses to be visited and roots; for a plain call, through `call_tool`, and
inside a script.
"""

import asyncio
import json
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPDeprecationWarning

from portico.config import BackendConfig, Config
from portico.errors import RemoteError
from portico.server.client_relay import LEVELS
from portico.testing import FakeBackend, Transport, connect, gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.interaction.conftest import Matrix
from tests.interaction.fake_servers import ask, fake, get_text, text
from tests.interaction.raw_clients import RawLines, raw_lines
from tests.interaction.test_relayed_requests import ROOT, Person
from tests.interaction.upstreams import CORNERS
from tests.upstream.scripted import script

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("line_transport")]

TIMEOUT_S = 240.0
UPSTREAMS = [corner.name for corner in CORNERS]
KINDS = ["sampling", "form", "url", "roots"]
URL = "https://example.org/sign-in"
VISIT = {
    "mode": "url",
    "message": "s asks you to open example.org: Go",
    "url": URL,
    "_meta": {"portico/server": "s"},
}


class Reader(Person):
    """A person who also visits addresses."""

    async def elicit(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": self.name})

    def check(self, kind: str, answer: str, upstream: str) -> None:
        """Decide whether this is what they answered, and to what was asked by whom."""
        received, asked = json.loads(answer), self.asked.pop()
        assert self.asked == [], "asked once"
        if kind == "sampling":
            assert received["content"] == {"type": "text", "text": f"{self.name} thinks so"}
            assert asked.messages[0].content.text == f"{upstream} asks: Is it late?"
        elif kind == "form":
            assert (received["action"], received["content"]) == ("accept", {"name": self.name})
            assert asked.message == f"{upstream} asks: Who are you?"
        elif kind == "url":
            assert received["action"] == "accept"
            assert (asked.mode, asked.url) == ("url", URL)
        else:
            assert [root["uri"] for root in received["roots"]] == [ROOT]


# --- every pair


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_answers_what_a_server_asks(
    matrix: Matrix, era: Era, transport: Transport, upstream: str
) -> None:
    ada = Reader("Ada")
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, transport, era, **ada.callbacks) as client,
    ):
        for kind in KINDS:
            answered = await client.call_tool(f"{upstream}__ask_client", {"kind": kind})
            assert not answered.is_error, get_text(answered)
            ada.check(kind, get_text(answered), upstream)


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_it_answers_through_call_tool_too(matrix: Matrix, era: Era, upstream: str) -> None:
    ada = Reader("Ada")
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "http", era, "meta", **ada.callbacks) as client,
    ):
        for kind in KINDS:
            arguments = {"name": f"{upstream}.ask_client", "arguments": {"kind": kind}}
            ada.check(kind, await ask(client, "call_tool", **arguments), upstream)


@pytest.mark.parametrize("upstream", ["legacy_stdio", "modern_http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_it_answers_what_a_script_runs_into(matrix: Matrix, era: Era, upstream: str) -> None:
    ada = Reader("Ada")
    code = (
        f'[await {upstream}.ask_client(kind="form"), await {upstream}.ask_client(kind="sampling")]'
    )
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "stdio", era, "meta", **ada.callbacks) as client,
    ):
        answered = await client.call_tool("run_code", {"code": code})
        assert not answered.is_error, get_text(answered)
        assert "Ada thinks so" in get_text(answered)
        assert [type(params).__name__ for params in ada.asked] == [
            "ElicitRequestFormParams",
            "CreateMessageRequestParams",
        ]


@pytest.mark.parametrize("upstream", ["legacy_http", "modern_stdio"])
async def test_it_answers_what_the_steps_of_a_workflow_ask_all_at_once(
    matrix: Matrix, upstream: str
) -> None:
    ada = Reader("Ada")
    steps = [
        {"id": kind, "tool": f"{upstream}.ask_client", "arguments": {"kind": kind}}
        for kind in ("form", "roots")
    ]
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "http", "modern", "meta", **ada.callbacks) as client,
    ):
        answered = await client.call_tool("run_workflow", {"steps": steps})
        assert not answered.is_error, get_text(answered)
        assert len(ada.asked) == 2
        assert ROOT in get_text(answered)


# --- clients that cannot be asked


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_offers_nothing_is_informed_what_it_lacks(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    async with asyncio.timeout(TIMEOUT_S), raw_lines(matrix.gateway.get_endpoint(), era) as client:
        for kind, capability in (
            ("form", "elicitation"),
            ("url", "elicitation"),
            ("sampling", "sampling"),
        ):
            params = {"name": f"{upstream}__ask_client", "arguments": {"kind": kind}}
            answered = await client.request("tools/call", params)
            if era == "modern" and upstream.startswith("modern"):
                assert answered["error"]["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY
                assert list(answered["error"]["data"]["requiredCapabilities"]) == [capability]
            else:
                assert f"does not offer {capability}" in str(answered), answered


@pytest.mark.parametrize("upstream", ["legacy_http", "modern_http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_of_forms_alone_is_not_sent_anywhere(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        raw_lines(matrix.gateway.get_endpoint(), era, elicitation={}) as client,
    ):
        params = {"name": f"{upstream}__ask_client", "arguments": {"kind": "url"}}
        answered = await client.request("tools/call", params)
        assert "url" in str(answered.get("error") or answered["result"]["content"]), answered
        assert "error" in answered or answered["result"]["isError"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_modern_server_receives_the_capabilities_of_the_calling_client(
    matrix: Matrix, era: Era
) -> None:
    offers = {"sampling": {}, "elicitation": {"form": {}}}
    async with (
        asyncio.timeout(TIMEOUT_S),
        raw_lines(matrix.gateway.get_endpoint("meta"), era, **offers) as client,
    ):
        for upstream in ("modern_http", "modern_stdio"):
            params = {"name": "call_tool", "arguments": {"name": f"{upstream}.whoami"}}
            received = await client.request("tools/call", params)
            assert received["result"]["structuredContent"]["capabilities"] == offers
            script = {
                "name": "run_code",
                "arguments": {"code": f"(await {upstream}.whoami())['capabilities']"},
            }
            received = await client.request("tools/call", script)
            assert '"form"' in str(received) or "'form'" in str(received), received


# --- rounds on the wire


def asking(**params: Any) -> FakeBackend:
    """A handshake-era server that asks whenever it is asked for anything, and repeats the
    answer."""
    backend = fake(
        "run", prompts=[{"name": "greet"}], resources=[{"uri": "note://1", "name": "note"}]
    )
    question = params or {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {}},
    }

    async def run(given: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        return text(json.dumps(await how.relay.request("elicitation/create", question)))

    async def prompt(given: Raw, how: RequestOptions) -> Raw:
        return {"messages": [{"role": "user", "content": (await run(given, how))["content"][0]}]}

    async def read(given: Raw, how: RequestOptions) -> Raw:
        return {
            "contents": [{"uri": "note://1", "text": (await run(given, how))["content"][0]["text"]}]
        }

    backend.on("tools/call", run)
    backend.on("prompts/get", prompt)
    backend.on("resources/read", read)
    return backend


CALL: Raw = {"name": "call_tool", "arguments": {"name": "s.run"}}
ANSWER: Raw = {"action": "accept", "content": {"name": "Ada"}}


async def asked_by(
    client: RawLines, params: Raw = CALL, method: str = "tools/call"
) -> tuple[str, Raw, str]:
    """The key and the question a request is answered with, and the state to bring back."""
    result = (await client.request(method, params))["result"]
    assert result["resultType"] == "input_required"
    ((key, question),) = result["inputRequests"].items()
    return key, question, result["requestState"]


async def test_prompts_and_resources_are_asked_for_in_rounds_too() -> None:
    async with (
        gateway_over({"s": asking()}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        for method, params in (
            ("prompts/get", {"name": "s__greet"}),
            ("resources/read", {"uri": "note://1"}),
        ):
            key, _, state = await asked_by(client, params, method)
            more = {"inputResponses": {key: ANSWER}, "requestState": state}
            assert "Ada" in str((await client.request(method, {**params, **more}))["result"])


async def test_a_question_reaches_a_modern_client_with_its_servers_name_and_is_answered() -> None:
    vendor = {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {}},
        "x-vendor": [None, 1],
    }
    async with (
        gateway_over({"s": asking(**vendor)}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        key, question, state = await asked_by(client)
        labelled = {**vendor, "message": "s asks: Who?", "_meta": {"portico/server": "s"}}
        assert question == {"method": "elicitation/create", "params": labelled}
        answer = {**ANSWER, "_meta": {"y": None}, "x-vendor": {"z": None}}
        more = {"inputResponses": {key: answer, "unknown": 1}, "requestState": state}
        final = (await client.request("tools/call", {**CALL, **more}))["result"]
        assert json.loads(final["content"][0]["text"]) == answer


async def test_only_the_handshake_era_gives_a_visit_an_id() -> None:
    visit = {"mode": "url", "message": "Go", "url": URL, "elicitationId": "v1"}
    both = {"elicitation": {"form": {}, "url": {}}}
    async with (
        gateway_over({"s": asking(**visit)}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", **both) as client,
    ):
        _, question, _ = await asked_by(client)
        assert question["params"] == VISIT


async def test_what_is_missing_is_asked_again_and_nonsense_is_refused() -> None:
    async with (
        gateway_over({"s": asking()}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        key, question, state = await asked_by(client)
        wrong = await client.request(
            "tools/call", {**CALL, "inputResponses": {key: {"action": 7}}, "requestState": state}
        )
        assert wrong["error"]["code"] == types.INVALID_PARAMS
        assert key in wrong["error"]["message"]
        # Refused before it was used: the same state still stands for the call.
        again = await asked_by(client, {**CALL, "inputResponses": {}, "requestState": state})
        assert again[:2] == (key, question)
        assert again[2] != state
        more = {"inputResponses": {key: ANSWER}, "requestState": again[2]}
        assert "Ada" in str((await client.request("tools/call", {**CALL, **more}))["result"])


async def test_progress_and_log_go_to_the_request_that_is_under_way() -> None:
    async def run(given: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        token = given["_meta"]["progressToken"]
        await how.relay.notify("notifications/progress", {"progressToken": token, "progress": 1})
        await how.relay.request(
            "elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}
        )
        await how.relay.notify("notifications/progress", {"progressToken": token, "progress": 2})
        await how.relay.notify("notifications/message", {"level": LEVELS[0], "data": "after"})
        return text("done")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", elicitation={}) as client,
    ):
        key, _, state = await asked_by(client, {**CALL, "_meta": {"progressToken": "first"}})
        meta = {"progressToken": "second", "io.modelcontextprotocol/logLevel": "debug"}
        more = {"inputResponses": {key: ANSWER}, "requestState": state, "_meta": meta}
        assert "done" in str((await client.request("tools/call", {**CALL, **more}))["result"])
        reported = [
            (one["method"].split("/")[1], one["params"].get("progressToken"))
            for one in client.unprompted
        ]
        assert reported == [("progress", "first"), ("progress", "second"), ("message", None)]


# --- a visit, from one era to the other


async def test_a_refusal_until_an_address_is_visited_is_a_question_to_a_modern_client() -> None:
    visit = {"mode": "url", "message": "Go", "url": URL, "elicitationId": "v1"}
    signed_in = False

    def run(given: Raw, how: RequestOptions) -> Raw:
        if not signed_in:
            raise RemoteError(
                types.URL_ELICITATION_REQUIRED, "Sign in first.", {"elicitations": [visit]}
            )
        return text("signed in")

    backend = fake("run")
    backend.on("tools/call", run)
    both = {"elicitation": {"form": {}, "url": {}}}
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "modern", **both) as client,
    ):
        result = (await client.request("tools/call", CALL))["result"]
        ((key, question),) = result["inputRequests"].items()
        assert question["params"] == VISIT
        agreed = {**CALL, "inputResponses": {key: {"action": "accept"}}}
        assert (await client.request("tools/call", agreed))["result"] == result, (
            "not there yet: asked again"
        )
        refused = await client.request(
            "tools/call", {**CALL, "inputResponses": {key: {"action": "decline"}}}
        )
        assert refused["error"]["code"] == types.URL_ELICITATION_REQUIRED
        signed_in = True
        assert "signed in" in str(await client.request("tools/call", agreed))


async def test_a_legacy_client_is_sent_to_an_address_once_and_notified_when_it_is_done() -> None:
    rounds: list[Any] = []

    def run(given: Raw, how: RequestOptions) -> Raw:
        rounds.append(given.get("inputResponses"))
        if len(rounds) < 4:
            question = {
                "method": "elicitation/create",
                "params": {"mode": "url", "message": "Go", "url": URL},
            }
            return {
                "resultType": "input_required",
                "inputRequests": {"go": question},
                "requestState": str(len(rounds)),
            }
        assert given["requestState"] == "3"
        return text("signed in")

    backend = fake("run", era="modern")
    backend.on("tools/call", run)
    both = {"elicitation": {"form": {}, "url": {}}}
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy", **both) as client,
    ):
        calling = await client.ask("tools/call", CALL)
        question = await client.wait_for(
            lambda message: message.get("method") == "elicitation/create"
        )
        assert question["params"]["elicitationId"]
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        done = await client.wait_for(
            lambda message: message.get("method") == "notifications/elicitation/complete"
        )
        assert done["params"]["elicitationId"] == question["params"]["elicitationId"]
        assert "signed in" in str(await client.answer_to(calling))
        assert rounds == [None, *[{"go": {"action": "accept"}}] * 3]


SIGN_IN = """
shake()
for id, method, params in requests():
    if method == "tools/list":
        send(id=id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("run", "done")]})
    elif params.get("name") == "done":
        send(method="notifications/elicitation/complete", params={"elicitationId": "v1"})
        send(id=id, result={"content": []})
    elif method == "tools/call":
        visit = {"mode": "url", "message": "Go", "url": "https://example.org", "elicitationId": "v1"}
        send(id=id, error={"code": -32042, "message": "Sign in first.", "data": {"elicitations": [visit]}})
    else:
        send(id=id, error={"code": -32601, "message": "Method not found"})
"""  # noqa: E501


async def test_a_legacy_client_learns_of_the_end_of_its_visit_when_its_call_is_long_over() -> None:
    command, *arguments = script(SIGN_IN)
    config = Config(servers={"s": BackendConfig(command=command, args=tuple(arguments))})
    both = {"elicitation": {"form": {}, "url": {}}}
    async with (
        asyncio.timeout(TIMEOUT_S),
        gateway_over(config=config) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy", **both) as client,
        raw_lines(gateway.get_endpoint(), "legacy", **both) as other,
    ):
        refused = await client.request("tools/call", CALL)
        assert refused["error"]["code"] == types.URL_ELICITATION_REQUIRED
        assert refused["error"]["data"]["elicitations"][0]["elicitationId"] == "v1"
        await other.request("tools/call", {"name": "call_tool", "arguments": {"name": "s.done"}})
        done = await client.wait_for(
            lambda message: message.get("method") == "notifications/elicitation/complete"
        )
        assert done["params"] == {"elicitationId": "v1"}
        assert not any("elicitation" in str(message.get("method")) for message in other.unprompted)


async def test_a_server_that_never_stops_asking_is_stopped() -> None:
    def run(given: Raw, how: RequestOptions) -> Raw:
        return {
            "resultType": "input_required",
            "inputRequests": {"roots": {"method": "roots/list"}},
        }

    backend = fake("run", era="modern")
    backend.on("tools/call", run)
    ada = Reader("Ada")
    async with (
        gateway_over({"s": backend}) as gateway,
        connect(gateway, era="legacy", **ada.callbacks) as client,
    ):
        answered = await client.call_tool("call_tool", CALL["arguments"])
        assert answered.is_error
        assert "still asks" in get_text(answered)
        assert len(ada.asked) == 16


# --- what else reaches the very client


def callers(era: Era, name: str) -> dict[str, Any]:
    """A client that can be asked: its requests are worked on in the way of those."""
    return (
        {**Reader(name).callbacks, "log_level": "debug"}
        if era == "modern"
        else Reader(name).callbacks
    )


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_progress_of_two_clients_at_once_reaches_each_its_own(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    reported: dict[str, list[float]] = {"one": [], "two": []}

    async def call(client: Client, name: str, steps: int) -> None:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            assert total == steps, "another's"
            reported[name].append(progress)

        arguments = {"seconds": 0.2, "steps": steps}
        await client.call_tool(f"{upstream}__slow", arguments, progress_callback=progress)

    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "stdio", era, **callers(era, "one")) as one,
        connect(matrix.gateway, "http", era, **callers(era, "two")) as two,
    ):
        await asyncio.gather(call(one, "one", 4), call(two, "two", 5))
    assert reported == {"one": [1, 2, 3, 4], "two": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_log_messages_reach_the_client_that_called_and_no_other(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    received: dict[str, list[Any]] = {"caller": [], "bystander": []}
    done = asyncio.Event()

    def log(name: str) -> Any:
        async def take(params: Any) -> None:
            received[name].append(params.data)
            if len(received["caller"]) == 3:
                done.set()

        return take

    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(
            matrix.gateway, "http", era, logging_callback=log("bystander"), **callers(era, "Bob")
        ) as bystander,
        connect(
            matrix.gateway, "http", era, logging_callback=log("caller"), **callers(era, "Ada")
        ) as caller,
    ):
        if era == "legacy":
            for client in (bystander, caller):
                with pytest.warns(MCPDeprecationWarning):
                    await client.set_logging_level("debug")  # pyright: ignore[reportDeprecated]
        await caller.call_tool(f"{upstream}__test_tool_with_logging", {})
        await done.wait()
    assert received["caller"] == [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ]
    assert received["bystander"] == []


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_can_be_asked_can_cancel_its_call(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "stdio", era, **callers(era, "Ada")) as client,
    ):

        async def counted(key: str) -> int:
            return json.loads(await ask(client, f"{upstream}__cancellations"))[key]

        before, running = await counted("cancelled"), asyncio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            running.set()

        arguments = {"seconds": 600, "steps": 60_000}
        slow = asyncio.create_task(
            client.call_tool(f"{upstream}__slow", arguments, progress_callback=progress)
        )
        await running.wait()
        slow.cancel()
        await asyncio.wait({slow})
        while await counted("cancelled") == before:
            pass


@pytest.mark.parametrize("upstream", ["legacy_stdio", "legacy_http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_of_several_calls_of_one_client_none_is_lost_to_the_questions_of_another(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    ada = Reader("Ada")
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(matrix.gateway, "stdio", era, **ada.callbacks) as client,
    ):
        slow = {"seconds": 0.1, "steps": 2}
        answers = await asyncio.gather(
            client.call_tool(f"{upstream}__slow", slow),
            *(client.call_tool(f"{upstream}__ask_client", {"kind": kind}) for kind in KINDS),
            client.call_tool(f"{upstream}__slow", slow),
        )
        assert [get_text(answer) for answer in answers if answer.is_error] == []
        # A question whose call cannot be told is asked again when the call it was asked with ends
        # before it is answered, as a slow one may.
        assert len(ada.asked) >= len(KINDS)
