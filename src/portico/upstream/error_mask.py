"""Masks configured secrets, by value, in servers' errors, progress and log messages.

It is applied where a server's text enters the gateway, so clients, scripts, REST, `status` and the
library get the same text. A successful result passes unchanged: callers must be able to trust it.
"""

import asyncio
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from portico.config import Config
from portico.errors import PorticoError, RemoteError
from portico.upstream.backend import Raw, Relay, RequestOptions

if TYPE_CHECKING:
    from portico.config_file.secret_values import SecretMask

MAX_REASON_CHARS = 16_384
"""Characters of a failure reason; the rest is cut off."""
SMALL_SIZE = 16_384
"""Characters plus values that are masked on the event loop; larger values go to a thread."""
MAX_DEPTH = 100
"""Levels of nesting that are masked; deeper values pass unchanged."""
_FREE_TEXT_KEYS = ("message", "data", "logger")
"""Keys of a progress or log message that hold a server's free text."""


class ErrorMask:
    """Masks the secrets of the current configuration and of the one before it.

    The secrets are collected with the first failure.
    """

    def __init__(self, config: Callable[[], Config] = Config) -> None:
        self._config = config
        self._previous: Config | None = None
        self._mask: SecretMask | None = None

    def reset(self, previous: Config) -> None:
        """Collect the secrets again at the next failure.

        Servers of the `previous` configuration may still run and fail, so its secrets stay masked.
        """
        self._previous = previous
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

    def mask_relay(self, options: RequestOptions) -> RequestOptions:
        """Return the options with a relay that masks progress and log messages."""
        if options.relay is None:
            return options
        return replace(options, relay=_MaskedRelay(self, options.relay))

    async def mask_notification(self, params: Raw) -> Raw:
        """Mask the free text of a progress or log message."""
        texts = {key: params[key] for key in _FREE_TEXT_KEYS if key in params}
        return {**params, **await self._mask_value(texts)}

    async def _mask_value(self, value: Any) -> Any:
        mask = self._get_mask()
        if _is_small(value):
            return _mask_nested(mask, value, MAX_DEPTH)
        return await asyncio.to_thread(_mask_nested, mask, value, MAX_DEPTH)

    def _get_mask(self) -> "SecretMask":
        if self._mask is None:
            # Imported late: compiling its patterns would slow the start of the gateway.
            from portico.config_file.secret_values import SecretMask, collect_secret_values

            secrets = collect_secret_values(self._config())
            if self._previous is not None:
                secrets |= collect_secret_values(self._previous)
            self._mask = SecretMask(secrets)
        return self._mask


class _MaskedRelay:
    """A relay that masks secrets in notifications."""

    def __init__(self, mask: ErrorMask, relay: Relay) -> None:
        self._mask = mask
        self._relay = relay

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


def _is_small(value: Any) -> bool:
    """Return whether a value has at most `SMALL_SIZE` characters and values."""
    budget = SMALL_SIZE
    stack = [value]
    while stack:
        node = stack.pop()
        budget -= 1
        if isinstance(node, str | list | dict):
            budget -= len(cast("str | list[Any] | Raw", node))
        if budget < 0:
            return False
        if isinstance(node, dict):
            stack.extend(cast(Raw, node).values())
        elif isinstance(node, list):
            stack.extend(cast("list[Any]", node))
    return True


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
