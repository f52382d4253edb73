"""A hostile MCP server: raw JSON-RPC lines on stdio. `become {kind, round}` makes it offer and
answer that kind.

    python -S -m benchmarks.hostile.server DOCUMENT

DOCUMENT is the file with the description of an API that another server is configured with. Standard
library only.
"""

import json
import os
import sys
from typing import Any

from benchmarks.hostile.all_kinds import BY_NAME
from benchmarks.hostile.kinds import ROUND, Kind, text_result, tool

BECOME = tool('{"type":"object"}', "Become a kind.", "become")
NOTHING = tool('{"type":"object"}', "Do nothing.", "nothing")
PLENTY = tool('{"type":"object"}', "Answer with so many letters.", "plenty")
HARMLESS_DOCUMENT = """openapi: 3.0.0
info: {title: a, version: '1'}
servers: [{url: 'http://127.0.0.1:9'}]
paths: {/a: {get: {responses: {}}}}
"""


class Server:
    """Answers every request with what the kind that it is now prescribes."""

    def __init__(self, document: str) -> None:
        self._document = document
        self._kind: Kind | None = None
        self._round = "0"
        self._answer = ""

    def take(self, message: dict[str, Any]) -> None:
        """Answer one message; what needs no answer gets none."""
        method, id = message.get("method"), message.get("id")
        if method is None or id is None:
            return
        params = message.get("params") or {}
        if method == "initialize":
            capabilities = {
                "tools": {"listChanged": True},
                "resources": {},
                "prompts": {},
                "logging": {},
            }
            about = {
                "serverInfo": {"name": "hostile", "version": "1"},
                "capabilities": capabilities,
            }
            result = json.dumps({"protocolVersion": params["protocolVersion"], **about})
        elif method == "tools/call":
            result = self._called(params["name"], params.get("arguments") or {}, id)
        elif method.endswith("/list") and method != "roots/list":
            result = self._listed(method)
        elif method == "resources/read" and self._kind is not None:
            result = self._kind.answer()
        elif method == "ping":
            result = "{}"
        else:
            self._write(
                f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"error":{{"code":-32601,"message":"no"}}}}'
            )
            return
        member = "error" if result.startswith("!") else "result"
        self._write(
            f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"{member}":{result.removeprefix("!")}}}'
        )
        if method == "tools/call" and params.get("name") == "become":
            self._write('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')

    def _called(self, name: str, arguments: dict[str, Any], id: Any) -> str:
        if name == "become":
            self._become(BY_NAME.get(arguments.get("kind", "")), str(arguments.get("round", 0)))
            return text_result("done")
        if name == "plenty":
            return text_result("a" * int(arguments.get("letters", 0)))
        if name == "nothing" or self._kind is None:
            return text_result("nothing")
        if self._kind.speaks is not None:
            for line in self._kind.speaks(id):
                self._write(line)
        return self._answer

    def _become(self, kind: Kind | None, round: str) -> None:
        if kind is not self._kind:
            self._answer = kind.answer() if kind is not None else ""
        self._kind, self._round = kind, round
        made = (
            kind.document() if kind is not None and kind.document is not None else HARMLESS_DOCUMENT
        )
        with open(self._document + ".new", "w") as file:
            file.write(made.replace(ROUND, round))
        os.replace(self._document + ".new", self._document)

    def _listed(self, method: str) -> str:
        key = {"resources/templates/list": "resourceTemplates"}.get(
            method, method.partition("/")[0]
        )
        made: list[str] = []
        if key == "tools":
            made = [BECOME, NOTHING, PLENTY]
            if self._kind is not None:
                # One more in every other round: anyone who counts the tools knows that the new
                # listing
                # was taken.
                marks = range(1 + int(self._round) % 2)
                made += [*(tool(name=f"mark_{n}") for n in marks), *self._kind.tools()]
        elif self._kind is not None:
            made = self._kind.lists().get(key, [])
        return f'{{"{key}":[{",".join(made)}]}}'.replace(ROUND, self._round)

    def _write(self, line: str) -> None:
        sys.stdout.buffer.write(line.encode("utf-8", "surrogatepass") + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    server = Server(sys.argv[1])
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if isinstance(message, dict):
            server.take(message)


if __name__ == "__main__":
    main()
