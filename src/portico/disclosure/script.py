"""A plausible call of a tool as scripts write it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from portico.catalog.address import identifier, identifiers
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.disclosure.example import example
from portico.upstream import jsontext


def script_example(tool: Tool, snapshot: Snapshot) -> Mapping[str, str]:
    """The same call in Python and in Lua, under the names that scripts know the tool by."""
    server = _word(tool.server, snapshot.servers)
    name = f"{server}.{_word(tool.name, snapshot.servers[tool.server].tools)}"
    sample = example(tool)
    return {"python": f"await {name}({_python(sample)})", "lua": f"{name}({_lua(sample)}):await()"}


def _word(name: str, names: Iterable[str]) -> str:
    """The identifier of one of these names, told apart from the others'."""
    word = identifier(name)
    if word == name:
        return word
    return next(word for word, meant in identifiers(names).items() if meant == name)


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
