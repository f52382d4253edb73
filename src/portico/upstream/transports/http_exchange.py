"""Sends one JSON-RPC message over HTTP and reads the response from JSON or an event stream.

Knows which messages belong to a request and how an interrupted stream is resumed; knows nothing of
eras, relays or sessions beyond the headers that it is given.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from portico.errors import BackendUnavailable, PorticoError
from portico.json_text import chunked_decoder, json_codec
from portico.upstream.backend import Raw, Relay
from portico.upstream.protocol.jsonrpc import to_remote_error
from portico.upstream.request_credentials import RequestCredentials
from portico.upstream.transports import message_streams
from portico.upstream.transports.http_errors import (
    HttpStatusError,
    SessionExpired,
    StreamInterrupted,
    make_invalid_response_error,
    make_status_error,
    make_wire_error,
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
from portico.upstream.transports.http_sender import HttpSender
from portico.upstream.transports.message_streams import EventStreamParser, EventTooLarge
from portico.upstream.transports.wire import WireError, WireResponse

MessageHandler = Callable[[Raw], None]

MAX_RESUMES = 4
"""Consecutive attempts to resume an interrupted stream without receiving anything."""
FIRST_RESUME_DELAY_S = 0.2
MAX_RESUME_DELAY_S = 30.0
MAX_REFUSAL_BYTES = 64 * 1024

_POST = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
}
_GET = {"accept": "text/event-stream", "accept-encoding": "identity", "cache-control": "no-store"}


class HttpExchange:
    """Messages to one endpoint, with the headers common to all of them."""

    def __init__(
        self,
        name: str,
        url: str,
        headers: Mapping[str, str],
        max_message_bytes: int,
        credentials: RequestCredentials | None = None,
    ) -> None:
        """`credentials` adds headers to every request, and may have others when it is refused."""
        self._name = name
        self._url = url
        self._address = parse_address(url)
        self._configured_headers = headers
        self.limit = max_message_bytes
        self._sender = HttpSender(self._address, headers, credentials)
        self._closed = asyncio.Event()
        self.sent_count = 0
        self.is_initialized = False
        """Whether the handshake is complete.

        From then on a "session not found" response ends the connection, with or without a session
        id.
        """
        self.set_session_headers({})

    def set_session_headers(self, headers: Mapping[str, str]) -> None:
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
        is_resumable: bool = False,
        relay: Relay | None = None,
    ) -> tuple[Raw, Mapping[str, str]]:
        """Send a request; return its response, with secrets masked in an error, and the headers.

        Other messages on its stream are passed to `on_message`, in order. A stream that ends before
        the response is resumed if `is_resumable`, and `relay` is informed of the pause.
        """
        self.sent_count += 1
        request = await self._render_request(frame, headers)
        try:
            wire_response = await self._sender.send(
                *request, repeatable=frame["method"] != "tools/call"
            )
            reading = _ResponseReading(frame["id"], on_message, is_resumable, relay)
            response = await self._read_response(wire_response, reading)
        except (WireError, EventTooLarge) as error:
            raise self.to_unavailable_error(error) from error
        if isinstance(response.get("error"), dict):
            response = {**response, "error": self.mask_secrets(response["error"])}
        return response, wire_response.headers

    async def send_message(self, frame: Raw, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification, or the response to a request of the server."""
        self.sent_count += 1
        try:
            request = await self._render_request(frame, headers)
            response = await self._sender.send(*request, repeatable=True)
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
            request = self._get_head, render_header_lines(extra) + b"\r\n"
        try:
            response = await self._sender.send(*request, repeatable=True)
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

    async def delete_session(self) -> None:
        try:
            (await self._sender.send(self._delete_head, b"\r\n", repeatable=True)).release()
        except WireError as error:
            raise self.to_unavailable_error(error) from error

    async def close(self) -> None:
        self._closed.set()
        await self._sender.close()

    async def _wait_for_close(self, timeout: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._closed.wait()
        return self._closed.is_set()

    async def _render_request(
        self, frame: Raw, headers: Mapping[str, str] | None
    ) -> tuple[bytes, bytes]:
        """Return the head without its last headers, and the rest of the request."""
        pieces = await json_codec.encode(frame)
        extra = render_header_lines(headers) if headers else b""
        end = b"%scontent-length: %d\r\n\r\n" % (extra, sum(map(len, pieces)))
        return self._post_head, b"".join((end, *pieces))

    async def _read_response(self, response: WireResponse, reading: "_ResponseReading") -> Raw:
        try:
            if response.status >= 300:
                raise await self._make_status_error(response)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise make_invalid_response_error(
                    self._name,
                    f"compressed its answer ({response.headers['content-encoding']}) unasked",
                )
            if _is_event_stream(response):
                return await self._read_streamed_response(response, reading)
            body = await response.read_body(self.limit)
        except BaseException:
            response.abort()
            raise
        response.release()
        if response.status == 202 and not body:
            raise make_invalid_response_error(
                self._name, "accepted the request but will not answer it (HTTP 202)"
            )
        for message in await self.decode_messages(body):
            if _is_response_to(message, reading.request_id):
                return message
            reading.on_message(message)
        raise make_invalid_response_error(
            self._name,
            f"answered HTTP {response.status} without a JSON-RPC answer",
            body,
            self._sender.secrets,
        )

    async def _read_streamed_response(
        self, response: WireResponse, reading: "_ResponseReading"
    ) -> Raw:
        failures = 0
        last_id: str | None = None
        retry_ms: int | None = None
        while True:
            messages = MessageReader(self, response)
            interruption: PorticoError = BackendUnavailable(
                f"{self._name} ({redact_url(self._url)}) ended the stream before it answered"
            )
            try:
                while (message := await messages.read_next()) is not None:
                    if _is_response_to(message, reading.request_id):
                        response.release()
                        return message
                    failures = 0
                    reading.on_message(message)
                response.release()
            except StreamInterrupted as error:
                interruption = error
            except BaseException:
                response.abort()
                raise
            if messages.events.last_id not in (None, last_id):
                failures = 0
                last_id = messages.events.last_id
            if messages.events.retry_ms is not None:
                retry_ms = messages.events.retry_ms
            if not reading.is_resumable or last_id is None:
                raise interruption
            if reading.relay is not None and not isinstance(interruption, StreamInterrupted):
                await reading.relay.pause()
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
        if len(body) > message_streams.MAX_UNASKED_VALUES and await asyncio.to_thread(
            message_streams.is_excessive, body
        ):
            refusal = message_streams.refuse_excessive(body)
            return [] if refusal is None else [refusal]
        try:
            message: Any = await chunked_decoder.decode(body)
        except (ValueError, RecursionError) as error:
            # A lone surrogate in one description must not cost a server its whole listing.
            message = await asyncio.to_thread(message_streams.salvage_message, body)
            if message is None:
                raise make_invalid_response_error(
                    self._name, f"sent what is not JSON ({error})", body, self._sender.secrets
                ) from None
        messages: list[Any] = message if isinstance(message, list) else [message]
        if not all(isinstance(item, dict) for item in messages):
            raise make_invalid_response_error(
                self._name, "sent what is not a JSON-RPC message", body, self._sender.secrets
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
            self._sender.credential_header,
            in_session=self._in_session or self.is_initialized,
            secrets=self._sender.secrets,
        )

    def mask_secrets(self, value: Raw) -> Raw:
        """Mask the values of the configured headers in a server's message."""
        return mask_secrets(value, self._sender.secrets)

    def to_unavailable_error(self, error: WireError | EventTooLarge) -> BackendUnavailable:
        return make_wire_error(self._name, self._url, self.limit, error)


@dataclass(frozen=True, slots=True)
class _ResponseReading:
    request_id: object
    on_message: MessageHandler
    is_resumable: bool
    relay: Relay | None


class MessageReader:
    def __init__(self, exchange: HttpExchange, response: WireResponse) -> None:
        self._exchange = exchange
        self._response = response
        self.events = EventStreamParser(exchange.limit)
        """Knows the last event id and the delay before a reconnect."""
        self._decoded: deque[Raw] = deque()
        self._yield_budget = message_streams.YieldBudget()

    async def read_next(self) -> Raw | None:
        while not self._decoded:
            try:
                chunk = await self._response.read_chunk()
                events = self.events.feed(chunk)
            except (WireError, EventTooLarge) as error:
                raise self._exchange.to_unavailable_error(error) from error
            if not chunk:
                return None
            for event in events:
                if event.type == "message" and event.data:
                    self._decoded.extend(await self._exchange.decode_messages(event.data))
                    if self._yield_budget.spend(len(event.data)):
                        await asyncio.sleep(0)
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
    media_type = response.headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "text/event-stream"


def _compute_resume_delay(retry_ms: int | None, failures: int) -> float:
    delay = FIRST_RESUME_DELAY_S * 2 ** (failures - 1)
    if retry_ms is not None:
        delay = retry_ms / 1000
    return min(max(delay, 0.05), MAX_RESUME_DELAY_S)
