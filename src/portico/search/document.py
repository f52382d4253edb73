"""Types of search: documents as input, a ranking of ids with reasons as output."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """One tool as text, separated by field."""

    id: str
    """The tool's address, such as `github.create_issue`: unique in an index, and the id of hits."""
    hash: str
    """Identity of all other fields (see `compute_fingerprint`): a known hash is not indexed
    again."""
    group: str
    """Unit of replacement: the server's key in the config."""
    name: str
    title: str = ""
    server: str = ""
    """The server's name as text (usually its key)."""
    server_text: str = ""
    """The server's title, description and instructions. Only the beginning is indexed."""
    description: str = ""
    parameters: tuple[str, ...] = ()
    parameter_text: str = ""
    """Descriptions of the parameters."""
    enums: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class MatchReason:
    """One word of the query that matched, and the fields of the document that contain it."""

    word: str
    fields: tuple[str, ...]
    score: float
    """The word's contribution to the hit's score."""
    is_synonym: bool = False
    """The document contains only a related word (`delete` for `remove`)."""
    correction: str = ""
    """The correction of a word that no document contains."""


@dataclass(frozen=True, slots=True)
class Boost:
    """Score that past use adds to a document, with reasons."""

    amount: float
    reasons: tuple[str, ...] = ()
    popularity: float = 0.0
    """The part that is due to frequent calls."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of a ranking."""

    id: str
    score: float
    """0 … 1 within its ranking plus boosts; 2 and more if the query is the tool's name."""
    reasons: tuple[MatchReason, ...] = ()
    """Words of the query that the document contains."""
    missing_words: tuple[str, ...] = ()
    """Significant words of the query that the document lacks."""
    lexical_score: float = 0.0
    """Share of a perfect lexical match."""
    similarity: float | None = None
    """Cosine similarity to the query; None without a vector."""
    boost: Boost | None = None
    is_name_match: bool = False
    """The query is its name or address, which outweighs every other signal."""
    duplicates: tuple[str, ...] = ()
    """Equivalent documents of other groups, best first; they have no rank of their own."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result of one query."""

    hits: tuple[Hit, ...]
    total: int
    """Number of documents that matched, after filtering."""
    confidence: float
    """0 … 1: how likely the first hits serve the query. 0: nothing matched."""
    is_weak: bool = False
    """Nothing here fits; the answer says so before the hits."""
    is_unsure: bool = False
    """Something may fit, or may not."""
    weak_threshold: float = 0.0
    """Confidence below which nothing fits."""
    nearest_groups: tuple[str, ...] = ()
    """Groups of the nearest documents, nearest first: where to look if nothing fits."""
    uses_embeddings: bool = False
    """Whether vectors were searched, or words alone."""
    has_more: bool = False
    """Whether there are hits after these."""


def compute_fingerprint(*parts: str) -> str:
    """Return a hash for `SearchDocument.hash`, of all parts the document was made from."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()
