"""Limits of rules: what is beyond them is refused, with when to try again."""

from typing import Any

import pytest

from portico.callers import KEY_ISSUER, Caller, Principal
from portico.calls.call import CallContext
from portico.calls.rule_limits import DAY_S, RuleLimiter, RuleLimits
from portico.config import Config
from portico.config.rules import RuleLimit
from portico.errors import Overloaded
from portico.policy.decision import Decision
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.gateways import open_gateway, run_gateway
from tests.interaction.fake_servers import text, tool

DECISION = Decision("allow", "rules[0]")
ANA = Caller(principal=Principal(KEY_ISSUER, "ana"))
BOB = Caller(principal=Principal(KEY_ISSUER, "bob"))


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000 * DAY_S

    def __call__(self) -> float:
        return self.now


def limited(**limit: int) -> Config:
    return Config.model_validate({"rules": [{"tools": ["db.*"], "may": "allow", "limit": limit}]})


def make_db() -> FakeBackend:
    backend = FakeBackend([tool("query"), tool("dump")], resources=[{"uri": "x:/a", "name": "a"}])
    backend.on_call("query", lambda _: text("x" * 400))
    return backend


def test_calls_of_a_sliding_minute_are_counted() -> None:
    clock = _Clock()
    limiter = RuleLimiter(clock)
    limit = RuleLimit(calls_per_minute=30)
    for _ in range(30):
        limiter.acquire(DECISION, limit, "ana")
    with pytest.raises(Overloaded, match="30 calls a minute") as refused:
        limiter.acquire(DECISION, limit, "ana")
    assert refused.value.retry_after_s == 62
    limiter.acquire(DECISION, limit, "bob")
    clock.now += refused.value.retry_after_s
    limiter.acquire(DECISION, limit, "ana")
    with pytest.raises(Overloaded):
        limiter.acquire(DECISION, limit, "ana")
    clock.now += 120
    for _ in range(30):
        limiter.acquire(DECISION, limit, "ana")


@pytest.mark.parametrize("start", range(0, 60, 7))
@pytest.mark.parametrize("allowed", [1, 3, 30])
def test_after_the_named_time_one_more_call_fits(start: int, allowed: int) -> None:
    clock = _Clock()
    clock.now += start
    limiter = RuleLimiter(clock)
    limit = RuleLimit(calls_per_minute=allowed)
    for _ in range(allowed):
        limiter.acquire(DECISION, limit, "ana")
    for _ in range(5):
        with pytest.raises(Overloaded) as refused:
            limiter.acquire(DECISION, limit, "ana")
        clock.now += refused.value.retry_after_s or 0
        limiter.acquire(DECISION, limit, "ana")


def test_tokens_of_a_day_are_counted_until_midnight() -> None:
    clock = _Clock()
    limiter = RuleLimiter(clock)
    limit = RuleLimit(tokens_per_day=100)
    limiter.acquire(DECISION, limit, "ana")
    limiter.charge(DECISION, "ana", 100)
    clock.now += DAY_S - 60
    with pytest.raises(Overloaded, match="100 tokens a day") as refused:
        limiter.acquire(DECISION, limit, "ana")
    assert refused.value.retry_after_s == 60
    clock.now += 60
    limiter.acquire(DECISION, limit, "ana")


async def test_a_caller_is_held_to_the_limit_and_others_are_not() -> None:
    backend = make_db()
    async with run_gateway({"db": backend}, limited(calls_per_minute=3)) as gateway:
        query = gateway.catalog.snapshot.tools["db.query"]
        for _ in range(3):
            await gateway.calls.call(query, {}, CallContext(ANA))
        with pytest.raises(Overloaded) as refused:
            await gateway.calls.call(query, {}, CallContext(ANA))
        assert refused.value.retry_after_s
        await gateway.calls.call(query, {}, CallContext(BOB))
    assert len([method for method, _ in backend.requests if method == "tools/call"]) == 4


async def test_tokens_of_results_are_charged() -> None:
    async with run_gateway({"db": make_db()}, limited(tokens_per_day=150)) as gateway:
        query = gateway.catalog.snapshot.tools["db.query"]
        for _ in range(2):
            await gateway.calls.call(query, {}, CallContext(ANA))
        with pytest.raises(Overloaded, match="150 tokens a day"):
            await gateway.calls.call(query, {}, CallContext(ANA))


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(9):\n    await db.query()",
        "import asyncio\nawait asyncio.gather(*[db.query() for _ in range(9)])",
    ],
)
async def test_each_call_of_a_script_counts(code: str) -> None:
    backend = make_db()
    async with open_gateway({"db": backend}, limited(calls_per_minute=4)) as gateway:
        error = await gateway.call_error("run_code", code=code)
        assert "4 calls a minute" in error
    assert len([method for method, _ in backend.requests if method == "tools/call"]) == 4


async def test_resources_have_limits_too() -> None:
    rule: Raw = {"resources": ["db.*"], "may": "allow", "limit": {"calls_per_minute": 1}}
    config = Config.model_validate({"rules": [rule]})
    backend = make_db()
    backend.on("resources/read", lambda params, _: {"contents": [{**params, "text": "here"}]})
    async with run_gateway({"db": backend}, config) as gateway:
        for is_allowed in (True, False):
            try:
                await gateway.calls.request("db", "resources/read", {"uri": "x:/a"})
            except Overloaded:
                assert not is_allowed
            else:
                assert is_allowed


@pytest.mark.parametrize(
    "rule",
    [
        {"may": "deny", "limit": {"calls_per_minute": 1}},
        {"may": "ask", "limit": {"calls_per_minute": 1}},
        {"may": "allow", "limit": {}},
        {"may": "allow", "limit": {"calls_per_minute": 0}},
    ],
)
def test_a_limit_that_means_nothing_is_an_error(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="limit"):
        Config.model_validate({"rules": [rule]})


def test_the_number_of_callers_that_are_counted_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.calls.rule_limits.MAX_COUNTED", 10)
    limits = RuleLimits()
    for number in range(50):
        limits.limiter.acquire(DECISION, RuleLimit(calls_per_minute=1), f"ana{number}")
    assert len(limits.limiter) == 10
