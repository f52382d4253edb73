"""One try to reach a server: a conversation, or the reason why there is none."""

import asyncio
import logging
from collections.abc import Callable

from portico.errors import BackendUnavailable, RemoteError
from portico.upstream.backend import Backend, Connection, Era, Raw
from portico.upstream.instances import Instance
from portico.upstream.lines import telling

logger = logging.getLogger(__name__)


class NotOpened(Exception):
    """It could not be reached."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason)
        self.reason, self.advice = reason, advice


class Ears:
    """Hears one conversation on behalf of whoever keeps it; until it is kept, only its end counts."""

    def __init__(self, heard: Callable[[str, Raw], None], lost: Callable[[Instance, str], None]) -> None:
        self._heard, self._lost = heard, lost
        self.instance: Instance | None = None
        self.ended = ""

    def notified(self, method: str, params: Raw) -> None:
        """It said something outside any request."""
        if self.instance is not None:
            self.instance.heard = True
        self._heard(method, params)

    def lost(self, reason: str) -> None:
        """It is over."""
        self.ended = reason
        if self.instance is not None:
            self._lost(self.instance, reason)


async def opened(
    name: str, backend: Backend, ears: Ears, era: Era | None, patience: float, mask: Callable[[str], str] = str
) -> Connection:
    """A conversation; raises NotOpened, whatever went wrong. What is cut is masked before."""
    try:
        async with asyncio.timeout(patience):
            connection = await backend.connect(ears, era)
    except TimeoutError:
        words = mask(telling(backend.diagnostics().get("stderr", ())))
        said = f" (stderr: {words[-400:]})" if words else ""
        raise NotOpened(f"no answer to the handshake within {patience:g} s{said}") from None
    except RemoteError as error:
        raise NotOpened(f"it refused the handshake: {error.message} (code {error.code})") from error
    except BackendUnavailable as error:
        raise NotOpened(error.message, error.advice) from error
    except Exception as error:  # a backend may be anyone's: whatever it raises is why it did not start
        logger.exception("%s could not be started", name)
        raise NotOpened(f"it could not be started: {type(error).__name__}: {error}") from error
    if ears.ended:
        await connection.close()
        raise NotOpened(ears.ended)
    return connection
