"""What a platform asks a gateway: `/metrics` (how does it do?), `/healthz` (does it live?), `/readyz` (may work come?).

A server behind the gateway that is down does not make it unready. Its tools stay listed and say why they cannot be
called, every other server's work on, and to take the whole gateway out of service would turn one fault into an outage
of everything; a broken server is an alert, `portico_backend_state`. What is required is what no request can do without.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from portico.observability.metrics import Metrics

METRICS, ALIVE, READY = "/metrics", "/healthz", "/readyz"
RETRY_AFTER_S = 1
_UNKEPT = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Phase = Literal["starting", "serving", "draining"]
Wrap = Callable[[ASGIApp], ASGIApp]
"""Puts a guard before an application."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str = ""
    """Why not, or how much: shown to whoever has the token, so without secrets all the same."""
    required: bool = True
    """Whether the gateway is of no use without it."""


@dataclass(frozen=True)
class Health:
    """How a gateway is."""

    phase: Phase
    checks: tuple[Check, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether it may be sent work."""
        return self.phase == "serving" and all(check.ok for check in self.checks if check.required)


def monitoring_routes(
    metrics: Callable[[], Metrics] | None,
    health: Callable[[], Health],
    *,
    guarded: Wrap = lambda app: app,
    addressed: Wrap = lambda app: app,
    trusted: Callable[[Scope], bool] = lambda _: True,
) -> list[BaseRoute]:
    """The routes. `guarded` wants the token, `addressed` only the right Host and Origin; `trusted` knows the token.

    Whoever watches over a process rarely has its token: `/healthz` and `/readyz` answer without it, but only by their
    status and one word.
    """
    routes: list[BaseRoute] = [
        Route(ALIVE, addressed(_Alive()), methods=["GET"]),
        Route(READY, addressed(_Ready(health, trusted)), methods=["GET"]),
    ]
    if metrics is not None:
        routes.append(Route(METRICS, guarded(_Scraped(metrics)), methods=["GET"]))
    return routes


class _Alive:
    """The loop answers: that is all it says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("ok\n", headers=_UNKEPT)(scope, receive, send)


class _Ready:
    """Whether work may be sent here."""

    def __init__(self, health: Callable[[], Health], trusted: Callable[[Scope], bool]) -> None:
        self._health = health
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._health()
        headers = _UNKEPT if found.ready else {**_UNKEPT, "Retry-After": str(RETRY_AFTER_S)}
        shown: dict[str, Any] = {"ready": found.ready, "phase": found.phase}
        if self._trusted(scope):
            shown["checks"] = [_check(check) for check in found.checks]
        await JSONResponse(shown, 200 if found.ready else 503, headers)(scope, receive, send)


class _Scraped:
    """The figures, one scrape after another: each takes memory, and nobody needs two at once."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = Request(scope).headers.get("accept", "")
        async with self._turn:
            reading = self._metrics().reading()
            body, content_type = await asyncio.to_thread(reading.rendered, accept)
        headers = {**_UNKEPT, "Content-Type": content_type, "Vary": "Accept"}
        await Response(body, headers=headers)(scope, receive, send)


def _check(check: Check) -> dict[str, Any]:
    detail = {"detail": check.detail} if check.detail else {}
    return {"name": check.name, "ok": check.ok, "required": check.required, **detail}
