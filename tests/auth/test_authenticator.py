"""A credential is told by what is known at once, else by verifiers, and remembered for a while."""

from dataclasses import dataclass, field

import pytest

from portico.auth import authenticator as module
from portico.auth.authenticator import REMEMBER_S, Authenticator, KeyRing
from portico.auth.keys import create_key
from portico.auth.token_verifier import MAX_TOKEN_CHARS, Rejection
from portico.callers import LOCAL_USER, TOKEN_HOLDER, Principal

ISSUER = "https://id.example"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Issued:
    """Verifies the tokens that it is given, each of the person of its name."""

    tokens: set[str]
    prefix: str = ""
    """It is not concerned with tokens that do not begin so."""
    seen: list[str] = field(default_factory=list[str])
    authorization_servers: tuple[str, ...] = (ISSUER,)

    def list_scopes(self, profile: str) -> tuple[str, ...]:
        return ()

    async def verify(self, token: str) -> Principal | Rejection | None:
        self.seen.append(token)
        if not token.startswith(self.prefix):
            return None
        if token not in self.tokens:
            return Rejection("it was not issued")
        return Principal(ISSUER, token, expires_at=1.0)

    def accepts(self, principal: Principal) -> bool:
        return principal.issuer == ISSUER and principal.subject in self.tokens

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_token_is_verified_once_and_again_after_a_while() -> None:
    clock, issued = Clock(), Issued({"ana"})
    own = Authenticator(verifiers=[issued], clock=clock)
    assert own.authenticate(b"ana") is None
    principal = await own.verify(b"ana")
    assert isinstance(principal, Principal)
    clock.now = REMEMBER_S - 1
    assert own.authenticate(b"ana") is principal
    clock.now = REMEMBER_S
    assert own.authenticate(b"ana") is None
    assert issued.seen == ["ana"]


async def test_what_a_verifier_does_not_accept_any_more_is_forgotten_at_once() -> None:
    issued = Issued({"ana"})
    own = Authenticator(verifiers=[issued], clock=Clock())
    principal = await own.verify(b"ana")
    assert isinstance(principal, Principal)
    assert own.accepts(principal)
    issued.tokens.clear()
    assert own.authenticate(b"ana") is None
    assert not own.accepts(principal)
    assert isinstance(await own.verify(b"ana"), Rejection)


async def test_verifiers_are_asked_in_turn_until_one_is_concerned() -> None:
    first, second = Issued({"one-a"}, "one-"), Issued({"two-b"}, "two-")
    own = Authenticator(verifiers=[first, second], clock=Clock())
    assert isinstance(await own.verify(b"two-b"), Principal)
    assert isinstance(await own.verify(b"one-x"), Rejection)
    assert second.seen == ["two-b"], "the first one has refused it"
    refused = await own.verify(b"three")
    assert isinstance(refused, Rejection)
    assert refused.is_forged


async def test_only_so_many_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    names = [f"person{number}" for number in range(5)]
    own = Authenticator(verifiers=[Issued(set(names))], clock=Clock())
    for name in names:
        await own.verify(name.encode())
    remembered = [own.authenticate(name.encode()) is not None for name in names]
    assert remembered == [False, False, True, True, True]


async def test_keys_and_huge_texts_are_shown_to_no_verifier() -> None:
    issued = Issued(set())
    _, text = create_key("ana", 0.0)
    own = Authenticator("t0ken", KeyRing(), [issued], clock=Clock())
    for credential in (text.encode(), b"portico_", b"x" * (MAX_TOKEN_CHARS + 1)):
        assert isinstance(await own.verify(credential), Rejection)
    assert not issued.seen


def test_people_of_an_issuer_are_not_the_local_user_nor_the_holder_of_the_token() -> None:
    own = Authenticator(verifiers=[Issued({"user", "token"})])
    assert own.is_required
    assert not own.accepts(LOCAL_USER)
    assert not own.accepts(TOKEN_HOLDER)
    assert not own.accepts(Principal("key", "user", credential="x"))
