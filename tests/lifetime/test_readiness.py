"""When work may be sent to a gateway: not before it knows its servers, nor when it ends, whatever
else is broken."""

from pathlib import Path

import pytest

from portico.gateway.monitoring import Readiness
from portico.server.http.monitoring import GatewayHealth, ReadinessCheck
from portico.storage.gateway_store import GatewayStore
from portico.upstream.lifecycle.status import LifecycleState, UpstreamStatus


class ReadinessUnderTest:
    """A readiness check whose inputs are set by the test."""

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


def test_it_starts_until_every_server_was_listed() -> None:
    gateway = ReadinessUnderTest()
    assert (gateway.health.phase, gateway.health.is_ready) == ("starting", False)
    gateway.listed = True
    assert (gateway.health.phase, gateway.health.is_ready) == ("serving", True)


def test_a_server_that_never_answers_does_not_keep_it_starting() -> None:
    gateway = ReadinessUnderTest()
    gateway.now += 4.9
    assert gateway.health.phase == "starting"
    gateway.now += 0.2
    assert gateway.health.phase == "serving"


def test_servers_of_a_changed_configuration_do_not_make_it_start_again() -> None:
    gateway = ReadinessUnderTest()
    gateway.listed = True
    assert gateway.health.phase == "serving"
    gateway.listed = False
    assert gateway.health.phase == "serving"


@pytest.mark.parametrize("listed", [True, False])
def test_asked_to_end_it_takes_no_more_work(listed: bool) -> None:
    gateway = ReadinessUnderTest()
    gateway.listed = listed
    gateway.readiness.drain()
    assert (gateway.health.phase, gateway.health.is_ready) == ("draining", False)


@pytest.mark.parametrize("state", ["down", "quarantined", "degraded", "disabled"])
def test_a_server_in_trouble_is_named_and_the_gateway_still_ready(state: LifecycleState) -> None:
    gateway = ReadinessUnderTest()
    gateway.listed = True
    assert gateway.check("servers").ok
    gateway.states["mail"] = state
    reported = gateway.check("servers")
    assert (reported.ok, reported.detail) == (False, "1 of 2 cannot be used: mail")
    assert gateway.health.is_ready


def test_a_refused_configuration_shows_without_its_secrets() -> None:
    gateway = ReadinessUnderTest()
    gateway.listed = True
    gateway.refused = "portico.yaml:3: token: hidden-value is too short"
    reported = gateway.check("configuration")
    assert not reported.ok
    assert "hidden" not in reported.detail
    assert gateway.health.is_ready


async def test_a_record_that_cannot_be_used_shows_and_calls_go_on(tmp_path: Path) -> None:
    record = GatewayStore(f"sqlite:///{tmp_path / 'absent' / 'deep' / 'x.sqlite3'}", None)
    (tmp_path / "absent").write_text("a file where a folder should be")
    gateway = ReadinessUnderTest(record)
    gateway.listed = True
    assert gateway.check("record").ok
    await record.open()
    await record.close()
    assert not gateway.check("record").ok
    assert gateway.health.is_ready
