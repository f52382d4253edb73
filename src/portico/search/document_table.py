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

from portico.lazy import lazy_property
from portico.search.document import SearchDocument
from portico.search.lexical.tokens import squash

_MAX_NAME = 256
_MIN_DESCRIPTION_CHARS = 12
_MAX_DESCRIPTION_CHARS = 400

Mask = NDArray[np.bool_]
"""One boolean per slot."""


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """Documents by slot."""

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
        """Return a table without documents."""
        nothing = np.empty(0, dtype=np.uint64)
        return cls((), (), (), (), (), (), nothing, nothing, nothing)

    @lazy_property
    def slots_by_group(self) -> Mapping[str, tuple[int, ...]]:
        """Slots of each group."""
        found: dict[str, list[int]] = {}
        for slot, group in enumerate(self.groups):
            if self.ids[slot]:
                found.setdefault(group, []).append(slot)
        return {group: tuple(slots) for group, slots in found.items()}

    @lazy_property
    def slot_by_id(self) -> Mapping[str, int]:
        """Slot of each id."""
        return {id_: slot for slot, id_ in enumerate(self.ids) if id_}

    @lazy_property
    def count(self) -> int:
        """Number of documents."""
        return sum(map(bool, self.ids))

    @lazy_property
    def occupied_slots(self) -> Mask:
        """Mask of the slots that hold a document."""
        return np.fromiter(map(bool, self.ids), dtype=bool, count=len(self.ids))

    @lazy_property
    def squashed_names(self) -> Sequence[str]:
        """Names without case and separators."""
        return [squash(name) for name in self.names]

    @lazy_property
    def squashed_ids(self) -> Sequence[str]:
        """Ids without case and separators."""
        return [squash(id_) for id_ in self.ids]

    @lazy_property
    def squashed_groups(self) -> Mapping[str, Sequence[str]]:
        """Groups by name without case and separators."""
        found: dict[str, list[str]] = {}
        for group in self.slots_by_group:
            found.setdefault(squash(group), []).append(group)
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
        """Return a mask of the slots whose document id is allowed."""
        return np.fromiter(
            (bool(id_) and allow(id_) for id_ in self.ids), dtype=bool, count=len(self.ids)
        )

    def build_group_mask(self, groups: Collection[str]) -> Mask:
        """Return a mask of the slots that belong to one of the groups."""
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
    return _compute_key(
        f"{squash(document.name)}\n{description}"
        if len(description) >= _MIN_DESCRIPTION_CHARS
        else ""
    )


def _compute_key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    if text:
        return int.from_bytes(digest)
    return 0


def _write_row(slot: int, columns: Sequence[Any], row: Sequence[object]) -> None:
    for column, value in zip(columns, row, strict=True):
        column[slot] = value
