"""Which conversations of a server are open, who uses them, and which may go."""

from portico.testing import FakeBackend
from portico.upstream.backend import Connection
from portico.upstream.lifecycle.instances import SHARED, Instances
from portico.upstream.lifecycle.supervisor import InstanceLease


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class RecordingListener:
    def on_notification(self, method: str, params: dict[str, object]) -> None: ...

    def on_lost(self, reason: str) -> None: ...


async def opened() -> Connection:
    return await FakeBackend().connect(RecordingListener())


async def test_each_is_idle_by_itself():
    clock = Clock()
    instances = Instances(clock)
    for key in (SHARED, "one", "two"):
        instances.add(key, await opened())
    clock.now = 10
    with InstanceLease(instances, "two"):
        assert instances.find_idle(10) == [SHARED, "one"], "what is in use is not idle"
    assert instances.find_idle(10) == [SHARED, "one"], "nor what was just used"
    clock.now = 20
    assert instances.find_idle(10) == [SHARED, "one", "two"]
    assert instances.find_idle(10, excluded=["one"]) == [SHARED, "two"]
    assert instances.find_idle(11) == [SHARED, "one"]


async def test_what_goes_first_is_the_longest_unused_of_the_clients_own():
    clock = Clock()
    instances = Instances(clock)
    for clock.now, key in enumerate((SHARED, "one", "two")):
        instances.add(key, await opened())
    assert instances.find_longest_idle() == "one"
    clock.now = 5
    with InstanceLease(instances, "one"):
        assert instances.find_longest_idle() == "two"
    assert instances.find_longest_idle() == "two"
    with InstanceLease(instances, "two"), InstanceLease(instances, "one"):
        assert instances.find_longest_idle() is None


async def test_one_that_is_waited_for_before_it_is_open_is_in_use_from_its_first_moment():
    instances = Instances(Clock())
    with InstanceLease(instances, "one"):
        instances.add("one", await opened())
        assert instances.find_idle(0) == []
    assert instances.find_idle(0) == ["one"]
    assert "one" not in instances.user_counts
