"""A plausible call of a tool as scripts write it. Pure."""

from collections.abc import Mapping
from typing import Any

from portico.catalog.address import identifier
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.disclosure.example import example
from portico.upstream import jsontext


def script_example(tool: Tool, snapshot: Snapshot) -> Mapping[str, str]:
    """The same call in Python, JavaScript and Lua, under the names that scripts know the tool by."""
    name, sample = function(tool, snapshot), example(tool)
    return {
        "python": f"await {name}({_python(sample)})",
        "javascript": f"await {name}({_text(sample)})",
        "lua": f"{name}({_lua(sample)}):await()",
    }


def function(tool: Tool, snapshot: Snapshot) -> str:
    """What scripts call a tool by: `server.tool`, both as identifiers."""
    return f"{_word(tool.server, snapshot.words)}.{_word(tool.name, snapshot.servers[tool.server].words)}"


def _word(name: str, words: Mapping[str, str]) -> str:
    """The identifier of a name, told apart from the others'."""
    word = identifier(name)
    return word if words.get(word) == name else next(word for word, meant in words.items() if meant == name)


def _python(arguments: Mapping[str, Any]) -> str:
    if all(identifier(name) == name for name in arguments):
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"**{dict(arguments)!r}"


def _lua(value: Any) -> str:
    if isinstance(value, Mapping):
        given = {str(name): _lua(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        keyed = ((name if identifier(name) == name else f"[{_text(name)}]", item) for name, item in given.items())
        return "{" + ", ".join(f"{name} = {item}" for name, item in keyed) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(_lua, value)) + "}"  # pyright: ignore[reportUnknownArgumentType]
    return "nil" if value is None else _text(value)


def _text(value: Any) -> str:
    return jsontext.dumps(value).decode()
