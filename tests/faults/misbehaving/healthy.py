"""The server that is spoiled: two tools, both eras. Nothing is wrong with it while no fault is
on."""

from __future__ import annotations

from tests.faults.misbehaving.steps import Message, Strike, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
GREETINGS = ("server/discover", "initialize")
PLACES = {**dict.fromkeys(GREETINGS, "greeting"), "tools/list": "listing", "tools/call": "call"}
INFO: Message = {"name": "misbehaving", "version": "1"}
CAPABILITIES: Message = {"tools": {"listChanged": True}}
TOOLS: list[Message] = [
    {
        "name": "work",
        "description": "Says the nonce it is given.",
        "inputSchema": {
            "type": "object",
            "properties": {"nonce": {"type": "string"}},
            "required": ["nonce"],
        },
    },
    {
        "name": "quit",
        "description": "Ends the server.",
        "inputSchema": {"type": "object", "properties": {}},
    },
]
REFUSED: Message = {"code": -32601, "message": "Method not found"}


def fault_in(path: str) -> str:
    """The fault that is on now."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def answer(request: Message, era: str) -> Message:
    """The right answer to a request."""
    result = _result(request.get("method", ""), request.get("params") or {}, era)
    if result is None:
        return {"jsonrpc": "2.0", "id": request.get("id"), "error": REFUSED}
    if era == "modern":
        result = {"resultType": "complete", **result}
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def make_fault_request(request: Message, era: str, wire: str) -> Strike:
    """A request with what should be said to it."""
    return Strike(request, answer(request, era).get("result"), wire)


def _result(method: str, params: Message, era: str) -> Message | None:
    if method == "server/discover" and era == "modern":
        info = {"io.modelcontextprotocol/serverInfo": INFO}
        return {
            "supportedVersions": [MODERN],
            "capabilities": CAPABILITIES,
            "_meta": info,
            "ttlMs": 0,
        }
    if method == "initialize" and era != "modern":
        return {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "serverInfo": INFO}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        arguments: dict[str, Any] = params.get("arguments") or {}
        return text("bye" if params.get("name") == "quit" else str(arguments.get("nonce")))
    return None
