"""What enters the search room and what leaves it: documents in, a ranking of ids with reasons out."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """One tool as text, already taken apart by field."""

    id: str
    """Its address, `github.create_issue`: unique in an index, and what hits carry."""
    hash: str
    """Identity of everything below (see `fingerprint`): the same hash is never indexed twice."""
    group: str
    """What is replaced together: the server's key in the config."""
    name: str
    title: str = ""
    server: str = ""
    """The words for its server (usually the key again)."""
    server_text: str = ""
    """How the server introduces itself: title, description, instructions. Only its beginning is
    read."""
    description: str = ""
    parameters: tuple[str, ...] = ()
    parameter_text: str = ""
    """The descriptions of the parameters."""
    enums: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class MatchReason:
    """Why a document was found: one word of the query, and where it stands in the document."""

    word: str
    fields: tuple[str, ...]
    score: float
    """What the word added to the hit's score."""
    is_synonym: bool = False
    """The document has only a related word (`delete` for `remove`)."""
    correction: str = ""
    """What the word was taken for, as it stands nowhere here."""


@dataclass(frozen=True, slots=True)
class Boost:
    """What use of the past adds to a document's score, and why."""

    amount: float
    reasons: tuple[str, ...] = ()
    popularity: float = 0.0
    """The part of it that is for being called often."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of a ranking."""

    id: str
    score: float
    """0 … 1 within its ranking, lifts added; 2 and more for a tool whose name the query is."""
    reasons: tuple[MatchReason, ...] = ()
    """The words of the query that it has."""
    missing_words: tuple[str, ...] = ()
    """The telling words of the query that it does not have."""
    lexical_score: float = 0.0
    """The share of a perfect match by words that it reaches."""
    similarity: float | None = None
    """How near its meaning is to the query's, as a cosine; None where no vector is known."""
    boost: Boost | None = None
    is_name_match: bool = False
    """The query is its name or address: no other signal counts as much."""
    duplicates: tuple[str, ...] = ()
    """Documents of other groups that say the same, best first: they have no place of their own."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer to one query."""

    hits: tuple[Hit, ...]
    total: int
    """How many documents matched at all, under the filter."""
    confidence: float
    """0 … 1: how sure it is that the first hits serve the query. 0: nothing matched."""
    is_weak: bool = False
    """Nothing here fits: say so before showing the hits."""
    is_unsure: bool = False
    """Something may fit, or may not."""
    weak_threshold: float = 0.0
    """Below what nothing fits."""
    nearest_groups: tuple[str, ...] = ()
    """The groups of the nearest documents, nearest first: where to look if nothing fits."""
    uses_embeddings: bool = False
    """Whether meaning was searched, or words alone."""
    has_more: bool = False
    """Whether there are hits after these."""


def compute_fingerprint(*parts: str) -> str:
    """A hash for `Document.hash`: of the tool's own hash and whatever else the document was made
    from."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()
