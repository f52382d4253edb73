"""Console sessions and one-time links."""

from portico.auth.authenticator import Authenticator
from portico.auth.console_sessions import (
    IDLE_S,
    LIFETIME_S,
    LINK_S,
    MAX_LINKS,
    MAX_SESSIONS,
    ConsoleSessions,
)
from portico.callers import LOCAL_USER, TOKEN_HOLDER, Principal

ANA = Principal("key", "ana", "ana", credential="1")
BEN = Principal("key", "ben", "ben", credential="2")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_by_both_of_its_secrets_only() -> None:
    sessions = ConsoleSessions()
    ana = sessions.begin(ANA)
    ben = sessions.begin(BEN)
    found = sessions.find(ana.cookie, ana.proof)
    assert found is not None
    assert found.principal == ANA
    for cookie, proof in ((ana.cookie, ben.proof), (ana.proof, ana.cookie), (ana.cookie, "")):
        assert sessions.find(cookie, proof) is None
    assert ana.cookie not in repr(vars(sessions))
    assert ana.proof not in repr(vars(sessions))


def test_a_session_ends_when_nobody_uses_it_and_after_its_lifetime() -> None:
    clock = Clock()
    sessions = ConsoleSessions(clock=clock)
    given = sessions.begin(ANA)
    for _ in range(int(LIFETIME_S / IDLE_S) * 2 - 1):
        clock.now += IDLE_S / 2
        assert sessions.find(given.cookie, given.proof) is not None
    clock.now += IDLE_S / 2
    assert sessions.find(given.cookie, given.proof) is None, "its lifetime"
    given = sessions.begin(ANA)
    clock.now += IDLE_S
    assert sessions.find(given.cookie, given.proof) is None, "nobody used it"


def test_a_session_that_was_closed_is_gone() -> None:
    sessions = ConsoleSessions()
    given = sessions.begin(ANA)
    found = sessions.find(given.cookie, given.proof)
    assert found is not None
    assert sessions.is_open(found.id)
    sessions.end(found.id)
    assert not sessions.is_open(found.id)
    assert sessions.find(given.cookie, given.proof) is None


def test_a_link_works_once_and_for_a_minute() -> None:
    clock = Clock()
    sessions = ConsoleSessions(clock=clock)
    code = sessions.make_link_code()
    given = sessions.redeem_link_code(code)
    assert given is not None
    found = sessions.find(given.cookie, given.proof)
    assert found is not None
    assert found.principal == LOCAL_USER
    assert sessions.redeem_link_code(code) is None
    late = sessions.make_link_code()
    clock.now += LINK_S
    assert sessions.redeem_link_code(late) is None
    assert sessions.redeem_link_code("") is None


def test_links_and_sessions_are_bounded_and_who_has_most_loses_one() -> None:
    sessions = ConsoleSessions()
    codes = [sessions.make_link_code() for _ in range(MAX_LINKS + 1)]
    assert sessions.redeem_link_code(codes[0]) is None
    assert sessions.redeem_link_code(codes[-1]) is not None
    ben = sessions.begin(BEN)
    for _ in range(MAX_SESSIONS + 10):
        sessions.begin(ANA)
    assert sessions.find(ben.cookie, ben.proof) is not None


def test_a_session_ends_with_its_credential() -> None:
    sessions = ConsoleSessions()
    authenticator = Authenticator("the token", sessions=sessions)
    by_token = sessions.begin(TOKEN_HOLDER)
    by_key = sessions.begin(ANA)
    assert authenticator.find_session(by_token.cookie, by_token.proof) is not None
    assert authenticator.find_session(by_key.cookie, by_key.proof) is None, "there is no such key"
    without_token = Authenticator(sessions=sessions)
    assert not without_token.is_required
    by_link = sessions.redeem_link_code(sessions.make_link_code())
    assert by_link is not None
    found = authenticator.find_session(by_link.cookie, by_link.proof)
    assert found is not None
    assert authenticator.is_session_open(found.id, found.principal)
    sessions.end(found.id)
    assert not authenticator.is_session_open(found.id, found.principal)
