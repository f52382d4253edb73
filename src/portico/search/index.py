"""The search index: immutable, replaced as a whole when the catalog changes.

`build`, `replace` and `with_vectors` return a new index that shares what did not change; `search`
is a pure function of the index and its arguments, so any number of threads may search an index
while its successor is being built.

Words are indexed at once. Vectors take milliseconds per document and come later:
`list_unencoded_by_group` tells what is missing, `with_vectors` adds what was encoded or stored. A
document without a vector is found by its words.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from portico.search import codec
from portico.search.dense.encoder import Encoder, EncoderUnavailable, Vector
from portico.search.dense.vectors import Vectors
from portico.search.document import Boost, Ranking, SearchDocument
from portico.search.document_table import (
    NO_FILTERS,
    DocumentTable,
    Mask,
    SearchFilters,
    UsageFacts,
    build_filter_mask,
)
from portico.search.lexical.bm25f import build_entries
from portico.search.lexical.postings import Postings
from portico.search.lexical.tokens import parse_query, squash
from portico.search.ranking import RankingMethod
from portico.search.scored_query import Placement, ScoredQuery, build_ranking, find_placement

IdFilter = Callable[[str], bool] | Mask
"""Which ids may be found: a predicate, or a mask from `Index.build_mask`."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    _table: DocumentTable
    _postings: Postings
    _vectors: Vectors
    encoder: Encoder | None = None
    """Encodes queries; without one, words alone are searched."""
    method: RankingMethod = "both"

    @classmethod
    def build(
        cls,
        documents: Iterable[SearchDocument],
        previous: "Index | None" = None,
        *,
        encoder: Encoder | None = None,
        method: RankingMethod = "both",
    ) -> "Index":
        """Return an index of exactly these documents; unchanged groups of `previous` are reused."""
        groups: dict[str, dict[str, SearchDocument]] = {}
        for document in documents:
            groups.setdefault(document.group, {})[document.id] = document
        empty = (DocumentTable.empty(), Postings.empty(), Vectors.empty())
        index = previous or cls(*empty, encoder, method)
        changed: dict[str, Sequence[SearchDocument]] = {
            group: () for group in index.groups if group not in groups
        }
        for group, members in groups.items():
            hashes = {document.id: document.hash for document in members.values()}
            if not index.has_group(group, hashes):
                changed[group] = tuple(members.values())
        return index.replace(changed) if changed else index

    def replace(self, changed: Mapping[str, Sequence[SearchDocument]]) -> "Index":
        """Return an index with these groups replaced; a group without documents is removed."""
        table, removed, slots = self._table.replace(changed)
        documents = [document for members in changed.values() for document in members]
        vocabulary = dict(self._postings.vocabulary)
        entries = build_entries(documents, slots, vocabulary)
        removed_slots = np.array(removed, dtype=np.uint32)
        # A document that did not change keeps its vector, whatever its new slot.
        stored = {
            self._table.hashes[slot]: self._vectors.rows[slot]
            for slot in removed
            if self._vectors.encoded_slots[slot]
        }
        reused = {
            slot: stored[added.hash]
            for slot, added in zip(slots, documents, strict=True)
            if added.hash in stored
        }
        return Index(
            table,
            self._postings.splice(removed_slots, vocabulary, entries),
            self._vectors.splice(len(table.ids), removed_slots, reused),
            self.encoder,
            self.method,
        )

    def with_vectors(self, vectors: Mapping[str, Vector]) -> "Index":
        """Return this index with vectors added by document id; unknown ids are ignored."""
        added = {
            slot: row
            for id_, row in vectors.items()
            if (slot := self._table.slot_by_id.get(id_)) is not None
        }
        spliced = self._vectors.splice(len(self._table.ids), np.empty(0, dtype=np.uint32), added)
        return replace(self, _vectors=spliced)

    @property
    def unencoded_count(self) -> int:
        return int(np.count_nonzero(self._table.occupied_slots & ~self._vectors.encoded_slots))

    def list_unencoded(self, group: str) -> Sequence[str]:
        """Return the ids of a group's documents without a vector."""
        known = self._vectors.encoded_slots
        ids = self._table.ids
        return [ids[slot] for slot in self._table.slots_by_group.get(group, ()) if not known[slot]]

    def list_unencoded_by_group(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        unencoded = self._table.occupied_slots & ~self._vectors.encoded_slots
        for slot in np.flatnonzero(unencoded).tolist():
            found.setdefault(self._table.groups[slot], []).append(self._table.ids[slot])
        return found

    def has_group(self, group: str, hashes: Mapping[str, str]) -> bool:
        """Return whether the group is indexed with exactly these documents (id → hash)."""
        return self._table.has_group(group, hashes)

    @property
    def groups(self) -> Collection[str]:
        return self._table.slots_by_group.keys()

    def __len__(self) -> int:
        return self._table.count

    def get_category(self, id_: str) -> str:
        """Return the category of a document; empty for an unknown id."""
        slot = self._table.slot_by_id.get(id_)
        return "" if slot is None else self._table.categories[slot]

    def build_mask(self, allow: Callable[[str], bool]) -> Mask:
        """Precompute a filter for many searches of this index."""
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
        preferred_groups: Collection[str] = (),
    ) -> Ranking:
        """Rank the documents that pass `filters` and `allow`; ties are ordered by id.

        Documents of `preferred_groups` come before others of nearly the same score.
        """
        scope = self._combine_masks(NO_FILTERS, allow, {})
        allowed = self._combine_masks(filters, scope, facts or {})
        scored = self._score_query(query, scope, allowed, boosts or {}, preferred_groups)
        return build_ranking(scored, limit, offset)

    def encode_query(self, query: str) -> Vector | None:
        """Return the vector `search` uses for a query; None where it uses words alone."""
        # Parsed without a vocabulary: only whether there are terms matters here.
        parsed = parse_query(query, Postings.empty())
        if self.encoder is None or not parsed.terms or not self._vectors.encoded_slots.any():
            return None
        try:
            return self.encoder.encode_query(parsed.text)
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
        preferred_groups: Collection[str] = (),
    ) -> Placement | None:
        """Return the rank of one document for a query, with reasons; None for an unknown id.

        What `filters` hide is ranked as if there were none. What `allow` hides is ranked among all.
        """
        slot = self._table.slot_by_id.get(id_)
        if slot is None:
            return None
        scope = self._combine_masks(NO_FILTERS, allow, {})
        allowed = self._combine_masks(filters, scope, facts or {})
        is_filtered = allowed is not None and not allowed[slot]
        if scope is not None and not scope[slot]:
            scope = None
        if is_filtered:
            allowed = scope
        scored = self._score_query(query, scope, allowed, boosts or {}, preferred_groups)
        return find_placement(scored, slot, is_filtered=is_filtered)

    def _score_query(
        self,
        query: str,
        scope: Mask | None,
        allowed: Mask | None,
        boosts: Mapping[str, Boost],
        preferred_groups: Collection[str],
    ) -> ScoredQuery:
        return ScoredQuery.from_text(
            query,
            self._table,
            self._postings,
            self._vectors,
            self.encoder,
            allowed,
            boosts,
            method=self.method,
            preferred_groups=preferred_groups,
            scope=scope,
        )

    def _combine_masks(
        self, filters: SearchFilters, allow: IdFilter | None, facts: Mapping[str, UsageFacts]
    ) -> Mask | None:
        passing = build_filter_mask(filters, self._table, facts)
        if allow is None:
            return passing
        allowed = self._table.build_mask(allow) if callable(allow) else allow
        return allowed if passing is None else passing & allowed

    def find_nearest_names(
        self, name: str, limit: int = 5, allow: Callable[[str], bool] | None = None
    ) -> list[str]:
        """Return the ids whose name or address is spelt most like `name`, nearest first."""
        return _find_nearest_names(name, self._table, limit, allow)

    def dump(self) -> bytes:
        return codec.dump(self._table, self._postings, self._vectors)

    @classmethod
    def load(
        cls,
        blob: bytes | memoryview,
        *,
        encoder: Encoder | None = None,
        method: RankingMethod = "both",
    ) -> "Index":
        """Restore a dumped index as a view of `blob`; raises UnreadableIndex."""
        return cls(*codec.load(blob), encoder, method)


_MIN_SIMILARITY = 60.0
"""On rapidfuzz's scale of 0 … 100; a worse suggestion does not help."""
_MAX_NAME = 256


def _find_nearest_names(
    name: str, table: DocumentTable, limit: int, allow: Callable[[str], bool] | None
) -> list[str]:
    """Return the ids of the nearest names and addresses, nearest first, ties by id."""
    try:
        # Imported late: only wrong names need it.
        from rapidfuzz import fuzz, process
    except (ImportError, OSError):  # optional: without it there are no suggestions
        return []

    folded = squash(name[:_MAX_NAME])
    likeness: dict[int, float] = {}
    visible = None if allow is None else table.build_mask(allow).tolist()
    for spellings in (table.squashed_ids, table.squashed_names) if folded else ():
        if visible is not None:
            spellings = [
                text if shown else None for text, shown in zip(spellings, visible, strict=True)
            ]
        near = process.extract(
            folded, spellings, scorer=fuzz.ratio, limit=4 * limit, score_cutoff=_MIN_SIMILARITY
        )
        for _, points, slot in near:
            likeness[slot] = max(likeness.get(slot, 0.0), points)
    ranked = sorted(likeness, key=lambda slot: (-likeness[slot], table.ids[slot]))
    return [table.ids[slot] for slot in ranked[:limit]]
