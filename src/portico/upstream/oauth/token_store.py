"""Tokens of a gateway's sign-ins: read, written and forgotten, encrypted."""

from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from portico.config_file.secret_references import fill_in, find_references, known_secrets
from portico.storage.credential_store import CredentialStore
from portico.upstream.oauth.authorization_http import AuthorizationHttp, TrustedPlaces
from portico.upstream.oauth.challenge import NO_CHALLENGE, Challenge
from portico.upstream.oauth.credential import (
    OAuthCredential,
    SignInTarget,
    SubjectTokens,
    get_registration_slot,
    get_subject_slot,
)
from portico.upstream.oauth.token_requests import ClientSecrets
from portico.upstream.secret_reader import SecretReader

_CREDENTIALS = TypeAdapter(OAuthCredential)
_CHALLENGES = TypeAdapter(Challenge)
_SUBJECTS = TypeAdapter(SubjectTokens)
MAX_SUBJECTS = 10_000


@dataclass
class TokenStore:
    """What everything that signs in needs: the store, HTTP, and configured secrets."""

    credentials: CredentialStore
    secrets: SecretReader
    http: AuthorizationHttp = field(default_factory=AuthorizationHttp)
    subjects: dict[str, SubjectTokens] = field(default_factory=dict[str, SubjectTokens])
    """By which tokens people came here last, by person."""

    async def read(self, target: SignInTarget) -> tuple[OAuthCredential, str] | None:
        """Return the credential of a server and person, and its version; None without one."""
        stored = await self.credentials.read(target.slot)
        if stored is None:
            return None
        try:
            credential = _CREDENTIALS.validate_json(stored[0])
        except ValidationError:  # of another version: signing in again makes a new one
            return None
        _remember(credential)
        return credential, stored[1]

    async def write(self, target: SignInTarget, credential: OAuthCredential) -> str:
        """Store a credential; return its version."""
        _remember(credential)
        return await self.credentials.write(
            target.slot, _CREDENTIALS.dump_json(credential).decode()
        )

    async def write_challenge(self, target: SignInTarget, challenge: Challenge) -> None:
        """Keep what a server said when it refused a request."""
        text = _CHALLENGES.dump_json(challenge).decode()
        await self.credentials.write(target.challenge_slot, text)

    async def read_challenge(self, target: SignInTarget) -> Challenge:
        stored = await self.credentials.read(target.challenge_slot)
        if stored is None:
            return NO_CHALLENGE
        try:
            return _CHALLENGES.validate_json(stored[0])
        except ValidationError:
            return NO_CHALLENGE

    async def forget(self, target: SignInTarget) -> bool:
        """Forget the credential, and the client that was registered for it; return whether there
        was one."""
        stored = await self.read(target)
        if stored is not None:
            client = stored[0].client
            if not client.is_configured:
                await self.forget_client(stored[0].issuer, client.redirect_uri)
        await self.credentials.delete(target.challenge_slot)
        return await self.credentials.delete(target.slot)

    async def forget_client(self, issuer: str, redirect_uri: str) -> None:
        """Forget the client that was registered there: the next sign-in registers another."""
        await self.credentials.delete(get_registration_slot(issuer, redirect_uri))

    async def read_client_secrets(self, target: SignInTarget) -> ClientSecrets:
        """Return the configured secret and key. Raises SecretUnavailable."""
        values = [target.auth.client_secret or "", target.auth.private_key or ""]
        client_secret, private_key = await self._read_secrets(values)
        return ClientSecrets(client_secret, private_key)

    async def read_secret(self, value: str | None) -> str:
        """Return a configured secret. Raises SecretUnavailable."""
        (secret,) = await self._read_secrets([value or ""])
        return secret

    async def _read_secrets(self, values: list[str]) -> list[str]:
        return list(fill_in(values, await self.secrets.read_all(find_references(values))))

    async def keep_subject(self, person: str, tokens: SubjectTokens) -> None:
        """Store by which tokens a person came, for servers at which they are exchanged."""
        self.note_subject(person, tokens)
        text = _SUBJECTS.dump_json(tokens).decode()
        await self.credentials.write(get_subject_slot(person), text)

    def note_subject(self, person: str, tokens: SubjectTokens) -> None:
        """Remember it in this process alone."""
        for secret in (tokens.access_token, tokens.id_token):
            if secret:
                known_secrets.add(secret)
        self.subjects[person] = tokens
        if len(self.subjects) > MAX_SUBJECTS:
            del self.subjects[next(iter(self.subjects))]

    async def read_subject(self, person: str, now: float) -> SubjectTokens | None:
        """Return by which tokens a person came last, at any gateway; None without valid ones."""
        known = self.subjects.get(person)
        if known is None or known.expires_at <= now:
            stored = await self.credentials.read(get_subject_slot(person))
            try:
                known = _SUBJECTS.validate_json(stored[0]) if stored is not None else None
            except ValidationError:
                known = None
        return known if known is not None and known.expires_at > now else None

    async def close(self) -> None:
        await self.http.close()
        await self.credentials.close()


def make_trusted_places(target: SignInTarget) -> TrustedPlaces:
    """Return to which addresses requests that sign in to a server may go."""
    named = (target.auth.issuer, target.auth.identity_provider)
    return TrustedPlaces(target.url, tuple(issuer for issuer in named if issuer))


def _remember(credential: OAuthCredential) -> None:
    """Have the tokens masked wherever they would appear."""
    for secret in (
        credential.access_token,
        credential.refresh_token,
        credential.client.client_secret,
    ):
        if secret:
            known_secrets.add(secret)
