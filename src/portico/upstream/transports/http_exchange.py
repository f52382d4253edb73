"""Sends one JSON-RPC message over HTTP and reads the response from JSON or an event stream.

Knows which messages belong to a request and how an interrupted stream is resumed; knows nothing of
eras, relays or sessions beyond the headers that it is given.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from portico.errors import BackendUnavailable, PorticoError
from portico.json_text import chunked_decoder, chunked_encoder
from portico.upstream.backend import Raw
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.transports import output_lines
from portico.upstream.transports.event_stream import EventStreamParser, EventTooLarge
from portico.upstream.transports.http_errors import (
    HttpStatusError,
    SessionExpired,
    extract_secrets,
    make_invalid_response_error,
    make_status_error,
    mask_secrets,
    parse_error_response,
)
from portico.upstream.transports.http_headers import (
    SESSION_HEADER,
    parse_address,
    redact_url,
    render_header_lines,
    render_request_head,
)
from portico.upstream.transports.wire import (
    HttpConnectionPool,
    OriginUnreachable,
    ResponseTooLarge,
    StaleConnection,
    WireError,
    WireResponse,
)
from portico.upstream.transports.yield_budget import YieldBudget

MessageHandler = Callable[[Raw], Awaitable[None]]
PauseHandler = Callable[[], Awaitable[None]]

MAX_RESUMES = 4
"""Consecutive attempts to resume an interrupted stream without receiving anything."""
FIRST_RESUME_DELAY_S = 0.2
MAX_RESUME_DELAY_S = 30.0
CONNECT_TIMEOUT_S = 10.0
MAX_REFUSAL_BYTES = 64 * 1024

_POST = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_GET = {"accept": "text/event-stream", "accept-encoding": "identity", "cache-control": "no-store"}


class ServerUnreachable(BackendUnavailable):
    """No connection to the server could be made."""

    was_sent = False


class StreamInterrupted(BackendUnavailable):
    """The connection broke while a response was being received."""


class HttpExchange:
    """Messages to one endpoint, with the headers common to all of them."""

    def __init__(
        self, name: str, url: str, headers: Mapping[str, str], max_message_bytes: int
    ) -> None:
        self._name = name
        self._url = url
        self._address = parse_address(url)
        self._configured_headers = headers
        self._limit = max_message_bytes
        self._pool = HttpConnectionPool(self._address, CONNECT_TIMEOUT_S)
        self._credential_header = next((key for key in headers if _looks_secret(key)), "")
        self._secrets = extract_secrets(headers)
        self._closed = asyncio.Event()
        self.sent_count = 0
        self.is_initialized = False
        """Whether the handshake is complete.

        From then on a "session not found" response ends the connection, with or without a session
        id.
        """
        self.set_session_headers({})

    def set_session_headers(self, headers: Mapping[str, str]) -> None:
        """Set the headers that are sent with every later message."""
        self._in_session = SESSION_HEADER in headers
        self._post_head = render_request_head(
            "POST", self._address, self._configured_headers, _POST, headers
        )
        self._get_head = render_request_head(
            "GET", self._address, self._configured_headers, _GET, headers
        )
        self._delete_head = render_request_head(
            "DELETE", self._address, self._configured_headers, headers
        )

    async def send_request(
        self,
        frame: Raw,
        on_message: MessageHandler,
        *,
        headers: Mapping[str, str] | None = None,
        on_pause: PauseHandler | None = None,
    ) -> tuple[Raw, Mapping[str, str]]:
        """Send a request; return its result and the response headers.

        Other messages on its stream are passed to `on_message`, in order. A stream that ends before
        the response is resumed if `on_pause` is given, which is called first.
        """
        self.sent_count += 1
        request = await self._render_request(frame, headers)
        try:
            response = await self._send(request, repeatable=frame["method"] != "tools/call")
            answer = await self._read_response(response, frame["id"], on_message, on_pause)
        except (WireError, EventTooLarge) as error:
            raise self.to_unavailable_error(error) from error
        error = answer.get("error")
        if isinstance(error, dict):
            raise to_remote_error(self.mask_secrets(cast(Raw, error)))
        result = answer.get("result")
        if not isinstance(result, dict):
            raise make_invalid_response_error(self._name, "answered without a result object")
        return cast(Raw, result), response.headers

    async def send_message(self, frame: Raw, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification, or the response to a request of the server."""
        self.sent_count += 1
        try:
            response = await self._send(await self._render_request(frame, headers), repeatable=True)
            if response.status >= 300:
                raise await self._make_status_error(response)
            response.release()
        except WireError as error:
            raise self.to_unavailable_error(error) from error

    async def open_stream(
        self,
        last_id: str | None,
        frame: Raw | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> WireResponse:
        """Open a long-lived event stream, by GET or by POSTing `frame`; raise if there is none."""
        extra = dict(headers or {})
        if last_id:
            # Header values are encoded as latin-1, so this sends the id's UTF-8 bytes unchanged.
            extra["last-event-id"] = last_id.encode().decode("latin-1")
        if frame:
            request = await self._render_request(frame, extra)
        else:
            request = self._get_head + render_header_lines(extra) + b"\r\n"
        try:
            response = await self._send(request, repeatable=True)
            if response.status >= 300:
                raise await self._make_status_error(response)
            if not _is_event_stream(response):
                body = await response.read_body(MAX_REFUSAL_BYTES)
                response.release()
                message = parse_error_response(body)
                if message:
                    raise to_remote_error(self.mask_secrets(message["error"]))
                raise HttpStatusError(f"{self._name} streams nothing", 200)
        except WireError as error:
            raise self.to_unavailable_error(error) from error
        return response

    def make_message_reader(self, response: WireResponse) -> "MessageReader":
        """Return a reader of the JSON-RPC messages of an event stream."""
        return MessageReader(self, response, EventStreamParser(self._limit))

    async def delete_session(self) -> None:
        try:
            (await self._send(self._delete_head + b"\r\n", repeatable=True)).release()
        except WireError as error:
            raise self.to_unavailable_error(error) from error

    async def close(self) -> None:
        """Close all connections and stop resuming streams."""
        self._closed.set()
        await self._pool.close()

    async def _wait_for_close(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._closed.wait()
        except TimeoutError:
            return False

    async def _render_request(self, frame: Raw, headers: Mapping[str, str] | None) -> bytes:
        pieces = await chunked_encoder.encode(frame)
        extra = render_header_lines(headers) if headers else b""
        head = b"%s%scontent-length: %d\r\n\r\n" % (self._post_head, extra, sum(map(len, pieces)))
        return b"".join((head, *pieces))

    async def _send(self, request: bytes, *, repeatable: bool) -> WireResponse:
        try:
            return await self._pool.send(request)
        except StaleConnection:
            if not repeatable:
                raise
            return await self._pool.send(request, fresh=True)

    async def _read_response(
        self,
        response: WireResponse,
        request_id: object,
        on_message: MessageHandler,
        on_pause: PauseHandler | None,
    ) -> Raw:
        try:
            if response.status >= 300:
                raise await self._make_status_error(response)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise make_invalid_response_error(
                    self._name,
                    f"compressed its answer ({response.headers['content-encoding']}) unasked",
                )
            if _is_event_stream(response):
                return await self._read_streamed_response(
                    response, request_id, on_message, on_pause
                )
            body = await response.read_body(self._limit)
        except BaseException:
            response.abort()
            raise
        response.release()
        if response.status == 202 and not body:
            raise make_invalid_response_error(
                self._name, "accepted the request but will not answer it (HTTP 202)"
            )
        for message in await self.decode_messages(body):
            if _is_response_to(message, request_id):
                return message
            await on_message(message)
        raise make_invalid_response_error(
            self._name,
            f"answered HTTP {response.status} without a JSON-RPC answer",
            body,
            self._secrets,
        )

    async def _read_streamed_response(
        self,
        response: WireResponse,
        request_id: object,
        on_message: MessageHandler,
        on_pause: PauseHandler | None,
    ) -> Raw:
        """Read the stream, and its continuations, until the response arrives."""
        failures = 0
        last_id: str | None = None
        retry_ms: int | None = None
        while True:
            messages = self.make_message_reader(response)
            interruption: PorticoError = BackendUnavailable(
                f"{self._describe_server()} ended the stream before it answered"
            )
            try:
                while (message := await messages.read_next()) is not None:
                    if _is_response_to(message, request_id):
                        response.release()
                        return message
                    failures = 0
                    await on_message(message)
                response.release()
            except StreamInterrupted as error:
                interruption = error
            except BaseException:
                response.abort()
                raise
            if messages.last_id not in (None, last_id):
                failures = 0
                last_id = messages.last_id
            if messages.retry_ms is not None:
                retry_ms = messages.retry_ms
            if on_pause is None or last_id is None:
                raise interruption
            if not isinstance(interruption, StreamInterrupted):
                await on_pause()
            response, failures = await self._resume_stream(
                last_id, retry_ms, failures, interruption
            )

    async def _resume_stream(
        self, last_id: str, retry_ms: int | None, failures: int, cut: PorticoError
    ) -> tuple[WireResponse, int]:
        while failures < MAX_RESUMES:
            failures += 1
            if await self._wait_for_close(_compute_resume_delay(retry_ms, failures)):
                break
            try:
                return await self.open_stream(last_id), failures
            except SessionExpired:
                raise
            except HttpStatusError as error:
                if error.status < 500:
                    break
            except BackendUnavailable as error:
                cut = error
        raise cut

    async def decode_messages(self, body: bytes) -> list[Raw]:
        """Decode the messages of a body or event: one, or a batch of version 2025-03-26.

        Empty if the message is dropped because it has too many values.
        """
        if len(body) > output_lines.MAX_UNASKED_VALUES and await asyncio.to_thread(
            output_lines.is_excessive, body
        ):
            refusal = output_lines.refuse_excessive(body)
            return [] if refusal is None else [refusal]
        try:
            message: Any = await chunked_decoder.decode(body)
        except (ValueError, RecursionError) as error:
            # A lone surrogate in one description must not cost a server its whole listing.
            message = await asyncio.to_thread(output_lines.salvage_message, body)
            if message is None:
                raise make_invalid_response_error(
                    self._name, f"sent what is not JSON ({error})", body, self._secrets
                ) from None
        if isinstance(message, list):
            messages = cast("list[Any]", message)
        else:
            messages = [message]
        if not all(isinstance(item, dict) for item in messages):
            raise make_invalid_response_error(
                self._name, "sent what is not a JSON-RPC message", body, self._secrets
            )
        return messages

    async def _make_status_error(self, response: WireResponse) -> PorticoError:
        try:
            body = await response.read_body(MAX_REFUSAL_BYTES)
        except WireError:
            body = b""
        response.release()
        return make_status_error(
            self._name,
            self._url,
            response.status,
            response.headers,
            body,
            self._credential_header,
            in_session=self._in_session or self.is_initialized,
            secrets=self._secrets,
        )

    def mask_secrets(self, value: Raw) -> Raw:
        """Mask the values of the configured headers in a server's message."""
        return mask_secrets(value, self._secrets)

    def _describe_server(self) -> str:
        return f"{self._name} ({redact_url(self._url)})"

    def to_unavailable_error(self, error: WireError | EventTooLarge) -> BackendUnavailable:
        """Convert a wire error to an error with advice."""
        if isinstance(error, EventTooLarge | ResponseTooLarge):
            return BackendUnavailable(
                f"{self._name} sent a message over {self._limit} bytes",
                advice="Ask for less at once, or raise limits.max_message_bytes.",
            )
        if isinstance(error, OriginUnreachable):
            return ServerUnreachable(
                f"{self._describe_server()} cannot be reached: {error}",
                advice="Check that the server runs and that its url is right.",
            )
        if isinstance(error, StaleConnection):
            return StreamInterrupted(
                f"{self._describe_server()}: {error}",
                advice="Whether the request was carried out is not known.",
            )
        return StreamInterrupted(f"{self._describe_server()}: {error}")


class MessageReader:
    """Reads the JSON-RPC messages of one event stream."""

    def __init__(
        self, exchange: HttpExchange, response: WireResponse, events: EventStreamParser
    ) -> None:
        self._exchange = exchange
        self._response = response
        self._events = events
        self._decoded: deque[Raw] = deque()
        self._yield_budget = YieldBudget()

    @property
    def last_id(self) -> str | None:
        """Last event id of the stream."""
        return self._events.last_id

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds the server wants clients to wait before they reconnect."""
        return self._events.retry_ms

    async def read_next(self) -> Raw | None:
        """Return the next message, or None at the end of the stream."""
        while not self._decoded:
            try:
                chunk = await self._response.read_chunk()
                events = self._events.feed(chunk)
            except (WireError, EventTooLarge) as error:
                raise self._exchange.to_unavailable_error(error) from error
            if not chunk:
                return None
            for event in events:
                if event.type == "message" and event.data:
                    await self._yield_budget.maybe_yield()
                    self._decoded.extend(await self._exchange.decode_messages(event.data))
                    self._yield_budget.spend(len(event.data))
        return self._decoded.popleft()


def _is_response_to(message: Raw, request_id: object) -> bool:
    if "method" in message or not ("result" in message or "error" in message):
        return False
    message_id = message.get("id")
    # Some servers echo the id as text; an error without an id can only belong to this request.
    return (
        message_id == request_id
        or str(message_id) == str(request_id)
        or (message_id is None and "error" in message)
    )


def _is_event_stream(response: WireResponse) -> bool:
    return (
        response.headers.get("content-type", "").partition(";")[0].strip().lower()
        == "text/event-stream"
    )


def _compute_resume_delay(retry_ms: int | None, failures: int) -> float:
    if retry_ms is not None:
        delay = retry_ms / 1000
    else:
        delay = FIRST_RESUME_DELAY_S * 2 ** (failures - 1)
    return min(max(delay, 0.05), MAX_RESUME_DELAY_S)


def _looks_secret(header: str) -> bool:
    name = header.lower()
    return any(word in name for word in ("auth", "key", "token", "secret", "cookie"))
