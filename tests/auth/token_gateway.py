"""A gateway that accepts the tokens of an issuer, over HTTP."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from portico.auth.issuer_verifier import IssuerVerifier
from portico.config import Config
from portico.gateway.rest_app import RestApp
from portico.testing import serve_http
from tests.auth.fake_issuer import FakeIssuer
from tests.gateways import TIMEOUT_S, run_gateway

PUBLIC_URL = "https://portico.example"
Headers = list[tuple[str, str]]
CAME_IN = 400
"""Status of a request without a session that was let in."""


@asynccontextmanager
async def serve_gateway(
    *issuers: FakeIssuer,
    backends: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    token: str | None = None,
    public_url: str | None = PUBLIC_URL,
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> AsyncGenerator[str]:
    """Yields the address of the default endpoint; `settings` are those of each issuer."""
    config = Config.model_validate(
        {
            "gateway": {"public_url": public_url},
            "auth": [{"issuer": issuer.url, **settings} for issuer in issuers],
            "profiles": {"work": {}, "home": {}},
            **(extra or {}),
        }
    )
    async with run_gateway(backends, config) as gateway:
        gateway.verifiers = (IssuerVerifier(config.auth, public_url, clock=clock),)
        monitoring = gateway.ensure_monitoring()
        api = RestApp(gateway)
        async with serve_http(
            gateway,
            token=token,
            verifiers=gateway.verifiers,
            public_url=public_url,
            api=api,
            metrics=lambda: monitoring.metrics,
            health=monitoring.readiness.check_health,
        ) as url:
            yield url
            api.close()


async def post(url: str, headers: Headers, content: bytes | None = None) -> httpx2.Response:
    frame = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    common = [
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ]
    async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
        return await http.request(
            "POST", url, content=content or frame, headers=[*common, *headers]
        )


async def post_token(url: str, token: str) -> httpx2.Response:
    return await post(url, [("authorization", f"Bearer {token}")])
