"""The fields of a document and their weights for BM25F.

Lengths are normalised against fixed typical lengths, not against this catalog's averages: a
document's postings then depend on the document alone, and a changed server is re-indexed without
touching others. Measured, the two differ by less than half a point.
"""

import re
from dataclasses import dataclass

from portico.search.document import SearchDocument

SATURATION = 1.2
"""k1: how soon a repeated word stops counting."""
LENGTH_NORMALISATION = 0.6
"""b: how much a long field dilutes each of its words."""

_MAX_TEXT = 40_000
_MAX_SERVER_TEXT = 240
"""A server's text is repeated in each of its tools; more than this would double the index."""
_MAX_SENTENCE = 320
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


@dataclass(frozen=True, slots=True)
class IndexField:
    """One field: its name in reasons, its weight, and its typical length in terms."""

    name: str
    weight: float
    typical_length: float


FIELDS = (
    IndexField("name", 3.0, 4),
    IndexField("title", 1.0, 3),
    IndexField("server", 2.0, 2),
    IndexField("server_text", 0.2, 20),
    IndexField("description", 0.7, 30),
    # The first sentence again: it says what a tool does, the rest mostly how.
    IndexField("description", 0.6, 9),
    IndexField("parameters", 0.6, 8),
    IndexField("parameter_text", 0.3, 30),
    IndexField("enums", 0.3, 4),
    IndexField("tags", 1.0, 2),
    IndexField("category", 0.5, 2),
)


def extract_texts(document: SearchDocument) -> tuple[str, ...]:
    """Return the text of each of `FIELDS`, in that order."""
    description = document.description[:_MAX_TEXT]
    return (
        document.name,
        document.title,
        document.server,
        document.server_text[:_MAX_SERVER_TEXT],
        description,
        extract_first_sentence(description),
        " ".join(document.parameters)[:_MAX_TEXT],
        document.parameter_text[:_MAX_TEXT],
        " ".join(document.enums)[:_MAX_TEXT],
        " ".join(document.tags),
        document.category,
    )


def extract_first_sentence(text: str) -> str:
    """Return the first sentence, cut at `_MAX_SENTENCE` characters."""
    text = text.lstrip()
    end = _SENTENCE_END.search(text, 0, _MAX_SENTENCE)
    return text[: end.end() if end else _MAX_SENTENCE]
