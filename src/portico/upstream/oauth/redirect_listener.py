"""The loopback port at which a browser arrives after a sign-in."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

from portico.errors import PorticoError

HOST = "127.0.0.1"
PATH = "/callback"
REQUEST_TIMEOUT_S = 10.0
MAX_REQUEST_BYTES = 16 * 1024
_DONE = "Signed in as far as the browser goes. You can close this page and go back to the terminal."
_OTHER = "This page belongs to no sign-in that is under way."


class RedirectListener:
    """Receives the browser's requests. For one event loop."""

    def __init__(self) -> None:
        self.redirect_uri = ""
        self._arrived: asyncio.Queue[dict[str, str]] = asyncio.Queue(maxsize=16)
        self._expected_state = ""

    async def wait_for(self, state: str) -> Mapping[str, str]:
        """Return what the browser brings back for this state; anything else is ignored."""
        self._expected_state = state
        while True:
            query = await self._arrived.get()
            if query.get("state") == state:
                return query

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser, or of whatever else connects."""
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            query = _parse_request(head)
            is_expected = query is not None and query.get("state") == self._expected_state
            if query is not None and is_expected and not self._arrived.full():
                self._arrived.put_nowait(query)
            writer.write(
                _render_page(200 if is_expected else 404, _DONE if is_expected else _OTHER)
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def open_listener(
    port: int | None, prefer: Callable[[str], Awaitable[str]]
) -> AsyncGenerator[RedirectListener]:
    """Listen at a port, by default one that `prefer` returns the address of, or any free one."""
    listener = RedirectListener()
    server = await _listen(listener, port, prefer)
    try:
        listener.redirect_uri = _make_uri(server.sockets[0].getsockname()[1])
        yield listener
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await server.wait_closed()


def parse_pasted(line: str) -> Mapping[str, str]:
    """Return the query of an address that somebody pasted. Raises PorticoError."""
    text = line.strip()
    query = dict(parse_qsl(urlsplit(text).query if "?" in text else text))
    if "state" not in query:
        raise PorticoError(
            "that is not the address that the browser ended at",
            advice=f"It begins with http://{HOST} and contains `code=` and `state=`: paste all "
            "of it.",
        )
    return query


async def _listen(
    listener: RedirectListener, port: int | None, prefer: Callable[[str], Awaitable[str]]
) -> asyncio.Server:
    if port is None:
        preferred = urlsplit(await prefer(_make_uri(0))).port
        if preferred:
            with contextlib.suppress(OSError):
                return await _listen_at(listener, preferred)
    try:
        return await _listen_at(listener, port or 0)
    except OSError as error:
        raise PorticoError(
            f"nobody can listen at {HOST}:{port}: {error.strerror or error}",
            advice="Choose another --port, or use --paste.",
        ) from None


async def _listen_at(listener: RedirectListener, port: int) -> asyncio.Server:
    return await asyncio.start_server(listener.handle, HOST, port, limit=MAX_REQUEST_BYTES)


def _make_uri(port: int) -> str:
    return f"http://{HOST}:{port}{PATH}"


def _parse_request(head: bytes) -> dict[str, str] | None:
    """Return the query of a request for the callback; None for any other request."""
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or words[0] != "GET":
        return None
    target = urlsplit(words[1])
    if target.path != PATH:
        return None
    return dict(parse_qsl(target.query))


def _render_page(status: int, text: str) -> bytes:
    body = f"<!doctype html><title>Portico</title><p>{text}</p>".encode()
    reason = "OK" if status == 200 else "Not Found"
    return (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\nconnection: close\r\n"
        "referrer-policy: no-referrer\r\n\r\n"
    ).encode() + body
