"""What a platform asks a running gateway: its figures, whether it lives, whether work may be sent
to it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from portico.config import Config
from portico.errors import BackendUnavailable
from portico.gateway import GatewayRuntime
from portico.gateway.monitoring import make_metric_sources
from portico.observability.metrics import Metrics
from portico.server.http.app import make_app
from portico.server.http.monitoring import GatewayHealth, Phase, ReadinessCheck, monitoring_routes
from portico.testing import connect, gateway_over
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import ask, fake, text, tool

BASE = "http://127.0.0.1:8420"
EVIL = 'evil"} 1\nportico_forged{x="'
"""What a server may call its tools, and say when it fails."""
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def measured(gateway: GatewayRuntime) -> Metrics:
    """Metrics of a gateway, as it makes its own."""
    return Metrics(gateway.bus, make_metric_sources(gateway))


@dataclass
class Watched:
    """A gateway, its application, and a platform that asks it."""

    gateway: GatewayRuntime
    http: httpx2.AsyncClient

    async def scraped(self) -> Samples:
        reply = await self.http.get("/metrics")
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(reply.text)
            for sample in family.samples
        }

    async def value(self, name: str, **labels: str) -> float:
        return (await self.scraped()).get((name, frozenset(labels.items())), 0.0)


@asynccontextmanager
async def watched(
    backends: Mapping[str, Any], config: Config | None = None
) -> AsyncGenerator[Watched]:
    async with gateway_over(backends, config) as gateway:
        metrics = measured(gateway)
        app = make_app(gateway.get_endpoints())
        app.router.routes += monitoring_routes(lambda: metrics, lambda: GatewayHealth("serving"))
        async with client(app) as http:
            yield Watched(gateway, http)


def client(app: Starlette) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=BASE)


async def asked(health: GatewayHealth, path: str = "/readyz", **options: Any) -> httpx2.Response:
    async with client(Starlette(routes=monitoring_routes(None, lambda: health, **options))) as http:
        return await http.get(path)


async def test_figures_move_by_what_clients_do() -> None:
    notes = fake("add", "read")
    notes.on_call("read", lambda _: {**text("no such note"), "isError": True})
    async with watched({"notes": notes, "mail": fake("send")}) as served:
        before = await served.scraped()
        async with connect(served.gateway, era="legacy") as client:
            for _ in range(3):
                await ask(client, "call_tool", name="notes.add", arguments={})
            await ask(client, "call_tool", name="notes.read", arguments={})
            await ask(client, "search_tools", query="send a mail")
            assert await served.value("portico_clients", era="legacy") == 1
        after = await served.scraped()
    moved = {key: value - before.get(key, 0.0) for key, value in after.items()}

    def by(name: str, **labels: str) -> float:
        return moved[name, frozenset(labels.items())]

    assert by("portico_calls_total", server="notes", outcome="ok") == 3
    assert by("portico_calls_total", server="notes", outcome="error") == 1
    assert by("portico_call_errors_total", server="notes", kind="tool_error") == 1
    assert by("portico_call_seconds_count", server="notes") == 4
    assert by("portico_searches_total", outcome="found") == 1
    assert by("portico_search_seconds_count") == 1
    assert by("portico_answers_total") > 0
    assert ("portico_calls_total", frozenset({("server", "mail"), ("outcome", "ok")})) not in after
    assert after["portico_catalog_servers", frozenset()] == 2
    assert after["portico_catalog_tools", frozenset({("server", "notes")})] == 2
    assert after["portico_backend_state", frozenset({("server", "mail"), ("state", "ready")})] == 1


async def test_nothing_that_a_server_says_is_in_a_scrape() -> None:
    hostile = fake(instructions=EVIL)
    hostile.listing["tools"] = [tool(EVIL, EVIL)]

    def fail(_: Raw) -> Raw:
        raise BackendUnavailable(EVIL)

    hostile.on_call(EVIL, fail)
    async with watched({"hostile": hostile}) as served:
        (found,) = served.gateway.catalog.snapshot.tools.values()
        with pytest.raises(BackendUnavailable):
            await served.gateway.calls.call(found, {})
        hostile.die(EVIL)
        reply = await served.http.get("/metrics")
        assert "evil" not in reply.text
        assert "forged" not in reply.text
        assert (
            await served.value("portico_call_errors_total", server="hostile", kind="unavailable")
            == 1
        )


async def test_answers_from_the_cache_are_hits_and_no_calls_of_the_tool() -> None:
    config = Config.model_validate(
        {"servers": {"clock": {"functions": "tests.server.http.test_monitoring:CLOCK"}}}
    )
    clock = config.servers["clock"].model_copy(
        update={"cache": config.servers["clock"].cache.model_copy(update={"tools": {"*": 60}})}
    )
    config = config.model_copy(update={"servers": {"clock": clock}})
    async with watched({}, config) as served:
        (now,) = served.gateway.catalog.snapshot.tools.values()
        for _ in range(4):
            await served.gateway.calls.call(now, {})
        assert await served.value("portico_cache_misses_total") == 1
        assert await served.value("portico_cache_hits_total") == 3
        assert await served.value("portico_cache_entries") == 1
        assert await served.value("portico_calls_total", server="clock", outcome="cached") == 3
        assert await served.value("portico_call_seconds_count", server="clock") == 1


def now() -> str:
    """What time it is."""
    return "late"


CLOCK = [now]


async def test_scrapes_at_the_same_time_are_all_answered() -> None:
    async with watched({"s": fake("run")}) as served:
        replies = await asyncio.wait_for(
            asyncio.gather(*(served.http.get("/metrics") for _ in range(20))), 60
        )
    assert {reply.status_code for reply in replies} == {200}


async def test_metrics_are_not_there_where_they_are_switched_off() -> None:
    assert (await asked(GatewayHealth("serving"), "/metrics")).status_code == 404


@pytest.mark.parametrize("phase", ["starting", "serving", "draining"])
async def test_liveness_is_answered_in_every_phase(phase: Phase) -> None:
    reply = await asked(
        GatewayHealth(phase, (ReadinessCheck("disk", False, "it is full"),)), "/healthz"
    )
    assert (reply.status_code, reply.text) == (200, "ok\n")
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("health", "ready"),
    [
        (GatewayHealth("starting"), False),
        (GatewayHealth("serving"), True),
        (GatewayHealth("draining"), False),
        (
            GatewayHealth(
                "serving", (ReadinessCheck("record", True), ReadinessCheck("disk", True))
            ),
            True,
        ),
        (
            GatewayHealth(
                "serving", (ReadinessCheck("record", True), ReadinessCheck("disk", False))
            ),
            False,
        ),
        (
            GatewayHealth(
                "serving",
                (ReadinessCheck("record", True), ReadinessCheck("servers", False, required=False)),
            ),
            True,
        ),
        (GatewayHealth("starting", (ReadinessCheck("record", True),)), False),
    ],
)
async def test_work_may_be_sent_while_it_serves_and_nothing_it_needs_is_broken(
    health: GatewayHealth, ready: bool
) -> None:
    reply = await asked(health)
    assert reply.status_code == (200 if ready else 503)
    assert reply.json()["ready"] is ready
    assert ("retry-after" in reply.headers) is not ready


async def test_checks_are_shown_only_with_the_token() -> None:
    health = GatewayHealth(
        "serving",
        (
            ReadinessCheck("record", False, "no route to the database", required=False),
            ReadinessCheck("disk", True),
        ),
    )
    trusted = await asked(health)
    assert trusted.json() == {
        "ready": True,
        "phase": "serving",
        "checks": [
            {
                "name": "record",
                "ok": False,
                "required": False,
                "detail": "no route to the database",
            },
            {"name": "disk", "ok": True, "required": True},
        ],
    }

    async def refuse_everybody(_: Any) -> bool:
        return False

    stranger = await asked(health, is_authorized=refuse_everybody)
    assert stranger.json() == {"ready": True, "phase": "serving"}


async def test_each_path_has_its_own_guard() -> None:
    def refusing(status: int) -> Callable[[Any], Any]:
        async def refuse(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        class Refusing:
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                await refuse(scope, receive, send)

        return lambda _: Refusing()

    routes = monitoring_routes(
        lambda: pytest.fail("it was let in"),
        lambda: pytest.fail("it was let in"),
        with_auth=refusing(401),
        with_host_check=refusing(421),
    )
    async with client(Starlette(routes=routes)) as http:
        found = {
            path: (await http.get(path)).status_code for path in ("/metrics", "/healthz", "/readyz")
        }
        assert found == {"/metrics": 401, "/healthz": 421, "/readyz": 421}
        assert (await http.post("/metrics")).status_code == 405
