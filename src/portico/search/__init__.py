"""Search: finds tools. Documents enter, ranked ids with reasons leave.

Knows nothing of MCP, callers or storage, and never awaits: `Index.search` is a pure function of the snapshot.

    document   what enters and what leaves          tokens     text → terms, the same for documents and queries
    schema_text  the words of a JSON Schema         kindred    words used for one another
    fields     what each field is worth             reading    documents → postings
    postings   term → documents, in flat arrays     roster     slot → document, groups, names
    query      text → wanted terms and clauses      lexical    wanted terms → a score per slot (BM25F)
    ranking    scores → places                      nearest    a wrong name → the nearest right ones
    codec      an index as bytes                    index      all of it, as one immutable thing
"""

from portico.search.codec import UnreadableIndex
from portico.search.document import Document, Hit, Ranking, Reason, fingerprint
from portico.search.index import Index
from portico.search.schema_text import SchemaText, read_schema

__all__ = [
    "Document",
    "Hit",
    "Index",
    "Ranking",
    "Reason",
    "SchemaText",
    "UnreadableIndex",
    "fingerprint",
    "read_schema",
]
