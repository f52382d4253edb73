"""Tools and queries with known answers, as `benchmarks.retrieval` and `benchmarks.search_scale` read them.

A set is a folder with `tools.jsonl.gz` (`{id, server, name, description, input_schema}`, perhaps `server_title` and
`server_description`) and `queries.jsonl.gz` (`{id, query, groups}`, perhaps `style`): each group is a list of tools of
which any one will do. The recorded fleet is read from its servers' own listings.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from portico.search import Document, fingerprint, read_schema

SETS = ("livemcp_agent", "livemcp_step", "livemcp_task", "metatool", "bfcl_live", "sealtools")
_TOOLS_OF = {"livemcp_agent": "livemcp", "livemcp_step": "livemcp", "livemcp_task": "livemcp"}
FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class Question:
    """A query and what answers it."""

    text: str
    groups: tuple[frozenset[str], ...]
    style: str = ""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """A catalog and questions to it."""

    name: str
    tools: tuple[Mapping[str, Any], ...]
    questions: tuple[Question, ...]


def read_set(shared: Path, name: str) -> ToolSet:
    """One of `SETS`, or `FLEET`."""
    if name == FLEET:
        return ToolSet(name, _fleet_tools(shared), _questions(shared / "fleet" / "queries_dev.jsonl.gz"))
    tools = _lines(shared / "retrieval" / _TOOLS_OF.get(name, name) / "tools.jsonl.gz")
    return ToolSet(name, tuple(tools), _questions(shared / "retrieval" / name / "queries.jsonl.gz"))


def document(tool: Mapping[str, Any]) -> Document:
    """A tool of a set as the catalog would hand it to search."""
    schema = read_schema(tool.get("input_schema"))
    introduction = " ".join(filter(None, (tool.get("server_title"), tool.get("server_description"))))
    return Document(
        id=tool["id"],
        hash=fingerprint(tool["id"], tool["description"] or "", introduction, *schema.parameters, schema.descriptions),
        group=tool["server"],
        name=tool["name"],
        title=tool.get("title") or "",
        server=tool["server"],
        server_text=introduction,
        description=tool["description"] or "",
        parameters=schema.parameters,
        parameter_text=schema.descriptions,
        enums=schema.enums,
    )


def _fleet_tools(shared: Path) -> tuple[Mapping[str, Any], ...]:
    return tuple(
        {
            "id": f"{server['slug']}/{tool['name']}",
            "server": server["slug"],
            "server_title": _text(server["initialize"], "serverInfo", "title"),
            "server_description": _text(server["initialize"], "serverInfo", "description")
            or _text(server["initialize"], "instructions"),
            "name": tool["name"],
            "title": tool.get("title") or _text(tool, "annotations", "title"),
            "description": tool.get("description") or "",
            "input_schema": tool.get("inputSchema"),
        }
        for server in _lines(shared / "fleet" / "servers.jsonl.gz")
        for tool in server["tools"]
    )


def _text(value: Any, *path: str) -> str:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _questions(path: Path) -> tuple[Question, ...]:
    return tuple(
        Question(line["query"], tuple(map(frozenset, line["groups"])), line.get("style", "")) for line in _lines(path)
    )


def _lines(path: Path) -> Sequence[dict[str, Any]]:
    with gzip.open(path) as lines:
        return [orjson.loads(line) for line in lines]
