"""What a server of the handshake era asks in the middle of a call is asked of the client that made
the call.

Sampling, elicitation and roots; refused in words where the client cannot be asked.
"""

import asyncio
from typing import Any

import mcp_types as types
import pytest

from portico.config import BackendConfig, Config
from portico.errors import RemoteError
from portico.testing import Transport, connect, gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.fixtures import everything_command
from tests.interaction.conftest import Matrix
from tests.interaction.fake_servers import ask, fake, get_text, text
from tests.interaction.raw_clients import raw_lines

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("line_transport")]

TIMEOUT_S = 240.0
ROOT = "file:///srv/project"


class Person:
    """Answers what a client is asked, and remembers it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[Any] = []

    async def sample(
        self, _: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append(params)
        content = types.TextContent(type="text", text=f"{self.name} thinks so")
        return types.CreateMessageResult(role="assistant", content=content, model="none")

    async def elicit(self, _: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params)
        return types.ElicitResult(
            action="accept", content={"username": self.name, "email": "x@example.org"}
        )

    async def roots(self, _: Any) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": ROOT, "name": self.name}]})

    @property
    def callbacks(self) -> dict[str, Any]:
        return {
            "sampling_callback": self.sample,
            "elicitation_callback": self.elicit,
            "list_roots_callback": self.roots,
        }


ASKING = [
    ("test_sampling", {"prompt": "Is it late?"}, "LLM response: Ada thinks so"),
    ("test_elicitation", {"message": "Who are you?"}, '"username": "Ada"'),
    ("ask_roots", {}, ROOT),
]


@pytest.mark.parametrize("upstream", ["legacy_stdio", "legacy_http"])
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
async def test_the_client_that_called_is_asked_and_its_answer_reaches_the_server(
    matrix: Matrix, transport: Transport, upstream: str
) -> None:
    ada, bystander = Person("Ada"), Person("Bob")
    async with (
        connect(matrix.gateway, transport, "legacy", **bystander.callbacks),
        connect(matrix.gateway, transport, "legacy", **ada.callbacks) as client,
    ):
        for tool, arguments, expected in ASKING:
            async with asyncio.timeout(TIMEOUT_S):
                answered = await client.call_tool(f"{upstream}__{tool}", arguments)
            assert not answered.is_error, get_text(answered)
            assert expected in get_text(answered)
        assert len(ada.asked) == len(ASKING)
        assert bystander.asked == []


@pytest.mark.parametrize("upstream", ["legacy_stdio", "legacy_http"])
async def test_it_works_through_call_tool_too(matrix: Matrix, upstream: str) -> None:
    ada = Person("Ada")
    async with connect(matrix.gateway, "http", "legacy", "meta", **ada.callbacks) as client:
        for tool, arguments, expected in ASKING:
            assert expected in await ask(
                client, "call_tool", name=f"{upstream}.{tool}", arguments=arguments
            )


@pytest.mark.parametrize("upstream", ["legacy_stdio", "legacy_http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_client_that_cannot_be_asked_is_named_as_the_reason(
    matrix: Matrix, era: Era, upstream: str
) -> None:
    async with connect(matrix.gateway, "stdio", era) as client:
        for tool, arguments, capability in (
            ("test_sampling", {"prompt": "Is it late?"}, "sampling"),
            ("test_elicitation", {"message": "Who are you?"}, "elicitation"),
        ):
            async with asyncio.timeout(TIMEOUT_S):
                answered = await client.call_tool(f"{upstream}__{tool}", arguments)
            assert answered.is_error
            assert f"the client that made this call does not offer {capability}" in get_text(
                answered
            )
        # Roots are configuration too: a server that asks gets those, here none.
        assert await ask(client, f"{upstream}__ask_roots") == "[]"


async def test_configured_roots_are_sent_where_the_client_has_none() -> None:
    command, *arguments = everything_command("--stdio", "--era", "legacy")
    server = BackendConfig(command=command, args=tuple(arguments), roots=(ROOT,))
    config = Config(servers={"s": server})
    async with gateway_over(config=config) as gateway, connect(gateway, era="legacy") as client:
        assert ROOT in await ask(client, "call_tool", name="s.ask_roots")


async def test_while_two_clients_share_a_pipe_neither_is_asked_for_the_other(
    matrix: Matrix,
) -> None:
    ada, bob = Person("Ada"), Person("Bob")
    async with (
        connect(matrix.gateway, "memory", "legacy", **ada.callbacks) as one,
        connect(matrix.gateway, "memory", "legacy", **bob.callbacks) as two,
    ):
        running = asyncio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            running.set()

        arguments = {"seconds": 60, "steps": 2_000}
        slow = asyncio.create_task(
            one.call_tool("legacy_stdio__slow", arguments, progress_callback=progress)
        )
        await asyncio.wait_for(running.wait(), TIMEOUT_S)
        answered = await two.call_tool("legacy_stdio__test_sampling", {"prompt": "Whose turn?"})
        slow.cancel()
        await asyncio.wait({slow}, timeout=TIMEOUT_S)
        assert answered.is_error
        assert (ada.asked, bob.asked) == ([], [])


async def test_what_the_client_answers_reaches_the_server_unchanged() -> None:
    received: list[Raw] = []

    async def run(params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        received.append(await how.relay.request("roots/list", {"_meta": {"x": None}}))
        return text("asked")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy", roots={}) as client,
    ):
        calling = await client.ask(
            "tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}}
        )
        question = await client.wait_for(lambda message: message.get("method") == "roots/list")
        assert question["params"] == {"_meta": {"x": None, "portico/server": "s"}}
        answer = {
            "roots": [{"uri": ROOT, "x-vendor": None}],
            "_meta": {"y": None},
            "x-vendor": [None],
        }
        await client.send({"id": question["id"], "result": answer})
        assert "result" in await client.answer_to(calling)
        assert received == [answer]


@pytest.mark.parametrize("data", [None, 0, {"why": None}], ids=repr)
async def test_a_clients_refusal_reaches_the_server(data: Any) -> None:
    refusals: list[RemoteError] = []

    async def run(params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        try:
            await how.relay.request(
                "elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}
            )
        except RemoteError as error:
            refusals.append(error)
        return text("asked")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy", elicitation={}) as client,
    ):
        calling = await client.ask(
            "tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}}
        )
        question = await client.wait_for(
            lambda message: message.get("method") == "elicitation/create"
        )
        error = {"code": -1, "message": "the user is asleep", "data": data}
        await client.send({"id": question["id"], "error": error})
        await client.answer_to(calling)
        assert [(refused.code, refused.message, refused.data) for refused in refusals] == [
            (-1, "the user is asleep", data)
        ]


async def test_nonsense_from_the_client_is_refused_and_nobody_waits() -> None:
    refusals: list[RemoteError] = []

    async def run(params: Raw, how: RequestOptions) -> Raw:
        assert how.relay is not None
        with pytest.raises(RemoteError) as refused:
            await how.relay.request("roots/list", {})
        refusals.append(refused.value)
        return text("asked")

    backend = fake("run")
    backend.on("tools/call", run)
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy", roots={}) as client,
    ):
        calling = await client.ask(
            "tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}}
        )
        question = await client.wait_for(lambda message: message.get("method") == "roots/list")
        await client.send({"id": question["id"], "result": {"roots": "nonsense"}})
        assert "result" in await client.answer_to(calling)
        assert "answer to roots/list" in refusals[0].message


@pytest.mark.parametrize("upstream", ["legacy_stdio", "legacy_http", "modern_stdio", "modern_http"])
async def test_log_messages_reach_the_client_that_called(matrix: Matrix, upstream: str) -> None:
    received: list[Any] = []
    done = asyncio.Event()

    async def log(params: Any) -> None:
        received.append(params.data)
        if len(received) == 3:
            done.set()

    era = "legacy" if upstream.startswith("legacy") else "modern"
    async with connect(
        matrix.gateway, "http", era, logging_callback=log, log_level="debug"
    ) as client:
        await client.call_tool(f"{upstream}__test_tool_with_logging", {})
        await asyncio.wait_for(done.wait(), TIMEOUT_S)
    assert received == [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ]


@pytest.mark.parametrize("upstream", ["modern_stdio", "modern_http"])
async def test_a_modern_client_answers_a_modern_server_in_rounds(
    matrix: Matrix, upstream: str
) -> None:
    ada = Person("Ada")

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    options: dict[str, Any] = {**ada.callbacks, "elicitation_callback": elicit}
    async with connect(matrix.gateway, "http", "modern", **options) as client:
        name = f"{upstream}__test_input_required_result_elicitation"
        assert await ask(client, name) == "Hello, Ada!"
        assert ROOT in await ask(client, f"{upstream}__ask_roots")
    async with connect(matrix.gateway, "stdio", "modern", "meta", **options) as client:
        inner = f"{upstream}.test_input_required_result_elicitation"
        assert await ask(client, "call_tool", name=inner) == "Hello, Ada!"
