"""Asks who makes a call to sign in to its server, where their client can open an address, and goes
on when they have."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from portico.auth import permissions
from portico.calls.call import Call, Handler, Request, ServerRequest
from portico.errors import MoreRightsNeeded, RemoteError, SignInNeeded
from portico.upstream.backend import Raw, Relay
from portico.upstream.lifecycle.supervisor import Upstream
from portico.upstream.protocol.server_requests import ELICITATION_COMPLETE

SIGN_IN_S = 300.0
"""Seconds for which a call waits for somebody who went to sign in."""
FIRST_POLL_S = 0.2
MAX_POLL_S = 2.0
"""Longest pause between looks whether somebody has signed in: each is a call that fails without a
request to the server."""


@dataclass(frozen=True)
class SignInElicitation:
    upstreams: Mapping[str, Upstream]

    async def ask(self, request: Request, call_next: Handler[Request]) -> Raw:
        """Middleware: where a call needs a sign-in, ask for it and make the call again."""
        try:
            return await call_next(request)
        except SignInNeeded as error:
            relay = request.context.relay
            if relay is None or not self._can_ask(request, relay, error):
                raise
            elicitation_id = secrets.token_hex(16)
            with request.context.pause_clock():
                if not await _is_accepted(relay, request.server, error, elicitation_id):
                    raise
            if isinstance(request, Call):
                request.has_waited = True
            result = await _call_when_signed_in(request, call_next)
            await relay.notify(ELICITATION_COMPLETE, {"elicitationId": elicitation_id})
            return result

    def _can_ask(self, request: Call | ServerRequest, relay: Relay, error: SignInNeeded) -> bool:
        """Return whether the caller can sign in, and the client open the page for it.

        An account of everybody is changed only by who runs the gateway. More rights are given by a
        later call: looking whether they are there would be a request each time.
        """
        if not error.url or isinstance(error, MoreRightsNeeded):
            return False
        upstream = self.upstreams.get(request.server)
        is_personal = upstream is not None and upstream.personal
        if not (is_personal or permissions.can_administer(request.context.caller.principal)):
            return False
        modes = relay.capabilities.get("elicitation")
        return isinstance(modes, Mapping) and "url" in cast("Mapping[str, object]", modes)


async def _is_accepted(relay: Relay, server: str, error: SignInNeeded, elicitation_id: str) -> bool:
    asked: Raw = {
        "mode": "url",
        "url": error.url,
        "message": f"{error.message}. Sign in to {server}, and this call goes on.",
        "elicitationId": elicitation_id,
    }
    try:
        answer = await relay.request("elicitation/create", asked)
    except RemoteError:  # it cannot ask after all
        return False
    return answer.get("action") == "accept"


async def _call_when_signed_in(request: Request, call_next: Handler[Request]) -> Raw:
    """Make a call again until somebody has signed in; raises SignInNeeded after `SIGN_IN_S`."""
    ends_at = time.monotonic() + SIGN_IN_S
    pause_s = FIRST_POLL_S
    while True:
        try:
            return await call_next(request)
        except MoreRightsNeeded:
            raise
        except SignInNeeded:
            if time.monotonic() + pause_s > ends_at:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(MAX_POLL_S, pause_s * 1.5)
