"""The index: an immutable answer machine, replaced whole when the catalog changes.

`build` and `replace` make a new index and share what did not change; `search` is a pure function of the index and the
query, so any number of threads may ask an index while its successor is being made.

A further signal (vectors, use) is a column of numbers by slot like `Postings`: it is spliced with the same slots in
`replace`, answers with one score per slot, and is added to `bm25f.score` before `ranking.leaders` picks the best.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from portico.search import codec, nearest
from portico.search.document import Document, Hit, Ranking
from portico.search.lexical import bm25f
from portico.search.lexical.postings import Postings
from portico.search.lexical.query import read_query
from portico.search.lexical.reading import read
from portico.search.ranking import leaders
from portico.search.roster import Mask, Roster, name_key

_SAME_NAME, _SAME_ADDRESS = 1.0, 2.0
"""Scores of words stay below 1: whoever types a name gets the tool of that name, then the tools that say it."""
_LETTER_BY_LETTER = 2.0
"""`send_email` and `send-email` are the same name; the one that was typed comes first."""


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Documents, ready to be searched."""

    _roster: Roster
    _postings: Postings

    @classmethod
    def build(cls, documents: Iterable[Document], previous: "Index | None" = None) -> "Index":
        """An index of exactly these documents. Groups that `previous` holds unchanged are not read again."""
        groups: dict[str, dict[str, Document]] = {}
        for document in documents:
            groups.setdefault(document.group, {})[document.id] = document
        index = previous or cls(Roster.empty(), Postings.empty())
        changed: dict[str, Sequence[Document]] = {
            group: tuple(members.values())
            for group, members in groups.items()
            if not index.holds(group, {document.id: document.hash for document in members.values()})
        }
        changed.update((group, ()) for group in index.groups if group not in groups)
        return index.replace(changed) if changed else index

    def replace(self, changed: Mapping[str, Sequence[Document]]) -> "Index":
        """An index in which each of these groups consists of exactly these documents; none removes the group."""
        roster, gone, slots = self._roster.replace(changed)
        documents = [document for members in changed.values() for document in members]
        vocabulary = dict(self._postings.vocabulary)
        entries = read(documents, slots, vocabulary)
        return Index(roster, self._postings.splice(np.array(gone, dtype=np.uint32), vocabulary, entries))

    def holds(self, group: str, hashes: Mapping[str, str]) -> bool:
        """Whether the group is indexed with exactly these documents (id → hash): then there is nothing to replace."""
        return self._roster.holds(group, hashes)

    @property
    def groups(self) -> Collection[str]:
        """The groups that have documents here."""
        return self._roster.members.keys()

    def __len__(self) -> int:
        return self._roster.count

    def mask(self, allow: Callable[[str], bool]) -> Mask:
        """A filter, worked out once for many searches of this index."""
        return self._roster.mask(allow)

    def search(
        self,
        query: str,
        limit: int = 8,
        *,
        offset: int = 0,
        groups: Collection[str] | None = None,
        allow: Callable[[str], bool] | Mask | None = None,
    ) -> Ranking:
        """The documents that match best, among those of `groups` that `allow` lets pass; equals are ordered by id."""
        asked = read_query(query, self._postings)
        size, count = len(self._roster.ids), len(self)
        allowed = self._allowed(groups, allow)
        scores = bm25f.score(self._postings, asked, size, count, allowed)
        scores += self._exact(query, allowed)
        sought = bm25f.seek(self._postings, asked.wanted, count)
        ranked = leaders(scores, self._roster.ids, max(1, offset + limit))
        slots = ranked[offset : offset + max(0, limit)]
        reasons = bm25f.explain(self._postings, sought, slots)
        hits = tuple(
            Hit(self._roster.ids[slot], float(scores[slot]), why) for slot, why in zip(slots, reasons, strict=True)
        )
        best = max((self._fit(slot, scores, sought) for slot in ranked[:1]), default=0.0)
        return Ranking(hits, int(np.count_nonzero(scores)), best)

    def _fit(self, slot: int, scores: bm25f.Scores, sought: Sequence[bm25f.Sought]) -> float:
        return 1.0 if scores[slot] >= _SAME_NAME else bm25f.coverage(self._postings, sought, slot)

    def _allowed(self, groups: Collection[str] | None, allow: Callable[[str], bool] | Mask | None) -> Mask | None:
        masks = [] if groups is None else [self._roster.mask_of_groups(groups)]
        if allow is not None:
            masks.append(self._roster.mask(allow) if callable(allow) else allow)
        return np.logical_and.reduce(masks) if masks else None

    def _exact(self, query: str, allowed: Mask | None) -> bm25f.Scores:
        """What a document earns for having the query as its name or address."""
        roster, typed = self._roster, query.strip()
        earned = np.zeros(len(roster.ids), dtype=np.float32)
        key = np.uint64(name_key(typed))
        if not key:
            return earned
        earned[roster.name_keys == key] = _SAME_NAME
        earned[roster.id_keys == key] = _SAME_ADDRESS
        for slot in np.flatnonzero(earned).tolist():
            if typed in (roster.names[slot], roster.ids[slot]):
                earned[slot] += _LETTER_BY_LETTER
        return earned if allowed is None else earned * allowed

    def nearest_names(self, name: str, limit: int = 5) -> list[str]:
        """The ids whose name or address is spelt most like `name`, nearest first; none if nothing is near."""
        return nearest.nearest_names(name, self._roster, limit)

    def dump(self) -> bytes:
        """The index as bytes for `load`."""
        return codec.dump(self._roster, self._postings)

    @classmethod
    def load(cls, blob: bytes) -> "Index":
        """The index that was dumped; `codec.UnreadableIndex` if another version wrote it or it is damaged."""
        return cls(*codec.load(blob))
