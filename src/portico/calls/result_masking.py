"""Masking of values, by the rule that decided: here of what servers answer, which are results,
errors, progress and logs; the rules themselves mask arguments.

It is outside the cache, so that each caller gets what its own rule leaves, and inside everything
that stores or shows results. Large values are masked in a thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.calls.call import Call, Handler, Request, ServerRequest
from portico.calls.presidio_recognizers import is_presidio_kind
from portico.calls.sensitive_data import mask_value
from portico.config.rules import MaskKind
from portico.errors import PorticoError, RemoteError
from portico.json_text.json_codec import estimate_size
from portico.upstream.backend import Raw, Relay

SMALL_SIZE = 8_192
"""Characters as JSON that are masked on the event loop; larger values go to a thread."""

MaskConfigured = Callable[[Raw], Awaitable[Raw]]


async def _mask_nothing(result: Raw) -> Raw:
    return result


class ValueMasking:
    """Masks values of JSON."""

    def __init__(self) -> None:
        self.mask_configured: MaskConfigured = _mask_nothing
        """Masks the values of configured secrets."""

    async def mask(self, value: Raw, kinds: Collection[MaskKind]) -> Raw:
        """Return a value of JSON, masked."""
        if "secrets" in kinds:
            value = await self.mask_configured(value)
        is_quick = not any(map(is_presidio_kind, kinds))
        if is_quick and estimate_size(value, SMALL_SIZE) < SMALL_SIZE:
            return mask_value(value, kinds)
        return await asyncio.to_thread(mask_value, value, kinds)

    def wrap(self, relay: Relay, kinds: Collection[MaskKind]) -> Relay:
        """Return a relay that masks what a server says and asks through it."""
        return _MaskingRelay(self, relay, kinds)


class SecretMasking(ValueMasking):
    """Masks the values of configured secrets alone, of whatever kinds."""

    async def mask(self, value: Raw, kinds: Collection[MaskKind]) -> Raw:
        """Return a value of JSON without them."""
        return await self.mask_configured(value)


class ResultMasking:
    """Middlewares that mask what a server answers, where the rule that decided says so."""

    def __init__(self, values: ValueMasking) -> None:
        self._values = values

    def mask_call(self, call: Call, /, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
        """Middleware: mask the result of a call."""
        if call.decision is None or not call.decision.mask:
            return call_next(call)
        return self.mask_answer(call, call.decision.mask, call_next)

    def mask_request(
        self, request: ServerRequest, /, call_next: Handler[ServerRequest]
    ) -> Coroutine[Any, Any, Raw]:
        """Middleware: the same for resources, prompts and other requests."""
        if request.decision is None or not request.decision.mask:
            return call_next(request)
        return self.mask_answer(request, request.decision.mask, call_next)

    async def mask_answer(
        self, request: Request, kinds: Collection[MaskKind], call_next: Handler[Request]
    ) -> Raw:
        """Mask everything that the server says during a request."""
        if (relay := request.context.relay) is not None:
            request.context = replace(request.context, relay=self._values.wrap(relay, kinds))
        try:
            result = await call_next(request)
        except PorticoError as error:
            await self._mask_error(error, kinds)
            raise
        return await self._values.mask(result, kinds)

    async def _mask_error(self, error: PorticoError, kinds: Collection[MaskKind]) -> None:
        data = error.data if isinstance(error, RemoteError) else None
        masked = await self._values.mask(
            {"texts": [error.message, error.advice], "rest": data}, kinds
        )
        error.message, error.advice = masked["texts"]
        error.args = (error.message,)
        if isinstance(error, RemoteError):
            error.data = masked["rest"]


@dataclass(slots=True)
class _MaskingRelay:
    """A relay to the client that masks what the server says or asks through it."""

    _masking: ValueMasking
    _relay: Relay
    _kinds: Collection[MaskKind]

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._relay.capabilities

    @property
    def client_key(self) -> str:
        return self._relay.client_key

    async def notify(self, method: str, params: Raw) -> None:
        await self._relay.notify(method, await self._masking.mask(params, self._kinds))

    async def request(self, method: str, params: Raw) -> Raw:
        return await self._relay.request(method, await self._masking.mask(params, self._kinds))

    async def pause(self) -> None:
        await self._relay.pause()
