"""One JSON-RPC message over HTTP: POST it, and take the answer from a JSON body or from an event stream.

Knows which messages belong to a request and how a cut stream is resumed; knows nothing of eras, relays or sessions
beyond the headers it is told to send.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from portico.errors import BackendUnavailable, PorticoError
from portico.upstream import json_pieces, json_windows, lines
from portico.upstream.backend import Raw
from portico.upstream.eventstream import EventStream, EventTooLarge
from portico.upstream.http_headers import SESSION_HEADER, address_of, header_lines, request_head, safe_url
from portico.upstream.http_refusal import (
    HttpRefusal,
    SessionGone,
    error_message,
    masked,
    not_an_answer,
    refusal,
    secrets_in,
)
from portico.upstream.jsonrpc import remote_error
from portico.upstream.turns import Turns
from portico.upstream.wire import Reply, StaleConnection, TooLarge, Unreachable, Wire, WireError

Hear = Callable[[Raw], Awaitable[None]]
Pause = Callable[[], Awaitable[None]]

MAX_RESUMES = 4
"""Attempts in a row to resume a cut stream that brought nothing."""
FIRST_RESUME_S = 0.2
LONGEST_RESUME_S = 30.0
CONNECT_S = 10.0
MAX_REFUSAL_BYTES = 64 * 1024

_POST = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_GET = {"accept": "text/event-stream", "accept-encoding": "identity", "cache-control": "no-store"}


class ServerUnreachable(BackendUnavailable):
    """No connection to the server could be made."""

    sent = False


class StreamCut(BackendUnavailable):
    """The connection broke while an answer was under way."""


class Exchange:
    """Messages to one endpoint, with the headers that all of them carry."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], max_message_bytes: int) -> None:
        self._name = name
        self._url = url
        self._address = address_of(url)
        self._configured = headers
        self._limit = max_message_bytes
        self._wire = Wire(self._address, CONNECT_S)
        self._credentials = next((key for key in headers if _looks_secret(key)), "")
        self._secrets = secrets_in(headers)
        self._closed = asyncio.Event()
        self.sent = 0
        self.introduced = False
        """Whether the server knows us: then not to know us any more is the end of the conversation, session or not."""
        self.shared_headers({})

    def shared_headers(self, headers: Mapping[str, str]) -> None:
        """Headers of the conversation, sent with every message from now on."""
        self._in_session = SESSION_HEADER in headers
        self._post = request_head("POST", self._address, self._configured, _POST, headers)
        self._get = request_head("GET", self._address, self._configured, _GET, headers)
        self._delete = request_head("DELETE", self._address, self._configured, headers)

    async def ask(
        self, frame: Raw, hear: Hear, *, headers: Mapping[str, str] | None = None, paused: Pause | None = None
    ) -> tuple[Raw, Mapping[str, str]]:
        """Send a request; returns its result and the headers the answer came with.

        Everything else that arrives on its stream is given to `hear`, in order. A stream that ends before the answer is
        resumed where `paused` is given, which is told first.
        """
        self.sent += 1
        request = await self._rendered(frame, headers)
        try:
            reply = await self._send(request, repeatable=frame["method"] != "tools/call")
            answer = await self._answer(reply, frame["id"], hear, paused)
        except (WireError, EventTooLarge) as error:
            raise self.unavailable(error) from error
        error = answer.get("error")
        if isinstance(error, dict):
            raise remote_error(self.masked(cast(Raw, error)))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise not_an_answer(self._name, "answered without a result object")
        return cast(Raw, result), reply.headers

    async def tell(self, frame: Raw, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification, or the answer to a request of the server's."""
        self.sent += 1
        try:
            reply = await self._send(await self._rendered(frame, headers), repeatable=True)
            if reply.status >= 300:
                raise await self._refused(reply)
            reply.release()
        except WireError as error:
            raise self.unavailable(error) from error

    async def stream(
        self, last_id: str | None, frame: Raw | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Open a long-lived event stream, by GET or by POSTing `frame`; raises unless there is one."""
        extra = dict(headers or {})
        if last_id:
            extra["last-event-id"] = last_id.encode().decode("latin-1")  # goes out as the UTF-8 it came in as
        request = await self._rendered(frame, extra) if frame else self._get + header_lines(extra) + b"\r\n"
        try:
            reply = await self._send(request, repeatable=True)
            if reply.status >= 300:
                raise await self._refused(reply)
            if not _is_event_stream(reply):
                body = await reply.read(MAX_REFUSAL_BYTES)
                reply.release()
                message = error_message(body)
                raise (
                    remote_error(self.masked(message["error"]))
                    if message
                    else HttpRefusal(f"{self._name} streams nothing", 200)
                )
        except WireError as error:
            raise self.unavailable(error) from error
        return reply

    def messages(self, reply: Reply) -> "Messages":
        """The JSON-RPC messages of an event stream."""
        return Messages(self, reply, EventStream(self._limit))

    async def delete(self) -> None:
        """End the session."""
        try:
            (await self._send(self._delete + b"\r\n", repeatable=True)).release()
        except WireError as error:
            raise self.unavailable(error) from error

    async def close(self) -> None:
        """Hang up everywhere."""
        self._closed.set()
        await self._wire.close()

    async def _closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False

    async def _rendered(self, frame: Raw, headers: Mapping[str, str] | None) -> bytes:
        pieces = await json_pieces.encode(frame)
        extra = header_lines(headers) if headers else b""
        head = b"%s%scontent-length: %d\r\n\r\n" % (self._post, extra, sum(map(len, pieces)))
        return b"".join((head, *pieces))

    async def _send(self, request: bytes, *, repeatable: bool) -> Reply:
        try:
            return await self._wire.send(request)
        except StaleConnection:
            if not repeatable:
                raise
            return await self._wire.send(request, fresh=True)

    async def _answer(self, reply: Reply, request_id: object, hear: Hear, paused: Pause | None) -> Raw:
        try:
            if reply.status >= 300:
                raise await self._refused(reply)
            if reply.headers.get("content-encoding", "identity") != "identity":
                raise not_an_answer(self._name, f"compressed its answer ({reply.headers['content-encoding']}) unasked")
            if _is_event_stream(reply):
                return await self._streamed(reply, request_id, hear, paused)
            body = await reply.read(self._limit)
        except BaseException:
            reply.abort()
            raise
        reply.release()
        if reply.status == 202 and not body:
            raise not_an_answer(self._name, "accepted the request but will not answer it (HTTP 202)")
        for message in await self.decoded(body):
            if _answers(message, request_id):
                return message
            await hear(message)
        raise not_an_answer(self._name, f"answered HTTP {reply.status} without a JSON-RPC answer", body, self._secrets)

    async def _streamed(self, reply: Reply, request_id: object, hear: Hear, paused: Pause | None) -> Raw:
        """Read the stream, and its continuations, until the answer comes."""
        failures = 0
        last_id: str | None = None
        retry_ms: int | None = None
        while True:
            messages = self.messages(reply)
            cut: PorticoError = BackendUnavailable(f"{self._where()} ended the stream before it answered")
            try:
                while (message := await messages.next()) is not None:
                    if _answers(message, request_id):
                        reply.release()
                        return message
                    failures = 0
                    await hear(message)
                reply.release()
            except StreamCut as error:
                cut = error
            except BaseException:
                reply.abort()
                raise
            if messages.last_id not in (None, last_id):
                failures = 0
                last_id = messages.last_id
            retry_ms = retry_ms if messages.retry_ms is None else messages.retry_ms
            if paused is None or last_id is None:
                raise cut
            if not isinstance(cut, StreamCut):
                await paused()
            reply, failures = await self._resumed(last_id, retry_ms, failures, cut)

    async def _resumed(self, last_id: str, retry_ms: int | None, failures: int, cut: PorticoError) -> tuple[Reply, int]:
        while failures < MAX_RESUMES:
            failures += 1
            if await self._closed_within(_resume_pause(retry_ms, failures)):
                break
            try:
                return await self.stream(last_id), failures
            except SessionGone:
                raise
            except HttpRefusal as error:
                if error.status < 500:
                    break
            except BackendUnavailable as error:
                cut = error
        raise cut

    async def decoded(self, body: bytes) -> list[Raw]:
        """The messages in a body or event: one, or a batch of the 2025-03-26 kind; none where it is dropped."""
        if len(body) > lines.MAX_UNASKED_VALUES and await asyncio.to_thread(lines.is_excessive, body):
            refused = lines.refuse_excessive(body)
            return [refused] if refused is not None else []
        try:
            message: Any = await json_windows.loads(body)
        except (ValueError, RecursionError) as error:
            # Half a surrogate pair in one of its descriptions must not cost a server its whole listing.
            message = await asyncio.to_thread(lines.salvaged, body)
            if message is None:
                raise not_an_answer(self._name, f"sent what is not JSON ({error})", body, self._secrets) from None
        found = cast("list[Any]", message) if isinstance(message, list) else [message]
        if not all(isinstance(item, dict) for item in found):
            raise not_an_answer(self._name, "sent what is not a JSON-RPC message", body, self._secrets)
        return found

    async def _refused(self, reply: Reply) -> PorticoError:
        try:
            body = await reply.read(MAX_REFUSAL_BYTES)
        except WireError:
            body = b""
        reply.release()
        return refusal(
            self._name,
            self._url,
            reply.status,
            reply.headers,
            body,
            self._credentials,
            in_session=self._in_session or self.introduced,
            secrets=self._secrets,
        )

    def masked(self, said: Raw) -> Raw:
        """What a server said, without the values of the headers we are configured with."""
        return masked(said, self._secrets)

    def _where(self) -> str:
        return f"{self._name} ({safe_url(self._url)})"

    def unavailable(self, error: WireError | EventTooLarge) -> BackendUnavailable:
        """What failed on the wire, in the caller's words."""
        if isinstance(error, EventTooLarge | TooLarge):
            return BackendUnavailable(
                f"{self._name} sent a message over {self._limit} bytes",
                advice="Ask for less at once, or raise limits.max_message_bytes.",
            )
        if isinstance(error, Unreachable):
            return ServerUnreachable(
                f"{self._where()} cannot be reached: {error}",
                advice="Check that the server runs and that its url is right.",
            )
        if isinstance(error, StaleConnection):
            return StreamCut(f"{self._where()}: {error}", advice="Whether the request was carried out is not known.")
        return StreamCut(f"{self._where()}: {error}")


class Messages:
    """The JSON-RPC messages of one event stream, as they arrive."""

    def __init__(self, exchange: Exchange, reply: Reply, events: EventStream) -> None:
        self._exchange = exchange
        self._reply = reply
        self._events = events
        self._ready: deque[Raw] = deque()
        self._turns = Turns()

    @property
    def last_id(self) -> str | None:
        """The last event id the stream named."""
        return self._events.last_id

    @property
    def retry_ms(self) -> int | None:
        """How long the server wants us to wait before we come back."""
        return self._events.retry_ms

    async def next(self) -> Raw | None:
        """The next message; None when the stream has ended."""
        while not self._ready:
            try:
                chunk = await self._reply.chunk()
                events = self._events.feed(chunk)
            except (WireError, EventTooLarge) as error:
                raise self._exchange.unavailable(error) from error
            if not chunk:
                return None
            for event in events:
                if event.type == "message" and event.data:
                    await self._turns.taken()
                    self._ready.extend(await self._exchange.decoded(event.data))
                    self._turns.spend(len(event.data))
        return self._ready.popleft()


def _answers(message: Raw, request_id: object) -> bool:
    if "method" in message or not ("result" in message or "error" in message):
        return False
    given = message.get("id")
    # Some servers echo the id as text; an error without id can only be about the one request this reply belongs to.
    return given == request_id or str(given) == str(request_id) or (given is None and "error" in message)


def _is_event_stream(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


def _resume_pause(retry_ms: int | None, failures: int) -> float:
    wanted = retry_ms / 1000 if retry_ms is not None else FIRST_RESUME_S * 2 ** (failures - 1)
    return min(max(wanted, 0.05), LONGEST_RESUME_S)


def _looks_secret(header: str) -> bool:
    name = header.lower()
    return any(word in name for word in ("auth", "key", "token", "secret", "cookie"))
