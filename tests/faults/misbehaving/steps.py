"""What a script may do, as data: a script is a generator of steps, and each wire carries them out
in its own way."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # typing itself is left out: it would be a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Step = tuple[Any, ...]
    Script = Callable[["Strike"], Iterator[Step]]

Message = dict[str, "Any"]

LIMIT = 1024 * 1024
"""The largest message that the matrix's gateways take."""
SCRIPTS: dict[str, dict[str, Script]] = {}
"""The name of a fault → where it strikes → what is done there."""


class Strike:
    """The request that a fault strikes at."""

    def __init__(self, request: Message, result: Any, wire: str) -> None:
        self.request, self.result, self.wire = request, result, wire
        self.id = request.get("id")

    @property
    def answer(self) -> Message:
        """Return what a healthy server would say."""
        return self.saying(self.result)

    @property
    def token(self) -> Any:
        """The progress token of the request."""
        return ((self.request.get("params") or {}).get("_meta") or {}).get("progressToken", "none")

    @property
    def number(self) -> int:
        """The request's id, which the gateway makes a number."""
        return int(self.id or 0)

    def saying(self, result: Any, **over: Any) -> Message:
        """An answer with another result."""
        return {"jsonrpc": "2.0", "id": self.id, "result": result, **over}

    def refusing(self, code: Any = -32000, text: Any = "told to refuse", **more: Any) -> Message:
        """An error."""
        return {"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": text, **more}}


def strikes(where: str, *names: str) -> Callable[[Script], Script]:
    """A script of one or several faults, for one place: start, greeting, listing, call, stream or
    every."""

    def register(script: Script) -> Script:
        for name in names or (script.__name__,):
            SCRIPTS.setdefault(name, {})[where] = script
        return script

    return register


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


def notice(method: str, params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def text(said: str) -> Message:
    return {"content": [{"type": "text", "text": said}]}


# on every wire


def say(message: Any) -> Step:
    """A message, whole."""
    return ("line", encode(message))


def line(data: bytes) -> Step:
    """Return what stands where a message should: a line of stdout, the data of an event."""
    return ("line", data)


def raw(data: bytes) -> Step:
    """A part of such a line, and no end of it."""
    return ("raw", data)


def wait(seconds: float) -> Step:
    """Nothing for a while."""
    return ("wait", seconds)


def hang() -> Step:
    """This request is never answered; others are."""
    return ("hang",)


def freeze() -> Step:
    """Nothing is read or answered any more."""
    return ("freeze",)


def die(code: int) -> Step:
    """The process is gone; over HTTP, its connections are cut and nobody listens."""
    return ("die", code)


def kill() -> Step:
    """The same by SIGKILL."""
    return ("kill",)


# on stdio


def stderr(data: bytes, times: int = 1) -> Step:
    return ("stderr", data, times)


def call(action: Callable[[], object]) -> Step:
    """Anything a process can do."""
    return ("do", action)


# below HTTP


def send_bytes(data: bytes) -> Step:
    """Bytes on the connection, as they are."""
    return ("bytes", data)


def reply(status: int, body: bytes = b"", kind: str = "application/json", *headers: str) -> Step:
    """A whole HTTP reply."""
    head = [
        f"HTTP/1.1 {status} X",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        *headers,
    ]
    return send_bytes("\r\n".join(head).encode() + b"\r\n\r\n" + body)


def reset() -> Step:
    """RST."""
    return ("reset",)


def close() -> Step:
    """FIN."""
    return ("close",)


def forget() -> Step:
    """The server's sessions are gone."""
    return ("forget",)
