"""Search for tools: documents in, ranked ids with reasons out.

Knows nothing of MCP, callers or files, and never awaits: `Index.search` is a pure function of the
snapshot.

    document        input and output types           lexical/        terms, fields, postings, BM25F
    document_table  slots, groups, names, filters    dense/          the encoder and its vectors
    scored_query    one query: signals, confidence   usage_patterns  boosts from past use
    ranking         weights, ranks, duplicates       codec           an index as bytes
    index           the immutable index              missing_action  a product without the action
"""

from portico.search.codec import UnreadableIndex as UnreadableIndex
from portico.search.dense.encoder import ENCODER_NAME as ENCODER_NAME
from portico.search.dense.encoder import VECTOR_WIDTH as VECTOR_WIDTH
from portico.search.dense.encoder import Encoder as Encoder
from portico.search.dense.encoder import EncoderUnavailable as EncoderUnavailable
from portico.search.dense.encoder import Vector as Vector
from portico.search.dense.encoder import get_shipped_encoder as get_shipped_encoder
from portico.search.document import Boost as Boost
from portico.search.document import Hit as Hit
from portico.search.document import MatchReason as MatchReason
from portico.search.document import MissingAction as MissingAction
from portico.search.document import Ranking as Ranking
from portico.search.document import SchemaText as SchemaText
from portico.search.document import SearchDocument as SearchDocument
from portico.search.document import compose_document_text as compose_document_text
from portico.search.document import compose_text as compose_text
from portico.search.document import compute_fingerprint as compute_fingerprint
from portico.search.document import compute_text_key as compute_text_key
from portico.search.document import extract_schema_text as extract_schema_text
from portico.search.document_table import SearchFilters as SearchFilters
from portico.search.document_table import UsageFacts as UsageFacts
from portico.search.index import Index as Index
from portico.search.ranking import RankingMethod as RankingMethod
from portico.search.scored_query import Placement as Placement
