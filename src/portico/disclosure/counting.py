"""What listing every tool would cost, counted in the background: whoever calls a tool meanwhile should not notice."""

import asyncio
import time

from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.disclosure.cost import Costs
from portico.disclosure.tokens import count
from portico.events import Bus, CatalogChanged, Event

AFTER_S, SLICE, PAUSE_S = 3.0, 20, 0.02
"""When it begins, how many definitions are counted at a time, and how long it rests in between."""


class Counting:
    """Knows what the definitions of a catalog cost."""

    def __init__(self, catalog: Catalog, bus: Bus) -> None:
        self._catalog = catalog
        self._costs = Costs(count)
        self._changed = asyncio.Event()
        bus.subscribe(self._heard, CatalogChanged)

    def cost(self, seen: Snapshot) -> int:
        """What listing all that is seen costs; 0 until that is known."""
        return self._costs.known(seen.tools.values())

    async def run(self) -> None:
        """Count, and count what changes, until cancelled."""
        await asyncio.sleep(AFTER_S)
        while True:
            tools = tuple(self._catalog.snapshot.tools.values())
            uncounted = self._costs.uncounted(tools)
            for start in range(0, len(uncounted), SLICE):
                await asyncio.to_thread(self._costs.total, uncounted[start : start + SLICE])
                await asyncio.sleep(PAUSE_S)
            self._costs.keep(tools)
            await self._changed.wait()
            self._changed.clear()

    async def finish(self, seconds: float) -> None:
        """Count what is left, for so long at most: a conversation that was over soon saved something, too."""
        deadline = time.monotonic() + seconds
        uncounted = self._costs.uncounted(tuple(self._catalog.snapshot.tools.values()))
        for start in range(0, len(uncounted), SLICE):
            if time.monotonic() > deadline:
                return
            await asyncio.to_thread(self._costs.total, uncounted[start : start + SLICE])

    def _heard(self, _: Event) -> None:
        self._changed.set()
