"""Monitoring routes: `/metrics`, `/healthz` (liveness) and `/readyz` (readiness).

A server that is down does not make the gateway unready: its tools stay listed and say why they
cannot be called, and the tools of other servers work. A broken server is an alert
(`portico_backend_state`). Only what no request can do without is required.
"""

import asyncio
from collections.abc import Awaitable, Callable
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
"""Wraps an application in a middleware."""


@dataclass(frozen=True)
class ReadinessCheck:
    name: str
    ok: bool
    detail: str = ""
    """Reason or figure; shown only with the token, but without secrets nevertheless."""
    required: bool = True
    """Whether the gateway is unready without it."""


@dataclass(frozen=True)
class GatewayHealth:
    """Phase of a gateway and the results of its checks."""

    phase: Phase
    checks: tuple[ReadinessCheck, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether the gateway accepts work."""
        return self.phase == "serving" and all(check.ok for check in self.checks if check.required)


async def _authorize_everybody(_: Scope) -> bool:
    return True


def monitoring_routes(
    metrics: Callable[[], Metrics] | None,
    health: Callable[[], GatewayHealth],
    *,
    with_auth: Wrap = lambda app: app,
    with_host_check: Wrap = lambda app: app,
    is_authorized: Callable[[Scope], Awaitable[bool]] = _authorize_everybody,
) -> list[BaseRoute]:
    """Build the routes.

    `with_auth` wraps an application with the token check, `with_host_check` only with that of Host
    and Origin; `is_authorized` tells whether a request has the token. Platforms rarely have the
    token, so `/healthz` and `/readyz` answer without it, but only with the status and the phase.
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
    """Answers `ok`, which shows that the event loop runs."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("ok\n", headers=_NO_STORE_HEADERS)(scope, receive, send)


class _ReadinessEndpoint:
    """Answers whether the gateway is ready; the checks only to authorized requests."""

    def __init__(
        self, health: Callable[[], GatewayHealth], is_authorized: Callable[[Scope], Awaitable[bool]]
    ) -> None:
        self._health = health
        self._is_authorized = is_authorized

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        health = self._health()
        headers = dict(_NO_STORE_HEADERS)
        if not health.is_ready:
            headers["Retry-After"] = str(RETRY_AFTER_S)
        body: dict[str, Any] = {"ready": health.is_ready, "phase": health.phase}
        if await self._is_authorized(scope):
            body["checks"] = [_to_json(check) for check in health.checks]
        await JSONResponse(body, 200 if health.is_ready else 503, headers)(scope, receive, send)


class _MetricsEndpoint:
    """Renders the metrics; one scrape at a time, because each takes memory."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._scrape_lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accept = Request(scope).headers.get("accept", "")
        async with self._scrape_lock:
            snapshot = self._metrics().take_snapshot()
            body, content_type = await asyncio.to_thread(snapshot.render, accept)
        headers = {**_NO_STORE_HEADERS, "Content-Type": content_type, "Vary": "Accept"}
        await Response(body, headers=headers)(scope, receive, send)


def _to_json(check: ReadinessCheck) -> dict[str, Any]:
    fields = {"name": check.name, "ok": check.ok, "required": check.required}
    if check.detail:
        fields["detail"] = check.detail
    return fields
