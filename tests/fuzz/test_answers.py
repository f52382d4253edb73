"""A caller gets an outcome for any answer of a server, in either era and by every way to call."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from portico.config import Config, Profile
from portico.errors import RemoteError
from portico.gateway import GatewayRuntime
from portico.testing import FakeBackend, gateway_over
from portico.upstream.backend import Era, Raw, RequestOptions
from tests.fuzz import noise
from tests.fuzz.answer_checks import check_answer, plain, tool_result
from tests.fuzz.loop_thread import Running, examples, running
from tests.interaction.raw_clients import RawLines, raw_lines

ERAS: tuple[Era, Era] = ("legacy", "modern")
FORGED = "forged by the server"
SCRIPTS = {
    "python": "r = await {server}.run()\nstr(r)[:50]",
    "javascript": "const r = await {server}.run({}); result(String(r).slice(0, 50))",
    "lua": "local r = {server}.run({}):await()\nresult(tostring(r):sub(1, 50))",
}
OURS = (
    "portico/cached",
    "portico/repaired",
    "portico/changed",
    "portico/output_mismatch",
    "portico/error",
    "portico/session",
)
BLOCKS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("text"), "text": noise.TEXT}, optional={"annotations": noise.VALUES}
    ),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["text", "image", "audio", "resource", "resource_link", "", 3, None]
            )
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("image"), "data": noise.VALUES, "mimeType": noise.VALUES}
    ),
    st.fixed_dictionaries({"type": st.just("resource"), "resource": noise.VALUES}),
    st.fixed_dictionaries(
        {"type": st.just("resource_link"), "uri": noise.VALUES, "name": noise.VALUES}
    ),
    noise.VALUES,
)
META = st.one_of(
    st.dictionaries(st.sampled_from(OURS), st.just(FORGED), min_size=1, max_size=3),
    st.dictionaries(
        st.sampled_from(["io.modelcontextprotocol/serverInfo", "traceparent", "x"]), noise.VALUES
    ),
    noise.VALUES,
)
QUESTIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "method": st.sampled_from(
                ["elicitation/create", "sampling/createMessage", "roots/list", "x"]
            )
        },
        optional={"params": noise.VALUES},
    ),
    noise.VALUES,
)
RESULTS = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "content": st.one_of(st.lists(BLOCKS, max_size=4), noise.VALUES),
            "structuredContent": noise.VALUES,
            "isError": st.sampled_from([True, False, "true", 1, None, []]),
            "_meta": META,
            "resultType": st.sampled_from(["complete", "complete", "task", "", 3, None]),
            "ttlMs": noise.VALUES,
            "extra": noise.VALUES,
        },
    ),
    # A state without questions says "ask me again later": that is a call that goes on, not noise.
    st.fixed_dictionaries(
        {
            "resultType": st.just("input_required"),
            "inputRequests": st.dictionaries(noise.KEYS, QUESTIONS, min_size=1, max_size=2),
        },
        optional={"requestState": noise.TEXT},
    ),
    st.fixed_dictionaries(
        {"resultType": st.just("input_required")}, optional={"inputRequests": noise.VALUES}
    ),
    st.sampled_from([10, 100_000]).map(
        lambda n: {"content": [{"type": "text", "text": "long words " * n}]}
    ),
    st.sampled_from([10, 3_000]).map(
        lambda n: {"content": [], "structuredContent": {"rows": [{"n": i} for i in range(n)]}}
    ),
    noise.OBJECTS,
)
ERRORS = st.builds(
    RemoteError,
    st.one_of(
        st.sampled_from([-32602, -32603, -32601, -32042, -32020, 0, 1]),
        st.integers(-(2**40), 2**40),
    ),
    noise.TEXT,
    noise.VALUES,
)


@dataclass
class AnsweringGateway:
    """A server of each era whose next answer is set, and a client of each era at each of two
    endpoints."""

    running: Running
    runtime: GatewayRuntime
    clients: dict[tuple[Era, str], RawLines]
    answer: list[Raw | RemoteError] = field(default_factory=list)

    def ask(self, client: Era, way: str, name: str, arguments: Any) -> Raw:
        """The whole answer to a call."""
        call = self.clients[client, way].request(
            "tools/call", {"name": name, "arguments": arguments}
        )
        return self.running.do(asyncio.wait_for(call, 240))


@pytest.fixture(scope="module")
def gateway() -> Iterator[AnsweringGateway]:
    answer: list[Raw | RemoteError] = []

    async def answered(_: Raw, __: RequestOptions) -> Raw:
        if isinstance(answer[0], RemoteError):
            raise answer[0]
        return answer[0]

    def server(era: Era) -> FakeBackend:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        tools = [{"name": "run", "inputSchema": {"type": "object"}}]
        made = FakeBackend(
            [*tools, {**tools[0], "name": "promises", "outputSchema": schema}], era=era
        )
        made.on("tools/call", answered)
        return made

    with running() as loop:

        async def opened() -> AnsweringGateway:
            config = Config(profiles={"all": Profile(exposure="full")})
            gateway = await loop.holder.hold(
                gateway_over({era: server(era) for era in ERAS}, config)
            )
            clients: dict[tuple[Era, str], RawLines] = {
                (era, way): await loop.holder.hold(
                    raw_lines(gateway.get_endpoint("all" if way == "flat" else None), era)
                )
                for era in ERAS
                for way in ("meta", "flat")
            }
            return AnsweringGateway(loop, gateway, clients, answer)

        yield loop.do(opened())


def sound(gateway: AnsweringGateway) -> None:
    """The next answer that is one arrives, everywhere."""
    gateway.answer[:] = [{"content": [{"type": "text", "text": "sound"}]}]
    for client in ERAS:
        for server in ERAS:
            result = tool_result(
                gateway.ask(client, "meta", "call_tool", {"name": f"{server}.run"})
            )
            assert result is not None
            assert result["content"][0]["text"] == "sound", result
    assert gateway.running.complaints.taken() == []


def check_not_forged(answer: Raw) -> None:
    """Return what a server says in our name is not passed on as ours."""
    meta = answer.get("result", {}).get("_meta")
    if isinstance(meta, dict):
        assert [key for key in OURS if meta.get(key) == FORGED] == [], answer


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client", ERAS)
@examples(45, shrink=False)
@given(
    result=RESULTS,
    tool=st.sampled_from(["run", "promises"]),
    view=st.sampled_from(["result", "result", "shape"]),
)
def test_any_result_has_an_outcome(
    gateway: AnsweringGateway, client: Era, server: Era, result: Raw, tool: str, view: str
) -> None:
    note(f"result: {repr(result)[:3_000]}")
    gateway.answer[:] = [result]
    by_name = {"name": f"{server}.{tool}", "view": view, "confirm": True}
    for answer in (
        gateway.ask(client, "meta", "call_tool", by_name),
        gateway.ask(client, "flat", f"{server}__{tool}", {}),
    ):
        check_answer(answer)
        check_not_forged(answer)
    sound(gateway)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client", ERAS)
@examples(12, shrink=False)
@given(result=RESULTS, language=st.sampled_from([*SCRIPTS]))
def test_a_script_gets_any_result(
    gateway: AnsweringGateway, client: Era, server: Era, result: Raw, language: str
) -> None:
    note(f"result: {repr(result)[:3_000]}")
    gateway.answer[:] = [result]
    code = SCRIPTS[language].replace("{server}", server)
    answer = gateway.ask(client, "meta", "run_code", {"code": code, "language": language})
    tool_result(answer)
    check_not_forged(answer)
    steps = [
        {"id": "a", "tool": f"{server}.run"},
        {"id": "b", "tool": f"{server}.run", "arguments": {"x": "${a}"}},
    ]
    tool_result(gateway.ask(client, "meta", "run_workflow", {"steps": steps}))
    sound(gateway)


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("client", ERAS)
@examples(40, shrink=False)
@given(error=ERRORS)
def test_any_error_has_an_outcome(
    gateway: AnsweringGateway, client: Era, server: Era, error: RemoteError
) -> None:
    note(f"error: {error.code} {repr([error.message, error.data])[:3_000]}")
    gateway.answer[:] = [error]
    for answer in (
        gateway.ask(client, "meta", "call_tool", {"name": f"{server}.run"}),
        gateway.ask(client, "flat", f"{server}__run", {}),
    ):
        assert ("result" in answer) != ("error" in answer), answer
        if "error" in answer:
            assert isinstance(answer["error"]["code"], int), answer
            assert isinstance(answer["error"]["message"], str), answer
        plain(json.dumps(answer))
    sound(gateway)


@pytest.mark.parametrize("state", [[37], 3, {}, True], ids=repr)
async def test_a_state_that_is_no_text_is_refused(state: Any) -> None:
    backend = FakeBackend([{"name": "run", "inputSchema": {"type": "object"}}], era="modern")
    answers = iter([{"resultType": "input_required", "requestState": state}, {"content": []}])
    backend.on("tools/call", lambda *_: next(answers))
    async with (
        gateway_over({"s": backend}) as gateway,
        raw_lines(gateway.get_endpoint(), "legacy") as client,
    ):
        result = tool_result(
            await client.request(
                "tools/call", {"name": "call_tool", "arguments": {"name": "s.run"}}
            )
        )
    assert result is not None
    assert result.get("isError")
    assert [method for method, _ in backend.requests].count("tools/call") == 1
