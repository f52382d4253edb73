"""Verifies the tokens of the configured issuers: signed ones (JWT) by their public keys, others by
asking the issuer."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.auth import claims
from portico.auth.claims import Audiences, make_audiences
from portico.auth.introspection import ANSWER_S, Introspection
from portico.auth.issuer_client import IssuerClient, IssuerUnavailable
from portico.auth.issuer_keys import IssuerKeys
from portico.auth.public_keys import is_signed_by
from portico.auth.signed_token import MalformedToken, looks_signed, parse_signed_token
from portico.auth.token_verifier import WRONG_TOKEN, Rejection
from portico.callers import Principal
from portico.config.auth import IssuerConfig

logger = logging.getLogger(__name__)
_UNAVAILABLE = Rejection("its issuer cannot be reached now", 503, is_forged=False)


@dataclass(frozen=True)
class _Issuer:
    settings: IssuerConfig
    audiences: Audiences
    keys: IssuerKeys
    introspection: Introspection | None


class IssuerVerifier:
    """Verifies the tokens of all configured issuers. A signed token that names another issuer is
    none of them; any other text may be of the one that has `introspection`."""

    def __init__(
        self,
        issuers: Sequence[IssuerConfig],
        public_url: str | None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._client = IssuerClient()
        self._issuers = {one.issuer: self._make(one, public_url) for one in issuers}

    def _make(self, settings: IssuerConfig, public_url: str | None) -> _Issuer:
        introspection = None
        if settings.introspection is not None:
            introspection = Introspection(settings.issuer, settings.introspection, self._client)
        keys = IssuerKeys(settings, self._client)
        return _Issuer(settings, make_audiences(settings, public_url), keys, introspection)

    @property
    def authorization_servers(self) -> tuple[str, ...]:
        return tuple(self._issuers)

    def list_scopes(self, profile: str) -> tuple[str, ...]:
        found = [claims.list_scopes(one.settings, profile) for one in self._issuers.values()]
        return tuple(dict.fromkeys(scope for scopes in found for scope in scopes))

    async def verify(self, token: str) -> Principal | Rejection | None:
        try:
            if looks_signed(token):
                return await self._verify_signed(token)
            return await self._introspect(token)
        except MalformedToken as error:
            return Rejection(str(error))
        except IssuerUnavailable as error:
            logger.info("a token cannot be verified: %s", error)
            return _UNAVAILABLE

    def accepts(self, principal: Principal) -> bool:
        expires_at = principal.expires_at
        return (
            principal.issuer in self._issuers
            and expires_at is not None
            and self._clock() < expires_at
        )

    async def close(self) -> None:
        for issuer in self._issuers.values():
            await issuer.keys.close()
            if issuer.introspection is not None:
                await issuer.introspection.close()
        await self._client.close()

    async def _verify_signed(self, token: str) -> Principal | Rejection | None:
        parsed = parse_signed_token(token)
        name = parsed.claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            return None
        if parsed.algorithm not in issuer.settings.algorithms:
            return Rejection("it is signed in a way that is not accepted")
        keys = await issuer.keys.find(parsed)
        if not any(is_signed_by(parsed, key) for key in keys):
            return Rejection("its signature is not of its issuer")
        if not (parsed.is_access_token or claims.is_access_token(parsed.claims)):
            return Rejection("it is no access token", is_forged=False)
        if "exp" not in parsed.claims:
            return Rejection("it never expires", is_forged=False)
        return self._decide(parsed.claims, issuer)

    async def _introspect(self, token: str) -> Principal | Rejection | None:
        issuer = next((one for one in self._issuers.values() if one.introspection), None)
        if issuer is None or issuer.introspection is None:
            return None
        answer = await issuer.introspection.look_up(token)
        if answer is None:
            return Rejection(WRONG_TOKEN)
        if answer.get("iss", issuer.settings.issuer) != issuer.settings.issuer:
            return Rejection("it is of another issuer")
        if not claims.is_bearer_access_token(answer):
            return Rejection("it is no access token", is_forged=False)
        # Some issuers give the token itself as its id, which would be logged.
        harmless = {name: value for name, value in answer.items() if value != token}
        return self._decide(harmless, issuer, ANSWER_S)

    def _decide(
        self, found: Mapping[str, Any], issuer: _Issuer, lifetime_s: float = float("inf")
    ) -> Principal | Rejection:
        """Return on whose behalf a token is whose claims its issuer vouches for; it is not looked
        at again for `lifetime_s` at most."""
        now = self._clock()
        problem = claims.check_times(found, now)
        if problem:
            return Rejection(problem, is_forged=False)
        expires_at = min(found.get("exp", now + lifetime_s) + claims.CLOCK_SKEW_S, now + lifetime_s)
        return claims.build_principal(found, issuer.settings, issuer.audiences, expires_at)


async def find_problem(settings: IssuerConfig) -> str:
    """Return why no token of an issuer could be verified now; empty if it could."""
    client = IssuerClient()
    try:
        await IssuerKeys(settings, client).load()
        if settings.introspection is not None:
            await Introspection(settings.issuer, settings.introspection, client).find_endpoint()
    except IssuerUnavailable as error:
        return str(error)
    finally:
        await client.close()
    return ""
