"""The gateway's own authorization server, in front of the identity provider of an issuer that has
`proxy` in the configuration: its parts, opened and closed together."""

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx2

from portico.auth.issuer_client import IssuerClient
from portico.auth.proxy.client_directory import BuildRequest, ClientDirectory
from portico.auth.proxy.identity_provider import IdentityProvider
from portico.auth.proxy.json_requests import TIMEOUT_S, build_public_request
from portico.auth.proxy.providers import ProviderQuirks
from portico.auth.proxy.sign_in import SignInFlow
from portico.auth.proxy.token_service import TokenService
from portico.auth.token_verifier import Rejection
from portico.callers import Principal
from portico.config.auth import IssuerConfig
from portico.config.auth_proxy import ProxyConfig
from portico.storage.authorization_store import AuthorizationStore

MAX_CONNECTIONS = 32


class AuthorizationServer:
    """Verifies its own tokens, as any `TokenVerifier` does. For one event loop."""

    def __init__(
        self,
        issuer: IssuerConfig,
        proxy: ProxyConfig,
        public_url: str,
        store: AuthorizationStore,
        *,
        has_profile: Callable[[str], bool],
        build_request: BuildRequest = build_public_request,
        quirks: ProviderQuirks | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`build_request` decides from where descriptions of clients are fetched, `quirks` replaces
        those of the issuer."""
        self.public_url = public_url
        self.provider_name = urlsplit(issuer.issuer).netloc
        self._store = store
        self._metadata_client = IssuerClient()
        self._http = httpx2.AsyncClient(
            follow_redirects=False,
            timeout=TIMEOUT_S,
            limits=httpx2.Limits(max_connections=MAX_CONNECTIONS),
        )
        self._provider = IdentityProvider(
            issuer, proxy, self._http, self._metadata_client, quirks=quirks, clock=clock
        )
        self.clients = ClientDirectory(store, self._http, build_request=build_request, clock=clock)
        self.tokens = TokenService(
            issuer, public_url, store, self.clients, self._provider, clock=clock
        )
        self.sign_in = SignInFlow(
            public_url,
            store,
            self.clients,
            self._provider,
            self.tokens,
            has_profile=has_profile,
            clock=clock,
        )

    @property
    def authorization_servers(self) -> tuple[str, ...]:
        return (self.public_url,)

    def list_scopes(self, profile: str) -> tuple[str, ...]:
        return ()

    async def verify(self, token: str) -> Principal | Rejection | None:
        return await self.tokens.verify(token)

    def accepts(self, principal: Principal) -> bool:
        return self.tokens.accepts(principal)

    async def close(self) -> None:
        await self._provider.close()
        await self._metadata_client.close()
        await self._http.aclose()
        await self._store.close()
