"""A model that follows a script, at the other end of a provider's scripted_model.

It is there as HTTP, for the provider's own library, or as an object with the same methods where
that is not installed. It checks what it is sent as strictly as a provider does.
"""

import json
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Raw = dict[str, Any]
Model = Callable[[Raw], Raw]
"""A request in, the response out."""

SEARCH = ("search_tools", {"query": "orders that have not been sent"})
CALL = ("call_tool", {"name": "shop.unsent_orders", "arguments": {}})


def tools_are_fit(tools: list[Raw], schema: str) -> None:
    assert [tool["name"] for tool in tools][:1] == ["search_tools"]
    for tool in tools:
        assert NAME.fullmatch(tool["name"])
        assert tool[schema]["type"] == "object"


def anthropic(request: Raw) -> Raw:
    """`POST /v1/messages`: search, then call, then say what came of it."""
    tools_are_fit(request["tools"], "input_schema")
    assert request["tools"][-1]["cache_control"]
    messages = request["messages"]
    turn = len(messages) // 2
    if turn:
        asked = [block["id"] for block in messages[-2]["content"] if block["type"] == "tool_use"]
        given = messages[-1]["content"]
        assert messages[-1]["role"] == "user"
        assert [block["tool_use_id"] for block in given] == asked
        assert all(part["text"] for block in given for part in block["content"])
    if turn < 2:
        name, arguments = (SEARCH, CALL)[turn]
        content = [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": arguments},
        ]
    else:
        content = [
            {
                "type": "text",
                "text": f"Not sent: {messages[-1]['content'][0]['content'][0]['text']}",
            }
        ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": "tool_use" if turn < 2 else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def responses(request: Raw) -> Raw:
    """`POST /v1/responses`."""
    tools_are_fit(request["tools"], "parameters")
    assert all(tool["type"] == "function" and tool["strict"] is False for tool in request["tools"])
    outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
    asked = [item["call_id"] for item in request["input"] if item.get("type") == "function_call"]
    assert [item["call_id"] for item in outputs] == asked
    turn = len(outputs)
    if turn < 2:
        name, arguments = (SEARCH, CALL)[turn]
        written = json.dumps(arguments)
        item: Raw = {
            "type": "function_call",
            "id": f"fc_{turn}",
            "call_id": f"c{turn}",
            "name": name,
            "arguments": written,
        }
    else:
        said = {
            "type": "output_text",
            "text": f"Not sent: {outputs[-1]['output']}",
            "annotations": [],
        }
        item = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [said],
        }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": request["model"],
        "output": [item],
        "output_text": item["content"][0]["text"] if "content" in item else "",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def chat(request: Raw) -> Raw:
    """`POST /v1/chat/completions`."""
    tools_are_fit([tool["function"] for tool in request["tools"]], "parameters")
    answers = [message for message in request["messages"] if message["role"] == "tool"]
    turn = len(answers)
    message: Raw = {"role": "assistant", "content": None}
    if turn < 2:
        name, arguments = (SEARCH, CALL)[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        message["tool_calls"] = [{"id": f"c{turn}", "type": "function", "function": function}]
    else:
        message["content"] = f"Not sent: {answers[-1]['content']}"
    reason = "tool_calls" if turn < 2 else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [choice],
    }


@contextmanager
def served(**models: Model) -> Generator[tuple[str, list[Exception]]]:
    """The wire on a free port: paths end in the models' names (`messages`, `responses`,
    `completions`).

    Yields the address, and what the model found wrong with what it was sent.
    """
    wrong: list[Exception] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, answer = 200, models[self.path.split("?")[0].rsplit("/", 1)[1]](body)
            except Exception as error:  # the model's objection is the test's failure
                wrong.append(error)
                status, answer = (
                    400,
                    {"error": {"type": "invalid_request_error", "message": repr(error)}},
                )
            written = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", wrong
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def double(model: Model) -> Callable[..., Any]:
    """A library's `create`, without the library: what is passed crosses JSON, what is answered has
    attributes."""

    def create(**request: Any) -> Any:
        return _attributes(model(json.loads(json.dumps(request, default=_plain))))

    return create


def _attributes(value: Any) -> Any:
    if isinstance(value, dict):
        # What a model passes to a tool is plain data in every library.
        made = SimpleNamespace(
            **{key: one if key == "input" else _attributes(one) for key, one in value.items()}
        )
        made.__dict__.setdefault("tool_calls", None)
        return made
    return [_attributes(one) for one in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return {key: one for key, one in vars(value).items() if one is not None}
