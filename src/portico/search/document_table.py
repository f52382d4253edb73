"""Assigns documents to numbered slots, with their groups, hashes and name keys.

Postings and vectors refer to documents by slot. A replaced group gets its old slots back, so slots
stay few; an empty slot has an empty id. Immutable: `replace` returns a new table.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.lazy_attribute import lazy_property
from portico.search.document import SearchDocument
from portico.search.lexical.tokens import extract_word_terms, squash

_MAX_NAME = 256
_MIN_DESCRIPTION_CHARS = 12
_MAX_DESCRIPTION_CHARS = 400

Mask = NDArray[np.bool_]
"""One boolean per slot."""


@dataclass(frozen=True, eq=False)
class DocumentTable:
    ids: Sequence[str]
    names: Sequence[str]
    hashes: Sequence[str]
    groups: Sequence[str]
    categories: Sequence[str]
    tags: Sequence[Sequence[str]]
    name_keys: NDArray[np.uint64]
    id_keys: NDArray[np.uint64]
    copy_keys: NDArray[np.uint64]
    """Equal for the same tool on several servers (name and description); 0 if too short to tell."""

    @classmethod
    def empty(cls) -> "DocumentTable":
        nothing = np.empty(0, dtype=np.uint64)
        return cls((), (), (), (), (), (), nothing, nothing, nothing)

    @lazy_property
    def slots_by_group(self) -> Mapping[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for slot, group in enumerate(self.groups):
            if self.ids[slot]:
                found.setdefault(group, []).append(slot)
        return {group: tuple(slots) for group, slots in found.items()}

    @lazy_property
    def slot_by_id(self) -> Mapping[str, int]:
        return {id_: slot for slot, id_ in enumerate(self.ids) if id_}

    @lazy_property
    def count(self) -> int:
        return sum(map(bool, self.ids))

    @lazy_property
    def occupied_slots(self) -> Mask:
        return np.fromiter(map(bool, self.ids), dtype=bool, count=len(self.ids))

    @lazy_property
    def squashed_names(self) -> Sequence[str]:
        return [squash(name) for name in self.names]

    @lazy_property
    def squashed_ids(self) -> Sequence[str]:
        return [squash(id_) for id_ in self.ids]

    @lazy_property
    def squashed_groups(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for group in self.slots_by_group:
            found.setdefault(squash(group), []).append(group)
        return found

    @lazy_property
    def groups_by_word(self) -> Mapping[str, Sequence[str]]:
        """Groups by each term of their names."""
        found: dict[str, list[str]] = {}
        for group in self.slots_by_group:
            for term in extract_word_terms(group):
                found.setdefault(term, []).append(group)
        return found

    def has_group(self, group: str, hashes: Mapping[str, str]) -> bool:
        """Return whether the group has exactly these documents, given as id → hash."""
        slots = self.slots_by_group.get(group, ())
        return len(slots) == len(hashes) and all(
            hashes.get(self.ids[slot]) == self.hashes[slot] for slot in slots
        )

    def replace(
        self, changed: Mapping[str, Sequence[SearchDocument]]
    ) -> tuple["DocumentTable", tuple[int, ...], tuple[int, ...]]:
        """Replace whole groups; return the table, the freed and the new slots."""
        removed = tuple(slot for group in changed for slot in self.slots_by_group.get(group, ()))
        documents = [document for group in changed.values() for document in group]
        free = sorted({*removed, *np.flatnonzero(~self.occupied_slots).tolist()})
        added_count = max(0, len(documents) - len(free))
        slots = (*free, *range(len(self.ids), len(self.ids) + added_count))[: len(documents)]
        texts: list[list[Any]] = [
            [*column, *[""] * added_count]
            for column in (self.ids, self.names, self.hashes, self.groups, self.categories)
        ]
        texts.append([*self.tags, *[()] * added_count])
        keys = [
            np.concatenate([column, np.zeros(added_count, dtype=np.uint64)])
            for column in (self.name_keys, self.id_keys, self.copy_keys)
        ]
        for slot in removed:
            _write_row(slot, (*texts, *keys), ("", "", "", "", "", (), 0, 0, 0))
        for slot, added in zip(slots, documents, strict=True):
            row = (
                added.id,
                added.name,
                added.hash,
                added.group,
                added.category,
                added.tags,
                compute_name_key(added.name),
                compute_name_key(added.id),
                compute_copy_key(added),
            )
            _write_row(slot, (*texts, *keys), row)
        ids, names, hashes, groups, categories, tags = texts
        return DocumentTable(ids, names, hashes, groups, categories, tags, *keys), removed, slots

    def build_mask(self, allow: Callable[[str], bool]) -> Mask:
        return np.fromiter(
            (bool(id_) and allow(id_) for id_ in self.ids), dtype=bool, count=len(self.ids)
        )

    def build_group_mask(self, groups: Collection[str]) -> Mask:
        mask = np.zeros(len(self.ids), dtype=bool)
        for group in groups:
            mask[list(self.slots_by_group.get(group, ()))] = True
        return mask


def compute_name_key(name: str) -> int:
    """Return a number shared by all spellings of a name (`create_issue`, `createIssue`), or 0."""
    return _compute_key(squash(name) if len(name) <= _MAX_NAME else "")


def compute_copy_key(document: SearchDocument) -> int:
    """Return a number shared by copies of a tool on any server; 0 for too short a description."""
    description = squash(document.description[:_MAX_DESCRIPTION_CHARS])
    if len(description) < _MIN_DESCRIPTION_CHARS:
        return 0
    return _compute_key(f"{squash(document.name)}\n{description}")


def _compute_key(text: str) -> int:
    if not text:
        return 0
    encoded = text.encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest())


def _write_row(slot: int, columns: Sequence[Any], row: Sequence[object]) -> None:
    for column, value in zip(columns, row, strict=True):
        column[slot] = value


@dataclass(frozen=True, slots=True)
class UsageFacts:
    calls: int = 0
    successes: int = 0
    latency_ms: float = 0.0

    @property
    def success_rate(self) -> float:
        """Share of successful calls; 1 while there is none."""
        return self.successes / self.calls if self.calls else 1.0


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Conditions on a document. A tool that was never called passes no usage limit."""

    groups: Collection[str] | None = None
    categories: Collection[str] = ()
    tags: Collection[str] = ()
    """At least one of them must match."""
    max_latency_ms: float | None = None
    min_success_rate: float | None = None

    @property
    def is_empty(self) -> bool:
        return self == SearchFilters()

    @property
    def has_usage_limits(self) -> bool:
        return self.max_latency_ms is not None or self.min_success_rate is not None

    def admits_usage(self, facts: UsageFacts) -> bool:
        """Return whether the calls of a tool are within the limits of latency and success."""
        if self.max_latency_ms is not None and (
            not facts.successes or facts.latency_ms > self.max_latency_ms
        ):
            return False
        return bool(facts.calls) and facts.success_rate >= (self.min_success_rate or 0.0)


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
    if filters.has_usage_limits:
        within = np.zeros_like(passing)
        for id_, fact in facts.items():
            slot = table.slot_by_id.get(id_)
            if slot is not None:
                within[slot] = filters.admits_usage(fact)
        passing &= within
    return passing
