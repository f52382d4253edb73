"""Asks an issuer about tokens that only it understands (token introspection, RFC 7662).

What it says of a token is used for `ANSWER_S`, so that a revoked token is soon of no use.
"""

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from portico.auth.issuer_client import (
    IssuerClient,
    IssuerUnavailable,
    discover,
    parse_object,
    read_endpoint,
)
from portico.auth.token_verifier import MAX_TOKEN_CHARS
from portico.config.auth import IntrospectionConfig

ANSWER_S = 60.0
"""Seconds for which an answer about a valid token is used."""
INACTIVE_S = 10.0
"""Seconds for which a token is remembered as not valid."""
RETRY_S = 2.0
"""Seconds for which an issuer that did not answer is not asked again."""
MAX_PENDING = 64
"""Questions at a time; more are refused."""
MAX_INACTIVE = 4_096
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""A bearer token by RFC 6750."""


class Introspection:
    def __init__(
        self,
        issuer: str,
        settings: IntrospectionConfig,
        client: IssuerClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer = issuer
        self._settings = settings
        self._client = client
        self._clock = clock
        self._url = settings.url
        self._pending: dict[bytes, asyncio.Task[Mapping[str, Any]]] = {}
        self._inactive: OrderedDict[bytes, float] = OrderedDict()
        """Until when a token is remembered as not valid, by its digest."""
        self._failed_at = float("-inf")
        self._problem = ""

    async def look_up(self, token: str) -> Mapping[str, Any] | None:
        """Return what the issuer says of a token that it calls active; None of any other. Raises
        IssuerUnavailable where that cannot be told."""
        if len(token) > MAX_TOKEN_CHARS or _TOKEN.fullmatch(token) is None:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        if self._inactive.get(digest, float("-inf")) > self._clock():
            return None
        if digest not in self._pending:
            if self._clock() - self._failed_at < RETRY_S:
                raise IssuerUnavailable(self._problem)
            if len(self._pending) >= MAX_PENDING:
                raise IssuerUnavailable("too many tokens are being looked up")
            asking = asyncio.create_task(self._ask(token), name="introspect a token")
            self._pending[digest] = asking
            asking.add_done_callback(lambda _: self._pending.pop(digest, None))
        answer = await asyncio.shield(self._pending[digest])
        if answer.get("active") is not True:
            self._inactive[digest] = self._clock() + INACTIVE_S
            if len(self._inactive) > MAX_INACTIVE:
                self._inactive.popitem(last=False)
            return None
        return answer

    async def find_endpoint(self) -> str:
        """Return where the issuer is asked; raises IssuerUnavailable."""
        if self._url is None:
            metadata = await discover(self._client, self._issuer)
            self._url = read_endpoint(metadata, "introspection_endpoint", self._issuer)
        return self._url

    async def close(self) -> None:
        asking = set(self._pending.values())
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _ask(self, token: str) -> Mapping[str, Any]:
        try:
            url = await self.find_endpoint()
            form = {"token": token, "token_type_hint": "access_token"}
            secret = self._settings.client_secret.get_secret_value()
            # Both are form-encoded first (RFC 6749 §2.3.1).
            credentials = (quote(self._settings.client_id, safe=""), quote(secret, safe=""))
            return parse_object(await self._client.post(url, form, credentials), url)
        except IssuerUnavailable as error:
            self._failed_at = self._clock()
            self._problem = str(error)
            raise
