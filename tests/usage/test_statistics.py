"""Call statistics: sums, percentiles, days."""

import random
from collections import Counter

import pytest

from portico.storage.rows import DailyRow
from portico.usage.statistics import (
    UNUSED,
    CallTally,
    build_tallies,
    compute_percentile,
    merge_tallies,
    to_bucket,
    to_day,
    to_latency_ms,
)

TODAY = 20_000


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_a_percentile_is_within_five_percent_of_the_true_one(share: float):
    chance = random.Random(4)
    latencies = sorted(chance.lognormvariate(4, 1.5) for _ in range(5_000))
    found = compute_percentile(Counter(map(to_bucket, latencies)), share)
    assert found == pytest.approx(latencies[int(share * len(latencies)) - 1], rel=0.05)


@pytest.mark.parametrize("ms", [0.0, -1.0, 1e-9, 1e30])
def test_a_latency_out_of_all_bounds_has_a_bucket(ms: float):
    assert 0 < to_latency_ms(to_bucket(ms)) < 1e9


def test_nothing_has_no_percentile():
    assert compute_percentile({}, 0.5) == 0.0
    assert CallTally().to_statistics(TODAY) == UNUSED
    assert UNUSED.success_rate == 1.0


def test_calls_are_counted_over_all_time_a_month_and_a_week():
    tally = CallTally()
    for days_ago, calls in ((0, 1), (6, 10), (7, 100), (29, 1_000), (30, 10_000)):
        tally.add(TODAY - days_ago, 30, calls, calls, 5.0)
    found = tally.to_statistics(TODAY)
    assert (found.calls_7d, found.calls_30d, found.calls) == (11, 1_111, 11_111)


def test_calls_that_failed_say_nothing_of_a_tool_s_speed():
    tally = CallTally()
    tally.add(TODAY, to_bucket(10), 4, 4, 1.0)
    tally.add(TODAY, to_bucket(30_000), 6, 0, 2.0)
    found = tally.to_statistics(TODAY)
    assert (found.calls, found.successes, found.success_rate, found.last_used) == (10, 4, 0.4, 2.0)
    assert found.p95_ms == pytest.approx(10, rel=0.05)


def test_what_several_gateways_counted_adds_up_and_stays_as_it_was():
    row = DailyRow(TODAY, "mail", "send", 30, 2, 1, 7.0)
    ours, theirs = (
        build_tallies([row]),
        build_tallies([row, DailyRow(TODAY, "mail", "find", 30, 1, 1, 8.0)]),
    )
    both = merge_tallies(ours, theirs)
    assert both["mail.send"].to_statistics(TODAY).calls == 4
    assert both["mail.find"].to_statistics(TODAY).calls == 1
    both["mail.find"].add(TODAY, 30, 1, 1, 9.0)
    assert (ours["mail.send"].calls, theirs["mail.find"].calls) == (2, 1)


def test_a_tool_s_name_may_have_dots():
    assert list(build_tallies([DailyRow(TODAY, "mail", "v1.send", 30, 1, 1, 7.0)])) == [
        "mail.v1.send"
    ]


def test_days_are_those_of_utc():
    assert to_day(86_399.9) == 0
    assert to_day(86_400.0) == 1
