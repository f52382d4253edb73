"""What listing every tool would cost, counted in the background: whoever calls a tool meanwhile
should not notice."""

import asyncio
import time

from portico.catalog.snapshot import Snapshot
from portico.catalog.sync import Catalog
from portico.events import CatalogChanged, Event, EventBus
from portico.rendering.listing_cost import DefinitionCosts
from portico.rendering.token_count import count_tokens

START_DELAY_S = 3.0
BATCH_SIZE = 20
BATCH_PAUSE_S = 0.02
"""When it begins, how many definitions are counted at a time, and how long it rests in between."""


class ListingCostCounter:
    """Knows what the definitions of a catalog cost."""

    def __init__(self, catalog: Catalog, bus: EventBus) -> None:
        self._catalog = catalog
        self._costs = DefinitionCosts(count_tokens)
        self._changed = asyncio.Event()
        bus.subscribe(self._on_catalog_changed, CatalogChanged)

    def get_listing_cost(self, snapshot: Snapshot) -> int:
        """What listing all that is seen costs; 0 until that is known."""
        return self._costs.get_known_total(snapshot.tools.values())

    async def run(self) -> None:
        """Count, and count what changes, until cancelled."""
        await asyncio.sleep(START_DELAY_S)
        while True:
            tools = tuple(self._catalog.snapshot.tools.values())
            uncounted = self._costs.find_uncounted(tools)
            for start in range(0, len(uncounted), BATCH_SIZE):
                await asyncio.to_thread(
                    self._costs.measure_all, uncounted[start : start + BATCH_SIZE]
                )
                await asyncio.sleep(BATCH_PAUSE_S)
            self._costs.keep_only(tools)
            await self._changed.wait()
            self._changed.clear()

    async def finish_within(self, timeout_s: float) -> None:
        """Count what is left, for so long at most: a conversation that was over soon saved
        something, too."""
        deadline = time.monotonic() + timeout_s
        uncounted = self._costs.find_uncounted(tuple(self._catalog.snapshot.tools.values()))
        for start in range(0, len(uncounted), BATCH_SIZE):
            if time.monotonic() > deadline:
                return
            await asyncio.to_thread(self._costs.measure_all, uncounted[start : start + BATCH_SIZE])

    def _on_catalog_changed(self, _: Event) -> None:
        self._changed.set()
