"""When a server that failed is tried again: pauses that double, one try at a time, quarantine, and
the way out."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from portico.config import RestartConfig
from portico.upstream.lifecycle.restart_circuit_breaker import (
    STABLE_UPTIME_S,
    CircuitBreaker,
    StartRefusal,
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def made(
    clock: Clock, *, command: bool = True, chance: Callable[[], float] = lambda: 0.0, **rule: float
) -> CircuitBreaker:
    return CircuitBreaker(
        RestartConfig.model_validate(rule),
        can_quarantine=command,
        clock=clock,
        random_fraction=chance,
    )


def refusal(breaker: CircuitBreaker) -> StartRefusal:
    found = breaker.get_refusal()
    assert found is not None
    return found


def test_what_nothing_is_known_against_may_be_started_by_anyone():
    breaker = made(Clock())
    assert (breaker.phase, breaker.get_refusal(), breaker.has_failures) == ("closed", None, False)
    breaker.begin_start()
    assert breaker.get_refusal() is None, "a first start is no trial: every request waits for it"


def test_pauses_double_up_to_the_longest():
    clock = Clock()
    breaker, waits = made(clock, command=False, pause_s=2, longest_s=30), list[float | None]()
    for _ in range(6):
        breaker.record_failure("no")
        waits.append(refusal(breaker).retry_after_s)
        clock.now += waits[-1] or 0
    assert waits == [2, 4, 8, 16, 30, 30]


def test_chance_makes_a_pause_shorter_and_never_longer():
    clock = Clock()
    for chance, wait in ((0.0, 10.0), (0.5, 9.0), (1.0, 8.0)):
        breaker = made(clock, command=False, chance=lambda chance=chance: chance, pause_s=10)
        breaker.record_failure("no")
        assert breaker.retry_after_s == pytest.approx(wait)


def test_when_the_pause_is_over_there_is_one_trial_and_everyone_else_is_answered_at_once():
    clock = Clock()
    breaker = made(clock, pause_s=5)
    breaker.record_failure("the key is missing", now=77.0)
    assert (breaker.phase, refusal(breaker)) == (
        "open",
        StartRefusal("the key is missing", 77.0, 5.0),
    )
    clock.now += 5
    assert (breaker.phase, breaker.get_refusal()) == ("half-open", None)
    breaker.begin_start()
    assert (breaker.phase, refusal(breaker)) == (
        "half-open",
        StartRefusal("the key is missing", 77.0, 0.0),
    )
    breaker.record_failure("still", now=99.0)
    assert (breaker.phase, refusal(breaker)) == ("open", StartRefusal("still", 77.0, 10.0))


def test_a_trial_that_nobody_lets_end_is_free_for_the_next():
    clock = Clock()
    breaker = made(clock)
    breaker.record_failure("no")
    clock.now += 1
    breaker.begin_start()
    breaker.end_start()
    assert (breaker.phase, breaker.get_refusal()) == ("half-open", None)


def test_an_answer_closes_it_and_only_a_steady_life_clears_the_record():
    clock = Clock()
    breaker = made(clock, tries=2)
    breaker.record_failure("no")
    breaker.record_success(uptime=1)
    assert (breaker.phase, breaker.failures, breaker.has_failures) == ("closed", 1, True)
    breaker.record_success(uptime=STABLE_UPTIME_S)
    assert (breaker.phase, breaker.failures, breaker.has_failures, breaker.reason) == (
        "closed",
        0,
        False,
        "",
    )


def test_a_command_that_fails_too_often_within_the_window_is_quarantined():
    clock = Clock()
    breaker = made(clock, tries=3, window_s=100, quarantine_s=1_000)
    for _ in range(3):
        breaker.record_failure("no")
        clock.now += 10
    assert (breaker.quarantined, breaker.phase, breaker.failures) == (True, "open", 3)
    assert refusal(breaker).quarantined
    clock.now += 989
    assert breaker.phase == "open"
    clock.now += 1
    assert (breaker.phase, breaker.get_refusal()) == ("half-open", None)
    breaker.begin_start()
    breaker.record_failure("no")
    assert (breaker.quarantined, breaker.retry_after_s) == (True, 1_000.0), (
        "one failure after a quarantine is enough"
    )


def test_failures_that_lie_far_apart_lead_to_no_quarantine():
    clock = Clock()
    breaker = made(clock, tries=3, window_s=100)
    for _ in range(10):
        breaker.record_failure("no")
        clock.now += 60
    assert not breaker.quarantined


def test_a_quarantine_without_an_end_is_ended_by_a_person():
    clock = Clock()
    breaker = made(clock, tries=1, quarantine_s=0)
    breaker.record_failure("no")
    clock.now += 1e9
    assert (breaker.phase, refusal(breaker).retry_after_s) == ("open", None)
    breaker.reset()
    assert (breaker.phase, breaker.get_refusal(), breaker.quarantined) == ("closed", None, False)


def test_a_server_elsewhere_is_never_quarantined_but_tried_once_in_each_longest_pause():
    clock = Clock()
    breaker = made(clock, command=False, tries=3, longest_s=60)
    for _ in range(20):
        breaker.record_failure("nobody is there")
        clock.now += breaker.retry_after_s or 0
    assert not breaker.quarantined
    breaker.begin_start()
    breaker.record_failure("nobody is there")
    assert breaker.retry_after_s == 60.0


def test_one_death_at_work_costs_nothing_and_many_lead_to_quarantine():
    clock = Clock()
    breaker = made(clock, tries=3)
    for _ in range(2):
        breaker.record_crash("exited with code 4")
        assert (breaker.phase, breaker.get_refusal()) == ("closed", None)
        breaker.record_success(uptime=1)
    breaker.record_crash("exited with code 4")
    assert (breaker.phase, breaker.quarantined) == ("open", True)


def test_one_elsewhere_that_no_longer_answers_again_and_again_is_given_a_pause():
    breaker = made(Clock(), command=False, tries=2, longest_s=60)
    breaker.record_crash("silent")
    assert breaker.get_refusal() is None
    breaker.record_crash("silent")
    assert (breaker.phase, breaker.retry_after_s, breaker.quarantined) == ("open", 60.0, False)


def test_another_rule_starts_a_new_record():
    breaker = made(Clock(), tries=1)
    breaker.record_failure("no")
    breaker.configure(RestartConfig(tries=9))
    assert (breaker.phase, breaker.failures) == ("closed", 0)


class Lives(RuleBasedStateMachine):
    """Any life of a server, step by step; `connected` and `tries` are what a supervisor would do
    and see."""

    command = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.rule = RestartConfig(pause_s=1, longest_s=8, tries=3, window_s=50, quarantine_s=100)
        self.breaker = CircuitBreaker(
            self.rule, can_quarantine=self.command, clock=self.clock, random_fraction=lambda: 0.5
        )
        self.starting = 0
        self.up = False

    @rule(seconds=st.floats(0, 120))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: not self.up)
    @rule(ends=st.sampled_from(["up", "failed", "cancelled"]))
    def someone_calls(self, ends: str) -> None:
        if self.breaker.get_refusal() is not None:
            return
        trial = self.breaker.phase == "half-open"
        self.breaker.begin_start()
        assert (self.breaker.get_refusal() is not None) == trial, (
            "of a trial there is one; of a first start all take part"
        )
        if ends == "failed":
            self.breaker.record_failure("no")
            assert self.breaker.get_refusal() is not None
        self.up = ends == "up"
        self.breaker.end_start()

    @precondition(lambda self: self.up)
    @rule(age=st.floats(0, 60))
    def it_answers(self, age: float) -> None:
        self.breaker.record_success(age)
        assert self.breaker.phase == "closed"

    @precondition(lambda self: self.up)
    @rule(at_work=st.booleans())
    def it_dies(self, at_work: bool) -> None:
        (self.breaker.record_crash if at_work else self.breaker.record_failure)("gone")
        self.up = False

    @rule()
    def a_person_restarts_it(self) -> None:
        self.breaker.reset()
        assert self.breaker.get_refusal() is None

    @invariant()
    def nobody_waits_longer_than_the_rule_says(self) -> None:
        found = self.breaker.get_refusal()
        longest = self.rule.quarantine_s if self.breaker.quarantined else self.rule.longest_s
        assert found is None or (found.retry_after_s is not None and found.retry_after_s <= longest)
        assert found is None or found.reason

    @invariant()
    def only_commands_are_put_in_quarantine(self) -> None:
        assert self.command or not self.breaker.quarantined
        assert self.breaker.failures == 0 or self.breaker.has_failures


class LivesElsewhere(Lives):
    command = False


SOME = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
TestCommands = Lives.TestCase
TestCommands.settings = SOME
TestElsewhere = LivesElsewhere.TestCase
TestElsewhere.settings = SOME
