"""Recorded servers as real ones: each answers `initialize` and its listings as it once did, and any
call with its text.

A file to be run, not a module (`python benchmarks/peering/replay.py …`), so that it works from any
folder.

    --port N FOLDER     every `NAME.json` in the folder is a server at `/NAME/mcp` (streamable HTTP,
    no sessions)
    --stdio FILE        one of them, on pipes; imports nothing that is not Python's own

A file `NAME.mode` beside the recording changes how that server behaves, from the moment it is
there: `slow`, its tools take three seconds to list; `silent`, it never answers.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SLOW_S = 3.0
SILENT_S = 3600.0
SPOKEN = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LISTINGS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
_NO_METHOD = -32601


def command(*options: str) -> list[str]:
    """The command line of this program; without site-packages on pipes, which would be most of its
    start."""
    bare = ["-S", "-E"] if "--stdio" in options else ["-P"]
    return [sys.executable, *bare, str(Path(__file__).resolve()), *options]


def answer(recording: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the recorded server says to a request."""
    method, params = message["method"], message.get("params") or {}
    envelope = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        asked = params.get("protocolVersion")
        greeting = {
            **recording["initialize"],
            "protocolVersion": asked if asked in SPOKEN else SPOKEN[0],
        }
        return {**envelope, "result": greeting}
    if method in LISTINGS:
        listed = recording.get(LISTINGS[method])
        # What was recorded instead of a list is an error that the server gave.
        return {
            **envelope,
            "result": {LISTINGS[method]: listed if isinstance(listed, list) else []},
        }
    if method == "tools/call":
        text = str((params.get("arguments") or {}).get("text", params.get("name")))
        return {**envelope, "result": {"content": [{"type": "text", "text": text}]}}
    if method == "ping":
        return {**envelope, "result": {}}
    return {**envelope, "error": {"code": _NO_METHOD, "message": "Method not found"}}


def delay(recorded: Path, message: Mapping[str, Any]) -> float:
    """Return how long the server takes before it answers."""
    try:
        mode = recorded.with_suffix(".mode").read_text("utf-8").strip()
    except OSError:
        return 0.0
    if mode == "silent":
        return SILENT_S
    return SLOW_S if mode == "slow" and message.get("method") == "tools/list" else 0.0


def on_pipes(recorded: Path) -> None:
    """Serve one client until it hangs up."""
    recording = json.loads(recorded.read_bytes())
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            time.sleep(delay(recorded, message))
            print(json.dumps(answer(recording, message)), flush=True)


class Replay:
    """All servers of a folder as one ASGI application."""

    def __init__(self, folder: Path) -> None:
        self._recordings = {
            path.stem: json.loads(path.read_bytes()) for path in folder.glob("*.json")
        }
        self._folder = folder

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        parts = scope["path"].strip("/").split("/")
        if scope["method"] == "DELETE":
            status, body = 200, b""
        elif scope["method"] != "POST":
            status, body = 405, b""
        elif len(parts) != 2 or parts[0] not in self._recordings:
            status, body = 404, b""
        else:
            status, body = await self._ask(parts[0], json.loads(await _body(receive)))
        await _reply(send, status, body)

    async def _ask(self, name: str, message: Mapping[str, Any]) -> tuple[int, bytes]:
        await asyncio.sleep(delay(self._folder / f"{name}.json", message))
        if "id" not in message or "method" not in message:
            return 202, b""
        return 200, json.dumps(answer(self._recordings[name], message)).encode()

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            event = await receive()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return


async def _body(receive: Any) -> bytes:
    parts: list[bytes] = []
    while True:
        event = await receive()
        parts.append(event.get("body", b""))
        if not event.get("more_body"):
            return b"".join(parts)


async def _reply(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode())]
    if body:
        headers.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int)
    where.add_argument("--stdio", action="store_true")
    parser.add_argument("recorded", type=Path)
    options = parser.parse_args()
    if options.stdio:
        on_pipes(options.recorded)
        return
    import uvicorn

    quiet: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "timeout_graceful_shutdown": 1,
        "timeout_keep_alive": 75,  # longer than clients keep an idle connection
    }
    uvicorn.run(Replay(options.recorded), port=options.port, **quiet)


if __name__ == "__main__":
    main()
