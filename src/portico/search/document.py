"""What enters the search room and what leaves it: documents in, a ranking of ids with reasons out."""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
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
    """How the server introduces itself: title, description, instructions. Only its beginning is read."""
    description: str = ""
    parameters: tuple[str, ...] = ()
    parameter_text: str = ""
    """The descriptions of the parameters."""
    enums: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a document was found: one word of the query, and where it stands in the document."""

    word: str
    fields: tuple[str, ...]
    score: float
    """What the word added to the hit's score."""
    kindred: bool = False
    """The document has only a related word (`delete` for `remove`)."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One document of a ranking."""

    id: str
    score: float
    """Below 1, the share of a perfect match that was reached; 1 and more for a tool whose name the query is."""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer to one query."""

    hits: tuple[Hit, ...]
    total: int
    """How many documents matched at all, under the filter."""
    best: float
    """0 … 1: the share of the query, its rare words counting most, that the first hit contains. 0: nothing matched."""

    @property
    def weak(self) -> bool:
        """Nothing here fits well: say so before showing the hits."""
        return self.best < WEAK


WEAK = 0.2
"""Below this share of the query in the first hit, most first hits are wrong; one right answer in 25 lies below it."""


def fingerprint(*parts: str) -> str:
    """A hash for `Document.hash`: of the tool's own hash and whatever else the document was made from."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part.encode(errors="surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()
