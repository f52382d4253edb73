"""What search sees of a tool. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.search import Document, fingerprint, read_schema

MAX_INSTRUCTIONS = 1_000


def documents(entry: ServerEntry) -> Iterator[Document]:
    """One document per tool of a server."""
    server_text = _server_text(entry)
    return (_document(tool, entry, server_text) for tool in entry.tools.values())


def document_hashes(entry: ServerEntry) -> dict[str, str]:
    """What `Index.holds` compares: id → hash, without reading a single definition."""
    server_text = _server_text(entry)
    return {tool.address: _hash(tool, entry, server_text) for tool in entry.tools.values()}


def _server_text(entry: ServerEntry) -> str:
    instructions = entry.hello.instructions[:MAX_INSTRUCTIONS] if entry.hello else ""
    return " ".join(part for part in (entry.title, entry.description, instructions) if part)


def _hash(tool: Tool, entry: ServerEntry, server_text: str) -> str:
    return fingerprint(tool.address, tool.hash, server_text, *entry.tags)


def _document(tool: Tool, entry: ServerEntry, server_text: str) -> Document:
    # A copy: what is parsed here goes with it, or every definition would stay in memory as objects.
    tool = replace(tool)
    text = read_schema(tool.input_schema)
    return Document(
        id=tool.address,
        hash=_hash(tool, entry, server_text),
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
    )
