"""What a platform asks a gateway: `/metrics` (how does it do?), `/healthz` (does it live?),
`/readyz` (may work come?).

A server behind the gateway that is down does not make it unready. Its tools stay listed and say why
they cannot be called, every other server's work on, and to take the whole gateway out of service
would turn one fault into an outage of everything; a broken server is an alert,
`portico_backend_state`. What is required is what no request can do without.
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

METRICS_PATH = "/metrics"
LIVENESS_PATH = "/healthz"
READINESS_PATH = "/readyz"
RETRY_AFTER_S = 1
_NO_STORE_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Phase = Literal["starting", "serving", "draining"]
Wrap = Callable[[ASGIApp], ASGIApp]
"""Puts a guard before an application."""


@dataclass(frozen=True)
class ReadinessCheck:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str = ""
    """Why not, or how much: shown to whoever has the token, so without secrets all the same."""
    required: bool = True
    """Whether the gateway is of no use without it."""


@dataclass(frozen=True)
class GatewayHealth:
    """How a gateway is."""

    phase: Phase
    checks: tuple[ReadinessCheck, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether it may be sent work."""
        return self.phase == "serving" and all(check.ok for check in self.checks if check.required)


def monitoring_routes(
    metrics: Callable[[], Metrics] | None,
    health: Callable[[], GatewayHealth],
    *,
    with_auth: Wrap = lambda app: app,
    with_host_check: Wrap = lambda app: app,
    is_authorized: Callable[[Scope], bool] = lambda _: True,
) -> list[BaseRoute]:
    """The routes. `guarded` wants the token, `addressed` only the right Host and Origin; `trusted`
    knows the token.

    Whoever watches over a process rarely has its token: `/healthz` and `/readyz` answer without it,
    but only by their status and one word.
    """
    routes: list[BaseRoute] = [
        Route(LIVENESS_PATH, with_host_check(_LivenessEndpoint()), methods=["GET"]),
        Route(
            READINESS_PATH,
            with_host_check(_ReadinessEndpoint(health, is_authorized)),
            methods=["GET"],
        ),
    ]
    if metrics is not None:
        routes.append(Route(METRICS_PATH, with_auth(_MetricsEndpoint(metrics)), methods=["GET"]))
    return routes


class _LivenessEndpoint:
    """The loop answers: that is all it says."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("ok\n", headers=_NO_STORE_HEADERS)(scope, receive, send)


class _ReadinessEndpoint:
    """Whether work may be sent here."""

    def __init__(
        self, health: Callable[[], GatewayHealth], is_authorized: Callable[[Scope], bool]
    ) -> None:
        self._health = health
        self._is_authorized = is_authorized

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._health()
        if found.is_ready:
            headers = _NO_STORE_HEADERS
        else:
            headers = {**_NO_STORE_HEADERS, "Retry-After": str(RETRY_AFTER_S)}
        shown: dict[str, Any] = {"ready": found.is_ready, "phase": found.phase}
        if self._is_authorized(scope):
            shown["checks"] = [_to_json(check) for check in found.checks]
        await JSONResponse(shown, 200 if found.is_ready else 503, headers)(scope, receive, send)


class _MetricsEndpoint:
    """The figures, one scrape after another: each takes memory, and nobody needs two at once."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._scrape_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = Request(scope).headers.get("accept", "")
        async with self._scrape_lock:
            reading = self._metrics().take_snapshot()
            body, content_type = await asyncio.to_thread(reading.render, accept)
        headers = {**_NO_STORE_HEADERS, "Content-Type": content_type, "Vary": "Accept"}
        await Response(body, headers=headers)(scope, receive, send)


def _to_json(check: ReadinessCheck) -> dict[str, Any]:
    if check.detail:
        detail = {"detail": check.detail}
    else:
        detail = {}
    return {"name": check.name, "ok": check.ok, "required": check.required, **detail}
