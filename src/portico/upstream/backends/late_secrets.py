"""Fills the secrets that a server's configuration refers to in when they are needed: when it is
started, and over HTTP when it refuses the one that it was sent."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.config import BackendConfig
from portico.config_file.secret_references import (
    dump_referencing_parts,
    fill_in,
    find_references,
)
from portico.upstream.backend import Backend, Connection, Era, Listener
from portico.upstream.request_credentials import Refusal
from portico.upstream.secret_reader import SecretReader


class LateSecretsBackend:
    """A backend that is made when its secrets are read, and made again when they differ."""

    def __init__(
        self,
        server: BackendConfig,
        reader: SecretReader,
        make: Callable[[BackendConfig], Backend],
    ) -> None:
        self.kind = server.kind
        self._server = server
        self._reader = reader
        self._make = make
        self._filled: dict[str, Any] | None = None
        self._backend: Backend | None = None

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        parts = dump_referencing_parts(self._server)
        secrets = await self._reader.read_all(find_references(parts))
        filled = fill_in(parts, secrets)
        if self._backend is None or filled != self._filled:
            self._backend = self._make(self._server.model_copy(update=filled))
            self._filled = filled
        return await self._backend.connect(listener, era)

    def diagnostics(self) -> Mapping[str, Any]:
        return {} if self._backend is None else self._backend.diagnostics()


class ReferencedHeaders:
    """Headers with secrets that are read again when the server refuses them."""

    def __init__(self, headers: Mapping[str, str], reader: SecretReader) -> None:
        self._headers = headers
        self._reader = reader
        self._references = find_references(headers)

    async def get_headers(self, method: str) -> Mapping[str, str]:
        return fill_in(self._headers, await self._reader.read_all(self._references))

    async def renew(self, refusal: Refusal) -> bool:
        secrets = await self._reader.read_again(self._references)
        return fill_in(self._headers, secrets) != refusal.sent
