"""Backend for an HTTP API: reads its description, and reads it again after a change."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.errors import BackendUnavailable
from portico.storage.data_files import find_origin, pin_origin
from portico.upstream.backend import Connection, Era, Listener
from portico.upstream.backends.openapi.reader import (
    format_origin,
    is_own_origin,
    is_url,
)
from portico.upstream.backends.tool_connection import run_in_dedicated_thread
from portico.upstream.transports.http_headers import parse_address, redact_url, render_header_lines

logger = logging.getLogger(__name__)


class OriginRefused(BackendUnavailable):
    """A description names an origin for credentials that nothing else confirms."""

    retryable = False


@dataclass
class OpenApiBackend:
    name: str
    location: str = field(repr=False)
    """URL or file of the description."""
    base_url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_message_bytes: int = 64 * 2**20
    pins_folder: Path | None = field(default=None, repr=False)
    """Folder of the pinned origins of credentials; None: pinned in this process only."""
    pins_new_origins: bool = True
    """Whether a new origin is pinned there; otherwise it is only compared."""
    diagnostic_data: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _api: Any = field(default=None, init=False, repr=False)
    _pinned_origin: str | None = field(default=None, init=False, repr=False)
    """Origin that credentials were first sent to."""
    _load_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)

    kind = "openapi"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the description, check its origin and create the HTTP client."""
        render_header_lines(self.headers)
        try:
            api = await self.load_current()
            parse_address(api.server)
            await asyncio.to_thread(self._check_origin, api.server)
        except BackendUnavailable as error:
            self.diagnostic_data["last_error"] = error.message
            raise
        self.diagnostic_data["last_error"] = ""
        client = await asyncio.to_thread(self._create_client, api.server)
        self.diagnostic_data["exchange"] = client
        from portico.upstream.backends.openapi.connection import OpenApiConnection

        return OpenApiConnection(
            self.name, api, self.load_current, self.headers, self.query, client
        )

    async def load_current(self) -> Any:
        """Return the API by its current description; concurrent calls read it one after another."""
        async with self._load_lock:
            # Not in the shared thread pool: hosts that do not answer would block all its threads.
            self._api = await run_in_dedicated_thread(self._load_description, "portico openapi")
            return self._api

    def diagnostics(self) -> Mapping[str, Any]:
        """Return location, url, number of operations and requests, warnings and the last error."""
        location = redact_url(self.location) if "://" in self.location else self.location
        diagnostics: dict[str, Any] = {
            "openapi": location,
            "last_error": self.diagnostic_data.get("last_error", ""),
        }
        if self._api is not None:
            diagnostics["url"] = redact_url(self._api.server)
            diagnostics["operations"] = len(self._api.plans)
            if self._api.warnings:
                diagnostics["note"] = "; ".join(self._api.warnings)
        if (client := self.diagnostic_data.get("exchange")) is not None:
            diagnostics["requests"] = client.request_count
        return diagnostics

    def _check_origin(self, server: str) -> None:
        """Raise OriginRefused for an unconfirmed origin of credentials that is not pinned."""
        if self.base_url is not None or not (self.headers or self.query):
            return
        origin = format_origin(server)
        shown = redact_url(server)
        advice = (
            f"If the API is there, write `base_url: {shown}` for {self.name} in the configuration."
        )
        if is_url(self.location) and not is_own_origin(self.location, server):
            raise OriginRefused(
                f"its description names {origin}, another origin than its own: "
                f"no credentials go there without `base_url: {shown}`",
                advice=advice,
            )
        if self._pinned_origin is None:
            self._pinned_origin = self._pin_origin(origin)
        if self._pinned_origin != origin:
            raise OriginRefused(
                f"its description names {origin} now, and before it was {self._pinned_origin}: "
                f"no credentials go there without `base_url: {shown}`",
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
                "%s: the origin of its credentials is pinned in this process only: %s",
                self.name,
                error.strerror,
            )
            return current_origin

    def _load_description(self) -> Any:
        from portico.upstream.backends.openapi.loader import (
            MAX_THREAD_BYTES,
            load_description,
            load_in_process,
        )
        from portico.upstream.backends.openapi.reader import (
            DescriptionSource,
            DescriptionTooLarge,
            is_unchanged,
        )
        from portico.upstream.backends.openapi.tools import ConfiguredParameters

        previous = self._api
        if previous is not None and is_unchanged(previous.change_markers):
            return previous
        source = DescriptionSource(self.name, self.location, self.headers, self.base_url)
        configured = ConfiguredParameters(
            frozenset(name.lower() for name in self.headers), frozenset(self.query)
        )
        try:
            try:
                return load_description(source, configured, previous, MAX_THREAD_BYTES)
            except DescriptionTooLarge:
                return load_in_process(source, configured)
        except BackendUnavailable as error:
            if previous is None:
                raise
            # The previous description is used while its source is unavailable.
            self.diagnostic_data["last_error"] = error.message
            return previous

    def _create_client(self, server: str) -> Any:
        # Imported late, in a thread: a gateway that calls no API does not load the HTTP client.
        from portico.upstream.backends.openapi.connection import OpenApiClient

        return OpenApiClient(self.name, server, self.headers, self.max_message_bytes)
