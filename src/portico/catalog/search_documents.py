"""What search sees of a tool. Pure."""

from collections.abc import Iterator

from portico.catalog.categories import assign_categories, collect_classification_inputs
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.search import SearchDocument, compose_text, compute_fingerprint, extract_schema_text

MAX_INSTRUCTIONS = 1_000


def build_documents(entry: ServerEntry) -> Iterator[SearchDocument]:
    """One document per tool of a server."""
    server_text = _compose_server_text(entry)
    made_from = _compute_server_fingerprint(entry)
    kinds = assign_categories(entry)
    return (
        _build_document(tool, entry, server_text, made_from, kinds[name])
        for name, tool in entry.tools.items()
    )


def compute_document_hashes(entry: ServerEntry) -> dict[str, str]:
    """What `Index.holds` compares: id → hash, without reading a single definition."""
    made_from = _compute_server_fingerprint(entry)
    return {
        tool.address: compute_fingerprint(tool.address, tool.hash, made_from)
        for tool in entry.tools.values()
    }


def compose_tool_text(tool: Tool) -> str:
    """What the encoder reads of a tool: `text_of` its document, without making one."""
    return compose_text(tool.server, tool.name, tool.description, tool.title)


def _compose_server_text(entry: ServerEntry) -> str:
    if entry.initialize_info:
        instructions = entry.initialize_info.instructions[:MAX_INSTRUCTIONS]
    else:
        instructions = ""
    return " ".join(part for part in (entry.title, entry.description, instructions) if part)


def _compute_server_fingerprint(entry: ServerEntry) -> str:
    """The identity of everything but the tool itself that its document is made from.

    The category also follows from the server's other tools, but they are replaced together with it
    anyway.
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
