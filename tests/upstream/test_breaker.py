"""When a server that failed is tried again: pauses that double, one try at a time, quarantine, and the way out."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from portico.config import Restart
from portico.upstream.breaker import STEADY_S, Breaker, Refusal


class Clock:
    """A time that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, *, command: bool = True, chance: Callable[[], float] = lambda: 0.0, **rule: float) -> Breaker:
    return Breaker(Restart.model_validate(rule), command=command, clock=clock, chance=chance)


def refusal(breaker: Breaker) -> Refusal:
    found = breaker.refusal()
    assert found is not None
    return found


def test_what_nothing_is_known_against_may_be_started_by_anyone():
    breaker = made(Clock())
    assert (breaker.phase, breaker.refusal(), breaker.troubled) == ("closed", None, False)
    breaker.begin()
    assert breaker.refusal() is None, "a first start is no trial: whoever comes waits for it"


def test_pauses_double_up_to_the_longest():
    clock = Clock()
    breaker, waits = made(clock, command=False, pause_s=2, longest_s=30), list[float | None]()
    for _ in range(6):
        breaker.failed("no")
        waits.append(refusal(breaker).wait)
        clock.now += waits[-1] or 0
    assert waits == [2, 4, 8, 16, 30, 30]


def test_chance_makes_a_pause_shorter_and_never_longer():
    clock = Clock()
    for chance, wait in ((0.0, 10.0), (0.5, 9.0), (1.0, 8.0)):
        breaker = made(clock, command=False, chance=lambda chance=chance: chance, pause_s=10)
        breaker.failed("no")
        assert breaker.wait == pytest.approx(wait)


def test_when_the_pause_is_over_there_is_one_trial_and_everyone_else_is_answered_at_once():
    clock = Clock()
    breaker = made(clock, pause_s=5)
    breaker.failed("the key is missing", now=77.0)
    assert (breaker.phase, refusal(breaker)) == ("open", Refusal("the key is missing", 77.0, 5.0))
    clock.now += 5
    assert (breaker.phase, breaker.refusal()) == ("half-open", None)
    breaker.begin()
    assert (breaker.phase, refusal(breaker)) == ("half-open", Refusal("the key is missing", 77.0, 0.0))
    breaker.failed("still", now=99.0)
    assert (breaker.phase, refusal(breaker)) == ("open", Refusal("still", 77.0, 10.0))


def test_a_trial_that_nobody_lets_end_is_free_for_the_next():
    clock = Clock()
    breaker = made(clock)
    breaker.failed("no")
    clock.now += 1
    breaker.begin()
    breaker.decided()
    assert (breaker.phase, breaker.refusal()) == ("half-open", None)


def test_an_answer_closes_it_and_only_a_steady_life_clears_the_record():
    clock = Clock()
    breaker = made(clock, tries=2)
    breaker.failed("no")
    breaker.answered(age=1)
    assert (breaker.phase, breaker.failures, breaker.troubled) == ("closed", 1, True)
    breaker.answered(age=STEADY_S)
    assert (breaker.phase, breaker.failures, breaker.troubled, breaker.reason) == ("closed", 0, False, "")


def test_a_command_that_fails_too_often_within_the_window_is_left_alone():
    clock = Clock()
    breaker = made(clock, tries=3, window_s=100, quarantine_s=1_000)
    for _ in range(3):
        breaker.failed("no")
        clock.now += 10
    assert (breaker.quarantined, breaker.phase, breaker.failures) == (True, "open", 3)
    assert refusal(breaker).quarantined
    clock.now += 989
    assert breaker.phase == "open"
    clock.now += 1
    assert (breaker.phase, breaker.refusal()) == ("half-open", None)
    breaker.begin()
    breaker.failed("no")
    assert (breaker.quarantined, breaker.wait) == (True, 1_000.0), "one failure after a quarantine is enough"


def test_failures_that_lie_far_apart_lead_to_no_quarantine():
    clock = Clock()
    breaker = made(clock, tries=3, window_s=100)
    for _ in range(10):
        breaker.failed("no")
        clock.now += 60
    assert not breaker.quarantined


def test_a_quarantine_without_an_end_is_ended_by_a_person():
    clock = Clock()
    breaker = made(clock, tries=1, quarantine_s=0)
    breaker.failed("no")
    clock.now += 1e9
    assert (breaker.phase, refusal(breaker).wait) == ("open", None)
    breaker.reset()
    assert (breaker.phase, breaker.refusal(), breaker.quarantined) == ("closed", None, False)


def test_a_server_elsewhere_is_never_left_alone_but_tried_once_in_each_longest_pause():
    clock = Clock()
    breaker = made(clock, command=False, tries=3, longest_s=60)
    for _ in range(20):
        breaker.failed("nobody is there")
        clock.now += breaker.wait or 0
    assert not breaker.quarantined
    breaker.begin()
    breaker.failed("nobody is there")
    assert breaker.wait == 60.0


def test_one_death_at_work_costs_nothing_and_many_lead_to_quarantine():
    clock = Clock()
    breaker = made(clock, tries=3)
    for _ in range(2):
        breaker.died("exited with code 4")
        assert (breaker.phase, breaker.refusal()) == ("closed", None)
        breaker.answered(age=1)
    breaker.died("exited with code 4")
    assert (breaker.phase, breaker.quarantined) == ("open", True)


def test_one_elsewhere_that_no_longer_answers_again_and_again_is_given_a_pause():
    breaker = made(Clock(), command=False, tries=2, longest_s=60)
    breaker.died("silent")
    assert breaker.refusal() is None
    breaker.died("silent")
    assert (breaker.phase, breaker.wait, breaker.quarantined) == ("open", 60.0, False)


def test_another_rule_begins_anew():
    breaker = made(Clock(), tries=1)
    breaker.failed("no")
    breaker.configure(Restart(tries=9))
    assert (breaker.phase, breaker.failures) == ("closed", 0)


class Lives(RuleBasedStateMachine):
    """Any life of a server, step by step; `connected` and `tries` are what a supervisor would do and see."""

    command = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.rule = Restart(pause_s=1, longest_s=8, tries=3, window_s=50, quarantine_s=100)
        self.breaker = Breaker(self.rule, command=self.command, clock=self.clock, chance=lambda: 0.5)
        self.starting = 0
        self.up = False

    @rule(seconds=st.floats(0, 120))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @precondition(lambda self: not self.up)
    @rule(ends=st.sampled_from(["up", "failed", "cancelled"]))
    def someone_calls(self, ends: str) -> None:
        if self.breaker.refusal() is not None:
            return
        trial = self.breaker.phase == "half-open"
        self.breaker.begin()
        assert (self.breaker.refusal() is not None) == trial, "of a trial there is one; of a first start all take part"
        if ends == "failed":
            self.breaker.failed("no")
            assert self.breaker.refusal() is not None
        self.up = ends == "up"
        self.breaker.decided()

    @precondition(lambda self: self.up)
    @rule(age=st.floats(0, 60))
    def it_answers(self, age: float) -> None:
        self.breaker.answered(age)
        assert self.breaker.phase == "closed"

    @precondition(lambda self: self.up)
    @rule(at_work=st.booleans())
    def it_dies(self, at_work: bool) -> None:
        (self.breaker.died if at_work else self.breaker.failed)("gone")
        self.up = False

    @rule()
    def a_person_restarts_it(self) -> None:
        self.breaker.reset()
        assert self.breaker.refusal() is None

    @invariant()
    def nobody_waits_longer_than_the_rule_says(self) -> None:
        found = self.breaker.refusal()
        longest = self.rule.quarantine_s if self.breaker.quarantined else self.rule.longest_s
        assert found is None or (found.wait is not None and found.wait <= longest)
        assert found is None or found.reason

    @invariant()
    def only_commands_are_put_in_quarantine(self) -> None:
        assert self.command or not self.breaker.quarantined
        assert self.breaker.failures == 0 or self.breaker.troubled


class LivesElsewhere(Lives):
    command = False


SOME = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, database=None)
TestCommands = Lives.TestCase
TestCommands.settings = SOME
TestElsewhere = LivesElsewhere.TestCase
TestElsewhere.settings = SOME
