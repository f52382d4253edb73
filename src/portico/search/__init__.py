"""Search: finds tools. Documents enter, ranked ids with reasons leave.

Knows nothing of MCP, callers or storage, and never awaits: `Index.search` is a pure function of the snapshot.

    document     what enters and what leaves        lexical/   words: terms, fields, postings, BM25F
    schema_text  the words of a JSON Schema         dense/     meaning: the encoder and its vectors
    roster       slot → document, groups, names     habits     what use taught
    filters      who may be found                   fusion     words and meaning → one score
    search       one question, all signals          ranking    scores → places, twins together
    verdict      does anything fit?                 nearest    a wrong name → the nearest right ones
    codec        an index as bytes                  index      all of it, as one immutable thing
"""

from portico.search.codec import UnreadableIndex
from portico.search.dense.encoder import NAME, WIDTH, Encoder, EncoderUnavailable, Vector
from portico.search.dense.encoder import shipped as shipped_encoder
from portico.search.dense.text import compose, key_of, text_of
from portico.search.document import Document, Hit, Lift, Ranking, Reason, fingerprint
from portico.search.filters import Facts, Filters
from portico.search.index import Index
from portico.search.schema_text import SchemaText, read_schema
from portico.search.search import Placement

__all__ = [
    "NAME",
    "WIDTH",
    "Document",
    "Encoder",
    "EncoderUnavailable",
    "Facts",
    "Filters",
    "Hit",
    "Index",
    "Lift",
    "Placement",
    "Ranking",
    "Reason",
    "SchemaText",
    "UnreadableIndex",
    "Vector",
    "compose",
    "fingerprint",
    "key_of",
    "read_schema",
    "shipped_encoder",
    "text_of",
]
