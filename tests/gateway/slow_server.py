"""A server that identifies itself, and answers `wait` when a file appears. Run as a script, over
stdio."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": "who", "description": "Say which process this is.", "inputSchema": {"type": "object"}},
    {
        "name": "wait",
        "description": "Say which process this is, when a file is there.",
        "inputSchema": {
            "type": "object",
            "properties": {"file": {"type": "string"}},
            "required": ["file"],
        },
    },
]


def command() -> str:
    """The program that runs it."""
    return sys.executable


def arguments() -> list[str]:
    """What that program is given."""
    return ["-S", str(Path(__file__))]


def main() -> None:
    """Answer until stdin ends."""
    writing = threading.Lock()

    def say(**message: Any) -> None:
        with writing:
            print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def answer(request: Any) -> None:
        called = request["params"]
        if called["name"] == "wait":
            Path(called["arguments"]["file"] + ".begun").touch()
            while not Path(called["arguments"]["file"]).exists():
                time.sleep(0.01)
        text = f"{os.environ.get('MARK', '')} {os.getpid()}"
        say(id=request["id"], result={"content": [{"type": "text", "text": text}]})

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        match message["method"]:
            case "initialize":
                info = {"name": "slow", "version": "1"}
                hello = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
                say(id=message["id"], result=hello)
            case "tools/list":
                say(id=message["id"], result={"tools": TOOLS})
            case "tools/call":
                threading.Thread(target=answer, args=(message,), daemon=True).start()
            case "ping":
                say(id=message["id"], result={})
            case _:
                say(id=message["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
