"""The server `desk` of the table: as a fake, and as functions for the commands."""

import json
from typing import Any

from portico.config import Config
from portico.testing import FakeBackend
from portico.upstream.backend import Raw

TEXT: Raw = {"type": "string"}
LISTED: list[Raw] = [
    {
        "name": "create_issue",
        "title": "Create issue",
        "description": "Files a ticket for the maintainers.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string", "description": "Its heading."},
                "owner": TEXT,
                "repo": TEXT,
                "body": TEXT,
                "priority": {"type": "string", "enum": ["low", "high"]},
            },
            "required": ["title", "owner", "repo"],
        },
    },
    {
        "name": "list_issues",
        "description": "Lists tickets.",
        "inputSchema": {
            "type": "object",
            "properties": {"owner": TEXT, "repo": TEXT, "state": TEXT},
            "required": ["owner", "repo"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "delete_issue",
        "description": "Deletes a ticket.",
        "inputSchema": {
            "type": "object",
            "properties": {"owner": TEXT, "repo": TEXT, "number": {"type": "integer"}},
            "required": ["owner", "repo", "number"],
            "additionalProperties": False,
        },
    },
    {"name": "ping", "description": "Answers.", "inputSchema": {"type": "object"}},
]
TOOLS: Raw = {
    "rename": {"create_issue": "report_bug"},
    "override": {
        "create_issue": {
            "title": "Report a bug",
            "description": "Reports a defect of our software.",
            "idempotent": True,
            "open_world": False,
            "parameters": {
                "title": {"name": "summary", "description": "What goes wrong, in a line."},
                "priority": {"default": "low"},
            },
        },
        "*_issue*": {"parameters": {"owner": {"fixed": "acme"}, "repo": {"default": "portico"}}},
    },
}


def answer(arguments: Raw) -> Raw:
    """A result that says what the server was sent."""
    return {"content": [{"type": "text", "text": json.dumps(arguments, sort_keys=True)}]}


def make_desk(**options: Any) -> FakeBackend:
    """The server as its author made it."""
    backend = FakeBackend(LISTED, **options)
    for tool in LISTED:
        backend.on_call(tool["name"], answer)
    return backend


def make_config(tools: Raw = TOOLS, **settings: Any) -> Config:
    """The configuration of the table."""
    servers = {"desk": {"command": "x", "tools": tools}}
    return Config.model_validate({"servers": servers, **settings})


def get_sent(backend: FakeBackend) -> list[Raw]:
    """The name and arguments of every call that reached the server."""
    return [
        {key: params[key] for key in ("name", "arguments")}
        for method, params in backend.requests
        if method == "tools/call"
    ]


def create_issue(title: str, owner: str, repo: str, priority: str = "high") -> str:
    """Files a ticket for the maintainers."""
    return json.dumps([title, owner, repo, priority])


FUNCTIONS = [create_issue]
