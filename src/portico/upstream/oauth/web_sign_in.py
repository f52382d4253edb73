"""Sign-ins in a browser that comes to the gateway's own pages: stored between the page that begins
one and the callback that ends it, so that any gateway of a shared database may answer the callback.

At most one for each server and person; it is bound to the browser by a secret in its cookie, and
used once.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp.shared.auth import OAuthMetadata
from pydantic import TypeAdapter, ValidationError

from portico.upstream.oauth.authorization_http import SignInFailed
from portico.upstream.oauth.credential import RegisteredClient, SignInTarget
from portico.upstream.oauth.discovery import Discovery
from portico.upstream.oauth.sign_in import (
    PendingSignIn,
    begin_sign_in,
    discover_for,
    finish_sign_in,
)
from portico.upstream.oauth.token_store import TokenStore, make_trusted_places

_ENDED = SignInFailed(
    "this sign-in has ended, or began in another browser", advice="Begin it again."
)


@dataclass(frozen=True)
class _StoredSignIn:
    server: str
    person: str
    browser_digest: str
    state: str
    verifier: str
    client: RegisteredClient
    redirect_uri: str
    scope: str | None
    metadata: OAuthMetadata
    resource: str
    begun_at: float
    dpop_key: str = ""


_SIGN_INS = TypeAdapter(_StoredSignIn)
FindTarget = Callable[[str, str], SignInTarget | None]
"""Returns what there is to sign in to, by the configuration of now, for a server and person."""


async def begin_in_browser(
    store: TokenStore,
    target: SignInTarget,
    browser_secret: str,
    redirect_uri: str,
    document_url: str,
) -> str:
    """Return the address at which the person signs in. Raises as `begin_sign_in` does."""
    found, trusted, scope = await discover_for(store, target)
    slot = _get_slot(target)
    pending = await begin_sign_in(
        store, target, found, trusted, scope, redirect_uri, document_url, state_prefix=f"{slot}."
    )
    stored = _StoredSignIn(
        target.name,
        target.person,
        _digest(browser_secret),
        pending.state,
        pending.verifier,
        pending.client,
        redirect_uri,
        scope,
        found.metadata,
        found.resource,
        pending.begun_at,
        pending.dpop_key,
    )
    await store.credentials.write(slot, _SIGN_INS.dump_json(stored).decode())
    return pending.url


async def finish_in_browser(
    store: TokenStore, query: Mapping[str, str], browser_secret: str, find_target: FindTarget
) -> SignInTarget:
    """Redeem what a browser brought back; return what is signed in to now.

    Raises SignInFailed, AuthorizationUnavailable, StoreUnavailable.
    """
    state = query.get("state", "")
    slot = state.partition(".")[0]
    stored = await store.credentials.read(slot) if len(slot) == _SLOT_CHARS else None
    if stored is None or not browser_secret:
        raise _ENDED
    try:
        begun = _SIGN_INS.validate_json(stored[0])
    except ValidationError:  # no sign-in
        raise _ENDED from None
    is_same_state = secrets.compare_digest(state.encode(), begun.state.encode())
    if not is_same_state or _digest(browser_secret) != begun.browser_digest:
        raise _ENDED
    target = find_target(begun.server, begun.person)
    # Deleted before the code is redeemed: it is used once.
    if not await store.credentials.delete(slot) or target is None or _get_slot(target) != slot:
        raise _ENDED
    pending = PendingSignIn(
        target,
        Discovery(begun.metadata, begun.resource),
        make_trusted_places(target),
        begun.client,
        begun.redirect_uri,
        begun.scope,
        begun.state,
        begun.verifier,
        "",
        begun.begun_at,
        begun.dpop_key,
    )
    await finish_sign_in(store, pending, query)
    return target


def _get_slot(target: SignInTarget) -> str:
    return _digest(f"sign-in {target.slot}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_SLOT_CHARS = len(_digest(""))
