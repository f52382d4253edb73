"""Compression of JSON answers to GET.

Only of what is read: an answer to a request that does something may hold a new secret beside words
of the caller, whose compressed length would tell about it. Larger answers than `MAX_BYTES` stay as
they are, because compressing holds up the event loop (1 MiB takes about 15 ms).
"""

import gzip

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_BYTES = 1_024
MAX_BYTES = 2**20
_LEVEL = 1


class Compression:
    """Compresses answers for clients that accept gzip; streams pass through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; other scopes (the lifespan) pass through."""
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if not is_read or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            await self._app(scope, receive, send)
            return
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                media_type = Headers(raw=message["headers"]).get("content-type", "")
                if media_type.partition(";")[0] == "application/json":
                    start = message
                    return
            elif start is not None:
                body: bytes = message.get("body", b"")
                if not message.get("more_body", False) and MIN_BYTES <= len(body) <= MAX_BYTES:
                    message = {**message, "body": _compress(body, start)}
                await send(start)
                start = None
            await send(message)

        await self._app(scope, receive, send_compressed)


def _compress(body: bytes, start: Message) -> bytes:
    """Return the compressed body, and say in the headers that it is."""
    compressed = gzip.compress(body, _LEVEL, mtime=0)
    headers = MutableHeaders(raw=start["headers"])
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(compressed))
    # The same answer in other bytes: a strong tag would be of one of the two.
    if (tag := headers.get("etag", "")).startswith('"'):
        headers["ETag"] = f"W/{tag}"
    return compressed
