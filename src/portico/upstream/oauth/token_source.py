"""Credentials of one server's requests: read from the store, renewed ahead of their end, and what
is done when the server refuses them.

One renewal at a time, in all processes (a lock in the store); requests never wait for it while the
old token is valid. Trouble that passes is tried again; a refused refresh token needs a sign-in.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from portico.errors import BackendUnavailable, MoreRightsNeeded, SignInNeeded
from portico.storage.sql.database_url import StoreUnavailable
from portico.upstream.oauth.authorization_http import AuthorizationUnavailable, SignInFailed
from portico.upstream.oauth.challenge import Challenge, parse_challenge
from portico.upstream.oauth.credential import OAuthCredential, SignInTarget
from portico.upstream.oauth.possession_proof import NONCE_WANTED, make_proof
from portico.upstream.oauth.token_requests import (
    TokenAnswer,
    TokenRefused,
    authenticate,
    build_refresh_form,
    parse_token_answer,
    renew_credential,
)
from portico.upstream.oauth.token_store import TokenStore, make_trusted_places
from portico.upstream.request_credentials import Refusal

logger = logging.getLogger(__name__)

SYNC_S = 2.0
"""Seconds after which it is looked whether another process has changed the credential; while there
is none that can be used, every request looks."""
PATIENCE_S = 20.0
"""Seconds for which a request waits for a renewal where the old token cannot be used."""
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 5.0
"""Longest pause between two tries of a renewal. After `PATIENCE_S` of failures, requests that need
one fail at once in between."""
REFUSED_PAUSE_S = 30.0
"""Pause after a refusal that only another configuration can end."""
MAX_REFUSALS = 5
REFUSALS_S = 10.0
"""Tokens that are refused more often than `MAX_REFUSALS` times in so many seconds are not renewed:
the server does not accept what its authorization server issues."""
ASSUMED_NEED_S = 60.0
"""Seconds for which a server that was found out to want a sign-in is not asked again."""


@dataclass(frozen=True)
class SignInAdvice:
    """What to tell somebody who has to sign in."""

    text: str
    url: str = ""
    """A page of the gateway that signs in; empty where it has none."""


AdviseSignIn = Callable[[SignInTarget], SignInAdvice]


@dataclass(eq=False)
class OAuthCredentials:
    """Adds the tokens of one server and person to its requests. For one event loop."""

    target: SignInTarget
    store: TokenStore
    advise: AdviseSignIn
    clock: Callable[[], float] = time.time
    _jitter: float = field(default_factory=random.random)
    _credential: OAuthCredential | None = None
    _version: str | None = None
    _checked_at: float = float("-inf")
    _need: str = ""
    """Why somebody has to sign in, as far as that was found out."""
    _needed_at: float = float("-inf")
    _challenge: Challenge = field(default_factory=Challenge)
    _nonce: str = ""
    """What the server wants in proofs of possession."""
    _refused_token: str = ""
    _refused_at: deque[float] = field(default_factory=lambda: deque[float](maxlen=MAX_REFUSALS))
    _renewal: asyncio.Task[OAuthCredential] | None = None
    _sync: asyncio.Task[None] | None = None
    _failures: int = 0
    _failure: BackendUnavailable | None = None
    _failing_since: float = 0.0
    _retry_at: float = float("-inf")
    _tried_scopes: set[str] = field(default_factory=set[str])

    async def get_headers(self, method: str) -> Mapping[str, str]:
        credential = await self._get_current()
        if credential is None:
            if not self.target.is_interactive:
                credential = await self._renew(None)
            elif self._is_sign_in_needed():
                raise self._make_error()
            else:
                return {}
        elif credential.access_token == self._refused_token or credential.is_expired(self.clock()):
            if self._can_renew(credential):
                credential = await self._renew(credential)
            elif credential.access_token == self._refused_token:
                raise self._make_error()
        elif credential.is_due(self.clock(), self._jitter) and self._can_renew(credential):
            self._begin_renewal(credential)
        return self._render(credential, method)

    def _render(self, credential: OAuthCredential, method: str) -> Mapping[str, str]:
        token = credential.access_token
        if not credential.dpop_key:
            return {"authorization": f"Bearer {token}"}
        proof = make_proof(
            *(credential.dpop_key, method, self.target.url, self.clock()),
            access_token=token,
            nonce=self._nonce,
        )
        return {"authorization": f"DPoP {token}", "dpop": proof}

    async def renew(self, refusal: Refusal) -> bool:
        challenge = parse_challenge(refusal.challenge)
        sent = refusal.sent.get("authorization", "").partition(" ")[2]
        credential = self._credential
        if challenge.error == NONCE_WANTED and refusal.nonce not in ("", self._nonce):
            self._nonce = refusal.nonce
            return True
        if credential is not None and sent != credential.access_token:
            return True
        if refusal.status == 403:
            return await self._step_up(credential, challenge)
        is_about_tokens = challenge.is_bearer or challenge.is_dpop
        is_about_tokens = is_about_tokens or challenge.resource_metadata is not None
        if not (self.target.is_required or sent or is_about_tokens):
            return False
        await self._note_challenge(challenge)
        if credential is None:
            self._note_need("nobody has signed in yet")
            await self._load()
            if self._credential is not None:
                return True
            raise self._make_error()
        if not self._can_renew(credential):
            await self._load()
            if self._credential is not None and self._credential.access_token != sent:
                return True
            self._refused_token = sent
            self._note_need(credential.refresh_problem or "it no longer accepts the token")
            raise self._make_error()
        is_first = sent != self._refused_token
        self._refused_token = sent
        if is_first and not self._may_renew_refused():
            self._note_need("it refuses each token as soon as it is issued")
            raise self._make_error()
        return (await self._renew(credential)).access_token != sent

    def _may_renew_refused(self) -> bool:
        """Return whether to renew a token that was refused before its end, and count that."""
        now = self.clock()
        times = self._refused_at
        if len(times) == MAX_REFUSALS and now - times[0] < REFUSALS_S:
            return False
        times.append(now)
        return True

    async def _note_challenge(self, challenge: Challenge) -> None:
        """Keep what a refusal says, for the sign-in, which is usually done by another process."""
        if challenge != self._challenge:
            self._challenge = challenge
            await self.store.write_challenge(self.target, challenge)

    def _is_sign_in_needed(self) -> bool:
        return self.target.is_required or self.clock() - self._needed_at < ASSUMED_NEED_S

    def _is_credential_needed(self) -> bool:
        """Return whether a request without a credential would be refused, as far as is known."""
        has_refused = self._credential is not None
        return has_refused or not self.target.is_interactive or self._is_sign_in_needed()

    def _note_need(self, reason: str) -> None:
        self._need = reason
        self._needed_at = self.clock()

    def _make_error(self) -> SignInNeeded:
        reason = self._need or "nobody has signed in yet"
        if self._credential is not None and self._credential.refresh_problem:
            reason = self._credential.refresh_problem
        advice = self.advise(self.target)
        return SignInNeeded(
            f"{self.target.name} needs a sign-in: {reason}", advice=advice.text, url=advice.url
        )

    def _can_renew(self, credential: OAuthCredential) -> bool:
        if not self.target.is_interactive:
            return True
        return bool(credential.refresh_token) and not credential.refresh_problem

    # --- the store

    async def _get_current(self) -> OAuthCredential | None:
        credential = self._credential
        is_usable = credential is not None and (
            self._can_renew(credential) or credential.access_token != self._refused_token
        )
        is_old = self.clock() - self._checked_at >= SYNC_S
        if not is_usable and (self._checked_at == float("-inf") or self._is_credential_needed()):
            await self._load()
        elif is_old and (self._sync is None or self._sync.done()):
            self._sync = asyncio.create_task(self._synchronize(), name=f"sync {self.target.name}")
        return self._credential

    async def _synchronize(self) -> None:
        try:
            await self._load()
        except StoreUnavailable as error:
            logger.debug("credentials of %s: %s", self.target.name, error.message)

    async def _load(self) -> None:
        """Read what is stored, unless it is what is known."""
        self._checked_at = self.clock()
        version = await self.store.credentials.read_version(self.target.slot)
        if version == self._version:
            return
        stored = await self.store.read(self.target)
        if stored is None:
            self._credential = None
            self._version = version
            return
        self._set(*stored)

    async def _save(self, credential: OAuthCredential) -> None:
        self._set(credential, await self.store.write(self.target, credential))

    def _set(self, credential: OAuthCredential, version: str) -> None:
        self._credential = credential
        self._version = version

    # --- renewal

    async def _renew(self, seen: OAuthCredential | None) -> OAuthCredential:
        """Return another credential than `seen`, waiting for it. Raises BackendUnavailable."""
        deadline = self.clock() + PATIENCE_S
        while True:
            current = self._credential
            if current is not None and seen is not None and self._is_newer(current, seen):
                return current
            is_own = self._renewal is None or self._renewal.done()
            if is_own:
                pause = self._retry_at - self.clock()
                if pause > 0:
                    is_lasting = self.clock() - self._failing_since > PATIENCE_S
                    if self._failure is not None and (
                        is_lasting or self.clock() + pause > deadline
                    ):
                        raise self._failure
                    await asyncio.sleep(pause)
                    continue
                self._begin_renewal(seen)
            assert self._renewal is not None
            with contextlib.suppress(AuthorizationUnavailable):  # tried again after a pause
                renewed = await asyncio.shield(self._renewal)
                # One that was under way may have begun for the token before the one that was seen.
                if is_own or seen is None or self._is_newer(renewed, seen):
                    return renewed

    def _is_newer(self, current: OAuthCredential, seen: OAuthCredential) -> bool:
        return current.access_token not in (
            seen.access_token,
            self._refused_token,
        ) and not current.is_expired(self.clock())

    def _begin_renewal(self, seen: OAuthCredential | None) -> None:
        if self._renewal is not None and not self._renewal.done():
            return
        if self.clock() >= self._retry_at:
            self._renewal = asyncio.create_task(
                self._run_renewal(seen), name=f"renew token of {self.target.name}"
            )
            # Nobody may be waiting for it.
            self._renewal.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _run_renewal(self, seen: OAuthCredential | None) -> OAuthCredential:
        try:
            credential = await self._renew_locked(seen)
        except AuthorizationUnavailable as error:
            self._note_failure(error, min(FIRST_PAUSE_S * 2**self._failures, MAX_PAUSE_S))
            raise
        except StoreUnavailable as error:
            trouble = AuthorizationUnavailable(error.message, advice=error.advice)
            self._note_failure(trouble, min(FIRST_PAUSE_S * 2**self._failures, MAX_PAUSE_S))
            raise trouble from error
        except SignInFailed as error:
            refusal = BackendUnavailable(error.message, advice=error.advice)
            refusal.retryable = False
            self._note_failure(refusal, REFUSED_PAUSE_S)
            raise refusal from error
        self._failures = 0
        self._failure = None
        return credential

    def _note_failure(self, error: BackendUnavailable, pause: float) -> None:
        if self._failure is None:
            self._failing_since = self.clock()
        self._failures = min(self._failures + 1, 16)
        self._failure = error
        self._retry_at = self.clock() + pause * (1 - 0.3 * self._jitter)
        logger.info("%s: a token could not be renewed: %s", self.target.name, error.message)

    async def _renew_locked(self, seen: OAuthCredential | None) -> OAuthCredential:
        async with self.store.credentials.hold_lock(self.target.slot):
            await self._load()
            current = self._credential
            is_other = current is not None and (seen is None or self._is_newer(current, seen))
            if current is not None and is_other and not current.is_expired(self.clock()):
                return current
            if not self.target.is_interactive:
                return await self._obtain("")
            if current is None or not self._can_renew(current):
                raise self._make_error()
            return await self._refresh(current)

    async def _refresh(self, current: OAuthCredential) -> OAuthCredential:
        now = self.clock()
        try:
            answer = await self._request_tokens(build_refresh_form(current), current)
        except TokenRefused as error:
            problem = f"the sign-in has ended ({error.reason})"
            if error.what == "client" and current.client.is_configured:
                problem = f"client_id or client_secret is not accepted ({error.reason})"
            elif error.what == "client":
                problem = f"its authorization server has forgotten Portico ({error.reason})"
                await self.store.forget_client(current.issuer, current.client.redirect_uri)
            await self._save(replace(current, refresh_problem=problem))
            self._note_need(problem)
            raise self._make_error() from error
        renewed = renew_credential(current, answer, now)
        await self._save(renewed)
        return renewed

    async def _request_tokens(
        self, form: dict[str, str], credential: OAuthCredential
    ) -> TokenAnswer:
        """Send a form to the token endpoint that the credential belongs to, and to no other."""
        client_secrets = await self.store.read_client_secrets(self.target)
        form, headers = authenticate(
            form, credential.client, client_secrets, credential.issuer, self.clock()
        )
        endpoint = credential.token_endpoint
        trusted = make_trusted_places(self.target)
        key = credential.dpop_key
        answer = await self.store.http.post_form(endpoint, trusted, form, headers, key)
        return parse_token_answer(answer, endpoint, may_be_bound=bool(key))

    async def _obtain(self, wanted_scope: str) -> OAuthCredential:
        # Imported late: few need it, once a token's lifetime.
        if self.target.is_machine:
            from portico.upstream.oauth.machine_sign_in import obtain_credential

            credential = await obtain_credential(
                self.store, self.target, self._challenge, wanted_scope
            )
        else:
            from portico.upstream.oauth.exchanged_sign_in import exchange_credential

            credential = await exchange_credential(self.store, self.target, wanted_scope)
        await self._save(credential)
        return credential

    async def _step_up(self, credential: OAuthCredential | None, challenge: Challenge) -> bool:
        """Ask for the union of the granted scopes and those that a call lacks."""
        if challenge.error != "insufficient_scope" or credential is None:
            return False
        from mcp.client.auth.utils import union_scopes  # imported late: it takes 0.3 s

        wanted = union_scopes(credential.wanted_scope or credential.scope, challenge.scope) or ""
        self._challenge = challenge
        if not self.target.is_interactive:
            if wanted in self._tried_scopes:
                return False
            self._tried_scopes.add(wanted)
            async with self.store.credentials.hold_lock(self.target.slot):
                return (await self._obtain(wanted)).access_token != credential.access_token
        async with self.store.credentials.hold_lock(self.target.slot):
            await self._load()
            if self._credential is not None and self._credential.wanted_scope != wanted:
                await self._save(replace(self._credential, wanted_scope=wanted))
        advice = self.advise(self.target)
        raise MoreRightsNeeded(
            f"{self.target.name} wants more rights for this: {challenge.scope or 'unnamed ones'}",
            advice=advice.text,
            url=advice.url,
        )
