"""A model on loopback that makes one tool call and then says that it is done.

Speaks as much of the Anthropic Messages API, the OpenAI Responses API and the Gemini API as Claude
Code, Codex and Gemini CLI need for one scripted turn, so that no account is needed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Raw = dict[str, Any]
DONE = "The scripted turn is over."
CALL = "call_tool"
WAITS = ("WaitForMcpServers", "list_mcp_resources")
"""Tools of clients that come back when their servers are there: Claude Code's and Codex'."""
MAX_WAITS = 40
WAIT_S = 0.5


@dataclass
class ModelEndpoint:
    """What the model is to call, and what clients told it."""

    url: str
    arguments: Raw = field(default_factory=dict[str, Any])
    tool_names: list[str] = field(default_factory=list[str])
    """Names of the tools that the latest request with tools offered."""
    results: list[str] = field(default_factory=list[str])
    """Tool results as the client handed them to the model, as JSON text."""
    waits: int = 0
    """How often the model waited for the client's servers in this turn."""

    def arguments_for(self, name: str) -> Raw:
        """Arguments of the call: the scripted ones, none where it only waits."""
        return self.arguments if name.endswith(CALL) else {}

    def script(self, tool: str, arguments: Raw) -> None:
        """Let the next turn call `tool` of a server behind Portico, once."""
        self.arguments = {"name": tool, "arguments": arguments}
        self.waits = 0
        self.tool_names.clear()
        self.results.clear()

    def next_call(self, offered: Iterable[str], results: Mapping[str, Any]) -> str | None:
        """The name of the offered tool to call now; None where the turn is over.

        `results` has what the calls of this turn came to, by the name of the tool."""
        names = list(offered)
        if names:
            self.tool_names[:] = names
        for name, result in results.items():
            if name.endswith(CALL):
                self.results.append(json.dumps(result, ensure_ascii=False))
                return None
        if CALL in {name[-len(CALL) :] for name in names}:
            return next(name for name in names if name.endswith(CALL))
        self.waits += 1
        if self.waits > MAX_WAITS:
            return None
        wait = next((name for name in names if name in WAITS), None)
        if wait is not None:
            # Codex' tool answers at once, so the model takes the time that a real one would.
            time.sleep(WAIT_S)
        return wait


@contextmanager
def serve_model() -> Generator[ModelEndpoint]:
    """Serve it on a free loopback port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    endpoint = ModelEndpoint(f"http://127.0.0.1:{server.server_port}")
    server.endpoint = endpoint  # pyright: ignore[reportAttributeAccessIssue]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("application/json", b'{"data": [], "models": [], "object": "list"}')

    def do_HEAD(self) -> None:
        self._answer("application/json", b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request: Raw = json.loads(body or b"{}")
        path = self.path.partition("?")[0]
        endpoint: ModelEndpoint = self.server.endpoint  # pyright: ignore[reportAttributeAccessIssue]
        if path.endswith("/messages"):
            self._answer_events(_answer_anthropic(endpoint, request), named=True)
        elif path.endswith("/responses"):
            self._answer_events(_answer_openai(endpoint, request), named=True)
        elif path.endswith(":streamGenerateContent"):
            self._answer_events([_answer_gemini(endpoint, request)], named=False)
        elif path.endswith(":generateContent"):
            answer = _answer_gemini(endpoint, request)
            self._answer("application/json", json.dumps(answer).encode())
        else:
            self._answer("application/json", b'{"input_tokens": 1, "totalTokens": 1}')

    def _answer_events(self, events: list[Raw], *, named: bool) -> None:
        lines: list[str] = []
        for event in events:
            if named:
                lines.append(f"event: {event['type']}\n")
            lines.append(f"data: {json.dumps(event)}\n\n")
        self._answer("text/event-stream", "".join(lines).encode())

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _answer_anthropic(endpoint: ModelEndpoint, request: Raw) -> list[Raw]:
    blocks = [
        block
        for message in request.get("messages", ())
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    called = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    results = {
        called[block["tool_use_id"]]: block.get("content")
        for block in blocks
        if block["type"] == "tool_result"
    }
    name = endpoint.next_call((tool["name"] for tool in request.get("tools", ())), results)
    block: Raw = {"type": "text", "text": ""}
    delta: Raw = {"type": "text_delta", "text": DONE}
    if name is not None:
        identifier = f"toolu_{len(called)}"
        block = {"type": "tool_use", "id": identifier, "name": name, "input": {}}
        arguments = json.dumps(endpoint.arguments_for(name))
        delta = {"type": "input_json_delta", "partial_json": arguments}
    reason = "end_turn" if name is None else "tool_use"
    message: Raw = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "scripted"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if not request.get("stream"):
        text: Raw = {"type": "text", "text": DONE}
        return [{**message, "content": [text], "stop_reason": "end_turn"}]
    ended: Raw = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _answer_openai(endpoint: ModelEndpoint, request: Raw) -> list[Raw]:
    items = [item for item in request.get("input", ()) if isinstance(item, dict)]
    called = {it["call_id"]: it["name"] for it in items if it.get("type") == "function_call"}
    results = {
        called[item["call_id"]]: item["output"]
        for item in items
        if item.get("type") == "function_call_output"
    }
    offered = dict(_list_openai_tools(request.get("tools", ())))
    name = endpoint.next_call(offered, results)
    text: Raw = {"type": "output_text", "text": DONE, "annotations": []}
    item: Raw = {"type": "message", "id": "i_1", "role": "assistant", "content": [text]}
    if name is not None:
        item = {
            "type": "function_call",
            "id": f"item_{len(called)}",
            "call_id": f"call_{len(called)}",
            "name": offered[name][-1],
            "arguments": json.dumps(endpoint.arguments_for(name)),
        }
        if len(offered[name]) > 1:
            item["namespace"] = offered[name][0]
    usage: Raw = {
        "input_tokens": 1,
        "input_tokens_details": None,
        "output_tokens": 1,
        "output_tokens_details": None,
        "total_tokens": 2,
    }
    response: Raw = {"id": "resp_1", "object": "response", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


def _list_openai_tools(tools: Iterable[Raw]) -> Generator[tuple[str, tuple[str, ...]]]:
    """Flat names with the (namespace and) name by which each is called."""
    for tool in tools:
        if tool.get("type") == "namespace":
            for inner in tool["tools"]:
                yield f"{tool['name']}{inner['name']}", (tool["name"], inner["name"])
        elif "name" in tool:
            yield tool["name"], (tool["name"],)


def _answer_gemini(endpoint: ModelEndpoint, request: Raw) -> Raw:
    parts = [part for content in request.get("contents", ()) for part in content.get("parts", ())]
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    results = {answer["name"]: answer["response"] for answer in answers}
    offered = [
        declaration["name"]
        for tool in request.get("tools", ())
        for declaration in tool.get("functionDeclarations", ())
    ]
    name = endpoint.next_call(offered, results)
    part: Raw = {"text": DONE}
    if name is not None:
        part = {"functionCall": {"name": name, "args": endpoint.arguments_for(name)}}
    candidate: Raw = {
        "content": {"role": "model", "parts": [part]},
        "finishReason": "STOP",
        "index": 0,
    }
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [candidate], "usageMetadata": usage}
