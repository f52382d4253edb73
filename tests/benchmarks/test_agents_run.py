"""The agents of the benchmark, over one recorded server that answers."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from benchmarks.agents.intent import SuggestedPlan, answer_missing, list_calls
from benchmarks.agents.model import APIS, EndpointError, ModelAgent
from benchmarks.agents.search import ScriptedAgent, has_typed_lines, merge, split_clauses
from benchmarks.agents.servers import (
    AnsweringServer,
    CallLog,
    GatewayFleet,
    open_fastmcp,
    open_gateway,
)
from benchmarks.agents.tasks import AgentTask, GoldStep, ToolCall

from portico.rendering.token_budget import get_best_counter
from tests.gateways import open_gateway as open_gateway_under_test

RECORDING: dict[str, Any] = {
    "slug": "board",
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "board", "version": "1"},
    },
    "tools": [
        {
            "name": "move_card",
            "description": "Move a card to another list of the board.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "card": {"type": "string"},
                    "list": {"type": "string"},
                    "top": {"type": "boolean"},
                },
                "required": ["card", "list"],
            },
        },
        {
            "name": "archive_list",
            "description": "Archive a list with all its cards.",
            "inputSchema": {
                "type": "object",
                "properties": {"list": {"type": "string"}},
                "required": ["list"],
            },
        },
    ],
}
ARGUMENTS = {"card": "c1", "list": "done"}
MOVE = GoldStep(("board.move_card",), {"board.move_card": ARGUMENTS})
TASK = AgentTask("t", "Card c1 is finished, put it onto done.", "single", (MOVE,), "Move the card.")


def open_board(cache: Path) -> AbstractAsyncContextManager[GatewayFleet]:
    return open_gateway({"board": RECORDING}, cache, get_best_counter())


async def test_a_server_answers_what_fits_its_schema_and_logs_it():
    log = CallLog()
    server = AnsweringServer("board", RECORDING, log)
    async with open_gateway_under_test({"board": server}) as gateway:
        text = await gateway.call_text("call_tool", name="board.move_card", arguments=ARGUMENTS)
        assert "r-123" in text
        assert log.take() == [ToolCall("board.move_card", ARGUMENTS)]
        await gateway.call_error("call_tool", name="board.move_card", arguments={"card": "c1"})
        assert log.take() == []


@pytest.mark.parametrize("detail", ["brief", "schema"])
async def test_the_script_searches_reads_the_parameters_once_and_calls(tmp_path: Path, detail: str):
    async with open_board(tmp_path) as fleet:
        agent = ScriptedAgent(fleet, {}, {"detail": detail}, has_typed_lines)
        outcome = await agent.run_task(TASK)
    assert outcome.comparison.is_usable
    assert outcome.calls == {"brief": 3, "schema": 2}[detail]
    assert outcome.tokens > 0
    assert list(outcome.searches) == ["Move the card"]


async def test_the_script_gives_up_where_no_search_names_a_tool(tmp_path: Path):
    other = GoldStep(("shop.order",), {})
    task = AgentTask("t", "Order a pizza, please.", "single", (other,), "Order a pizza.")
    async with open_board(tmp_path) as fleet:
        outcome = await ScriptedAgent(fleet, {}, {}, has_typed_lines).run_task(task)
    assert not outcome.comparison.is_usable
    assert outcome.calls == 2


async def test_the_same_script_works_with_fastmcp():
    pytest.importorskip("fastmcp")
    async with open_fastmcp({"board": RECORDING}, get_best_counter()) as peer:
        agent = ScriptedAgent(peer, {}, {}, lambda text, name: True)
        outcome = await agent.run_task(TASK)
    assert outcome.comparison.is_usable
    assert outcome.calls == 2


def test_an_intent_is_split_at_commas_and_a_short_part_belongs_to_the_next():
    assert split_clauses(
        "In GitLab, protect the branch, retry the pipeline, and close it now."
    ) == [
        "In GitLab protect the branch",
        "retry the pipeline",
        "close it now",
    ]


def test_typed_parameters_are_told_from_a_signature():
    brief = "board.move_card(card, list, top?) — Move a card."
    typed = "board.move_card [read-only] — Move a card.\n card: string\n list: string"
    assert not has_typed_lines(brief, "board.move_card")
    assert has_typed_lines(f"{brief}\n{typed}", "board.move_card")
    assert not has_typed_lines(typed, "board.move")


def test_gold_is_put_over_an_example_at_every_depth():
    example = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(example, {"a": {"c": 4}, "e": 5}) == {"a": {"b": 1, "c": 4}, "d": 3, "e": 5}


def test_what_is_missing_is_answered_from_gold_and_else_by_an_example():
    plan = SuggestedPlan(
        (
            {
                "tool": "board.move_card",
                "arguments": {
                    "card": "${inputs.id}",
                    "list": "${inputs.where}",
                    "user": {"name": "${inputs.user}"},
                },
            },
        ),
        ("id", "user"),
    )
    examples = {"board.move_card": {"user": {"name": "someone"}}}
    assert answer_missing(TASK, plan, examples) == {"id": "c1", "user": "someone"}


def test_a_step_for_each_item_counts_as_a_call_for_each():
    plan = SuggestedPlan(
        (
            {
                "tool": "board.add",
                "for_each": "${inputs.names}",
                "arguments": {"name": "${item}", "to": "${inputs.list}"},
            },
        ),
        (),
    )
    assert list_calls(plan, TASK, {"names": ["a", "b"], "list": "l"}) == [
        ToolCall("board.add", {"name": "a", "to": "l"}),
        ToolCall("board.add", {"name": "b", "to": "l"}),
    ]


@pytest.mark.parametrize(
    ("reference", "written"),
    [
        ("${find}", "${1}"),
        ("${find.cards[0].id}", "${1}"),
        ("Found: ${join(', ', find.names)}", "${1}"),
        ("${other.id}", "${other.id}"),
        ("find", "find"),
    ],
)
def test_a_reference_to_a_step_counts_as_the_place_of_its_gold(reference: str, written: str):
    find = GoldStep(("board.find",), {})
    task = AgentTask("t", "", "multi", (find, MOVE))
    plan = SuggestedPlan(
        (
            {"id": "find", "tool": "board.find"},
            {"id": "move", "tool": "board.move_card", "arguments": {"card": reference}},
        ),
        (),
    )
    assert list_calls(plan, task, {})[1].arguments == {"card": written}


def test_an_item_of_an_answer_counts_as_the_place_of_its_gold():
    find = GoldStep(("board.find",), {})
    plan = SuggestedPlan(
        (
            {"id": "find", "tool": "board.find"},
            {
                "id": "move",
                "tool": "board.move_card",
                "for_each": "${find.cards}",
                "arguments": {"card": "${item.id}"},
            },
        ),
        (),
    )
    calls = list_calls(plan, AgentTask("t", "", "multi", (find, MOVE)), {})
    assert calls[1].arguments == {"card": "${1}"}


def answer_as_chat_completions(request: Any) -> Any:
    """Search, then call, then stop; told by the results that were sent."""
    results = [message for message in request["messages"] if message["role"] == "tool"]
    assert {"search_tools", "call_tool"} <= {tool["function"]["name"] for tool in request["tools"]}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if len(results) < len(SCRIPT):
        name, arguments = SCRIPT[len(results)]
        function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
        message["tool_calls"] = [
            {"id": f"call-{len(results)}", "type": "function", "function": function}
        ]
    else:
        message["content"] = "It is done."
    usage = {"prompt_tokens": 90, "completion_tokens": 10}
    return {"choices": [{"message": message}], "usage": usage}


def answer_as_messages(request: Any) -> Any:
    """The same in the other form."""
    results = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert request["max_tokens"] > 0
    assert {"search_tools", "call_tool"} <= {tool["name"] for tool in request["tools"]}
    content: list[Any] = [{"type": "text", "text": "It is done."}]
    if len(results) < len(SCRIPT):
        name, arguments = SCRIPT[len(results)]
        id_ = f"call-{len(results)}"
        content = [{"type": "tool_use", "id": id_, "name": name, "input": arguments}]
    return {"content": content, "usage": {"input_tokens": 90, "output_tokens": 10}}


SCRIPT: list[tuple[str, dict[str, Any]]] = [
    ("search_tools", {"query": "move a card"}),
    ("call_tool", {"name": "board.move_card", "arguments": ARGUMENTS}),
]
FORMS: dict[str, tuple[str, tuple[str, str], Callable[[Any], Any]]] = {
    "openai": ("/chat/completions", ("authorization", "Bearer k"), answer_as_chat_completions),
    "anthropic": ("/messages", ("x-api-key", "k"), answer_as_messages),
}


@contextmanager
def model_endpoint(api: str) -> Generator[str]:
    """A local endpoint that speaks one form; refuses every other path and key."""
    path, (header, value), answer = FORMS[api]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            is_right = self.path == f"/v1{path}" and self.headers[header] == value
            body = orjson.dumps(answer(request) if is_right else {"error": "who are you?"})
            self.send_response(200 if is_right else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_a_model_plays_the_agent_until_it_calls_nothing_more(tmp_path: Path, api: str):
    async with open_board(tmp_path) as fleet:
        with model_endpoint(api) as url:
            outcome = await ModelAgent(APIS[api], "m", url, "k").run_task(fleet, TASK)
    assert outcome.comparison.is_usable
    assert outcome.calls == 2
    assert outcome.model_tokens == 300


async def test_an_endpoint_that_refuses_is_told_with_its_words(tmp_path: Path):
    async with open_board(tmp_path) as fleet:
        with model_endpoint("openai") as url:
            agent = ModelAgent(APIS["openai"], "m", url, "wrong")
            with pytest.raises(EndpointError, match=r"401: .*who are you"):
                await agent.run_task(fleet, TASK)


def test_a_model_needs_an_api_and_an_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PORTICO_AGENT_URL", raising=False)
    with pytest.raises(SystemExit, match="openai:NAME or anthropic:NAME"):
        ModelAgent.from_environment("big-model")
    with pytest.raises(SystemExit, match="PORTICO_AGENT_URL"):
        ModelAgent.from_environment("openai:big-model")
    monkeypatch.setenv("PORTICO_AGENT_URL", "http://127.0.0.1:1/v1/")
    assert ModelAgent.from_environment("openai:big-model").url == "http://127.0.0.1:1/v1"
