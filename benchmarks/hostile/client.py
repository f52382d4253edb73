"""A hostile client: a process that sends what it is asked to, a line of JSON in and a line of JSON
out.

    python -S -m benchmarks.hostile.client HOST:PORT

In: `{"kind": name, "prepare": true}` makes the bytes; `{"kind": name, "round": 1}` sends them. Out:
how it ended, what was said, how many bytes went and came. Each request has a connection of its own.
Standard library only.
"""

import contextlib
import json
import re
import socket
import sys
from typing import Any

from benchmarks.hostile.all_kinds import BY_NAME
from benchmarks.hostile.kinds import RESULT, ROUND, Kind, call

LEGACY = "2025-11-25"
MCP = "POST /mcp"
ANSWER_S = 60.0
_RESULT_ID = re.compile(rb'result_id\\?"?[^\w-]{1,5}([\w-]{6,})')
_SAID = re.compile(rb'"(?:text|message|error|detail)":\s*"((?:[^"\\]|\\.){0,300})')


class Client:
    """One session of the handshake era, that says it can be asked anything."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._at = (host, int(port))
        self._session = ""
        self._made: tuple[Kind | None, list[tuple[str, bytes]]] = (None, [])

    def introduce(self) -> None:
        """Open the session."""
        able = {"elicitation": {}, "sampling": {}, "roots": {}}
        info = {"name": "hostile", "version": "1"}
        hello = {"protocolVersion": LEGACY, "capabilities": able, "clientInfo": info}
        head, _ = self._post(_frame("initialize", json.dumps(hello)))
        found = re.search(rb"mcp-session-id: *(\S+)", head, re.IGNORECASE)
        assert found, head
        self._session = found[1].decode()
        self._post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def do(self, reported: dict[str, Any]) -> dict[str, Any]:
        """One line's work."""
        kind = BY_NAME[reported["kind"]]
        if self._made[0] is not kind:
            self._made = (kind, self._make(kind))
        if reported.get("prepare"):
            return {"sent": sum(len(body) for _, body in self._made[1])}
        ended, said, sent, came = "", "", 0, 0
        for path, body in self._made[1]:
            body = (
                body.replace(ROUND.encode(), str(reported["round"]).encode())
                if len(body) < 10_000
                else body
            )
            sent += len(body)
            head, answer = self._post(body, path)
            came += len(answer)
            ended, said = _judge(head, answer)
        return {"ended": ended, "said": said, "sent": sent, "came": came}

    def _make(self, kind: Kind) -> list[tuple[str, bytes]]:
        made: list[tuple[str, bytes]] = []
        for method, params in kind.requests():
            if method == "BODY":
                made.append((MCP, params.encode()))
            elif method.startswith(("POST ", "GET ")):
                made.append((method, params.encode()))
            else:
                made.append((MCP, _frame(method, params)))
        if kind.keeps:
            ((method, params),) = call()
            _, answer = self._post(_frame(method, params))
            found = _RESULT_ID.search(answer)
            assert found, answer[-1000:]
            made = [(path, body.replace(RESULT.encode(), found[1])) for path, body in made]
        return made

    def _post(self, body: bytes, path: str = MCP) -> tuple[bytes, bytes]:
        lines = [
            f"{path} HTTP/1.1",
            f"host: {self._at[0]}:{self._at[1]}",
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "connection: close",
            f"content-length: {len(body)}",
        ]
        if self._session:
            lines += [f"mcp-session-id: {self._session}", f"mcp-protocol-version: {LEGACY}"]
        request = "\r\n".join((*lines, "", "")).encode()
        came: list[bytes] = []
        with socket.create_connection(self._at, timeout=ANSWER_S) as connection:
            # It may be refused before all of it was read.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(request + body)
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(1 << 18):
                    came.append(part)
        head, _, answer = b"".join(came).partition(b"\r\n\r\n")
        return head, answer


def _frame(method: str, params: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}'.encode()


def _judge(head: bytes, answer: bytes) -> tuple[str, str]:
    status = head[9:12].decode(errors="replace")
    edges = answer[-200_000:] if len(answer) > 400_000 else answer
    failed = status[:1] != "2" or b'"isError":true' in edges or b'"error":{' in edges
    said = _SAID.findall(answer[:20_000] if not failed else edges)
    text = said[-1 if b'"error":{' in edges else 0].decode(errors="replace") if said else ""
    if not answer and not status:
        return "lost", ""
    return (
        "refused" if failed else "answered"
    ), f"{'' if status == '200' else status + ' '}{text}"[:200]


def main() -> None:
    client = Client(sys.argv[1])
    client.introduce()
    print("{}", flush=True)
    for line in sys.stdin:
        try:
            done = client.do(json.loads(line))
        except TimeoutError:
            done = {"ended": "timed out", "said": "", "sent": 0, "came": 0}
        except OSError as error:
            done = {"ended": "lost", "said": str(error), "sent": 0, "came": 0}
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
