"""One attempt to connect to a server: returns a connection or raises ConnectFailed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from portico.errors import BackendBusy, BackendUnavailable, RemoteError, SignInNeeded
from portico.upstream.backend import Backend, Connection, Era, Raw
from portico.upstream.lifecycle.instances import Instance
from portico.upstream.transports.process import pick_telling_line

SLOT_S = 5.0
"""Seconds after which a running start frees its slot."""


class StartSlots:
    """Limits how many servers are started for calls at the same time, in the whole gateway.

    A start holds its slot for its first seconds only: a few servers that never answer must not
    block the others until they time out.
    """

    def __init__(self, limit: int = 16, *, slot_s: float = SLOT_S) -> None:
        self._limit = limit
        self._slots = asyncio.Semaphore(limit)
        self._slot_s = slot_s

    @asynccontextmanager
    async def acquire(self, name: str, timeout: float) -> AsyncGenerator[None]:
        """Acquire a start slot within `timeout` seconds, else raise BackendBusy.

        Released on exit or after `slot_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise BackendBusy(
                f"{name} was not started within {timeout:g} s: as many as may be ({self._limit}) "
                "are being started",
                advice="Try again shortly, or raise limits.call_starts.",
            ) from None
        released = False

        def release() -> None:
            nonlocal released
            if not released:
                released = True
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(self._slot_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()


logger = logging.getLogger(__name__)


class ConnectFailed(Exception):
    def __init__(
        self, reason: str, advice: str = "", *, needs_sign_in: bool = False, sign_in_url: str = ""
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.needs_sign_in = needs_sign_in
        """Whether it waits for a person, so that no retry helps."""
        self.sign_in_url = sign_in_url


class ConnectionListener:
    """Forwards the messages of one connection to its lifecycle.

    Until `instance` is set, the end of the connection is only recorded in `end_reason`.
    """

    def __init__(
        self, on_notification: Callable[[str, Raw], None], on_lost: Callable[[Instance, str], None]
    ) -> None:
        self._on_notification = on_notification
        self._on_lost = on_lost
        self.instance: Instance | None = None
        self.end_reason = ""

    def on_notification(self, method: str, params: Raw) -> None:
        if self.instance is not None:
            self.instance.heard_since_check = True
        self._on_notification(method, params)

    def on_lost(self, reason: str) -> None:
        self.end_reason = reason
        if self.instance is not None:
            self._on_lost(self.instance, reason)


async def open_connection(
    name: str,
    backend: Backend,
    listener: ConnectionListener,
    era: Era | None,
    timeout: float,
    mask: Callable[[str], str] = str,
) -> Connection:
    """Open a connection within `timeout` seconds; raise ConnectFailed on any failure.

    Text from stderr is masked before it is cut, because a cut secret would not be recognised.
    """
    try:
        async with asyncio.timeout(timeout):
            connection = await backend.connect(listener, era)
    except TimeoutError:
        line = mask(pick_telling_line(backend.diagnostics().get("stderr", ())))
        stderr = f" (stderr: {line[-400:]})" if line else ""
        raise ConnectFailed(f"no answer to the handshake within {timeout:g} s{stderr}") from None
    except RemoteError as error:
        raise ConnectFailed(
            f"it refused the handshake: {error.message} (code {error.code})"
        ) from error
    except BackendUnavailable as error:
        # Everybody who shows the reason names the server before it.
        reason = error.message.removeprefix(f"{name}: ")
        needs_sign_in = isinstance(error, SignInNeeded)
        url = error.url if isinstance(error, SignInNeeded) else ""
        raise ConnectFailed(
            reason, error.advice, needs_sign_in=needs_sign_in, sign_in_url=url
        ) from error
    except Exception as error:
        # Backends may be third-party code: anything one raises is the reason of the failed start.
        logger.exception("%s could not be started", name)
        raise ConnectFailed(f"it could not be started: {type(error).__name__}: {error}") from error
    if listener.end_reason:
        await connection.close()
        raise ConnectFailed(listener.end_reason)
    return connection
