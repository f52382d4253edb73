"""On whose behalf a request over HTTP is made: by the token of the configuration, by a key, or by
a token of an authorization server.

`KeyRing` has the keys of a running gateway in memory, and rereads them when they change.

A change by `portico keys` is taken over within a second. While the keys cannot be read, the last
ones that were read stay in use, and a gateway that has read none yet accepts none.
"""

import asyncio
import hashlib
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from portico.auth.console_sessions import ConsoleSession, ConsoleSessions
from portico.auth.keys import PREFIX, get_key_state, is_text_of, parse_key_id, to_principal
from portico.auth.token_verifier import MAX_TOKEN_CHARS, WRONG_TOKEN, Rejection, TokenVerifier
from portico.callers import KEY_ISSUER, LOCAL_ISSUER, TOKEN_HOLDER, TOKEN_ISSUER, Principal
from portico.storage.gateway_store import StoreUnavailable
from portico.storage.key_store import KeyStore
from portico.storage.rows import KeyRow

POLL_S = 0.4
"""Seconds between looks at the store."""
READ_S = 5.0
"""Seconds that reading the keys may take."""
SAVE_USE_S = 30.0
"""Seconds between writes of the time that keys were last used."""
REMEMBER_S = 300.0
"""Seconds after which a token that is still valid is verified again, so that a key that its issuer
withdraws is soon of no use."""
MAX_REMEMBERED = 16_384
KEY_PREFIX = PREFIX.encode()
logger = logging.getLogger(__name__)


class KeyRing:
    def __init__(
        self, store: KeyStore | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Without a store there are no keys."""
        self._store = store
        self._clock = clock
        self._keys: dict[str, KeyRow] = {}
        self._used_at: dict[str, float] = {}
        """Last use by id, not yet stored."""
        self._stamp: object = None
        self.problem = "" if store is None else "the keys were not read yet"
        """Why the keys cannot be read; empty if they can."""
        self._is_reported = False

    @property
    def store(self) -> KeyStore | None:
        return self._store

    @property
    def is_required(self) -> bool:
        """Whether requests over HTTP need a credential: there are keys, be they valid or not, or
        it is not known whether there are."""
        return bool(self._keys) or bool(self.problem)

    def replace(self, keys: Iterable[KeyRow]) -> None:
        self._keys = {key.id: key for key in keys}

    def find_principal(self, text: str) -> Principal | None:
        """Return the principal of a valid key, and note its use; None for any other text."""
        key = self._keys.get(parse_key_id(text))
        if key is None or not is_text_of(key, text):
            return None
        now = self._clock()
        if get_key_state(key, now) != "valid":
            return None
        self._used_at[key.id] = now
        return to_principal(key)

    async def load(self) -> None:
        """Read the keys if they changed. Failures are logged once, and kept in `problem`."""
        if self._store is None:
            return
        try:
            async with asyncio.timeout(READ_S):
                stamp = await self._store.read_stamp()
                if stamp != self._stamp or self.problem:
                    self._take_over(await self._store.load())
                    self._stamp = stamp
            if self._is_reported:
                logger.warning("the keys can be read again")
            self._is_reported = False
            self.problem = ""
        # Whatever is wrong with a stored key must not end the watch for revoked ones.
        except Exception as error:
            self.problem = f"the keys cannot be read: {error or type(error).__name__}"
            if not self._is_reported:
                logger.error("%s", self.problem)
            self._is_reported = True

    def _take_over(self, keys: list[KeyRow]) -> None:
        """Use the keys that were read. Raises StoreUnavailable if all are gone: no command deletes
        one, so their store was lost, and without keys the gateway would be open."""
        if self._keys and not keys:
            raise StoreUnavailable("all keys are gone from their store")
        self.replace(keys)

    def is_valid(self, key_id: str) -> bool:
        """Return whether a key of this id is valid now."""
        key = self._keys.get(key_id)
        return key is not None and get_key_state(key, self._clock()) == "valid"

    async def follow(self) -> None:
        """Keep the keys current, and store their use from time to time, until cancelled."""
        saved_at = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            await self.load()
            if time.monotonic() - saved_at >= SAVE_USE_S:
                saved_at = time.monotonic()
                await self.save_use()

    async def save_use(self) -> None:
        """Store when keys were last used. What cannot be stored is lost."""
        used = self._used_at
        self._used_at = {}
        if self._store is None or not used:
            return
        try:
            await self._store.save_use(used)
        except Exception as error:  # as above
            logger.warning("the last use of keys cannot be stored: %s", error)

    async def close(self) -> None:
        """Store the last use, and close the store."""
        await self.save_use()
        if self._store is not None:
            await self._store.close()


class Authenticator:
    """Accepts the token of the configuration, keys, tokens of authorization servers, and console
    sessions that began with one of them."""

    def __init__(
        self,
        token: str | None = None,
        keys: KeyRing | None = None,
        verifiers: Sequence[TokenVerifier] = (),
        *,
        sessions: ConsoleSessions | None = None,
        on_verified: Callable[[Principal, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without any of them, no credential is required. `on_verified` gets each token that a
        verifier accepted."""
        self._token = token.encode() if token is not None else None
        self._keys = keys or KeyRing()
        self._verifiers = tuple(verifiers)
        self._sessions = sessions or ConsoleSessions()
        self._on_verified = on_verified
        self._clock = clock
        self._verified: OrderedDict[bytes, tuple[float, Principal, TokenVerifier]] = OrderedDict()
        """By digest of the token: until when it is remembered, and what verified it."""

    @property
    def is_required(self) -> bool:
        """Whether requests need a credential."""
        return self._token is not None or self._keys.is_required or bool(self._verifiers)

    @property
    def problem(self) -> str:
        """Why keys cannot be checked now; empty if they can."""
        return self._keys.problem

    def accepts(self, principal: Principal) -> bool:
        """Return whether a principal that was let in would be let in now."""
        if not self.is_required:
            return True
        if principal.issuer == KEY_ISSUER:
            return self._keys.is_valid(principal.credential)
        if principal.issuer == TOKEN_ISSUER:
            return bool(self._token)
        return any(verifier.accepts(principal) for verifier in self._verifiers)

    def find_session(self, cookie: str, proof: str) -> ConsoleSession | None:
        """Return the console session of a cookie and its proof, while its credential is valid."""
        session = self._sessions.find(cookie, proof)
        if session is None or not self.is_session_open(session.id, session.principal):
            return None
        return session

    def is_session_open(self, session_id: str, principal: Principal) -> bool:
        """Return whether a console session that was let in would be let in now."""
        # Only a one-time link begins a session of the local user.
        is_local = principal.issuer == LOCAL_ISSUER
        return self._sessions.is_open(session_id) and (is_local or self.accepts(principal))

    def authenticate(self, credential: bytes) -> Principal | None:
        """Return the principal of a bearer credential that can be told without waiting: the token
        of the configuration, a key, a token that was verified lately. None for any other."""
        if self._token and hmac.compare_digest(credential, self._token):
            return TOKEN_HOLDER
        principal = self._keys.find_principal(credential.decode("ascii", "replace"))
        if principal is None and self._verified:
            return self._recall(credential)
        return principal

    async def verify(self, credential: bytes) -> Principal | Rejection:
        """Return the principal of a credential that `authenticate` does not know, or why there is
        none."""
        wrong = Rejection(WRONG_TOKEN)
        if len(credential) > MAX_TOKEN_CHARS or credential.startswith(KEY_PREFIX):
            return wrong
        for verifier in self._verifiers:
            verdict = await verifier.verify(credential.decode("ascii", "replace"))
            if isinstance(verdict, Principal):
                self._remember(credential, verdict, verifier)
                if self._on_verified is not None:
                    self._on_verified(verdict, credential.decode("ascii", "replace"))
            if verdict is not None:
                return verdict
        return wrong

    def _remember(self, credential: bytes, principal: Principal, verifier: TokenVerifier) -> None:
        until = self._clock() + REMEMBER_S
        self._verified[_compute_digest(credential)] = (until, principal, verifier)
        if len(self._verified) > MAX_REMEMBERED:
            self._verified.popitem(last=False)

    def _recall(self, credential: bytes) -> Principal | None:
        digest = _compute_digest(credential)
        found = self._verified.get(digest)
        if found is None:
            return None
        until, principal, verifier = found
        if self._clock() < until and verifier.accepts(principal):
            return principal
        del self._verified[digest]
        return None


def _compute_digest(credential: bytes) -> bytes:
    return hashlib.sha256(credential).digest()
