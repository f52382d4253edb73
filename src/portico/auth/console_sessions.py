"""Console sessions: who has signed in to the console, and one-time links to it. In memory.

A session has two secrets. The cookie is sent by the browser unasked, and to every port of its host;
the proof is kept by the console's page, of which no other origin can read anything, and is sent in
a header. Either alone opens nothing: neither a page that makes a browser send the cookie, nor a
program on another port that was sent it.

Only digests are kept. A session ends when it is closed, when nobody used it for `IDLE_S`, after
`LIFETIME_S`, and with its credential, which whoever asks has to check.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from portico.callers import LOCAL_USER, Principal, choose_entry_to_drop

IDLE_S = 12 * 3_600.0
LIFETIME_S = 7 * 86_400.0
LINK_S = 60.0
"""Seconds for which a one-time link can be used."""
MAX_SESSIONS = 1_000
MAX_LINKS = 16


@dataclass(slots=True)
class ConsoleSession:
    """One person's use of the console since signing in."""

    id: str
    """Digest of the cookie."""
    principal: Principal
    proof_digest: str
    began_at: float
    used_at: float


@dataclass(frozen=True)
class SessionSecrets:
    """What a browser gets when it signs in."""

    cookie: str
    proof: str


class ConsoleSessions:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, ConsoleSession] = {}
        self._links: dict[str, float] = {}
        """When a link ends, by the digest of its code; the oldest first."""

    def make_link_code(self) -> str:
        """Return the code of a one-time link, with which this machine's user signs in."""
        code = secrets.token_urlsafe(32)
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        self._links[_compute_digest(code)] = self._clock() + LINK_S
        return code

    def redeem_link_code(self, code: str) -> SessionSecrets | None:
        """Begin a session of this machine's user; None where the code is wrong, used or old."""
        ends_at = self._links.pop(_compute_digest(code), None)
        if ends_at is None or ends_at <= self._clock():
            return None
        return self.begin(LOCAL_USER)

    def begin(self, principal: Principal) -> SessionSecrets:
        """Begin a session of somebody who has shown a credential."""
        given = SessionSecrets(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        now = self._clock()
        if len(self._sessions) >= MAX_SESSIONS:
            holders = {key: session.principal.id for key, session in self._sessions.items()}
            del self._sessions[choose_entry_to_drop(holders)]
        session_id = _compute_digest(given.cookie)
        proof_digest = _compute_digest(given.proof)
        self._sessions[session_id] = ConsoleSession(session_id, principal, proof_digest, now, now)
        return given

    def find(self, cookie: str, proof: str) -> ConsoleSession | None:
        """Return the session of both secrets, and note its use; None if either is wrong."""
        session = self._get_open(_compute_digest(cookie))
        if session is None or not secrets.compare_digest(
            session.proof_digest, _compute_digest(proof)
        ):
            return None
        session.used_at = self._clock()
        return session

    def is_open(self, session_id: str) -> bool:
        return self._get_open(session_id) is not None

    def end(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def _get_open(self, session_id: str) -> ConsoleSession | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        now = self._clock()
        if now - session.used_at < IDLE_S and now - session.began_at < LIFETIME_S:
            return session
        del self._sessions[session_id]
        return None


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
