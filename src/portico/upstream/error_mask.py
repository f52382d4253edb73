"""Masks configured secrets, by value, in what servers say when they fail, and in their progress and
log messages.

It stands where a server's words enter the gateway, so clients, scripts, REST, `status` and the
library get the same. A result that is no error passes untouched: whoever calls a tool must be able
to trust what it returns.
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
"""Characters of a reason why a server failed; what is beyond is left out."""
SMALL_SIZE = 16_384
"""Characters and values that are masked at once; more of them are masked in a thread."""
MAX_DEPTH = 100
"""Levels of nesting that are looked at."""
_FREE_TEXT_KEYS = ("message", "data", "logger")
"""Of a progress or log message, what is in a server's words."""


class ErrorMask:
    """The secrets of the current configuration, read with the first failure, and those of the one
    before it."""

    def __init__(self, config: Callable[[], Config] = Config) -> None:
        self._config = config
        self._previous: Config | None = None
        self._mask: SecretMask | None = None

    def reset(self, previous: Config) -> None:
        """Read the secrets again. Servers of the `earlier` configuration may still run and fail:
        its stay masked."""
        self._previous = previous
        self._mask = None

    def mask_text(self, text: str) -> str:
        """Mask a reason, cut to `LONGEST_REASON`."""
        if not text:
            return text
        mask = self._get_mask()
        masked = mask.apply(text[: MAX_REASON_CHARS + mask.longest_form])
        if len(text) <= MAX_REASON_CHARS:
            return masked
        return f"{masked[:MAX_REASON_CHARS]}…"

    async def mask_error(self, error: PorticoError) -> None:
        """Mask what an error says, in place."""
        said = [error.message, error.advice, error.data if isinstance(error, RemoteError) else None]
        error.message, error.advice, data = await self._mask_value(said)
        error.args = (error.message,)
        if isinstance(error, RemoteError):
            error.data = data

    async def mask_result(self, result: Raw) -> Raw:
        """Mask a result that says it is an error; the very same where there is nothing to mask."""
        masked = await self._mask_value(result)
        if masked == result:
            return result
        return masked

    def mask_relay(self, options: RequestOptions) -> RequestOptions:
        """The same request, whose progress and log messages are masked on their way to the caller."""
        if options.relay is None:
            return options
        return replace(options, relay=_MaskedRelay(self, options.relay))

    async def mask_notification(self, params: Raw) -> Raw:
        """Mask what a progress or log message says."""
        said = {key: params[key] for key in _FREE_TEXT_KEYS if key in params}
        return {**params, **await self._mask_value(said)}

    async def _mask_value(self, value: Any) -> Any:
        mask = self._get_mask()
        if _is_small(value):
            return _mask_nested(mask, value, MAX_DEPTH)
        return await asyncio.to_thread(_mask_nested, mask, value, MAX_DEPTH)

    def _get_mask(self) -> "SecretMask":
        if self._mask is None:
            from portico.config_file.secret_values import (  # their patterns cost start-up
                SecretMask,
                collect_secret_values,
            )

            if self._previous is not None:
                earlier = collect_secret_values(self._previous)
            else:
                earlier = frozenset[str]()
            self._mask = SecretMask(collect_secret_values(self._config()) | earlier)
        return self._mask


class _MaskedRelay:
    """The way back to a caller, where a server's messages lose the secrets in them."""

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
    """Whether a value has at most `SMALL` characters and values; stops counting beyond."""
    left = SMALL_SIZE
    waiting = [value]
    while waiting:
        node = waiting.pop()
        left -= 1
        if isinstance(node, str | list | dict):
            left -= len(cast("str | list[Any] | Raw", node))
        if left < 0:
            return False
        if isinstance(node, dict):
            waiting.extend(cast(Raw, node).values())
        elif isinstance(node, list):
            waiting.extend(cast("list[Any]", node))
    return True


def _mask_nested(mask: "SecretMask", value: Any, depth: int) -> Any:
    """The value without secrets; the very same where it has none: a copy of many lists would be
    more to collect."""
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
        found = {
            mask.apply(key): _mask_nested(mask, item, depth - 1) for key, item in members.items()
        }
        same = all(map(operator.is_, found, members)) and all(
            map(operator.is_, found.values(), members.values())
        )
        if same:
            return members
        return found
    return value
