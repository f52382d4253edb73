"""Who sits in which slot: the documents of an index by number, with their groups, hashes and name
keys.

A slot is what postings (and any other column of numbers) know a document by. A replaced group gets
its old slots back, so slots stay few; an empty slot has an empty id. Never changed: `replace` makes
a new roster.
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
"""One truth value per slot."""


@dataclass(frozen=True, eq=False)
class DocumentTable:
    """The documents by slot."""

    ids: Sequence[str]
    names: Sequence[str]
    hashes: Sequence[str]
    groups: Sequence[str]
    categories: Sequence[str]
    tags: Sequence[Sequence[str]]
    name_keys: NDArray[np.uint64]
    id_keys: NDArray[np.uint64]
    copy_keys: NDArray[np.uint64]
    """Alike where name and description are: the same tool on another server. 0 where there is too
    little to tell."""

    @classmethod
    def empty(cls) -> "DocumentTable":
        """A roster of nobody."""
        nothing = np.empty(0, dtype=np.uint64)
        return cls((), (), (), (), (), (), nothing, nothing, nothing)

    @lazy_property
    def slots_by_group(self) -> Mapping[str, tuple[int, ...]]:
        """The slots of each group."""
        found: dict[str, list[int]] = {}
        for slot, group in enumerate(self.groups):
            if self.ids[slot]:
                found.setdefault(group, []).append(slot)
        return {group: tuple(slots) for group, slots in found.items()}

    @lazy_property
    def slot_by_id(self) -> Mapping[str, int]:
        """The slot of each id."""
        return {id_: slot for slot, id_ in enumerate(self.ids) if id_}

    @lazy_property
    def count(self) -> int:
        """How many documents there are."""
        return sum(map(bool, self.ids))

    @lazy_property
    def occupied_slots(self) -> Mask:
        """Which slots hold a document."""
        return np.fromiter(map(bool, self.ids), dtype=bool, count=len(self.ids))

    @lazy_property
    def squashed_names(self) -> Sequence[str]:
        """The names without case and separators."""
        return [squash(name) for name in self.names]

    @lazy_property
    def squashed_ids(self) -> Sequence[str]:
        """The ids without case and separators."""
        return [squash(id_) for id_ in self.ids]

    @lazy_property
    def squashed_groups(self) -> Mapping[str, Sequence[str]]:
        """The groups by their names without case and separators."""
        found: dict[str, list[str]] = {}
        for group in self.slots_by_group:
            found.setdefault(squash(group), []).append(group)
        return found

    def has_group(self, group: str, hashes: Mapping[str, str]) -> bool:
        """Whether the group is here with exactly these documents, given as id → hash."""
        slots = self.slots_by_group.get(group, ())
        return len(slots) == len(hashes) and all(
            hashes.get(self.ids[slot]) == self.hashes[slot] for slot in slots
        )

    def replace(
        self, changed: Mapping[str, Sequence[SearchDocument]]
    ) -> tuple["DocumentTable", tuple[int, ...], tuple[int, ...]]:
        """The roster with those groups replaced whole; the slots that were emptied, and those of
        the new documents."""
        gone = tuple(slot for group in changed for slot in self.slots_by_group.get(group, ()))
        documents = [document for group in changed.values() for document in group]
        free = sorted({*gone, *np.flatnonzero(~self.occupied_slots).tolist()})
        grown = max(0, len(documents) - len(free))
        slots = (*free, *range(len(self.ids), len(self.ids) + grown))[: len(documents)]
        texts: list[list[Any]] = [
            [*column, *[""] * grown]
            for column in (self.ids, self.names, self.hashes, self.groups, self.categories)
        ]
        texts.append([*self.tags, *[()] * grown])
        keys = [
            np.concatenate([column, np.zeros(grown, dtype=np.uint64)])
            for column in (self.name_keys, self.id_keys, self.copy_keys)
        ]
        for slot in gone:
            _write_row(slot, (*texts, *keys), ("", "", "", "", "", (), 0, 0, 0))
        for slot, it in zip(slots, documents, strict=True):
            texts_of_it = (it.id, it.name, it.hash, it.group, it.category, it.tags)
            _write_row(
                slot,
                (*texts, *keys),
                (
                    *texts_of_it,
                    compute_name_key(it.name),
                    compute_name_key(it.id),
                    compute_copy_key(it),
                ),
            )
        ids, names, hashes, groups, categories, tags = texts
        return DocumentTable(ids, names, hashes, groups, categories, tags, *keys), gone, slots

    def build_mask(self, allow: Callable[[str], bool]) -> Mask:
        """Which slots hold a document whose id is allowed."""
        return np.fromiter(
            (bool(id_) and allow(id_) for id_ in self.ids), dtype=bool, count=len(self.ids)
        )

    def build_group_mask(self, groups: Collection[str]) -> Mask:
        """Which slots belong to one of the groups."""
        found = np.zeros(len(self.ids), dtype=bool)
        for group in groups:
            found[list(self.slots_by_group.get(group, ()))] = True
        return found


def compute_name_key(name: str) -> int:
    """A number that all spellings of one name share (`create_issue`, `createIssue`); 0 for what
    cannot be a name."""
    return _compute_key(squash(name) if len(name) <= _MAX_NAME else "")


def compute_copy_key(document: SearchDocument) -> int:
    """A number that copies of one tool share, whatever server they are on; 0 without a description
    worth the name."""
    said = squash(document.description[:_MAX_DESCRIPTION_CHARS])
    return _compute_key(
        f"{squash(document.name)}\n{said}" if len(said) >= _MIN_DESCRIPTION_CHARS else ""
    )


def _compute_key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    if text:
        return int.from_bytes(digest)
    return 0


def _write_row(slot: int, columns: Sequence[Any], row: Sequence[object]) -> None:
    for column, value in zip(columns, row, strict=True):
        column[slot] = value
