"""The keys of one issuer in a running gateway: fetched when they are needed, and kept.

Keys older than `FRESH_S` are fetched again beside the requests that use them. A token of a key that
is not known has them fetched once, at most every `REFETCH_S`, whoever asks. While they cannot be
fetched, the last ones stay in use for `MAX_STALE_S`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from jwt import PyJWK

from portico.auth.issuer_client import IssuerClient, IssuerUnavailable, discover, read_endpoint
from portico.auth.public_keys import PublicKey, find_keys, parse_keys
from portico.auth.signed_token import SignedToken
from portico.config.auth import IssuerConfig

FRESH_S = 600.0
"""Seconds for which fetched keys are used without another look."""
REFETCH_S = 10.0
"""Minimum seconds between two fetches because of unknown keys."""
RETRY_S = 5.0
"""Minimum seconds between a failed fetch and the next one."""
MAX_STALE_S = 86_400.0
"""Seconds after which keys that could not be fetched again are not used any more."""
logger = logging.getLogger(__name__)


class IssuerKeys:
    def __init__(
        self,
        settings: IssuerConfig,
        client: IssuerClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client = client
        self._clock = clock
        self._keys: list[PublicKey] = []
        self._fetched_at: float | None = None
        """When the last fetch that succeeded began."""
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self.problem = ""
        """Why the last fetch failed; empty if it did not."""

    async def find(self, token: SignedToken) -> Sequence[PyJWK]:
        """Return the keys that may have signed a token; raises IssuerUnavailable where that cannot
        be told."""
        now = self._clock()
        if self._fetched_at is None or now - self._fetched_at > MAX_STALE_S:
            await self._fetch()
        elif now - self._fetched_at > FRESH_S and self._may_try():
            self._start_fetch()
        found = find_keys(self._keys, token)
        if found or self._fetched_at is None:
            return found
        if self.problem or now - self._fetched_at >= REFETCH_S:
            await self._fetch()
            found = find_keys(self._keys, token)
        return found

    async def load(self) -> None:
        """Fetch the keys now; raises IssuerUnavailable."""
        await self._fetch()

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait({self._fetching})

    def _may_try(self) -> bool:
        return not self.problem or self._clock() - self._tried_at >= RETRY_S

    async def _fetch(self) -> None:
        """Fetch the keys, or wait for the fetch under way; raises IssuerUnavailable."""
        if self._fetching is None and not self._may_try():
            raise IssuerUnavailable(self.problem)
        await asyncio.shield(self._start_fetch())
        if self.problem:
            raise IssuerUnavailable(self.problem)

    def _start_fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._tried_at = self._clock()
            name = f"fetch keys of {self._settings.issuer}"
            self._fetching = asyncio.create_task(self._take_over_keys(self._tried_at), name=name)
            self._fetching.add_done_callback(self._end_fetch)
        return self._fetching

    def _end_fetch(self, _: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _take_over_keys(self, begun: float) -> None:
        settings = self._settings
        was_broken = bool(self.problem)
        try:
            url = settings.jwks_uri
            if url is None:
                document = await discover(self._client, settings.issuer)
                url = read_endpoint(document, "jwks_uri", settings.issuer)
            data = await self._client.get(url)
            try:
                keys = await asyncio.to_thread(parse_keys, data, settings.algorithms)
            except (ValueError, RecursionError) as error:
                raise IssuerUnavailable(f"{url}: {error}") from None
            if not keys:
                raise IssuerUnavailable(f"{url} has no key that can be used")
        except IssuerUnavailable as error:
            self.problem = str(error)
            if not was_broken:
                logger.warning("the keys of %s cannot be fetched: %s", settings.issuer, error)
            return
        if was_broken:
            logger.warning("the keys of %s can be fetched again", settings.issuer)
        self._keys = keys
        self._fetched_at = begun
        self.problem = ""
