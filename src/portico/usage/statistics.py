"""Call statistics of a tool: counts, latency percentiles and recency. Pure.

Latencies are counted in buckets an eighth of a doubling wide: percentiles are within 5%, days and
gateways add up, and a million calls take no more memory than a hundred.
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
    calls: int = 0
    successes: int = 0
    mean_ms: float = 0.0
    """Of successful calls, like the percentiles; 0 while there are none."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    last_used: float = 0.0
    calls_7d: int = 0
    """Calls of the last 7 days, today included."""
    calls_30d: int = 0
    """Calls of the last 30 days."""

    @property
    def success_rate(self) -> float:
        """Share of successful calls; 1 while there are none."""
        return self.successes / self.calls if self.calls else 1.0


UNUSED = Statistics()


def split_address(address: str) -> tuple[str, str]:
    server, _, tool = address.partition(".")
    return server, tool


def to_day(timestamp: float) -> int:
    return int(timestamp // DAY_S)


def to_bucket(ms: float) -> int:
    return math.floor(math.log2(min(max(ms, _MIN_MS), _MAX_MS)) * _BUCKETS_PER_DOUBLING)


def to_latency_ms(bucket: int) -> float:
    return 2 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING)


@dataclass
class CallTally:
    """One tool's calls, summed by day and by latency."""

    calls_by_day: Counter[int] = field(default_factory=Counter[int])
    calls: int = 0
    successes_by_bucket: Counter[int] = field(default_factory=Counter[int])
    last_at: float = 0.0

    def add(self, day: int, bucket: int, calls: int, successes: int, at: float) -> None:
        self.calls_by_day[day] += calls
        self.calls += calls
        if successes:
            self.successes_by_bucket[bucket] += successes
        self.last_at = max(self.last_at, at)

    def merge(self, other: "CallTally") -> "CallTally":
        return CallTally(
            self.calls_by_day + other.calls_by_day,
            self.calls + other.calls,
            self.successes_by_bucket + other.successes_by_bucket,
            max(self.last_at, other.last_at),
        )

    def to_statistics(self, today: int) -> Statistics:
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
        return sum(number for call_day, number in self.calls_by_day.items() if call_day > day)


_EMPTY_TALLY = CallTally()


def compute_percentile(buckets: Mapping[int, int], share: float) -> float:
    """Return the latency that this share of the calls did not exceed; 0 if there are none."""
    wanted = share * sum(buckets.values())
    reached = 0
    for bucket in sorted(buckets):
        reached += buckets[bucket]
        if reached >= wanted:
            return to_latency_ms(bucket)
    return 0.0


def build_tallies(rows: Iterable[DailyRow]) -> dict[str, CallTally]:
    tallies: dict[str, CallTally] = {}
    for row in rows:
        address = f"{row.server}.{row.tool}"
        tally = tallies.setdefault(address, CallTally())
        tally.add(row.day, row.bucket, row.calls, row.successes, row.last_at)
    return tallies


def merge_tallies(*groups: Mapping[str, CallTally]) -> dict[str, CallTally]:
    """Return the sum of tallies; the arguments are not changed."""
    merged: dict[str, CallTally] = {}
    for group in groups:
        for address, tally in group.items():
            merged[address] = merged.get(address, _EMPTY_TALLY).merge(tally)
    return merged
