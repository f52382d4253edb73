"""How a tool's calls went: counts, latency percentiles, and how recent. Pure.

Latencies are counted in buckets an eighth of a doubling wide, so that a percentile is within 5% of the true one, days
and gateways add up, and a million calls take no more room than a hundred.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from portico.storage.rows import DailyRow

DAY_S = 86_400
WEEK, MONTH = 7, 30
_PER_DOUBLING = 8
_LEAST_MS, _MOST_MS = 0.01, 86_400_000.0


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
    week: int = 0
    """Calls of the last 7 days, today among them."""
    month: int = 0
    """Calls of the last 30 days."""

    @property
    def success_rate(self) -> float:
        """The share of calls that went well; 1 while there is none."""
        return self.successes / self.calls if self.calls else 1.0


UNUSED = Statistics()


def day_of(at: float) -> int:
    """The day a moment is in, UTC."""
    return int(at // DAY_S)


def bucket_of(ms: float) -> int:
    """The bucket a latency is counted in."""
    return math.floor(math.log2(min(max(ms, _LEAST_MS), _MOST_MS)) * _PER_DOUBLING)


def latency_of(bucket: int) -> float:
    """The latency in the middle of a bucket, in milliseconds."""
    return 2 ** ((bucket + 0.5) / _PER_DOUBLING)


@dataclass
class Tally:
    """One tool's calls, added up by day and by latency."""

    days: Counter[int] = field(default_factory=Counter[int])
    calls: int = 0
    went_well: Counter[int] = field(default_factory=Counter[int])
    """Successes by bucket."""
    last_at: float = 0.0

    def add(self, day: int, bucket: int, calls: int, successes: int, at: float) -> None:
        """So many calls of a day, of about one latency."""
        self.days[day] += calls
        self.calls += calls
        if successes:
            self.went_well[bucket] += successes
        self.last_at = max(self.last_at, at)

    def with_(self, other: "Tally") -> "Tally":
        """The calls of both."""
        return Tally(
            self.days + other.days,
            self.calls + other.calls,
            self.went_well + other.went_well,
            max(self.last_at, other.last_at),
        )

    def statistics(self, today: int) -> Statistics:
        """The sums as they are shown."""
        successes = self.went_well.total()
        total_ms = sum(latency_of(bucket) * number for bucket, number in self.went_well.items())
        return Statistics(
            calls=self.calls,
            successes=successes,
            mean_ms=total_ms / successes if successes else 0.0,
            p50_ms=percentile(self.went_well, 0.50),
            p95_ms=percentile(self.went_well, 0.95),
            last_used=self.last_at,
            week=self._since(today - WEEK),
            month=self._since(today - MONTH),
        )

    def _since(self, day: int) -> int:
        return sum(number for on, number in self.days.items() if on > day)


_NONE = Tally()


def percentile(buckets: Mapping[int, int], share: float) -> float:
    """The latency that this share of the calls did not exceed; 0 where there is none."""
    wanted, reached = share * sum(buckets.values()), 0
    for bucket in sorted(buckets):
        reached += buckets[bucket]
        if reached >= wanted:
            return latency_of(bucket)
    return 0.0


def tallies(rows: Iterable[DailyRow]) -> dict[str, Tally]:
    """What was kept, by address."""
    found: dict[str, Tally] = {}
    for row in rows:
        address = f"{row.server}.{row.tool}"
        if (tally := found.get(address)) is None:
            tally = found[address] = Tally()
        tally.add(row.day, row.bucket, row.calls, row.successes, row.last_at)
    return found


def together(*several: Mapping[str, Tally]) -> dict[str, Tally]:
    """All of them as one; those given stay as they are."""
    found: dict[str, Tally] = {}
    for one in several:
        for address, tally in one.items():
            found[address] = found.get(address, _NONE).with_(tally)
    return found
