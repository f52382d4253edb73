"""A small catalog for the tests of searching: servers with tags, and tools of several that say the
same."""

from typing import Any

from portico.catalog.entries import build_documents
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.meta_tools.search_request import PreparedSearch, SearchRequest
from portico.search import Boost, Encoder, Index, UsageFacts, compose_document_text
from portico.search.dense.encoder import get_shipped_encoder
from portico.upstream.backend import InitializeInfo, Raw
from portico.visibility import UNRESTRICTED_SCOPE, Scope


def tool(name: str, description: str, *parameters: str) -> Raw:
    properties = {
        parameter: {"type": "string", "description": f"The {parameter}."}
        for parameter in parameters
    }
    schema = {"type": "object", "properties": properties, "required": list(parameters[:1])}
    return {"name": name, "description": description, "inputSchema": schema}


def entry(server: str, *tools: Raw, **more: Any) -> ServerEntry:
    made = {one["name"]: make_tool(server, one) for one in tools}
    return ServerEntry(
        server,
        initialize_info=InitializeInfo("legacy", "2025-11-25"),
        tools=made,
        listed_at=1,
        **more,
    )


def by_words(*entries: ServerEntry, scope: Scope = UNRESTRICTED_SCOPE) -> Snapshot:
    """A snapshot that is searched by words alone."""
    index = Index.build(document for one in entries for document in build_documents(one))
    return Snapshot({one.name: one for one in entries}, index).restrict_to(scope)


def by_meaning(
    *entries: ServerEntry, encoder: Encoder | None = None, scope: Scope = UNRESTRICTED_SCOPE
) -> Snapshot:
    """A snapshot that is searched by words and meaning."""
    all_ = [document for one in entries for document in build_documents(one)]
    vectors = {
        document.id: get_shipped_encoder().encode_document(compose_document_text(document))
        for document in all_
    }
    index = Index.build(all_, encoder=encoder or get_shipped_encoder()).with_vectors(vectors)
    return Snapshot({one.name: one for one in entries}, index).restrict_to(scope)


MAIL = entry(
    "mail",
    tool("send", "Send an e-mail to somebody.", "to", "subject"),
    tool("find", "Find e-mails by sender or subject.", "sender"),
    description="Letters and their boxes",
    tags=("Post", "people"),
)
TRACKER = entry(
    "tracker",
    tool("create_issue", "Create a new issue in a repository.", "title"),
    tool("close_issue", "Close an issue.", "number"),
    description="What is to be done",
    tags=("code",),
)
TRANSLATE = tool("translate_text", "Translate a text into another language.", "text", "language")
COPIES = tuple(entry(f"lingua{number}", TRANSLATE, tags=("words",)) for number in range(4))
ALL = (MAIL, TRACKER, *COPIES)
UNRELATED = "reticulate seventeen purple splines with a quantum issue"
"""One word of eight is anybody's: by words, nothing fits it."""


def search(
    snapshot: Snapshot,
    query: str,
    *,
    lifts: dict[str, Boost] | None = None,
    facts: dict[str, UsageFacts] | None = None,
    **how: Any,
) -> PreparedSearch:
    question = SearchRequest(query, **how)
    return PreparedSearch(
        snapshot, question, question.build_filters(snapshot), lifts or {}, facts or {}
    )
