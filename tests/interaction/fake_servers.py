"""Small fakes and the questions tests ask of them."""

from typing import Any

from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from portico.testing import FakeBackend
from portico.upstream.backend import Raw


def tool(name: str, description: str = "", **properties: Any) -> Raw:
    """A definition."""
    schema: Raw = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
    }
    return {"name": name, "description": description or f"Does {name}.", "inputSchema": schema}


def text(content: str) -> Raw:
    """A result of one text block."""
    return {"content": [{"type": "text", "text": content}]}


def shown(content: str) -> Raw:
    """The same as `call_tool` shows it: annotated."""
    block = {"type": "text", "text": content, "annotations": {"priority": 0.7}}
    return {"content": [block]}


def fake(*names: str, **options: Any) -> FakeBackend:
    """A server whose tools answer with their own names."""
    backend = FakeBackend([tool(name) for name in names], **options)
    for name in names:
        backend.on_call(name, lambda _, name=name: text(f"{name} ran"))
    return backend


def get_text(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def ask(client: Client, name: str, /, **arguments: Any) -> str:
    """The text a tool answers with."""
    return get_text(await client.call_tool(name, arguments))


async def names(client: Client) -> list[str]:
    """The names of every listed tool, in order."""
    found: list[str] = []
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += [tool.name for tool in page.tools]
        if (cursor := page.next_cursor) is None:
            return found
