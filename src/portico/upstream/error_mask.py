"""Masks configured secrets, by value, in servers' errors, progress and log messages.

It is applied where a server's text enters the gateway, so clients, scripts, REST, `status` and the
library get the same text. A successful result passes unchanged: callers must be able to trust it.
"""

import asyncio
import operator
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from portico.config import Config
from portico.config_file.secret_references import known_secrets
from portico.errors import PorticoError, RemoteError
from portico.json_text.json_codec import estimate_size
from portico.upstream.backend import Raw, Relay

if TYPE_CHECKING:
    from portico.config_file.secret_values import SecretMask

MAX_REASON_CHARS = 16_384
"""Characters of a failure reason; the rest is cut off."""
SMALL_SIZE = 16_384
"""Characters as JSON that are masked on the event loop; larger values go to a thread."""
MAX_DEPTH = 100
"""Levels of nesting that are masked; deeper values pass unchanged."""
MAX_EARLIER = 20
"""Different sets of secrets of earlier configurations that stay masked."""
_FREE_TEXT_KEYS = ("message", "data", "logger")
"""Keys of a progress or log message that hold a server's free text."""


class ErrorMask:
    """Masks the secrets of the current configuration and of earlier ones.

    The secrets are collected with the first failure.
    """

    def __init__(self, config: Callable[[], Config] = Config) -> None:
        self._config = config
        self._earlier: deque[frozenset[str]] = deque(maxlen=MAX_EARLIER)
        self._mask: SecretMask | None = None
        self._version = 0

    def reset(self, previous: Config) -> None:
        """Collect the secrets again at the next failure.

        Servers of the `previous` configuration may still run and fail, and lines that they wrote
        are kept, so its secrets stay masked.
        """
        # Imported late: compiling its patterns would slow the start of the gateway.
        from portico.config_file.secret_values import collect_secret_values

        secrets = collect_secret_values(previous)
        if secrets not in self._earlier:
            self._earlier.append(secrets)
        self._mask = None

    def mask_text(self, text: str) -> str:
        """Mask a failure reason and cut it to `MAX_REASON_CHARS`."""
        if not text:
            return text
        mask = self._get_mask()
        masked = mask.apply(text[: MAX_REASON_CHARS + mask.longest_form])
        if len(text) <= MAX_REASON_CHARS:
            return masked
        return f"{masked[:MAX_REASON_CHARS]}…"

    async def mask_error(self, error: PorticoError) -> None:
        """Mask an error's message, advice and data in place."""
        texts = [
            error.message,
            error.advice,
            error.data if isinstance(error, RemoteError) else None,
        ]
        error.message, error.advice, data = await self._mask_value(texts)
        error.args = (error.message,)
        if isinstance(error, RemoteError):
            error.data = data

    async def mask_result(self, result: Raw) -> Raw:
        """Mask an error result; return the same object if there is nothing to mask."""
        masked = await self._mask_value(result)
        if masked == result:
            return result
        return masked

    async def mask_texts(self, texts: list[str]) -> list[str]:
        """Mask lines of a log."""
        return await self._mask_value(texts)

    async def mask_notification(self, params: Raw) -> Raw:
        """Mask the free text of a progress or log message."""
        texts = {key: params[key] for key in _FREE_TEXT_KEYS if key in params}
        return {**params, **await self._mask_value(texts)}

    async def _mask_value(self, value: Any) -> Any:
        mask = self._get_mask()
        if estimate_size(value, SMALL_SIZE) < SMALL_SIZE:
            return _mask_nested(mask, value, MAX_DEPTH)
        return await asyncio.to_thread(_mask_nested, mask, value, MAX_DEPTH)

    def _get_mask(self) -> "SecretMask":
        if self._mask is None or self._version != known_secrets.version:
            from portico.config_file.secret_values import SecretMask, collect_secret_values

            self._version = known_secrets.version
            self._mask = SecretMask(collect_secret_values(self._config()).union(*self._earlier))
        return self._mask


@dataclass(slots=True)
class MaskedRelay:
    """A relay that masks progress and log messages."""

    _mask: ErrorMask
    _relay: Relay

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._relay.capabilities

    @property
    def client_key(self) -> str:
        return self._relay.client_key

    async def notify(self, method: str, params: Raw) -> None:
        await self._relay.notify(method, await self._mask.mask_notification(params))

    async def request(self, method: str, params: Raw) -> Raw:
        return await self._relay.request(method, params)

    async def pause(self) -> None:
        await self._relay.pause()


def _mask_nested(mask: "SecretMask", value: Any, depth: int) -> Any:
    """Return the value without secrets, or the same object if it has none.

    Returning the same object avoids copies of large results that would have to be collected.
    """
    if isinstance(value, str):
        return mask.apply(value)
    if depth <= 0 or not value:
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        masked = [_mask_nested(mask, item, depth - 1) for item in items]
        if all(map(operator.is_, masked, items)):
            return items
        return masked
    if isinstance(value, dict):
        members = cast(Raw, value)
        masked_members = {
            mask.apply(key): _mask_nested(mask, item, depth - 1) for key, item in members.items()
        }
        unchanged = all(map(operator.is_, masked_members, members)) and all(
            map(operator.is_, masked_members.values(), members.values())
        )
        if unchanged:
            return members
        return masked_members
    return value
