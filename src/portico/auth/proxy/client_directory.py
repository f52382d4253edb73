"""Finds clients: those that registered, and those whose id is the address of their description.

Descriptions are cached in memory, failures too. They are fetched by https, and from public
addresses only.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import httpx2

from portico.auth.proxy.authorization_request import OAuthClient, OAuthError
from portico.auth.proxy.client_registration import (
    find_document_fault,
    read_document,
    read_registration,
)
from portico.auth.proxy.json_requests import RequestFailed, build_public_request, fetch_json
from portico.storage.authorization_rows import OAuthClientRow
from portico.storage.authorization_store import AuthorizationStore

DOCUMENT_BYTES = 32 * 1024
DOCUMENT_S = 600.0
"""Seconds for which a description is kept."""
FAILURE_S = 30.0
"""Seconds for which it is kept that there is none."""
MAX_DOCUMENTS = 1_000
MAX_FETCHES = 8
"""Descriptions fetched at a time."""

BuildRequest = Callable[[httpx2.AsyncClient, str], Awaitable[httpx2.Request]]


class ClientDirectory:
    """For one event loop."""

    def __init__(
        self,
        store: AuthorizationStore,
        http: httpx2.AsyncClient,
        *,
        build_request: BuildRequest = build_public_request,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._http = http
        self._build_request = build_request
        self._clock = clock
        self._documents: OrderedDict[str, tuple[float, OAuthClient | OAuthError]] = OrderedDict()
        """When what is known of a client's description ends, and what that is."""
        self._fetches = asyncio.Semaphore(MAX_FETCHES)

    async def register(self, body: bytes) -> OAuthClientRow:
        """Store a client that registers itself; raises OAuthError."""
        name, redirect_uris = read_registration(body)
        now = self._clock()
        client = OAuthClientRow(f"c-{secrets.token_hex(16)}", name, redirect_uris, now)
        await self._store.add_client(client)
        return client

    async def find(self, client_id: str) -> OAuthClient:
        """Return a client; raises OAuthError."""
        if client_id.startswith("https://"):
            return await self._find_document(client_id)
        row = None
        if client_id.startswith("c-") and len(client_id) <= 64:
            row = await self._store.find_client(client_id)
        if row is None:
            raise OAuthError("invalid_client", "this client is not registered here", status=401)
        return OAuthClient(row.id, row.name, row.redirect_uris)

    async def _find_document(self, client_id: str) -> OAuthClient:
        if fault := find_document_fault(client_id):
            raise OAuthError("invalid_client", f"client_id: {fault}", status=401)
        known = self._recall(client_id)
        if known is None:
            # Who waits here holds up nobody whose client is known.
            async with self._fetches:
                known = self._recall(client_id) or await self._fetch(client_id)
                self._remember(client_id, known)
        if isinstance(known, OAuthClient):
            return known
        raise OAuthError(known.error, known.message, status=known.status)

    def _recall(self, client_id: str) -> OAuthClient | OAuthError | None:
        until, known = self._documents.get(client_id, (0.0, None))
        return known if until > self._clock() else None

    def _remember(self, client_id: str, known: OAuthClient | OAuthError) -> None:
        kept_s = DOCUMENT_S if isinstance(known, OAuthClient) else FAILURE_S
        self._documents[client_id] = (self._clock() + kept_s, known)
        self._documents.move_to_end(client_id)
        if len(self._documents) > MAX_DOCUMENTS:
            self._documents.popitem(last=False)

    async def _fetch(self, client_id: str) -> OAuthClient | OAuthError:
        try:
            request = await self._build_request(self._http, client_id)
            status, document = await fetch_json(self._http, request, max_bytes=DOCUMENT_BYTES)
            if status != 200:
                return OAuthError("invalid_client", f"the client's document answers {status}")
            return read_document(client_id, document)
        except RequestFailed as error:
            return OAuthError("invalid_client", f"the client's document: {error.message}")
        except OAuthError as error:
            return error
