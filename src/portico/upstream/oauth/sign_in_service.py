"""Sign-ins that are begun from a page, and finished in a browser on the gateway's machine.

The caller gets the address to open, and asks for the state; what the browser brings back arrives at
a loopback port that is open for as long as it is waited for.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from portico.errors import BackendUnavailable, Overloaded, PorticoError
from portico.events import SignInChanged
from portico.upstream.oauth.credential import SignInTarget
from portico.upstream.oauth.redirect_listener import open_listener
from portico.upstream.oauth.token_store import TokenStore

MAX_PENDING = 8
MAX_ENDED = 256

SignInState = Literal["none", "waiting", "done", "failed"]
_Key = tuple[str, str]


@dataclass(frozen=True)
class SignInStatus:
    """How far the sign-in to a server is."""

    server: str
    state: SignInState = "none"
    url: str = ""
    """Where to sign in, while it waits."""
    problem: str = ""
    advice: str = ""
    at: float = 0.0
    """When it came to this, in seconds since 1970."""


class SignInService:
    """The sign-ins under way. For one event loop."""

    def __init__(
        self,
        store: TokenStore,
        restart: Callable[[str], Awaitable[None]],
        publish: Callable[[SignInChanged], None],
    ) -> None:
        """`restart` has a server connect again with what it was signed in with."""
        self._store = store
        self._restart = restart
        self._publish = publish
        self._statuses: dict[_Key, SignInStatus] = {}
        self._pending: dict[_Key, tuple[asyncio.Task[None], asyncio.Future[SignInStatus]]] = {}

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [task for task, _ in self._pending.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def get_status(self, server: str, person: str) -> SignInStatus:
        """Return how far the sign-in is that this person began."""
        return self._statuses.get((server, person), SignInStatus(server))

    async def begin(self, target: SignInTarget, person: str) -> SignInStatus:
        """Begin a sign-in and return the address to open; one under way is returned again.

        Raises PorticoError where it cannot be begun, Overloaded if too many wait.
        """
        key = (target.name, person)
        if key not in self._pending:
            if len(self._pending) >= MAX_PENDING:
                raise Overloaded(
                    f"{MAX_PENDING} sign-ins wait for a browser already",
                    advice="Finish one of them first.",
                )
            ready: asyncio.Future[SignInStatus] = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(self._run(key, target, ready))
            self._pending[key] = (task, ready)
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        return await asyncio.shield(self._pending[key][1])

    async def _run(
        self, key: _Key, target: SignInTarget, ready: "asyncio.Future[SignInStatus]"
    ) -> None:
        try:
            await self._sign_in(key, target, ready)
        except PorticoError as error:
            self._set(
                key, SignInStatus(key[0], "failed", problem=error.message, advice=error.advice)
            )
            if not ready.done():
                ready.set_exception(error)
        finally:
            if not ready.done():
                ready.cancel()

    async def _sign_in(
        self, key: _Key, target: SignInTarget, ready: "asyncio.Future[SignInStatus]"
    ) -> None:
        # Imported late: most gateways are never signed in from.
        from portico.upstream.oauth.authorization_http import SignInFailed
        from portico.upstream.oauth.sign_in import (
            PENDING_S,
            begin_sign_in,
            discover_for,
            find_registered_redirect,
            finish_sign_in,
        )

        store = self._store
        found, trusted, scope = await discover_for(store, target)

        async def prefer(redirect_uri: str) -> str:
            return await find_registered_redirect(store, found, redirect_uri)

        async with open_listener(None, prefer) as listener:
            redirect_uri = listener.redirect_uri
            pending = await begin_sign_in(store, target, found, trusted, scope, redirect_uri)
            status = SignInStatus(target.name, "waiting", pending.url)
            self._set(key, status)
            ready.set_result(status)
            try:
                async with asyncio.timeout(PENDING_S):
                    query = await listener.wait_for(pending.state)
            except TimeoutError:
                raise SignInFailed(
                    f"nobody signed in to {target.name} within {PENDING_S / 60:g} minutes",
                    advice="Begin it again.",
                ) from None
            await finish_sign_in(store, pending, query)
        with contextlib.suppress(BackendUnavailable):  # its state says so
            await self._restart(target.name)
        self._set(key, SignInStatus(target.name, "done"))

    def _set(self, key: _Key, status: SignInStatus) -> None:
        self._statuses.pop(key, None)
        self._statuses[key] = replace(status, at=time.time())
        if len(self._statuses) > MAX_ENDED:
            del self._statuses[next(iter(self._statuses))]
        self._publish(SignInChanged(status.server, status.state))
