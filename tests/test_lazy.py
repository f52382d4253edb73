"""Properties that are worked out on first use: once, and without making others wait."""

import threading

from portico.lazy_attribute import lazy_property

TIMEOUT_S = 240


class Thing:
    def __init__(self, ready: threading.Event | None = None) -> None:
        self.begun = threading.Event()
        self.times = 0
        self._ready = ready

    @lazy_property
    def answer(self) -> int:
        """The answer."""
        self.times += 1
        self.begun.set()
        if self._ready is not None:
            assert self._ready.wait(TIMEOUT_S)
        return 42


def test_a_value_is_worked_out_once():
    thing = Thing()
    assert (thing.answer, thing.answer, thing.times) == (42, 42, 1)
    assert Thing.answer.__doc__ == "The answer."


def test_nobody_waits_for_the_value_of_another_instance():
    ready = threading.Event()
    slow = Thing(ready)
    thread = threading.Thread(target=lambda: slow.answer)
    thread.start()
    try:
        assert slow.begun.wait(TIMEOUT_S)
        assert Thing().answer == 42  # a lock of the class would be held here for ever
    finally:
        ready.set()
        thread.join(TIMEOUT_S)
    assert slow.answer == 42
