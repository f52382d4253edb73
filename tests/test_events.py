"""The bus: everyone receives what they asked for, and nobody can silence the others."""

import logging

import pytest

from portico.events import CatalogChanged, Event, EventBus, ToolCalled, ToolsFound, UpstreamReady


def test_every_subscriber_receives_every_event():
    bus, first, second = EventBus(), list[Event](), list[Event]()
    bus.subscribe(first.append)
    bus.subscribe(second.append)
    bus.publish(UpstreamReady("s"))
    assert first == second == [UpstreamReady("s")]


def test_an_ended_subscription_receives_no_more_and_may_be_ended_twice():
    bus, received = EventBus(), list[Event]()
    end = bus.subscribe(received.append)
    end()
    end()
    bus.publish(UpstreamReady("s"))
    assert received == []


def test_a_listener_that_fails_is_logged_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture,
):
    bus, received = EventBus(), list[Event]()

    def fail(event: Event) -> None:
        raise RuntimeError("deaf")

    bus.subscribe(fail)
    bus.subscribe(received.append)
    with caplog.at_level(logging.ERROR):
        bus.publish(UpstreamReady("s"))
    assert received == [UpstreamReady("s")]
    assert "a listener failed on UpstreamReady" in caplog.text


def test_subscribing_during_an_event_receives_the_next_one():
    bus, received = EventBus(), list[Event]()

    def join(event: Event) -> None:
        end()
        bus.subscribe(received.append)

    end = bus.subscribe(join)
    bus.publish(UpstreamReady("first"))
    bus.publish(UpstreamReady("second"))
    assert received == [UpstreamReady("second")]


@pytest.mark.parametrize("field", ["added", "removed", "changed"])
def test_a_change_is_of_tools_when_any_tool_differs(field: str):
    assert CatalogChanged("s", **{field: ("s.t",)}).tools_changed  # pyright: ignore[reportArgumentType]
    assert not CatalogChanged("s", resources_changed=True, prompts_changed=True).tools_changed


def test_a_subscriber_of_a_kind_receives_that_kind_alone():
    bus, received = EventBus(), list[Event]()
    assert not bus.has_subscribers(ToolsFound)
    end = bus.subscribe(received.append, ToolsFound, ToolCalled)
    assert bus.has_subscribers(ToolsFound)
    reported: list[Event] = [
        ToolsFound("q", ("s.t",)),
        UpstreamReady("s"),
        ToolCalled("s.t", "h", 0.1, True),
    ]
    for event in reported:
        bus.publish(event)
    assert received == [reported[0], reported[2]]
    end()
    end()
    bus.publish(reported[0])
    assert len(received) == 2
    assert not bus.has_subscribers(ToolsFound)
