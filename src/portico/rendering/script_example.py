"""A plausible call of a tool in each script language. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.catalog.address import to_identifier
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.rendering.examples import make_example


def make_script_example(tool: Tool, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the same call in Python, JavaScript and Lua, by the tool's name in scripts."""
    name = to_function_name(tool, snapshot)
    sample = make_example(tool)
    return {
        "python": f"await {name}({_to_python(sample)})",
        "javascript": f"await {name}({_to_json(sample)})",
        "lua": f"{name}({_to_lua(sample)}):await()",
    }


def to_function_name(tool: Tool, snapshot: Snapshot) -> str:
    """Return the name of a tool in scripts: `server.tool`, both as identifiers."""
    server = _find_identifier(tool.server, snapshot.server_identifiers)
    name = _find_identifier(tool.name, snapshot.servers[tool.server].tool_identifiers)
    return f"{server}.{name}"


def _find_identifier(name: str, identifiers: Mapping[str, str]) -> str:
    """Return the unique identifier of a name."""
    identifier = to_identifier(name)
    if identifiers.get(identifier) == name:
        return identifier
    return next(identifier for identifier, owner in identifiers.items() if owner == name)


def _to_python(arguments: Mapping[str, Any]) -> str:
    if all(to_identifier(name) == name for name in arguments):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{dict(arguments)!r}"


def _to_lua(value: Any) -> str:
    if isinstance(value, Mapping):
        members = {str(name): _to_lua(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        keyed = (
            (name if to_identifier(name) == name else f"[{_to_json(name)}]", item)
            for name, item in members.items()
        )
        return "{" + ", ".join(f"{name} = {item}" for name, item in keyed) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(_to_lua, value)) + "}"  # pyright: ignore[reportUnknownArgumentType]
    if value is None:
        return "nil"
    return _to_json(value)


def _to_json(value: Any) -> str:
    return json_codec.dumps(value).decode()
