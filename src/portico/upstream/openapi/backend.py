"""An HTTP API as a server: how its description is read, and read again when it has changed."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.errors import BackendUnavailable
from portico.storage.origin_pins import find_origin, pin_origin
from portico.upstream.backend import Connection, Era, Listener
from portico.upstream.http_headers import address_of, header_lines, safe_url
from portico.upstream.openapi.addresses import is_own_origin, is_url, show_origin
from portico.upstream.own_thread import in_own_thread

logger = logging.getLogger(__name__)


class OriginRefused(BackendUnavailable):
    """A description sends credentials where nobody but the description says that they may go."""

    retryable = False


@dataclass
class OpenApiBackend:
    """A server made of a description."""

    name: str
    place: str = field(repr=False)
    """The description: URL or file."""
    base_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_message_bytes: int = 64 * 2**20
    pins: Path | None = field(default=None, repr=False)
    """Folder that remembers the origin of credentials; None: this process alone does."""
    pinning: bool = True
    """Whether an origin that is seen first is remembered there; else it is only compared."""
    notes: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _api: Any = field(default=None, init=False, repr=False)
    _origin: str | None = field(default=None, init=False, repr=False)
    """Where credentials went first."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    kind = "openapi"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the description."""
        header_lines(self.headers)
        try:
            api = await self.current()
            address_of(api.server)
            await asyncio.to_thread(self._check_origin, api.server)
        except BackendUnavailable as error:
            self.notes["last_error"] = error.message
            raise
        self.notes["last_error"] = ""
        exchange = self.notes["exchange"] = await asyncio.to_thread(self._exchange, api.server)
        from portico.upstream.openapi.connection import OpenApiConnection

        return OpenApiConnection(self.name, api, self.current, self.headers, self.query, exchange)

    async def current(self) -> Any:
        """The API as its description has it now; read once, however many ask."""
        async with self._turn:
            # Not one of the threads that all share: hosts that do not answer would take them from everybody else.
            self._api = await in_own_thread(self._read, "portico openapi")
            return self._api

    def diagnostics(self) -> Mapping[str, Any]:
        """Where the description and the API are, how many operations there are, and what is odd about them."""
        shown = safe_url(self.place) if "://" in self.place else self.place
        found: dict[str, Any] = {"openapi": shown, "last_error": self.notes.get("last_error", "")}
        if self._api is not None:
            found |= {"url": safe_url(self._api.server), "operations": len(self._api.plans)}
            if self._api.notes:
                found["note"] = "; ".join(self._api.notes)
        if (exchange := self.notes.get("exchange")) is not None:
            found["requests"] = exchange.sent
        return found

    def _check_origin(self, server: str) -> None:
        """Refuse an origin for credentials that only the description vouches for, unless it is the one seen first."""
        if self.base_url is not None or not (self.headers or self.query):
            return
        now, shown = show_origin(server), safe_url(server)
        advice = f"If the API is there, write `base_url: {shown}` for {self.name} in the configuration."
        if is_url(self.place) and not is_own_origin(self.place, server):
            raise OriginRefused(
                f"its description names {now}, another origin than its own: no credentials go there without "
                f"`base_url: {shown}`",
                advice=advice,
            )
        if self._origin is None:
            self._origin = self._remember(now)
        if self._origin != now:
            raise OriginRefused(
                f"its description names {now} now, and before it was {self._origin}: no credentials go there without "
                f"`base_url: {shown}`",
                advice=advice,
            )

    def _remember(self, now: str) -> str:
        if self.pins is None:
            return now
        try:
            if self.pinning:
                return pin_origin(self.pins, self.name, self.place, now)
            return find_origin(self.pins, self.name, self.place) or now
        except OSError as error:
            logger.warning(
                "%s: where its credentials go is remembered by this process alone: %s", self.name, error.strerror
            )
            return now

    def _read(self) -> Any:
        from portico.upstream.openapi.loading import load
        from portico.upstream.openapi.own_process import SMALL_BYTES, load_in_process
        from portico.upstream.openapi.reading import DescriptionTooLarge, Source, unchanged
        from portico.upstream.openapi.tools import Given

        known = self._api
        if known is not None and unchanged(known.marks):
            return known
        source = Source(self.name, self.place, self.headers, self.base_url)
        given = Given(frozenset(name.lower() for name in self.headers), frozenset(self.query))
        try:
            try:
                return load(source, given, known, SMALL_BYTES)
            except DescriptionTooLarge:
                return load_in_process(source, given)
        except BackendUnavailable as error:
            if known is None:
                raise
            # What was read before is good enough while the place it came from is not there.
            self.notes["last_error"] = error.message
            return known

    def _exchange(self, server: str) -> Any:
        # Imported late, and off the loop: a gateway whose API is not called does not pay for the HTTP client.
        from portico.upstream.openapi.exchange import Exchange

        return Exchange(self.name, server, self.headers, self.max_message_bytes)
