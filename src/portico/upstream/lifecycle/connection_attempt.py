"""One attempt to connect to a server: returns a connection or raises ConnectFailed."""

import asyncio
import logging
from collections.abc import Callable

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream.backend import Backend, Connection, Era, Raw
from portico.upstream.lifecycle.instances import Instance
from portico.upstream.transports.output_lines import pick_telling_line

logger = logging.getLogger(__name__)


class ConnectFailed(Exception):
    """The server could not be reached."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


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
        """Forward a notification outside any request."""
        if self.instance is not None:
            self.instance.heard_since_check = True
        self._on_notification(method, params)

    def on_lost(self, reason: str) -> None:
        """Record the end of the connection and report it."""
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
        raise ConnectFailed(error.message, error.advice) from error
    except Exception as error:
        # Backends may be third-party code: anything one raises is the reason of the failed start.
        logger.exception("%s could not be started", name)
        raise ConnectFailed(f"it could not be started: {type(error).__name__}: {error}") from error
    if listener.end_reason:
        await connection.close()
        raise ConnectFailed(listener.end_reason)
    return connection
