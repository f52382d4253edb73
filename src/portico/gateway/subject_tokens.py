"""By which tokens people came to the gateway, kept (encrypted, as all credentials) for servers
where they are exchanged; where no server has such a `grant`, nothing is."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from portico.auth.proxy.identity_provider import SignedInPerson
from portico.callers import Principal
from portico.gateway.runtime import GatewayRuntime
from portico.gateway.server_sign_ins import connect_as
from portico.storage.gateway_store import StoreUnavailable
from portico.upstream.oauth.credential import SubjectTokens

ASSUMED_S = 300.0
"""Seconds for which a token is used that does not say when it ends."""
logger = logging.getLogger(__name__)


def follow_subjects(gateway: GatewayRuntime) -> Callable[[Principal, str], None]:
    """Return what is to be told of each token that was verified; follow also what the identity
    provider issues to the gateway's own authorization server."""
    store = gateway.servers.accounts.store
    tasks: set[asyncio.Task[None]] = set()

    async def keep(person: str, tokens: SubjectTokens, servers: list[str]) -> None:
        for server in servers:
            await connect_as(gateway, server, person)
        try:
            await store.keep_subject(person, tokens)
        except StoreUnavailable as error:  # it is known here all the same
            logger.warning("a token cannot be kept for other gateways: %s", error.message)

    def begin(person: str, tokens: SubjectTokens) -> None:
        servers = [
            name
            for name, server in gateway.config.servers.items()
            if server.is_usable and server.auth is not None and server.auth.is_exchanged
        ]
        if not servers:
            return
        store.note_subject(person, tokens)  # at once: the request that brought it needs it
        task = asyncio.create_task(keep(person, tokens, servers), name="keep a token")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    own = gateway.authorization_server

    def keep_verified(principal: Principal, token: str) -> None:
        # The gateway's own tokens mean nothing at the provider.
        if own is None or token.count(".") == 2:
            expires_at = principal.expires_at or time.time() + ASSUMED_S
            begin(principal.id, SubjectTokens(principal.issuer, token, "", expires_at))

    def keep_confirmed(principal: Principal, person: SignedInPerson) -> None:
        tokens = SubjectTokens(
            principal.issuer, person.access_token, person.id_token, _find_end(person.id_token)
        )
        begin(principal.id, tokens)

    if own is not None:
        own.tokens.on_confirmed = keep_confirmed
    return keep_verified


def _find_end(id_token: str) -> float:
    """Return when a verified id token ends."""
    try:
        payload = id_token.split(".")[1]
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return time.time() + ASSUMED_S
