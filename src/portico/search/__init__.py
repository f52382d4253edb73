"""Search for tools: documents in, ranked ids with reasons out.

Knows nothing of MCP, callers or storage, and never awaits: `Index.search` is a pure function of the
snapshot.

    document        input and output types           lexical/        terms, fields, postings, BM25F
    schema_text     searchable text of JSON Schema   dense/          the encoder and its vectors
    document_table  slot to document, groups, names  usage_patterns  boosts from past use
    filters         who may be found                 fusion          lexical and dense to one score
    scored_query    one query, all signals           ranking         scores to ranks, duplicates
    confidence      does anything fit?               nearest_names   suggestions for a wrong name
    codec           an index as bytes                index           the immutable index
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
