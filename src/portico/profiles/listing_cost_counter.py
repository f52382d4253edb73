"""Background count of the tokens that listing every tool would cost.

Counting runs in small batches in a thread, so that it does not delay tool calls.
"""

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
"""Delay before counting starts, definitions per batch, and pause between batches (seconds)."""


class ListingCostCounter:
    """Token cost of the definitions of a catalog."""

    def __init__(self, catalog: Catalog, bus: EventBus) -> None:
        self._catalog = catalog
        self._costs = DefinitionCosts(count_tokens)
        self._changed = asyncio.Event()
        bus.subscribe(self._on_catalog_changed, CatalogChanged)

    def get_listing_cost(self, snapshot: Snapshot) -> int:
        """Return the tokens of listing every visible tool; 0 until all are counted."""
        return self._costs.get_known_total(snapshot.tools.values())

    async def run(self) -> None:
        """Count all definitions, and changed ones after each catalog change, until cancelled."""
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
        """Count the remaining definitions for at most `timeout_s` seconds.

        Called at shutdown, so that short sessions enter the ledger too.
        """
        deadline = time.monotonic() + timeout_s
        uncounted = self._costs.find_uncounted(tuple(self._catalog.snapshot.tools.values()))
        for start in range(0, len(uncounted), BATCH_SIZE):
            if time.monotonic() > deadline:
                return
            await asyncio.to_thread(self._costs.measure_all, uncounted[start : start + BATCH_SIZE])

    def _on_catalog_changed(self, _: Event) -> None:
        self._changed.set()
