"""The index: an immutable answer machine, replaced whole when the catalog changes.

`build`, `replace` and `with_vectors` make a new index and share what did not change; `search` is a pure function of
the index and what it is given, so any number of threads may ask an index while its successor is
being made.

Words are read at once. Vectors take milliseconds a document and come later: `unencoded` tells what
is missing,
`with_vectors` takes what was encoded or kept. A document without a vector is found by its words.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from portico.search import codec, nearest_names
from portico.search.dense.encoder import Encoder, EncoderUnavailable, Vector
from portico.search.dense.vectors import Vectors
from portico.search.document import Boost, Ranking, SearchDocument
from portico.search.document_table import DocumentTable, Mask
from portico.search.filters import NO_FILTERS, SearchFilters, UsageFacts, build_filter_mask
from portico.search.lexical.posting_builder import build_entries
from portico.search.lexical.postings import Postings
from portico.search.lexical.query import parse_query
from portico.search.scored_query import Placement, ScoredQuery, build_ranking, find_placement

IdFilter = Callable[[str], bool] | Mask
"""Which ids may be found, as a question or worked out by `Index.mask`."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Documents, ready to be searched."""

    _table: DocumentTable
    _postings: Postings
    _vectors: Vectors
    encoder: Encoder | None = None
    """What queries are encoded with; without one, words alone are searched."""

    @classmethod
    def build(
        cls,
        documents: Iterable[SearchDocument],
        previous: "Index | None" = None,
        *,
        encoder: Encoder | None = None,
    ) -> "Index":
        """An index of exactly these documents. Groups that `previous` holds unchanged are not read
        again."""
        groups: dict[str, dict[str, SearchDocument]] = {}
        for document in documents:
            groups.setdefault(document.group, {})[document.id] = document
        index = previous or cls(DocumentTable.empty(), Postings.empty(), Vectors.empty(), encoder)
        changed: dict[str, Sequence[SearchDocument]] = {
            group: tuple(members.values())
            for group, members in groups.items()
            if not index.has_group(
                group, {document.id: document.hash for document in members.values()}
            )
        }
        changed.update((group, ()) for group in index.groups if group not in groups)
        if changed:
            return index.replace(changed)
        return index

    def replace(self, changed: Mapping[str, Sequence[SearchDocument]]) -> "Index":
        """An index in which each of these groups consists of exactly these documents; none removes
        the group."""
        roster, gone, slots = self._table.replace(changed)
        documents = [document for members in changed.values() for document in members]
        vocabulary = dict(self._postings.vocabulary)
        entries = build_entries(documents, slots, vocabulary)
        leaving = np.array(gone, dtype=np.uint32)
        # A document that did not change keeps its vector, wherever it now sits.
        kept = {
            self._table.hashes[slot]: self._vectors.rows[slot]
            for slot in gone
            if self._vectors.encoded_slots[slot]
        }
        moved = {
            slot: kept[it.hash]
            for slot, it in zip(slots, documents, strict=True)
            if it.hash in kept
        }
        return Index(
            roster,
            self._postings.splice(leaving, vocabulary, entries),
            self._vectors.splice(len(roster.ids), leaving, moved),
            self.encoder,
        )

    def with_vectors(self, vectors: Mapping[str, Vector]) -> "Index":
        """This index with these documents' vectors, by id; ids it does not have are passed over."""
        added = {
            slot: row
            for id_, row in vectors.items()
            if (slot := self._table.slot_by_id.get(id_)) is not None
        }
        spliced = self._vectors.splice(len(self._table.ids), np.empty(0, dtype=np.uint32), added)
        return Index(self._table, self._postings, spliced, self.encoder)

    @property
    def unencoded_count(self) -> int:
        """How many documents have no vector yet."""
        return int(np.count_nonzero(self._table.occupied_slots & ~self._vectors.encoded_slots))

    def list_unencoded(self, group: str) -> Sequence[str]:
        """The ids of a group's documents that have no vector yet."""
        known = self._vectors.encoded_slots
        ids = self._table.ids
        return [ids[slot] for slot in self._table.slots_by_group.get(group, ()) if not known[slot]]

    def list_unencoded_by_group(self) -> Mapping[str, Sequence[str]]:
        """The groups with documents that have no vector yet, and the ids of those."""
        found: dict[str, list[str]] = {}
        for slot in np.flatnonzero(
            self._table.occupied_slots & ~self._vectors.encoded_slots
        ).tolist():
            found.setdefault(self._table.groups[slot], []).append(self._table.ids[slot])
        return found

    def has_group(self, group: str, hashes: Mapping[str, str]) -> bool:
        """Whether the group is indexed with exactly these documents (id → hash): then there is
        nothing to replace."""
        return self._table.has_group(group, hashes)

    @property
    def groups(self) -> Collection[str]:
        """The groups that have documents here."""
        return self._table.slots_by_group.keys()

    def __len__(self) -> int:
        return self._table.count

    def get_category(self, id_: str) -> str:
        """The category of a document; empty for one that is not here."""
        slot = self._table.slot_by_id.get(id_)
        if slot is not None:
            return self._table.categories[slot]
        return ""

    def build_mask(self, allow: Callable[[str], bool]) -> Mask:
        """A filter, worked out once for many searches of this index."""
        return self._table.build_mask(allow)

    def search(
        self,
        query: str,
        limit: int = 8,
        *,
        offset: int = 0,
        filters: SearchFilters = NO_FILTERS,
        allow: IdFilter | None = None,
        boosts: Mapping[str, Boost] | None = None,
        facts: Mapping[str, UsageFacts] | None = None,
    ) -> Ranking:
        """The documents that match best, among those that `filters` and `allow` let pass; equals
        are ordered by id."""
        allowed = self._combine_masks(filters, allow, facts or {})
        return build_ranking(self._score_query(query, allowed, boosts or {}), limit, offset)

    def encode_query(self, query: str) -> Vector | None:
        """The vector of a query, as `search` compares it with the documents'; None where it
        compares words alone."""
        # Whether it asks for anything does not depend on what is known: no spelling is looked up
        # for it.
        read = parse_query(query, Postings.empty())
        if self.encoder is None or not read.terms or not self._vectors.encoded_slots.any():
            return None
        try:
            return self.encoder.encode_query(read.text)
        except EncoderUnavailable:
            return None

    def find_placement(
        self,
        query: str,
        id_: str,
        *,
        filters: SearchFilters = NO_FILTERS,
        allow: IdFilter | None = None,
        boosts: Mapping[str, Boost] | None = None,
        facts: Mapping[str, UsageFacts] | None = None,
    ) -> Placement | None:
        """Where one document stands for a query, and why; None for an unknown id."""
        slot = self._table.slot_by_id.get(id_)
        if slot is None:
            return None
        allowed = self._combine_masks(filters, allow, facts or {})
        if allowed is not None and not allowed[slot]:
            return find_placement(
                self._score_query(query, None, boosts or {}), slot, is_filtered=True
            )
        return find_placement(self._score_query(query, allowed, boosts or {}), slot)

    def _score_query(
        self, query: str, allowed: Mask | None, boosts: Mapping[str, Boost]
    ) -> ScoredQuery:
        return ScoredQuery.from_text(
            query, self._table, self._postings, self._vectors, self.encoder, allowed, boosts
        )

    def _combine_masks(
        self, filters: SearchFilters, allow: IdFilter | None, facts: Mapping[str, UsageFacts]
    ) -> Mask | None:
        passing = build_filter_mask(filters, self._table, facts)
        if allow is None:
            return passing
        if callable(allow):
            allowed = self._table.build_mask(allow)
        else:
            allowed = allow
        if passing is None:
            return allowed
        return passing & allowed

    def find_nearest_names(self, name: str, limit: int = 5) -> list[str]:
        """The ids whose name or address is spelt most like `name`, nearest first; none if nothing
        is near."""
        return nearest_names.find_nearest_names(name, self._table, limit)

    def dump(self) -> bytes:
        """The index as bytes for `load`."""
        return codec.dump(self._table, self._postings, self._vectors)

    @classmethod
    def load(cls, blob: bytes | memoryview, *, encoder: Encoder | None = None) -> "Index":
        """The index that was dumped, a view of `blob`; `UnreadableIndex` if it is damaged or
        another version's."""
        return cls(*codec.load(blob), encoder)
