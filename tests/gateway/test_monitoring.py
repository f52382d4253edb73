"""Load of servers: what is counted, and what one measurement costs."""

import asyncio
import itertools

from portico.events import EventBus, ToolCalled
from portico.gateway.monitoring import MAX_RECENT_CALLS, ServerLoadMonitor
from portico.upstream.lifecycle.supervisor import Upstream
from tests.upstream.supervised import fake


async def test_calls_are_counted_for_their_server():
    bus = EventBus()
    names = ("busy", "idle", "failing")
    upstreams = {name: Upstream(name, fake(), bus) for name in names}
    monitor = ServerLoadMonitor(bus, upstreams, clock=lambda: 1_000.0)
    for number in range(1, 101):
        bus.publish(ToolCalled("busy.echo", "", number / 1_000, True))
    bus.publish(ToolCalled("failing.echo", "", 0.5, False, error="timeout"))
    bus.publish(ToolCalled("idle.echo", "", 0.5, False, cancelled=True))
    bus.publish(ToolCalled("idle.echo", "", 0.5, True, cached=True))
    bus.publish(ToolCalled("gone.echo", "", 0.5, True))
    upstreams["idle"].set_state("down", "it exited")
    measured = await monitor.measure()
    idle, busy, failing = measured["servers"]
    assert (idle["server"], idle["state"], idle["calls"]) == ("idle", "down", 0)
    assert (busy["calls"], busy["errors"], busy["last_error"]) == (100, 0, None)
    assert (busy["p50_ms"], busy["p95_ms"]) == (50.0, 95.0)
    assert (busy["calls_per_s"], failing["calls_per_s"]) == (10.0, 0.1)
    assert failing["last_error"]["error"] == "timeout"
    assert (idle["p50_ms"], idle["memory_bytes"], idle["processes"]) == (None, 0, 0)


async def test_those_who_ask_at_once_share_one_measurement():
    bus = EventBus()
    upstreams = {"one": Upstream("one", fake(), bus)}
    monitor = ServerLoadMonitor(bus, upstreams, clock=lambda: 1_000.0)
    first, second = await asyncio.gather(monitor.measure(), monitor.measure())
    assert first is second


async def test_a_flood_of_calls_keeps_only_the_latest_durations():
    bus = EventBus()
    ticks = itertools.count()
    upstreams = {"one": Upstream("one", fake(), bus)}
    monitor = ServerLoadMonitor(bus, upstreams, clock=lambda: next(ticks) / 1_000)
    for _ in range(MAX_RECENT_CALLS):
        bus.publish(ToolCalled("one.echo", "", 5.0, True))
    for _ in range(MAX_RECENT_CALLS):
        bus.publish(ToolCalled("one.echo", "", 0.001, True))
    (load,) = (await monitor.measure())["servers"]
    assert (load["calls"], load["p95_ms"]) == (2 * MAX_RECENT_CALLS, 1.0)
    assert 900 < load["calls_per_s"] < 1_100, "more came in the window than are kept"
