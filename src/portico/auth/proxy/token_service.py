"""The gateway's own tokens: issues, renews and revokes them, and says on whose behalf they are.

Access tokens are random texts that are looked up: they can be revoked, and nothing has to be signed
with a key that replicas share.

A refresh token is valid once. One that was used before ends the sign-in with all its tokens, as
does a code: either the client or somebody else has a stolen one (RFC 9700 §4.14).
"""

import json
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from portico.auth.claims import build_principal, make_audiences
from portico.auth.issuer_client import IssuerUnavailable
from portico.auth.proxy.authorization_request import OAuthError
from portico.auth.proxy.client_directory import ClientDirectory
from portico.auth.proxy.credentials import (
    CODE_PREFIX,
    PREFIXES,
    REFRESH_PREFIX,
    GrantCredential,
    compute_challenge,
    compute_digest,
    create_access_token,
    create_credential,
    create_handle,
    is_access_token,
    parse_credential,
    seal,
    to_grant_id,
    unseal,
)
from portico.auth.proxy.identity_provider import (
    IdentityProvider,
    IdentityUnconfirmed,
    SignedInPerson,
)
from portico.auth.proxy.json_requests import RequestFailed
from portico.auth.token_verifier import WRONG_TOKEN, Rejection
from portico.callers import Principal
from portico.config.auth import IssuerConfig
from portico.storage.authorization_rows import GrantRow, SignInRow
from portico.storage.authorization_store import AuthorizationStore
from portico.storage.gateway_store import StoreUnavailable

ACCESS_S = 900.0
CODE_S = 60.0
IDLE_S = 30 * 86_400.0
"""Seconds after which a refresh token that was not used expires."""
GRANT_S = 90 * 86_400.0
"""Seconds after which a person has to sign in again, however often the tokens were renewed."""
UNCONFIRMED_GRANT_S = 8 * 3_600.0
"""The same where the identity provider gave nothing to confirm the person by."""
UNCONFIRMED_S = 3_600.0
"""Seconds for which tokens are renewed while the identity provider does not answer."""
MAX_REMEMBERED = 10_000
MAX_CLAIMS_CHARS = 256 * 1024
logger = logging.getLogger(__name__)
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class TokenService:
    """For one event loop."""

    def __init__(
        self,
        issuer: IssuerConfig,
        public_url: str,
        store: AuthorizationStore,
        clients: ClientDirectory,
        provider: IdentityProvider,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._issuer = issuer
        self._audiences = make_audiences(issuer, public_url)
        self._store = store
        self._clients = clients
        self._provider = provider
        self._clock = clock
        self.on_confirmed: Callable[[Principal, SignedInPerson], None] | None = None
        """Gets what the identity provider issued for a person, whenever it says who they are."""
        self._ended: OrderedDict[str, None] = OrderedDict()
        """Grants that ended here, whose tokens may still be remembered as valid."""

    async def verify(self, token: str) -> Principal | Rejection | None:
        """Return on whose behalf an access token is, or why not; None: it is none of ours."""
        if not token.startswith(PREFIXES):
            return None
        # Nobody guesses 256 bits: a text that has the form of a token is an old one.
        refusal = Rejection(WRONG_TOKEN, is_forged=False)
        if not is_access_token(token):
            return refusal
        try:
            found = await self._store.find_access(compute_digest(token))
        except (StoreUnavailable, OSError) as error:
            logger.error("a token cannot be checked: %s", error)
            return Rejection("tokens cannot be checked now", 503, is_forged=False)
        if found is None:
            return refusal
        grant, expires_at = found
        principal = self._to_principal(grant, expires_at)
        if isinstance(principal, Principal) and not self.accepts(principal):
            return refusal
        return principal

    def accepts(self, principal: Principal) -> bool:
        return (
            principal.issuer == self._issuer.issuer
            and principal.expires_at is not None
            and self._clock() < principal.expires_at
            and principal.credential not in self._ended
        )

    async def create_code(self, sign_in: SignInRow, person: SignedInPerson) -> tuple[str, str]:
        """Return a code for a person who signed in, and who it is; raises IdentityUnconfirmed."""
        now = self._clock()
        handle = create_handle()
        code = create_credential(CODE_PREFIX, handle)
        grant = GrantRow(
            id=to_grant_id(handle),
            digest=compute_digest(code),
            is_code=True,
            expires_at=now + CODE_S,
            ends_at=now + (GRANT_S if person.renewal else UNCONFIRMED_GRANT_S),
            client_id=sign_in.client_id,
            redirect_uri=sign_in.redirect_uri,
            challenge=sign_in.challenge,
            resource=sign_in.resource,
            issuer=self._issuer.issuer,
            subject=str(person.claims.get(self._issuer.subject_claim, "")),
            claims=self._select_claims(person.claims),
            confirmed_at=now,
            sealed=_seal(person.renewal, code),
        )
        principal = self._to_principal(grant, now)
        if isinstance(principal, Rejection):
            raise IdentityUnconfirmed(f"this person may not come in: {principal.reason}")
        if sign_in.person in ("", principal.id):
            self._report(principal, person)
            await self._store.add_grant(grant, now)
            logger.info("%s signed in with %s", principal.id, grant.client_id)
        return code, principal.id

    async def exchange(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Answer a request for tokens; raises OAuthError."""
        kind = form.get("grant_type", "")
        if kind == "authorization_code":
            return await self._redeem_code(form)
        if kind == "refresh_token":
            return await self._refresh(form)
        raise OAuthError(
            "unsupported_grant_type", "grant_type is authorization_code or refresh_token"
        )

    async def revoke(self, form: Mapping[str, str]) -> None:
        """End the sign-in that a token is of (RFC 7009); a token that is none is no error. Raises
        OAuthError for that of another client."""
        text = form.get("token", "")
        credential = parse_credential(text)
        grant = None
        if credential is not None:
            grant = await self._store.find_grant(credential.grant_id)
        elif is_access_token(text):
            found = await self._store.find_access(compute_digest(text))
            grant = found[0] if found is not None else None
        if grant is None:
            return
        if form.get("client_id") != grant.client_id:
            raise OAuthError("invalid_client", "the token is of another client", status=401)
        await self._end(grant.id)

    async def _redeem_code(self, form: Mapping[str, str]) -> dict[str, Any]:
        credential, grant = await self._find(form, form.get("code", ""), is_code=True)
        verifier = form.get("code_verifier", "")
        is_right = (
            form.get("redirect_uri") == grant.redirect_uri
            and _VERIFIER.fullmatch(verifier) is not None
            and compute_challenge(verifier) == grant.challenge
        )
        if not is_right:
            raise await self._refuse(grant, "redirect_uri or code_verifier is wrong")
        renewal = unseal(grant.sealed, credential.text) if grant.sealed else ""
        return await self._issue(grant, credential, renewal)

    async def _refresh(self, form: Mapping[str, str]) -> dict[str, Any]:
        credential, grant = await self._find(form, form.get("refresh_token", ""), is_code=False)
        renewal = ""
        person = None
        if grant.sealed:
            renewal = unseal(grant.sealed, credential.text)
            try:
                person = await self._provider.confirm(renewal, grant.subject)
            except IdentityUnconfirmed as error:
                raise await self._refuse(grant, error.message) from error
            except (RequestFailed, IssuerUnavailable) as error:
                if self._clock() - grant.confirmed_at > UNCONFIRMED_S:
                    raise OAuthError(
                        "temporarily_unavailable",
                        "the identity provider does not answer",
                        status=503,
                    ) from error
            else:
                renewal = person.renewal
                claims = self._select_claims(person.claims) if person.claims else grant.claims
                grant = replace(grant, claims=claims, confirmed_at=self._clock())
        principal = self._to_principal(grant, grant.ends_at)
        if isinstance(principal, Rejection):
            raise await self._refuse(grant, principal.reason)
        if person is not None:
            self._report(principal, person)
        return await self._issue(grant, credential, renewal)

    def _report(self, principal: Principal, person: SignedInPerson) -> None:
        if self.on_confirmed is not None:
            self.on_confirmed(principal, person)

    async def _find(
        self, form: Mapping[str, str], text: str, *, is_code: bool
    ) -> tuple[GrantCredential, GrantRow]:
        """Return a code or refresh token and its grant; raises OAuthError."""
        client_id = form.get("client_id", "")
        credential = parse_credential(text)
        grant = None
        if credential is not None and credential.is_code == is_code:
            grant = await self._store.find_grant(credential.grant_id)
        if credential is None or grant is None:
            await self._clients.find(client_id)
            raise OAuthError("invalid_grant", "the code or refresh token is not valid")
        if compute_digest(text) != grant.digest:
            raise await self._refuse(grant, "the code or refresh token was used before")
        if client_id != grant.client_id:
            raise await self._refuse(grant, "the code or refresh token is of another client")
        if min(grant.expires_at, grant.ends_at) <= self._clock():
            raise await self._refuse(grant, "the code or refresh token has expired")
        resource = form.get("resource", grant.resource)
        if resource.rstrip("/") != grant.resource.rstrip("/"):
            raise OAuthError("invalid_target", "resource is not what the person agreed to")
        return credential, grant

    async def _issue(self, grant: GrantRow, used: GrantCredential, renewal: str) -> dict[str, Any]:
        """Replace the code or refresh token that was used, and answer with new tokens."""
        now = self._clock()
        refresh_token = create_credential(REFRESH_PREFIX, used.handle)
        access_token = create_access_token()
        access_expires_at = min(now + ACCESS_S, grant.ends_at)
        renewed = replace(
            grant,
            digest=compute_digest(refresh_token),
            is_code=False,
            expires_at=min(now + IDLE_S, grant.ends_at),
            sealed=_seal(renewal, refresh_token),
        )
        is_first = await self._store.replace_grant(
            grant.digest, renewed, compute_digest(access_token), access_expires_at, now
        )
        if not is_first:
            raise await self._refuse(grant, "the code or refresh token was used before")
        return {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": int(access_expires_at - now),
            "refresh_token": refresh_token,
        }

    async def _refuse(self, grant: GrantRow, reason: str) -> OAuthError:
        """End a grant, and return the error to raise."""
        who = f"{grant.issuer} {grant.subject}"
        logger.warning("the sign-in of %s with %s has ended: %s", who, grant.client_id, reason)
        await self._end(grant.id)
        return OAuthError("invalid_grant", reason)

    async def _end(self, grant_id: str) -> None:
        self._ended[grant_id] = None
        if len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)
        await self._store.end_grant(grant_id)

    def _select_claims(self, claims: Mapping[str, Any]) -> str:
        """Return the claims that say who somebody is and what opens to them; raises
        IdentityUnconfirmed."""
        issuer = self._issuer
        names = {"email_verified", "_claim_names", issuer.subject_claim, *issuer.name_claim}
        names |= {issuer.groups_claim, issuer.groups_claim.partition(".")[0]}
        text = json.dumps({name: claims[name] for name in sorted(names) if name in claims})
        if len(text) > MAX_CLAIMS_CHARS:
            raise IdentityUnconfirmed("the identity provider says too much about this person")
        return text

    def _to_principal(self, grant: GrantRow, expires_at: float) -> Principal | Rejection:
        """Return on whose behalf tokens of a grant are, by the configuration of now."""
        if grant.issuer != self._issuer.issuer:
            return Rejection(WRONG_TOKEN, is_forged=False)
        about = {"aud": grant.resource.rstrip("/"), "jti": grant.id}
        claims = {**json.loads(grant.claims), **about}
        return build_principal(claims, self._issuer, self._audiences, expires_at)


def _seal(renewal: str, credential: str) -> bytes:
    return seal(renewal, credential) if renewal else b""
