"""What search sees of a tool. Pure."""

from collections.abc import Iterator

from portico.catalog.categories import assign, rules
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool
from portico.search import Document, compose, fingerprint, read_schema

MAX_INSTRUCTIONS = 1_000


def documents(entry: ServerEntry) -> Iterator[Document]:
    """One document per tool of a server."""
    server_text, made_from, kinds = _server_text(entry), _made_from(entry), assign(entry)
    return (_document(tool, entry, server_text, made_from, kinds[name]) for name, tool in entry.tools.items())


def document_hashes(entry: ServerEntry) -> dict[str, str]:
    """What `Index.holds` compares: id → hash, without reading a single definition."""
    made_from = _made_from(entry)
    return {tool.address: fingerprint(tool.address, tool.hash, made_from) for tool in entry.tools.values()}


def text_of_tool(tool: Tool) -> str:
    """What the encoder reads of a tool: `text_of` its document, without making one."""
    return compose(tool.server, tool.name, tool.description, tool.title)


def _server_text(entry: ServerEntry) -> str:
    instructions = entry.hello.instructions[:MAX_INSTRUCTIONS] if entry.hello else ""
    return " ".join(part for part in (entry.title, entry.description, instructions) if part)


def _made_from(entry: ServerEntry) -> str:
    """The identity of everything but the tool itself that its document is made from.

    The category also follows from the server's other tools, but they are replaced together with it anyway.
    """
    return fingerprint(_server_text(entry), *entry.tags, "", *rules(entry))


def _document(tool: Tool, entry: ServerEntry, server_text: str, made_from: str, category: str) -> Document:
    text = read_schema(tool.input_schema)
    return Document(
        id=tool.address,
        hash=fingerprint(tool.address, tool.hash, made_from),
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
