"""The sign-ins of a gateway: which server wants one, and the credentials of each server and person.

Credentials of the same server and person are one object, so that a token is renewed once for all
connections.
"""

import shlex
from urllib.parse import quote
from weakref import WeakValueDictionary

from portico.callers import LOCAL_USER
from portico.config import BackendConfig
from portico.config.server_auth import ServerAuth
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.token_source import OAuthCredentials, SignInAdvice
from portico.upstream.oauth.token_store import TokenStore


class ServerAccounts:
    """Makes the credentials of servers. For one event loop."""

    def __init__(self, store: TokenStore) -> None:
        self.store = store
        self.page_root = ""
        """Address under which the gateway has a page that signs in to each server; empty: none."""
        self._sources: WeakValueDictionary[str, OAuthCredentials] = WeakValueDictionary()

    def make_credentials(
        self, name: str, config: BackendConfig, person: str = ""
    ) -> OAuthCredentials | None:
        """Return the credentials of a server with a URL; None where it has others."""
        target = make_target(name, config, person)
        if target is None:
            return None
        source = self._sources.get(target.slot)
        if source is None or source.target != target:
            source = OAuthCredentials(target, self.store, self._advise)
            self._sources[target.slot] = source
        return source

    async def close(self) -> None:
        await self.store.close()

    def _advise(self, target: SignInTarget) -> SignInAdvice:
        person = ""
        if target.person not in ("", LOCAL_USER.id):
            person = f" --person {shlex.quote(target.person)}"
        command = f"`portico login {target.name}{person}`"
        if not self.page_root or not target.is_interactive:
            return SignInAdvice(f"{command} signs in.")
        url = f"{self.page_root}/{quote(target.name, safe='')}"
        return SignInAdvice(f"Sign in at {url} (or by {command}).", url)


def make_target(name: str, config: BackendConfig, person: str = "") -> SignInTarget | None:
    """Return what there is to sign in to; None where requests have an Authorization header, or
    where the server has no URL.

    `person` counts only where each person has an own account; without one it is the local user's.
    """
    has_header = any(key.lower() == "authorization" for key in config.headers)
    if config.kind not in ("http", "sse") or config.url is None:
        return None
    if config.auth is None and (has_header or "\0" in config.url):
        return None
    if config.is_personal:
        person = person or LOCAL_USER.id
    else:
        person = ""
    return SignInTarget(
        name, config.url, config.auth or ServerAuth(), config.auth is not None, person
    )
