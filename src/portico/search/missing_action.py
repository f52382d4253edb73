"""Finds that a query names a product of the catalog and an action that none of its tools offers.

The tools nearest to `delete a Slack message` are Slack's, and near enough to fit, though none of
them deletes. So the action is compared apart: by the words of the product's tools, and by how near
tools of other servers are that do offer it. Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from portico.search.document import MissingAction
from portico.search.document_table import DocumentTable, Mask
from portico.search.lexical.bm25f import Scores
from portico.search.lexical.postings import Postings
from portico.search.lexical.tokens import (
    CONCEPTS,
    FILLER_STEMS,
    extract_word_terms,
    extract_words,
    split_word,
    stem,
)

_MAX_CHARS = 200
"""Longer queries ask for more than one action, and take long to encode."""
_MIN_OWN_SHARE = 0.25
"""Share of the tools with a word of a server's name that must be this server's: `slack` names a
product, `search` does not."""
_MIN_GAP = 0.12
"""How much nearer, as a cosine, a tool of another server must be that offers the action."""
_CERTAIN_CONCEPTS = frozenset(("~create", "~delete"))
"""Concepts whose absence alone is enough: of 582 requests that begin with such a word, 2 were for a
tool of a server that has none (`training.actions`)."""
_QUESTION_WORDS = frozenset(
    ("are", "did", "do", "does", "has", "have", "how", "is", "was", "were", "what", "when", "where",
     "which", "who", "whose", "why")
)  # fmt: skip
_NAMES = 0b11
_FIRST_SENTENCE = 1 << 5
_DESCRIPTION = 1 << 4
_ENUMS = 1 << 8
_ANYWHERE = 0xFFFF
"""Bits of `bm25f.FIELDS`: name and title, first sentence, description, enums."""


def _load_actions() -> frozenset[str]:
    path = Path(__file__).parent / "lexical" / "actions.txt"
    return frozenset(map(stem, path.read_text(encoding="utf-8").split()))


ACTIONS = _load_actions()
"""Stems of the words that name what a tool does."""


def find_missing_action(
    text: str,
    table: DocumentTable,
    postings: Postings,
    compute_similarities: Callable[[str], Scores | None],
    allowed: Mask | None,
    first_slots: Sequence[int],
) -> MissingAction | None:
    """Return the action that the product named in a query lacks; None if that is not certain.

    `first_slots` are the first hits: if none is the product's, the query is about something else.
    """
    if len(text) > _MAX_CHARS:
        return None
    words = extract_words(text)
    if not any(ACTIONS.intersection(split_word(word).parts) for word in words):
        return None
    visible = table.occupied_slots if allowed is None else allowed
    terms, positions = _find_product(words, table, postings, visible)
    if not terms:
        return None
    rest = [word for position, word in enumerate(words) if position not in positions]
    action = _find_action(rest)
    if not action:
        return None
    named = {group for term in terms for group in table.groups_by_word[term]}
    own = table.build_group_mask(named) & visible
    product = own | _find_slots(postings, terms, len(own), _NAMES | _FIRST_SENTENCE) & visible
    if not own.any() or not product[list(first_slots)].any():
        return None
    action_stem = stem(action.casefold())
    spellings = (action_stem, *CONCEPTS.get(action_stem, ()))
    offering = _find_slots(postings, spellings, len(product), _NAMES | _FIRST_SENTENCE | _ENUMS)
    mentioning = _find_slots(postings, terms, len(product), _ANYWHERE)
    naming = _find_slots(postings, spellings, len(product), _ANYWHERE)
    is_served = (offering & mentioning) | (naming & product)
    if (offering & product).any() or is_served[list(first_slots)].any():
        return None
    groups = sorted({table.groups[slot] for slot in np.flatnonzero(own).tolist()})
    found = MissingAction(action, tuple(groups))
    described = _find_slots(postings, spellings, len(product), _DESCRIPTION)
    if not _CERTAIN_CONCEPTS.isdisjoint(spellings) and not (described & product).any():
        return found
    others = _find_slots(postings, spellings, len(product), _NAMES) & visible & ~product
    similarities = compute_similarities(" ".join(rest)) if others.any() else None
    if similarities is None:
        return None
    gap = similarities[others].max() - similarities[product].max()
    return found if gap >= _MIN_GAP else None


def _find_product(
    words: Sequence[str], table: DocumentTable, postings: Postings, visible: Mask
) -> tuple[frozenset[str], frozenset[int]]:
    """Return the terms of a query that name groups, and the positions of their words."""
    candidates: list[tuple[str, tuple[int, ...]]] = [
        (term, (at,)) for at, word in enumerate(words) for term in extract_word_terms(word)
    ]
    candidates += (
        (stem((first + second).casefold()), (at, at + 1))
        for at, (first, second) in enumerate(pairwise(words))
    )
    terms: set[str] = set()
    positions: set[int] = set()
    for term, typed_at in candidates:
        named = table.groups_by_word.get(term, ())
        if named and _compute_own_share(term, named, table, postings, visible) >= _MIN_OWN_SHARE:
            terms.add(term)
            positions.update(typed_at)
    return frozenset(terms), frozenset(positions)


def _compute_own_share(
    term: str, groups: Sequence[str], table: DocumentTable, postings: Postings, visible: Mask
) -> float:
    slots = postings.slots[postings.find_list(term)]
    slots = slots[visible[slots]]
    own = table.build_group_mask(groups)[slots]
    return float(own.mean()) if len(own) else 0.0


def _find_action(words: Sequence[str]) -> str:
    """Return the action that a request begins with; empty for a question or another word."""
    for word in words:
        if word.casefold() in _QUESTION_WORDS:
            return ""
        parts = split_word(word).parts
        if parts and parts[0] not in FILLER_STEMS:
            return word if len(parts) == 1 and parts[0] in ACTIONS else ""
    return ""


def _find_slots(postings: Postings, terms: Iterable[str], size: int, fields: int) -> Mask:
    """Return the slots that have one of these terms in one of these fields."""
    found = np.zeros(size, dtype=bool)
    for place in map(postings.find_list, terms):
        found[postings.slots[place][(postings.fields[place] & fields) != 0]] = True
    return found
