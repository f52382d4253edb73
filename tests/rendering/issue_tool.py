"""`github.create_issue` in any form, for the tests of how a tool is shown."""

from typing import Any

from portico.catalog.tool import Tool, make_tool
from portico.rendering.tool import render_schema


def tool(properties: Any = None, required: list[str] | None = None, /, **definition: Any) -> Tool:
    """`github.create_issue` with these properties; keywords replace keys of the definition."""
    inputs = {"type": "object", "properties": properties or {}, "required": required or []}
    return make_tool(
        "github",
        {
            "name": "create_issue",
            "description": "Create an issue.",
            "inputSchema": inputs,
            **definition,
        },
    )


def lines(properties: Any, required: list[str] | None = None, /, **definition: Any) -> list[str]:
    return render_schema(tool(properties, required, **definition)).split("\n")[1:]


ISSUE = {
    "labels": {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "description": "Labels",
    },
    "owner": {"type": "string", "description": "Repository owner"},
    "state": {"enum": ["open", "closed"], "default": "open"},
    "assignee": {
        "type": "object",
        "properties": {"login": {"type": "string"}, "id": {"type": "integer", "minimum": 1}},
        "required": ["login"],
    },
}
