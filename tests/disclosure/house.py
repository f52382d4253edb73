"""A small catalog for the tests of searching: servers with tags, and tools of several that say the same."""

from typing import Any

from portico.access import EVERYTHING, Scope
from portico.catalog.documents import documents
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import make_tool
from portico.disclosure.question import Question, Search
from portico.search import Encoder, Facts, Index, Lift, text_of
from portico.search.dense.encoder import shipped
from portico.upstream.backend import Hello, Raw


def tool(name: str, description: str, *parameters: str) -> Raw:
    properties = {parameter: {"type": "string", "description": f"The {parameter}."} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters[:1])}
    return {"name": name, "description": description, "inputSchema": schema}


def entry(server: str, *tools: Raw, **more: Any) -> ServerEntry:
    made = {one["name"]: make_tool(server, one) for one in tools}
    return ServerEntry(server, hello=Hello("legacy", "2025-11-25"), tools=made, listed_at=1, **more)


def by_words(*entries: ServerEntry, scope: Scope = EVERYTHING) -> Snapshot:
    """A snapshot that is searched by words alone."""
    index = Index.build(document for one in entries for document in documents(one))
    return Snapshot({one.name: one for one in entries}, index).within(scope)


def by_meaning(*entries: ServerEntry, encoder: Encoder | None = None, scope: Scope = EVERYTHING) -> Snapshot:
    """A snapshot that is searched by words and meaning."""
    all_ = [document for one in entries for document in documents(one)]
    vectors = {document.id: shipped().document(text_of(document)) for document in all_}
    index = Index.build(all_, encoder=encoder or shipped()).with_vectors(vectors)
    return Snapshot({one.name: one for one in entries}, index).within(scope)


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
    lifts: dict[str, Lift] | None = None,
    facts: dict[str, Facts] | None = None,
    **how: Any,
) -> Search:
    question = Question(query, **how)
    return Search(snapshot, question, question.filters(snapshot), lifts or {}, facts or {})
