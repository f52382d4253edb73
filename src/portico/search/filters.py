"""Filters documents by server, category, tags and usage."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from portico.search.document_table import DocumentTable, Mask


@dataclass(frozen=True, slots=True)
class UsageFacts:
    """Usage statistics of one tool."""

    calls: int = 0
    successes: int = 0
    latency_ms: float = 0.0

    @property
    def success_rate(self) -> float:
        """Share of successful calls; 1 while there is none."""
        if self.calls:
            return self.successes / self.calls
        return 1.0


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Conditions on a document. A tool that was never called passes the usage limits."""

    groups: Collection[str] | None = None
    categories: Collection[str] = ()
    tags: Collection[str] = ()
    """At least one of them must match."""
    max_latency_ms: float | None = None
    min_success_rate: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is filtered."""
        return self == SearchFilters()


NO_FILTERS = SearchFilters()


def build_filter_mask(
    filters: SearchFilters, table: DocumentTable, facts: Mapping[str, UsageFacts]
) -> Mask | None:
    """Return a mask of the slots that pass; None if all do."""
    if filters.is_empty:
        return None
    if filters.groups is None:
        passing = table.occupied_slots.copy()
    else:
        passing = table.build_group_mask(filters.groups)
    if filters.categories or filters.tags:
        categories = set(map(str.casefold, filters.categories))
        tags = set(map(str.casefold, filters.tags))
        for slot in np.flatnonzero(passing).tolist():
            labels = set(map(str.casefold, table.tags[slot]))
            category = table.categories[slot].casefold()
            passing[slot] = (not categories or category in categories) and (
                not tags or bool(tags & labels)
            )
    if filters.max_latency_ms is not None or filters.min_success_rate is not None:
        for id_, fact in facts.items():
            if (slot := table.slot_by_id.get(id_)) is not None and not _meets_usage_limits(
                fact, filters
            ):
                passing[slot] = False
    return passing


def _meets_usage_limits(fact: UsageFacts, filters: SearchFilters) -> bool:
    is_fast_enough = (
        filters.max_latency_ms is None
        or not fact.calls
        or fact.latency_ms <= filters.max_latency_ms
    )
    return is_fast_enough and (
        filters.min_success_rate is None or fact.success_rate >= filters.min_success_rate
    )
