"""One try to reach a server: a conversation, or the reason why there is none."""

import asyncio
import logging
from collections.abc import Callable

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream.backend import Backend, Connection, Era, Raw
from portico.upstream.lifecycle.instances import Instance
from portico.upstream.transports.output_lines import pick_telling_line

logger = logging.getLogger(__name__)


class ConnectFailed(Exception):
    """It could not be reached."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


class ConnectionListener:
    """Hears one conversation on behalf of whoever keeps it; until it is kept, only its end counts."""

    def __init__(
        self, on_notification: Callable[[str, Raw], None], on_lost: Callable[[Instance, str], None]
    ) -> None:
        self._on_notification = on_notification
        self._on_lost = on_lost
        self.instance: Instance | None = None
        self.end_reason = ""

    def on_notification(self, method: str, params: Raw) -> None:
        """It said something outside any request."""
        if self.instance is not None:
            self.instance.heard_since_check = True
        self._on_notification(method, params)

    def on_lost(self, reason: str) -> None:
        """It is over."""
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
    """A conversation; raises NotOpened, whatever went wrong. What is cut is masked before."""
    try:
        async with asyncio.timeout(timeout):
            connection = await backend.connect(listener, era)
    except TimeoutError:
        words = mask(pick_telling_line(backend.diagnostics().get("stderr", ())))
        if words:
            said = f" (stderr: {words[-400:]})"
        else:
            said = ""
        raise ConnectFailed(f"no answer to the handshake within {timeout:g} s{said}") from None
    except RemoteError as error:
        raise ConnectFailed(
            f"it refused the handshake: {error.message} (code {error.code})"
        ) from error
    except BackendUnavailable as error:
        raise ConnectFailed(error.message, error.advice) from error
    except (
        Exception
    ) as error:  # a backend may be anyone's: whatever it raises is why it did not start
        logger.exception("%s could not be started", name)
        raise ConnectFailed(f"it could not be started: {type(error).__name__}: {error}") from error
    if listener.end_reason:
        await connection.close()
        raise ConnectFailed(listener.end_reason)
    return connection
