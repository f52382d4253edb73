"""Figures: they move by what happened, and nothing that somebody else said is ever in them."""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from portico.events import EventBus, ScriptRan, SearchCompleted, ToolCalled, WorkflowRan
from portico.observability.metrics import (
    LATENCY_BOUNDS_S,
    OTHER_LABEL,
    CacheStatistics,
    EventLoopLag,
    Histogram,
    Metrics,
    MetricSources,
    RequestLoad,
    ServerToolCounts,
    StoredItems,
    list_error_kinds,
)
from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.status import LifecycleState, UpstreamStatus

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "monitoring.md"
EVERYTHING = MetricSources(
    statuses=lambda: [
        UpstreamStatus(
            "mail",
            "stdio",
            "ready",
            12.5,
            calls=7,
            restarts=2,
            memory_bytes=4_096,
            breaker_phase="half-open",
            failures=3,
        ),
        UpstreamStatus(
            "notes", "http", "down", 99.0, "its last words", diagnostics={"instances": 4}
        ),
    ],
    tokens=lambda: LedgerTotal(sessions=2, listing=900, shown=1_000, answers=5),
    catalog=lambda: lambda: {"mail": ServerToolCounts(10, 3), "notes": ServerToolCounts(20, 4)},
    cache=lambda: CacheStatistics(5, 6, StoredItems(7, 8)),
    results=lambda: StoredItems(9, 10),
    workers=lambda: {"lua": (1, 2), "python": (3, None)},
    clients=lambda: {"legacy": 11, "modern": 12},
    request_load=lambda: RequestLoad(13, 14, 15),
    is_record_usable=lambda: False,
    is_audit_usable=lambda: True,
    is_config_usable=lambda: False,
)
Key = tuple[str, frozenset[tuple[str, str]]]


class Figures:
    """Metrics over a bus, read as a scraper reads them."""

    def __init__(self, sources: MetricSources = EVERYTHING) -> None:
        self.bus = EventBus()
        self.metrics = Metrics(self.bus, sources)

    def samples(self) -> Mapping[Key, float]:
        body, _ = self.metrics.render()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get((name, frozenset(labels.items())))

    def called(
        self, tool: str = "mail.send", seconds: float = 0.02, ok: bool = True, **more: Any
    ) -> None:
        self.bus.publish(ToolCalled(tool, "hash", seconds, ok, **more))


def test_calls_are_counted_by_server_and_by_how_they_ended() -> None:
    figures = Figures()
    for _ in range(3):
        figures.called()
    figures.called(ok=False, error="timeout")
    figures.called(ok=False, error="tool_error")
    figures.called(ok=False, error="tool_error")
    figures.called(ok=False, cancelled=True)
    figures.called(cached=True)
    figures.called("notes.add")
    counts = {
        outcome: figures.value("portico_calls_total", server="mail", outcome=outcome)
        for outcome in ("ok", "error", "cancelled", "cached")
    }
    assert counts == {"ok": 3, "error": 3, "cancelled": 1, "cached": 1}
    assert figures.value("portico_call_errors_total", server="mail", kind="tool_error") == 2
    assert figures.value("portico_call_errors_total", server="mail", kind="timeout") == 1
    assert figures.value("portico_calls_total", server="notes", outcome="ok") == 1


def test_latencies_are_those_of_calls_that_ran_to_their_end() -> None:
    figures = Figures()
    for seconds in (0.001, 0.0011, 0.3, 61.0):
        figures.called(seconds=seconds)
    figures.called(seconds=7.0, ok=False, error="timeout")
    figures.called(seconds=9.0, cached=True)
    figures.called(seconds=9.0, ok=False, cancelled=True)

    def up_to(bound: str) -> float | None:
        return figures.value("portico_call_seconds_bucket", server="mail", le=bound)

    assert [
        up_to(bound) for bound in ("0.001", "0.0025", "0.25", "0.5", "10.0", "60.0", "+Inf")
    ] == [
        1,
        2,
        2,
        3,
        4,
        4,
        5,
    ]
    assert figures.value("portico_call_seconds_count", server="mail") == 5
    assert figures.value("portico_call_seconds_sum", server="mail") == pytest.approx(68.3021)


@given(st.lists(st.floats(min_value=0, max_value=200)))
def test_a_histogram_has_every_value_in_every_bucket_that_reaches_it(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    *finite, (end, whole) = histogram.list_buckets()
    assert (end, whole) == ("+Inf", len(values))
    assert [count for _, count in finite] == [
        sum(value <= bound for value in values) for bound in LATENCY_BOUNDS_S
    ]


@settings(max_examples=40)
@given(tool=st.text(), error=st.text())
def test_what_a_server_says_never_becomes_a_label(tool: str, error: str) -> None:
    figures = Figures()
    figures.called(f"{tool}.x", ok=False, error=error)
    server = tool.partition(".")[0]
    labels = {
        value
        for (name, pairs) in figures.samples()
        for key, value in pairs
        if name.startswith("portico_call") and key in ("server", "kind")
    }
    assert labels <= {"mail", "notes", OTHER_LABEL, *list_error_kinds()}
    assert figures.value(
        "portico_calls_total",
        server=server if server in ("mail", "notes") else OTHER_LABEL,
        outcome="error",
    )


def test_searches_scripts_and_workflows_are_counted_by_what_they_came_to() -> None:
    figures = Figures()
    for event in (
        SearchCompleted(0.01, True),
        SearchCompleted(0.02, True),
        SearchCompleted(0.03, False),
        ScriptRan("lua", 0.5, "ok"),
        ScriptRan("lua", 1.5, "time"),
        ScriptRan("python", 2.5, "ok"),
        WorkflowRan(3.5, "finished"),
    ):
        figures.bus.publish(event)
    assert figures.value("portico_searches_total", outcome="found") == 2
    assert figures.value("portico_searches_total", outcome="nothing") == 1
    assert figures.value("portico_search_seconds_sum") == pytest.approx(0.06)
    assert figures.value("portico_scripts_total", language="lua", outcome="time") == 1
    assert figures.value("portico_script_seconds_count", language="lua") == 2
    assert figures.value("portico_workflows_total", outcome="finished") == 1
    assert figures.value("portico_workflow_seconds_bucket", le="5.0") == 1


def test_gauges_are_what_their_places_say() -> None:
    figures = Figures()
    for name, labels, value in (
        ("portico_backend_state_since_seconds", {"server": "mail"}, 12.5),
        ("portico_backend_requests_total", {"server": "mail"}, 7),
        ("portico_backend_restarts_total", {"server": "mail"}, 2),
        ("portico_backend_failures", {"server": "mail"}, 3),
        ("portico_backend_memory_bytes", {"server": "mail"}, 4_096),
        ("portico_backend_memory_bytes", {"server": "notes"}, None),
        ("portico_backend_instances", {"server": "notes"}, 4),
        ("portico_backend_instances", {"server": "mail"}, None),
        ("portico_backend_breaker", {"server": "mail", "state": "half_open"}, 1),
        ("portico_backend_breaker", {"server": "mail", "state": "closed"}, 0),
        ("portico_catalog_servers", {}, 2),
        ("portico_catalog_tools", {"server": "notes"}, 20),
        ("portico_catalog_tools_unencoded", {}, 7),
        ("portico_tokens_shown_total", {}, 1_000),
        ("portico_tokens_listing_total", {}, 900),
        ("portico_tokens_saved", {}, -100),
        ("portico_answers_total", {}, 5),
        ("portico_sessions_total", {}, 2),
        ("portico_cache_hits_total", {}, 5),
        ("portico_cache_misses_total", {}, 6),
        ("portico_cache_entries", {}, 7),
        ("portico_cache_bytes", {}, 8),
        ("portico_results", {}, 9),
        ("portico_results_bytes", {}, 10),
        ("portico_record_usable", {}, 0),
        ("portico_audit_usable", {}, 1),
        ("portico_configuration_usable", {}, 0),
        ("portico_sandbox_workers", {"engine": "lua", "state": "idle"}, 2),
        ("portico_sandbox_workers", {"engine": "python", "state": "busy"}, 3),
        ("portico_sandbox_workers", {"engine": "python", "state": "idle"}, None),
        ("portico_clients", {"era": "modern"}, 12),
        ("portico_requests_in_flight", {}, 13),
        ("portico_requests_waiting", {}, 14),
        ("portico_requests_turned_away_total", {}, 15),
    ):
        assert figures.value(name, **labels) == value, (name, labels)


def test_a_server_is_in_exactly_one_of_all_states() -> None:
    samples = Figures().samples()
    states = {
        dict(labels)["state"]: value
        for (name, labels), value in samples.items()
        if name == "portico_backend_state" and ("server", "notes") in labels
    }
    assert states == {state: float(state == "down") for state in get_args(LifecycleState)}


def test_unknown_figures_are_left_out() -> None:
    names = {name for name, _ in Figures(MetricSources()).samples()}
    assert "portico_searches_total" in names
    assert not {"portico_cache_hits_total", "portico_clients", "portico_record_usable"} & names


def test_no_reason_of_a_server_is_in_the_text() -> None:
    body, _ = Figures().metrics.render()
    assert b"last words" not in body


def test_a_scraper_that_asks_for_openmetrics_gets_it_and_any_other_the_plain_text() -> None:
    figures = Figures()
    figures.called()
    for accept in (
        "application/openmetrics-text; version=1.0.0; q=0.9, */*",
        "Application/OpenMetrics-Text",
    ):
        body, kind = figures.metrics.render(accept)
        assert kind.startswith("application/openmetrics-text")
        assert "portico_calls" in {family.name for family in openmetrics_families(body.decode())}
    for accept in ("", "text/html", "text/plain; version=nonsense", "*/*", "\n"):
        assert figures.metrics.render(accept)[1].startswith("text/plain; version=0.0.4")


def test_two_gateways_in_one_process_count_apart() -> None:
    one, other = Figures(), Figures()
    one.called()
    assert one.value("portico_calls_total", server="mail", outcome="ok") == 1
    assert other.value("portico_calls_total", server="mail", outcome="ok") is None


def test_a_reading_stays_as_it_was() -> None:
    figures = Figures()
    figures.called()
    reading = figures.metrics.take_snapshot()
    figures.called()
    assert b'portico_calls_total{outcome="ok",server="mail"} 1.0' in reading.render()[0]


def test_after_the_end_nothing_is_counted() -> None:
    figures = Figures()
    figures.metrics.unsubscribe()
    figures.called()
    assert figures.value("portico_calls_total", server="mail", outcome="ok") is None


async def test_work_that_blocks_the_event_loop_shows_as_its_lag() -> None:
    lag = EventLoopLag()
    watching = asyncio.create_task(lag.measure())
    assert lag.max_delay_s == 0
    async with asyncio.timeout(240):
        while lag.max_delay_s < 0.2:
            await asyncio.sleep(0)
            time.sleep(0.3)  # noqa: ASYNC251 - this is what is measured
    watching.cancel()
    await asyncio.wait({watching})


def list_metrics() -> set[str]:
    """Every metric that a scrape may show."""
    figures = Figures()
    figures.called(ok=False, error="timeout")
    figures.bus.publish(ScriptRan("lua", 0.5, "ok"))
    figures.bus.publish(WorkflowRan(0.5, "failed"))
    body, _ = figures.metrics.render()
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(body.decode())
    }


def test_every_metric_that_an_alert_looks_at_exists() -> None:
    alerts = DOCS.read_text().partition("## Alerts")[2].partition("## Health")[0]
    names = set(re.findall(r"\b(?:portico|process)_[a-z_]+", alerts))
    assert len(names) > 5
    assert {name.removesuffix("_bucket") for name in names} <= list_metrics() | {
        "process_open_fds",
        "process_max_fds",
    }


def test_what_speaks_prometheus_is_loaded_by_the_first_scrape() -> None:
    code = (
        "import sys; from portico.events import EventBus; from "
        "portico.observability.metrics import Metrics;"
        "import portico.gateway; metrics = Metrics(EventBus()); before = "
        "'prometheus_client' in sys.modules;"
        "metrics.render(); print(before, 'prometheus_client' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.split() == ["False", "True"]
