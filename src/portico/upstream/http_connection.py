"""One conversation over Streamable HTTP, in the era the server speaks.

handshake era: a session, cancellation by notification, server requests on a call's stream, a GET stream beside.
modern era:    no session, cancellation by hanging up, a subscription beside.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

from portico.errors import (
    METHOD_NOT_FOUND,
    BackendUnavailable,
    PorticoError,
    RemoteError,
)
from portico.upstream import jsonrpc
from portico.upstream.allowance import Allowance
from portico.upstream.backend import NO_OPTIONS, Ask, CallOver, Era, Hello, Listener, Raw, Relay
from portico.upstream.elicited import COMPLETE, Elicited
from portico.upstream.envelope import legacy_params, modern_params, with_progress_token
from portico.upstream.handshake import DiedOfProbe, Protocols, introduce
from portico.upstream.http_exchange import Exchange, ServerUnreachable
from portico.upstream.http_following import Listens, follow_session
from portico.upstream.http_headers import SESSION_HEADER, handshake_headers, negotiated_version, routing_headers
from portico.upstream.http_refusal import HttpRefusal, SessionGone
from portico.upstream.patience import Patience
from portico.upstream.subscription import WATCHING, Subscription
from portico.upstream.telling import Telling

MAX_REQUESTS = 100
"""Requests under way at one time; more wait their turn. Answers and cancellations never wait."""
MAX_QUESTIONS, QUESTIONS_PER_S = 500, 50.0
"""Requests of the server's own that are answered: so many at once, so many a second after that."""
FAREWELL_S = 1.0
ANSWER_S = 30.0
DELETE_S = 2.0

_ABOUT_NO_REQUEST = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)


@dataclass(slots=True, eq=False)
class _Call:
    method: str
    patience: Patience
    telling: Telling
    progress_token: str | int | None = None
    sent: bool = False
    answering: "set[asyncio.Task[None]]" = field(default_factory=set)

    @property
    def relay(self) -> Relay | None:
        return self.patience.ask.relay

    async def pause(self) -> None:
        if self.relay is not None:
            await self.relay.pause()


class HttpConnection:
    """A live conversation."""

    def __init__(self, name: str, exchange: Exchange, listener: Listener, roots: tuple[Raw, ...]) -> None:
        self._name = name
        self._exchange = exchange
        self._listener = listener
        self._roots = roots
        self._hello: Hello | None = None
        self._modern = False
        self._subscription: Subscription | None = None
        self._session: str | None = None
        self._last_id = 0
        self._calls: dict[int, _Call] = {}
        self._turns = asyncio.Semaphore(MAX_REQUESTS)
        self._answering: dict[str, asyncio.Task[None]] = {}
        self._withdrawn: set[str] = set()
        self._elicited = Elicited()
        self._questions = Allowance(MAX_QUESTIONS, QUESTIONS_PER_S)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: str | None = None
        self._closing: asyncio.Task[None] | None = None
        self.last_error = ""
        self.spoke = False

    @property
    def hello(self) -> Hello:
        if self._hello is None:
            raise BackendUnavailable(f"{self._name}: the connection was never opened")
        return self._hello

    @property
    def in_session(self) -> bool:
        """Whether the server gave us a session."""
        return self._session is not None

    async def open(self, protocol: Protocols, remembered: Era | None) -> None:
        """Find the era, introduce ourselves, and listen to what the server says unasked."""
        try:
            try:
                self._hello = await introduce(self, protocol, remembered)
            except (RemoteError, HttpRefusal) as error:
                if protocol != "auto" or remembered != "legacy" or (isinstance(error, HttpRefusal) and error.final):
                    raise
                self._hello = await introduce(self, "auto", None)
        except DiedOfProbe as died:
            raise died.__cause__ or died from None
        self._modern = self._hello.era == "modern"
        self._exchange.introduced = True
        if self._modern:
            self._exchange.shared_headers({})
            listens = Listens(self._exchange, self._heard)
            self._subscription = Subscription(
                self._name, self._hello.capabilities, listens.open, self._listener.notified
            )
        self._spawn(self._follow())

    async def request(self, method: str, params: Raw | None = None, ask: Ask = NO_OPTIONS) -> Raw:
        """Send a request in the era that was agreed."""
        if self._ended is not None:
            raise BackendUnavailable(f"{self._name}: {self._ended}")
        if self._subscription is not None and method in WATCHING:
            return await self._subscription.request(method, params, ask.timeout)
        self._last_id += 1
        request_id = self._last_id
        params = modern_params(params) if self._modern else legacy_params(params)
        call = _Call(method, Patience(ask), Telling(self._spawn))
        if ask.relay is not None:
            params, call.progress_token = with_progress_token(params, request_id)
        headers = {**routing_headers(method, params), **ask.headers} if self._modern else ask.headers
        self._calls[request_id] = call

        async def hear(message: Raw) -> None:
            await self._heard(message, call)

        try:
            async with call.patience.clock, self._turns:
                call.sent = True
                result, _ = await self._exchange.ask(
                    jsonrpc.frame(method, params, request_id),
                    hear,
                    headers=headers,
                    paused=None if self._modern else call.pause,
                )
                await call.telling.told()
                return result
        except TimeoutError:
            self._abandon(request_id, call, "timed out")
            error = jsonrpc.timed_out(self._name, method, ask, call.patience.waited)
            self.last_error = error.message
            raise error from None
        except asyncio.CancelledError:
            self._abandon(request_id, call, "cancelled by the caller")
            raise
        except RemoteError as error:
            self._elicited.refused({"code": error.code, "data": error.data}, ask.relay)
            raise
        except BackendUnavailable as error:
            self.last_error = error.message
            if isinstance(error, SessionGone | ServerUnreachable):
                self._lose(error.message)
            raise
        finally:
            del self._calls[request_id]
            call.telling.stop()
            for task in call.answering:
                task.cancel()

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Send a notification."""
        if self._ended is None:
            headers = routing_headers(method, None) if self._modern else None
            await self._exchange.tell(jsonrpc.frame(method, legacy_params(params)), headers)

    async def send_request(self, method: str, params: Raw | None) -> Raw:
        """A request with nothing around it: the handshake's own."""
        self._last_id += 1
        frame = jsonrpc.frame(method, params, self._last_id)
        if method != "server/discover":
            result, headers = await self._exchange.ask(frame, self._ignored)
            self._session = headers.get(SESSION_HEADER)
            self._exchange.shared_headers(handshake_headers(negotiated_version(result), self._session))
            return result
        try:
            result, _ = await self._exchange.ask(frame, self._ignored, headers=routing_headers(method, params))
        except HttpRefusal as error:
            if error.final:
                raise
            # What a handshake-era server does with a method it does not know: 400, 404, 405, 500 …
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        except ServerUnreachable:
            raise
        except BackendUnavailable as error:
            raise RemoteError(METHOD_NOT_FOUND, error.message) from error
        return result

    async def send_notification(self, method: str, params: Raw | None) -> None:
        """A notification with nothing around it: the handshake's own."""
        # There are servers that refuse `initialized` and work all the same.
        with contextlib.suppress(RemoteError, HttpRefusal):
            await self._exchange.tell(jsonrpc.frame(method, params))

    async def close(self) -> None:
        """End the session and hang up."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        told = self._ended is None
        self._ended = self._ended or "the connection was closed"
        farewells = {task for task in self._tasks if task.get_name() == "farewell"}
        for task in self._tasks - farewells:
            task.cancel()
        if farewells:
            await asyncio.wait(farewells, timeout=FAREWELL_S)
        if self._session is not None and told:
            with contextlib.suppress(PorticoError, TimeoutError):
                async with asyncio.timeout(DELETE_S):
                    await self._exchange.delete()
        await self._exchange.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _lose(self, reason: str) -> None:
        if self._ended is None:
            self._ended = reason
            self.last_error = reason
            self._listener.lost(reason)

    async def _follow(self) -> None:
        if self._subscription is not None:
            reason = await self._subscription.follow()
        else:
            reason = await follow_session(self._exchange, self._heard)
        if reason is not None:
            self._lose(reason)

    async def _heard(self, message: Raw, call: _Call | None = None) -> None:
        """A message that is no answer: on the stream of `call`, or outside any."""
        self.spoke = True
        method, request_id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return
        given = message.get("params")
        params = cast(Raw, given) if isinstance(given, dict) else {}
        if request_id is None:
            await self._notified(method, params, call)
        elif not self._modern:
            self._asked(request_id, method, params, call)

    async def _notified(self, method: str, params: Raw, call: _Call | None) -> None:
        if method == "notifications/progress":
            self._progressed(params)
        elif method == "notifications/cancelled":
            if (task := self._answering.get(known := str(params.get("requestId")))) is not None:
                self._withdrawn.add(known)
                task.cancel()
        elif (relay := self._addressee(method, params, call)) is not None:
            if call is not None and method == "notifications/message":
                call.telling.tell(relay, method, params)
            else:
                await relay.notify(method, params)
        else:
            self._listener.notified(method, params)

    def _progressed(self, params: Raw) -> None:
        call = self._calls.get(jsonrpc.known_id(params.get("progressToken")))
        if call is None or call.relay is None or call.progress_token is None:
            return
        call.patience.progressed()
        told = {**params, "progressToken": call.progress_token}
        call.telling.tell(call.relay, "notifications/progress", told)

    def _addressee(self, method: str, params: Raw, call: _Call | None) -> Relay | None:
        if method == COMPLETE:
            return self._elicited.completed(params)
        if call is not None and (method not in _ABOUT_NO_REQUEST or call.method == "subscriptions/listen"):
            return call.relay
        return self._sole_caller() if method == "notifications/message" else None

    def _sole_caller(self) -> Relay | None:
        # Not every server says which call a message belongs to; while all calls come from one client, it is that one.
        return jsonrpc.sole_caller(call.relay for call in self._calls.values())

    def _asked(self, request_id: object, method: str, params: Raw, call: _Call | None) -> None:
        if not jsonrpc.answerable(request_id) or len(self._tasks) >= 2 * jsonrpc.MAX_SERVER_REQUESTS:
            return  # a flood, or an id that would be one: even refusals would only feed it
        if not self._questions.take():
            return  # a flood as well: each answer is a request of its own
        if len(self._answering) >= jsonrpc.MAX_SERVER_REQUESTS:
            self._spawn(self._tell(jsonrpc.too_many(request_id)))
            return
        task = self._spawn(self._answer(request_id, method, params, self._whom_to_ask(call), call))
        self._answering[str(request_id)] = task
        if call is not None:
            call.answering.add(task)

    def _whom_to_ask(self, call: _Call | None) -> tuple[Relay | None, bool]:
        if call is not None:
            return call.relay, False
        in_flight = [other.relay for other in self._calls.values()]
        return jsonrpc.addressee(in_flight)

    async def _answer(
        self, request_id: object, method: str, params: Raw, asked: tuple[Relay | None, bool], call: _Call | None
    ) -> None:
        relay, shared = asked
        self._elicited.asked(method, params, relay)
        concerned = self._calls.values() if call is None else (call,)
        asked_now = relay is not None and method in jsonrpc.QUESTIONS
        held = [one.patience for one in concerned if asked_now and one.relay is not None]
        try:
            for patience in held:
                patience.hold()
            frame = await jsonrpc.answer_upstream(request_id, method, params, relay, self._roots, shared=shared)
        except CallOver:
            frame = jsonrpc.unheard(request_id)
        except asyncio.CancelledError:
            if str(request_id) in self._withdrawn or self._ended is not None:
                raise
            frame = jsonrpc.unheard(request_id)
        finally:
            for patience in held:
                patience.release()
            self._withdrawn.discard(str(request_id))
            self._answering.pop(str(request_id), None)
            if call is not None:
                # From here on the answer is on its way: the end of the call no longer stops it.
                call.answering.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        await self._tell(frame)

    def _abandon(self, request_id: int, call: _Call, reason: str) -> None:
        # In the modern era the closed stream has said it already.
        if call.sent and not self._modern and self._ended is None:
            params: Raw = {"requestId": request_id, "reason": reason}
            self._spawn(self._tell(jsonrpc.frame("notifications/cancelled", params)), name="farewell")

    async def _tell(self, frame: Raw) -> None:
        with contextlib.suppress(PorticoError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S if "method" in frame else ANSWER_S):
                await self._exchange.tell(frame)

    async def _ignored(self, message: Raw) -> None:
        """Nothing a server says before it has introduced itself concerns anyone."""

    def _spawn(self, work: Any, name: str = "") -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work, name=name or None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
