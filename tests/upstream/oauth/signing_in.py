"""Signs in to a server as `portico login` does, with a browser that needs no person."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from portico.config import BackendConfig, Config
from portico.storage.credential_store import CredentialStore
from portico.upstream.oauth.credential import OAuthCredential, SignInTarget
from portico.upstream.oauth.server_accounts import make_target
from portico.upstream.oauth.sign_in import begin_sign_in, discover_for, finish_sign_in
from portico.upstream.oauth.token_store import TokenStore
from portico.upstream.secret_reader import SecretReader
from portico.upstream.transports.process import ProcessGuard
from tests.upstream.oauth.authorization_server import get_query, visit

REDIRECT_URI = "http://127.0.0.1:1/callback"
"""Nothing listens there."""


@asynccontextmanager
async def open_tokens(data_dir: Path | None, url: str | None = None) -> AsyncGenerator[TokenStore]:
    guard = ProcessGuard()
    store = TokenStore(CredentialStore(url, data_dir), SecretReader(guard))
    try:
        yield store
    finally:
        await store.close()
        guard.close()


def make_config(url: str, **auth: Any) -> Config:
    """Return the configuration of a gateway with the server `notes`."""
    server: dict[str, Any] = {"url": url}
    if auth:
        server["auth"] = auth
    return Config.model_validate({"servers": {"notes": server}})


def target_of(config: Config, person: str = "") -> SignInTarget:
    server: BackendConfig = config.servers["notes"]
    target = make_target("notes", server, person)
    assert target is not None
    return target


async def sign_in(store: TokenStore, target: SignInTarget, user: str = "") -> OAuthCredential:
    found, trusted, scope = await discover_for(store, target)
    pending = await begin_sign_in(store, target, found, trusted, scope, REDIRECT_URI)
    url = f"{pending.url}&login_hint={user}" if user else pending.url
    ended_at = await visit(url, REDIRECT_URI)
    return await finish_sign_in(store, pending, get_query(ended_at))
