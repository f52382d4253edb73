"""Search: finds tools. Documents enter, ranked ids with reasons leave.

Knows nothing of MCP, callers or storage, and never awaits: `Index.search` is a pure function of the
snapshot.

    document     what enters and what leaves        lexical/   words: terms, fields, postings, BM25F
    schema_text  the words of a JSON Schema         dense/     meaning: the encoder and its vectors
    roster       slot → document, groups, names     habits     what use taught
    filters      who may be found                   fusion     words and meaning → one score
    search       one question, all signals          ranking    scores → places, twins together
    verdict      does anything fit?                 nearest    a wrong name → the nearest right ones
    codec        an index as bytes                  index      all of it, as one immutable thing
"""

from portico.search.codec import UnreadableIndex
from portico.search.dense.document_text import compose_document_text, compose_text, compute_text_key
from portico.search.dense.encoder import (
    ENCODER_NAME,
    VECTOR_WIDTH,
    Encoder,
    EncoderUnavailable,
    Vector,
)
from portico.search.dense.encoder import get_shipped_encoder as shipped_encoder
from portico.search.document import (
    Boost,
    Hit,
    MatchReason,
    Ranking,
    SearchDocument,
    compute_fingerprint,
)
from portico.search.filters import SearchFilters, UsageFacts
from portico.search.index import Index
from portico.search.schema_text import SchemaText, extract_schema_text
from portico.search.scored_query import Placement

__all__ = [
    "ENCODER_NAME",
    "VECTOR_WIDTH",
    "Boost",
    "Encoder",
    "EncoderUnavailable",
    "Hit",
    "Index",
    "MatchReason",
    "Placement",
    "Ranking",
    "SchemaText",
    "SearchDocument",
    "SearchFilters",
    "UnreadableIndex",
    "UsageFacts",
    "Vector",
    "compose_document_text",
    "compose_text",
    "compute_fingerprint",
    "compute_text_key",
    "extract_schema_text",
    "shipped_encoder",
]
