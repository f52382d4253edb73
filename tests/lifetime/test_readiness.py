"""When work may be sent to a gateway: not before it knows its servers, nor when it ends, whatever
else is broken."""

from pathlib import Path

import pytest

from portico.app.readiness import Readiness
from portico.server.http.monitoring import GatewayHealth, ReadinessCheck
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.supervisor import LifecycleState, UpstreamStatus


class House:
    """What a readiness looks at, to be set by hand."""

    def __init__(self, record: GatewayStore | None = None) -> None:
        self.now = 100.0
        self.listed = False
        self.refused = ""
        self.states: dict[str, LifecycleState] = {"mail": "ready", "notes": "known"}
        self.readiness = Readiness(
            lambda: self.listed,
            lambda: [
                UpstreamStatus(name, "stdio", state, 0.0) for name, state in self.states.items()
            ],
            record or GatewayStore(None, None),
            lambda: self.refused,
            start_timeout_s=5,
            clock=lambda: self.now,
        )

    @property
    def health(self) -> GatewayHealth:
        return self.readiness.check_health()

    def check(self, name: str) -> ReadinessCheck:
        return next(check for check in self.health.checks if check.name == name)


def test_it_starts_until_every_server_was_heard() -> None:
    house = House()
    assert (house.health.phase, house.health.is_ready) == ("starting", False)
    house.listed = True
    assert (house.health.phase, house.health.is_ready) == ("serving", True)


def test_a_server_that_never_answers_does_not_keep_it_starting() -> None:
    house = House()
    house.now += 4.9
    assert house.health.phase == "starting"
    house.now += 0.2
    assert house.health.phase == "serving"


def test_servers_of_a_changed_configuration_do_not_make_it_start_again() -> None:
    house = House()
    house.listed = True
    assert house.health.phase == "serving"
    house.listed = False
    assert house.health.phase == "serving"


@pytest.mark.parametrize("listed", [True, False])
def test_told_to_end_it_takes_no_more_work(listed: bool) -> None:
    house = House()
    house.listed = listed
    house.readiness.drain()
    assert (house.health.phase, house.health.is_ready) == ("draining", False)


@pytest.mark.parametrize("state", ["down", "quarantined", "degraded", "disabled"])
def test_a_server_in_trouble_is_named_and_the_gateway_still_ready(state: LifecycleState) -> None:
    house = House()
    house.listed = True
    assert house.check("servers").ok
    house.states["mail"] = state
    told = house.check("servers")
    assert (told.ok, told.detail) == (False, "1 of 2 cannot be used: mail")
    assert house.health.is_ready


def test_a_refused_configuration_shows_without_its_secrets() -> None:
    house = House()
    house.listed = True
    house.refused = "portico.yaml:3: token: hidden-value is too short"
    told = house.check("configuration")
    assert not told.ok
    assert "hidden" not in told.detail
    assert house.health.is_ready


async def test_a_record_that_cannot_be_used_shows_and_calls_go_on(tmp_path: Path) -> None:
    record = GatewayStore(f"sqlite:///{tmp_path / 'absent' / 'deep' / 'x.sqlite3'}", None)
    (tmp_path / "absent").write_text("a file where a folder should be")
    house = House(record)
    house.listed = True
    assert house.check("record").ok
    await record.open()
    await record.close()
    assert not house.check("record").ok
    assert house.health.is_ready
