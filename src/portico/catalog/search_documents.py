"""Builds search documents from tools. Pure."""

from collections.abc import Iterator

from portico.catalog.categories import assign_categories, collect_classification_inputs
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.search import SearchDocument, compose_text, compute_fingerprint, extract_schema_text

MAX_INSTRUCTIONS = 1_000


def build_documents(entry: ServerEntry) -> Iterator[SearchDocument]:
    """Build one document per tool of a server."""
    server_text = _compose_server_text(entry)
    fingerprint = _compute_server_fingerprint(entry)
    categories = assign_categories(entry)
    return (
        _build_document(tool, entry, server_text, fingerprint, categories[name])
        for name, tool in entry.tools.items()
    )


def compute_document_hashes(entry: ServerEntry) -> dict[str, str]:
    """Map document ids to hashes for `Index.has_group`, without parsing a definition."""
    fingerprint = _compute_server_fingerprint(entry)
    return {
        tool.address: compute_fingerprint(tool.address, tool.hash, fingerprint)
        for tool in entry.tools.values()
    }


def compose_tool_text(tool: Tool) -> str:
    """Return the text the encoder reads of a tool, as `compose_document_text` would."""
    return compose_text(tool.server, tool.name, tool.description, tool.title)


def _compose_server_text(entry: ServerEntry) -> str:
    if entry.initialize_info:
        instructions = entry.initialize_info.instructions[:MAX_INSTRUCTIONS]
    else:
        instructions = ""
    return " ".join(part for part in (entry.title, entry.description, instructions) if part)


def _compute_server_fingerprint(entry: ServerEntry) -> str:
    """Return the identity of all inputs of a document except the tool itself.

    The category also depends on the server's other tools, but these are replaced together with it.
    """
    return compute_fingerprint(
        _compose_server_text(entry), *entry.tags, "", *collect_classification_inputs(entry)
    )


def _build_document(
    tool: Tool, entry: ServerEntry, server_text: str, server_fingerprint: str, category: str
) -> SearchDocument:
    text = extract_schema_text(tool.input_schema)
    return SearchDocument(
        id=tool.address,
        hash=compute_fingerprint(tool.address, tool.hash, server_fingerprint),
        group=tool.server,
        name=tool.name,
        title=tool.title,
        server=tool.server,
        server_text=server_text,
        description=tool.description,
        parameters=text.parameters,
        parameter_text=text.descriptions,
        enums=text.enums,
        tags=entry.tags,
        category=category,
    )
