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
from portico.upstream.backends.dedicated_thread import run_in_dedicated_thread
from portico.upstream.backends.openapi.urls import format_origin, is_own_origin, is_url
from portico.upstream.transports.http_headers import parse_address, redact_url, render_header_lines

logger = logging.getLogger(__name__)


class OriginRefused(BackendUnavailable):
    """A description sends credentials where nobody but the description says that they may go."""

    retryable = False


@dataclass
class OpenApiBackend:
    """A server made of a description."""

    name: str
    location: str = field(repr=False)
    """The description: URL or file."""
    base_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_message_bytes: int = 64 * 2**20
    pins_folder: Path | None = field(default=None, repr=False)
    """Folder that remembers the origin of credentials; None: this process alone does."""
    pins_new_origins: bool = True
    """Whether an origin that is seen first is remembered there; else it is only compared."""
    diagnostic_data: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _api: Any = field(default=None, init=False, repr=False)
    _pinned_origin: str | None = field(default=None, init=False, repr=False)
    """Where credentials went first."""
    _load_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    kind = "openapi"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the description."""
        render_header_lines(self.headers)
        try:
            api = await self.load_current()
            parse_address(api.server)
            await asyncio.to_thread(self._check_origin, api.server)
        except BackendUnavailable as error:
            self.diagnostic_data["last_error"] = error.message
            raise
        self.diagnostic_data["last_error"] = ""
        exchange = self.diagnostic_data["exchange"] = await asyncio.to_thread(
            self._create_client, api.server
        )
        from portico.upstream.backends.openapi.connection import OpenApiConnection

        return OpenApiConnection(
            self.name, api, self.load_current, self.headers, self.query, exchange
        )

    async def load_current(self) -> Any:
        """The API as its description has it now; read once, however many ask."""
        async with self._load_lock:
            # Not one of the threads that all share: hosts that do not answer would take them from
            # everybody else.
            self._api = await run_in_dedicated_thread(self._load_description, "portico openapi")
            return self._api

    def diagnostics(self) -> Mapping[str, Any]:
        """Where the description and the API are, how many operations there are, and what is odd
        about them."""
        if "://" in self.location:
            shown = redact_url(self.location)
        else:
            shown = self.location
        found: dict[str, Any] = {
            "openapi": shown,
            "last_error": self.diagnostic_data.get("last_error", ""),
        }
        if self._api is not None:
            found |= {"url": redact_url(self._api.server), "operations": len(self._api.plans)}
            if self._api.notes:
                found["note"] = "; ".join(self._api.notes)
        if (exchange := self.diagnostic_data.get("exchange")) is not None:
            found["requests"] = exchange.sent
        return found

    def _check_origin(self, server: str) -> None:
        """Refuse an origin for credentials that only the description vouches for, unless it is the
        one seen first."""
        if self.base_url is not None or not (self.headers or self.query):
            return
        now = format_origin(server)
        shown = redact_url(server)
        advice = (
            f"If the API is there, write `base_url: {shown}` for {self.name} in the configuration."
        )
        if is_url(self.location) and not is_own_origin(self.location, server):
            raise OriginRefused(
                f"its description names {now}, another origin than its own: no credentials go there without "
                f"`base_url: {shown}`",
                advice=advice,
            )
        if self._pinned_origin is None:
            self._pinned_origin = self._pin_origin(now)
        if self._pinned_origin != now:
            raise OriginRefused(
                f"its description names {now} now, and before it was {self._pinned_origin}: no credentials go there without "
                f"`base_url: {shown}`",
                advice=advice,
            )

    def _pin_origin(self, current_origin: str) -> str:
        if self.pins_folder is None:
            return current_origin
        try:
            if self.pins_new_origins:
                return pin_origin(self.pins_folder, self.name, self.location, current_origin)
            return find_origin(self.pins_folder, self.name, self.location) or current_origin
        except OSError as error:
            logger.warning(
                "%s: where its credentials go is remembered by this process alone: %s",
                self.name,
                error.strerror,
            )
            return current_origin

    def _load_description(self) -> Any:
        from portico.upstream.backends.openapi.description.loader import load_description
        from portico.upstream.backends.openapi.description.loader_process import (
            MAX_THREAD_BYTES,
            load_in_process,
        )
        from portico.upstream.backends.openapi.description.reader import (
            DescriptionSource,
            DescriptionTooLarge,
            is_unchanged,
        )
        from portico.upstream.backends.openapi.description.tools import ConfiguredParameters

        known = self._api
        if known is not None and is_unchanged(known.marks):
            return known
        source = DescriptionSource(self.name, self.location, self.headers, self.base_url)
        given = ConfiguredParameters(
            frozenset(name.lower() for name in self.headers), frozenset(self.query)
        )
        try:
            try:
                return load_description(source, given, known, MAX_THREAD_BYTES)
            except DescriptionTooLarge:
                return load_in_process(source, given)
        except BackendUnavailable as error:
            if known is None:
                raise
            # What was read before is good enough while the place it came from is not there.
            self.diagnostic_data["last_error"] = error.message
            return known

    def _create_client(self, server: str) -> Any:
        # Imported late, and off the loop: a gateway whose API is not called does not pay for the
        # HTTP client.
        from portico.upstream.backends.openapi.http_client import OpenApiClient

        return OpenApiClient(self.name, server, self.headers, self.max_message_bytes)
