"""The bus: everyone hears what they asked for, and nobody can silence the others."""

import logging

import pytest

from portico.events import CatalogChanged, Event, EventBus, ToolCalled, ToolsFound, UpstreamReady


def test_everyone_who_subscribed_hears():
    bus, first, second = EventBus(), list[Event](), list[Event]()
    bus.subscribe(first.append)
    bus.subscribe(second.append)
    bus.publish(UpstreamReady("s"))
    assert first == second == [UpstreamReady("s")]


def test_whoever_ends_their_subscription_hears_no_more_and_may_end_it_twice():
    bus, heard = EventBus(), list[Event]()
    end = bus.subscribe(heard.append)
    end()
    end()
    bus.publish(UpstreamReady("s"))
    assert heard == []


def test_a_listener_that_fails_is_logged_and_the_others_still_hear(
    caplog: pytest.LogCaptureFixture,
):
    bus, heard = EventBus(), list[Event]()

    def fail(event: Event) -> None:
        raise RuntimeError("deaf")

    bus.subscribe(fail)
    bus.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        bus.publish(UpstreamReady("s"))
    assert heard == [UpstreamReady("s")]
    assert "a listener failed on UpstreamReady" in caplog.text


def test_subscribing_while_an_event_is_told_is_hearing_the_next_one():
    bus, heard = EventBus(), list[Event]()

    def join(event: Event) -> None:
        end()
        bus.subscribe(heard.append)

    end = bus.subscribe(join)
    bus.publish(UpstreamReady("first"))
    bus.publish(UpstreamReady("second"))
    assert heard == [UpstreamReady("second")]


@pytest.mark.parametrize("field", ["added", "removed", "changed"])
def test_a_change_is_of_tools_when_any_tool_differs(field: str):
    assert CatalogChanged("s", **{field: ("s.t",)}).tools_changed  # pyright: ignore[reportArgumentType]
    assert not CatalogChanged("s", resources_changed=True, prompts_changed=True).tools_changed


def test_whoever_asked_for_a_kind_hears_that_kind_alone():
    bus, heard = EventBus(), list[Event]()
    assert not bus.has_subscribers(ToolsFound)
    end = bus.subscribe(heard.append, ToolsFound, ToolCalled)
    assert bus.has_subscribers(ToolsFound)
    told: list[Event] = [
        ToolsFound("q", ("s.t",)),
        UpstreamReady("s"),
        ToolCalled("s.t", "h", 0.1, True),
    ]
    for event in told:
        bus.publish(event)
    assert heard == [told[0], told[2]]
    end()
    end()
    bus.publish(told[0])
    assert len(heard) == 2
    assert not bus.has_subscribers(ToolsFound)
