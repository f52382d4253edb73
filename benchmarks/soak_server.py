"""The servers of the soak: every answer carries the nonce of its call and the name of who gave it.

A file to be run (`python -S benchmarks/soak_server.py --name b01 --era legacy`), on stdin and
stdout, or with `--port` over HTTP, where each of several names is a server at a path of its own.
Standard library only, because it is killed and started by the hundred. `FUNCTIONS` are the same
tools for a server inside of the gateway.

    echo, peek   say the nonce back after a while, as large as wanted; `peek` is read-only, so it
    may be asked twice
    claim        whose this process is: the first who asks; shows whether instances are kept apart
    ask          asks the client's user for a word, and says nonce and word
    crash, hang, fail   die, never answer, answer an error
"""

import argparse
import asyncio
import json
import os
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
Send = Callable[[Message], None]
Question = Callable[[Message], Awaitable[Message]]

MODERN = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_META = "io.modelcontextprotocol/"
_LINE = 400
_MOST = 2**22


def _tool(name: str, words: str, *, read_only: bool = False, **properties: str) -> Message:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
    }
    required = [key for key in properties if key in ("nonce", "owner")]
    annotations = {"readOnlyHint": read_only, "destructiveHint": False}
    return {
        "name": name,
        "description": words,
        "inputSchema": {**schema, "required": required},
        "annotations": annotations,
    }


TOOLS = [
    _tool(
        "echo", "Say a nonce back after a delay.", nonce="string", delay_ms="number", size="integer"
    ),
    _tool(
        "peek",
        "Look a nonce up.",
        read_only=True,
        nonce="string",
        delay_ms="number",
        size="integer",
    ),
    _tool("claim", "Tell whose process this is.", nonce="string", owner="string"),
    _tool("ask", "Ask the user for a word.", nonce="string"),
    _tool("crash", "Die of this call.", nonce="string"),
    _tool("hang", "Never answer this call.", nonce="string"),
    _tool("fail", "Answer with an error.", nonce="string"),
]


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


class Server:
    """One server, whatever it is reached by; it lives as long as its process."""

    def __init__(self, name: str, era: str) -> None:
        self.name, self.era, self.owner = name, era, ""

    async def answer(self, method: str, params: Message, question: Question | None) -> Message:
        """The result of a request."""
        if self.era == "modern":
            if method == "initialize":
                raise Refused(-32022, "Unsupported protocol version")
            reported = await self._result(method, params, None)
            kept = {} if method == "tools/call" else {"ttlMs": 600_000, "cacheScope": "private"}
            return {"resultType": "complete", **kept, **reported}
        return await self._result(method, params, question)

    async def _result(self, method: str, params: Message, question: Question | None) -> Message:
        who = {"name": self.name, "version": "1"}
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in HANDSHAKE else HANDSHAKE[-1]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": who}
        if method == "server/discover" and self.era == "modern":
            about = {_META + "serverInfo": who}
            return {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "_meta": about}
        if method == "ping" and self.era == "legacy":
            return {}
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "tools/call":
            return await self._call(params, question)
        raise Refused(-32601, "Method not found")

    async def _call(self, params: Message, question: Question | None) -> Message:
        tool, given = params.get("name"), params.get("arguments") or {}
        nonce = given.get("nonce", "")
        if tool in ("echo", "peek"):
            await asyncio.sleep(given.get("delay_ms", 0) / 1000)
            return result(make_text(self.name, nonce, int(given.get("size", 0))))
        if tool == "claim":
            self.owner = self.owner or given["owner"]
            return result({**make_text(self.name, nonce), "owner": self.owner})
        if tool == "ask":
            return await self._ask(nonce, params, question)
        if tool == "crash":
            os._exit(3)
        if tool == "hang":
            await asyncio.Event().wait()
        if tool == "fail":
            return {
                "content": [{"type": "text", "text": f"failed as asked: {nonce} {self.name}"}],
                "isError": True,
            }
        raise Refused(-32602, f"Unknown tool: {tool}")

    async def _ask(self, nonce: str, params: Message, question: Question | None) -> Message:
        schema = {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        }
        asked = {"message": f"A word for {nonce}?", "requestedSchema": schema}
        if self.era == "legacy":
            if question is None:
                raise Refused(-32600, "nobody can be asked here")
            received = await question(asked)
        elif "inputResponses" not in params:
            request = {"method": "elicitation/create", "params": {"mode": "form", **asked}}
            return {
                "resultType": "input_required",
                "inputRequests": {"word": request},
                "requestState": nonce,
            }
        else:
            received = params["inputResponses"]["word"]
        word = (received.get("content") or {}).get("word", received.get("action"))
        return result({**make_text(self.name, nonce), "word": word})


def make_text(server: str, nonce: str, size: int = 0) -> Message:
    """Return what a nonce is answered with; a large answer has it on every line."""
    lines = [f"{nonce} line {number} " + "x" * (_LINE - 40) for number in range(size // _LINE)]
    return {"nonce": nonce, "server": server, **({"lines": lines} if lines else {})}


def result(value: Message) -> Message:
    """A value as a tool's result."""
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


# --- pipes


async def on_pipes(server: Server) -> None:
    """Serve one client; ends with it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MOST)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    asked: dict[str, asyncio.Future[Message]] = {}
    under_way: dict[Any, asyncio.Task[None]] = {}

    def send(message: Message) -> None:
        # A pipe that is full is waited for: that is what a simple server does.
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    async def question(params: Message) -> Message:
        key = uuid.uuid4().hex
        asked[key] = loop.create_future()
        send({"id": key, "method": "elicitation/create", "params": params})
        try:
            return await asked[key]
        finally:
            del asked[key]

    async def serve(message: Message) -> None:
        send({"id": message["id"], **await _outcome(server, message, question)})

    while line := await reader.readline():
        message = json.loads(line)
        if "method" not in message:
            if (waiting := asked.get(message.get("id"))) is not None and not waiting.done():
                waiting.set_result(
                    message.get("result") or {"action": f"refused: {message.get('error')}"}
                )
        elif message["method"] == "notifications/cancelled":
            if task := under_way.pop((message.get("params") or {}).get("requestId"), None):
                task.cancel()
        elif "id" in message:
            task = under_way[message["id"]] = asyncio.create_task(serve(message))
            task.add_done_callback(lambda _, key=message["id"]: under_way.pop(key, None))
    os._exit(0)


async def _outcome(server: Server, message: Message, question: Question | None) -> Message:
    try:
        return {
            "result": await server.answer(message["method"], message.get("params") or {}, question)
        }
    except Refused as refused:
        return {"error": refused.error}


# --- HTTP


async def on_port(servers: dict[str, Server], port: int) -> None:
    """Serve several servers, each at its path; in the old era a session is needed, and forgotten
    with the process."""
    sessions: set[str] = set()

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                status, body, more = await _handle_visit(head.decode(), reader, servers, sessions)
                lines = [
                    f"HTTP/1.1 {status} -",
                    "content-type: application/json",
                    f"content-length: {len(body)}",
                ]
                writer.write("\r\n".join([*lines, *more, "", ""]).encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(visit, "127.0.0.1", port, limit=_MOST, backlog=512)
    await listening.serve_forever()


async def _handle_visit(
    head: str, reader: asyncio.StreamReader, servers: dict[str, Server], sessions: set[str]
) -> tuple[int, bytes, list[str]]:
    first, *lines = head.strip().split("\r\n")
    verb, path, _ = first.split(" ", 2)
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    server = servers.get(path.strip("/").split("/")[0])
    if server is None:
        return 404, b"", []
    if verb == "DELETE":
        sessions.discard(headers.get("mcp-session-id", ""))
        return 200, b"", []
    if verb != "POST":
        return 405, b"", []
    message, more = json.loads(body), list[str]()
    if server.era == "legacy":
        if message.get("method") == "initialize":
            sessions.add(session := uuid.uuid4().hex)
            more = [f"mcp-session-id: {session}"]
        elif (
            headers.get("mcp-session-id") not in sessions
            and message.get("method") != "server/discover"
        ):
            return (
                404,
                b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": '
                b'"No such session"}}',
                [],
            )
    if "id" not in message:
        return 202, b"", []
    outcome = await _outcome(server, message, None)
    return 200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode(), more


# --- inside of the gateway


async def echo(nonce: str, delay_ms: float = 0, size: int = 0) -> Message:
    """Say a nonce back after a delay."""
    await asyncio.sleep(delay_ms / 1000)
    return make_text("functions", nonce, size)


async def hang(nonce: str) -> Message:
    """Never answer this call."""
    await asyncio.Event().wait()
    return make_text("functions", nonce)


async def fail(nonce: str) -> Message:
    """Answer with an error."""
    raise ValueError(f"failed as asked: {nonce} functions")


FUNCTIONS = [echo, hang, fail]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", action="append", required=True, metavar="NAME[=ERA]")
    parser.add_argument("--era", choices=("legacy", "modern"), default="legacy")
    parser.add_argument("--port", type=int)
    parser.add_argument(
        "--round", help="changes nothing; a configuration that differs in it starts another process"
    )
    options = parser.parse_args()
    pairs = [
        (name, era or options.era) for name, _, era in (one.partition("=") for one in options.name)
    ]
    servers = {name: Server(name, era) for name, era in pairs}
    asyncio.run(
        on_pipes(next(iter(servers.values())))
        if options.port is None
        else on_port(servers, options.port)
    )


if __name__ == "__main__":
    main()
