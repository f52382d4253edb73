"""Where every tool stands: computed daily from its use, kept on record, and replaced whole."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from portico.disclosure.popular import popular
from portico.disclosure.tiers import COLD, TIERS, Standing, Tier, standing
from portico.observability.statistics import DAY_S
from portico.observability.usage import Usage
from portico.search import Lift
from portico.storage.record import Record, RecordUnavailable
from portico.storage.rows import TierRow

_GROWTH = 2
"""So many times the calls of last time are worth computing anew at once: a new house is not stale for a day."""


class Standings:
    """The standings as they were last computed, here or by another gateway on the same record."""

    def __init__(
        self,
        usage: Usage,
        record: Record,
        *,
        origin: str = "",
        kept: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`origin` is who we are to the other gateways, which are told when the standings changed, if they are kept."""
        self.scores: Mapping[str, Standing] = {}
        """By address; a tool that nobody has called is not in it."""
        self.month: Mapping[str, int] = {}
        """Each tool's calls of the last 30 days, at that moment."""
        self.lifts: Mapping[str, Lift] = {}
        """What they add to scores in search."""
        self.computed_at = 0.0
        self._calls = 0
        """All calls that were known then."""
        self._usage = usage
        self._record = record
        self._origin = origin
        self._kept = kept
        self._clock = clock
        self._lock = asyncio.Lock()
        """What is read while it is written would be what was there before."""

    async def load(self) -> None:
        """Take over what is on record, unless ours are later."""
        async with self._lock:
            at, rows = await self._record.tiers()
            # Ours may be dated ahead by a clock that was wrong: then any others are better.
            if at > self.computed_at or (at and at != self.computed_at and self.computed_at > self._clock()):
                self._replace({f"{row.server}.{row.tool}": _standing(row) for row in rows}, at)

    async def recompute(self) -> Mapping[str, Standing]:
        """Compute them from what is known now, and keep them."""
        async with self._lock:
            self._replace({tool: standing(use) for tool, use in self._usage.used.items()}, self._clock())
            rows = [TierRow(*_parts(tool), one.score, one.tier) for tool, one in self.scores.items()]
            if self._kept:
                await self._record.save_tiers(rows, at=self.computed_at, origin=self._origin)
            return self.scores

    def due(self) -> bool:
        """Whether a day has passed, or so much use came or was forgotten since that they say little of it."""
        calls = _all_calls(self._usage)
        if not self.computed_at:
            return calls > 0
        # Either way: a clock that ran ahead when they were computed does not keep them for as long.
        aged = abs(self._clock() - self.computed_at) >= DAY_S
        return aged or calls >= max(1, _GROWTH * self._calls) or calls * _GROWTH < self._calls

    async def tend(self) -> None:
        """Take over what others computed; compute anew where that is due. Without a record, for ourselves."""
        with contextlib.suppress(RecordUnavailable):
            await self.load()
        if self.due():
            with contextlib.suppress(RecordUnavailable):
                await self.recompute()

    def _replace(self, scores: Mapping[str, Standing], at: float) -> None:
        used = self._usage.used
        self.scores = scores
        self.month = {tool: used[tool].month for tool in scores if tool in used}
        self.lifts = popular(scores, self.month)
        self.computed_at = at
        self._calls = _all_calls(self._usage)


def _all_calls(usage: Usage) -> int:
    return sum(use.calls for use in usage.used.values())


def _parts(address: str) -> tuple[str, str]:
    server, _, tool = address.partition(".")
    return server, tool


def _standing(row: TierRow) -> Standing:
    return Standing(row.score, _BY_NAME.get(row.tier, COLD.tier))


_BY_NAME: Mapping[str, Tier] = {tier: tier for tier in TIERS}
