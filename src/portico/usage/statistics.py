"""How a tool's calls went: counts, latency percentiles, and how recent. Pure.

Latencies are counted in buckets an eighth of a doubling wide, so that a percentile is within 5% of
the true one, days and gateways add up, and a million calls take no more room than a hundred.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from portico.storage.rows import DailyRow

DAY_S = 86_400
WEEK_DAYS = 7
MONTH_DAYS = 30
_BUCKETS_PER_DOUBLING = 8
_MIN_MS = 0.01
_MAX_MS = 86_400_000.0


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of one tool's calls."""

    calls: int = 0
    successes: int = 0
    mean_ms: float = 0.0
    """Of the calls that went well, as the percentiles; 0 while none did."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    last_used: float = 0.0
    calls_7d: int = 0
    """Calls of the last 7 days, today among them."""
    calls_30d: int = 0
    """Calls of the last 30 days."""

    @property
    def success_rate(self) -> float:
        """The share of calls that went well; 1 while there is none."""
        if self.calls:
            return self.successes / self.calls
        return 1.0


UNUSED = Statistics()


def to_day(timestamp: float) -> int:
    """The day a moment is in, UTC."""
    return int(timestamp // DAY_S)


def to_bucket(ms: float) -> int:
    """The bucket a latency is counted in."""
    return math.floor(math.log2(min(max(ms, _MIN_MS), _MAX_MS)) * _BUCKETS_PER_DOUBLING)


def to_latency_ms(bucket: int) -> float:
    """The latency in the middle of a bucket, in milliseconds."""
    return 2 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING)


@dataclass
class CallTally:
    """One tool's calls, added up by day and by latency."""

    calls_by_day: Counter[int] = field(default_factory=Counter[int])
    calls: int = 0
    successes_by_bucket: Counter[int] = field(default_factory=Counter[int])
    """Successes by bucket."""
    last_at: float = 0.0

    def add(self, day: int, bucket: int, calls: int, successes: int, at: float) -> None:
        """So many calls of a day, of about one latency."""
        self.calls_by_day[day] += calls
        self.calls += calls
        if successes:
            self.successes_by_bucket[bucket] += successes
        self.last_at = max(self.last_at, at)

    def merge(self, other: "CallTally") -> "CallTally":
        """The calls of both."""
        return CallTally(
            self.calls_by_day + other.calls_by_day,
            self.calls + other.calls,
            self.successes_by_bucket + other.successes_by_bucket,
            max(self.last_at, other.last_at),
        )

    def to_statistics(self, today: int) -> Statistics:
        """The sums as they are shown."""
        successes = self.successes_by_bucket.total()
        total_ms = sum(
            to_latency_ms(bucket) * number for bucket, number in self.successes_by_bucket.items()
        )
        return Statistics(
            calls=self.calls,
            successes=successes,
            mean_ms=total_ms / successes if successes else 0.0,
            p50_ms=compute_percentile(self.successes_by_bucket, 0.50),
            p95_ms=compute_percentile(self.successes_by_bucket, 0.95),
            last_used=self.last_at,
            calls_7d=self._count_calls_since(today - WEEK_DAYS),
            calls_30d=self._count_calls_since(today - MONTH_DAYS),
        )

    def _count_calls_since(self, day: int) -> int:
        return sum(number for on, number in self.calls_by_day.items() if on > day)


_EMPTY_TALLY = CallTally()


def compute_percentile(buckets: Mapping[int, int], share: float) -> float:
    """The latency that this share of the calls did not exceed; 0 where there is none."""
    wanted = share * sum(buckets.values())
    reached = 0
    for bucket in sorted(buckets):
        reached += buckets[bucket]
        if reached >= wanted:
            return to_latency_ms(bucket)
    return 0.0


def build_tallies(rows: Iterable[DailyRow]) -> dict[str, CallTally]:
    """What was kept, by address."""
    found: dict[str, CallTally] = {}
    for row in rows:
        address = f"{row.server}.{row.tool}"
        if (tally := found.get(address)) is None:
            tally = found[address] = CallTally()
        tally.add(row.day, row.bucket, row.calls, row.successes, row.last_at)
    return found


def merge_tallies(*groups: Mapping[str, CallTally]) -> dict[str, CallTally]:
    """All of them as one; those given stay as they are."""
    found: dict[str, CallTally] = {}
    for one in groups:
        for address, tally in one.items():
            found[address] = found.get(address, _EMPTY_TALLY).merge(tally)
    return found
