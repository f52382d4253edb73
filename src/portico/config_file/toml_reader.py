"""Reads TOML into the same tree of nodes.

`tomllib` reports no lines, so they are looked up in the text: table headers and keys at the start
of a line. Inline values get the line of the enclosing key.
"""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, cast

from portico.config_file.tree_reader import MAX_DEPTH, ConfigNode, ConfigSyntaxError

_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")
_PART = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_DOTTED = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_LINE = re.compile(
    rf"[ \t]*(?:\[\[?[ \t]*(?P<table>{_DOTTED})[ \t]*\]\]?|(?P<key>{_DOTTED})[ \t]*=)"
)

TomlKeyPath = tuple[str, ...]


def read_toml(text: str) -> ConfigNode:
    """Return the tree of a TOML document; raises ConfigSyntaxError."""
    # tomllib accepts neither other line ends nor a byte order mark.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        line = text.count("\n") + 1
        if found and found[1]:
            line = int(found[1])
        message = _PLACE.sub("", str(error))
        raise ConfigSyntaxError(
            line, f"not TOML: {message[:1].lower()}{message[1:]}", _advise(message)
        ) from None
    except RecursionError:
        raise ConfigSyntaxError(1, f"nested deeper than {MAX_DEPTH} levels") from None
    return _to_node(values, (), 1, _index_lines(text))


def _to_node(
    value: Any, where: TomlKeyPath, line: int, lines: Mapping[TomlKeyPath, int]
) -> ConfigNode:
    if len(where) > MAX_DEPTH:
        raise ConfigSyntaxError(line, f"nested deeper than {MAX_DEPTH} levels")
    line = lines.get(where, line)
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return ConfigNode(
            {key: _to_node(inner, (*where, key), line, lines) for key, inner in entries.items()},
            line,
        )
    if isinstance(value, list):
        return ConfigNode(
            [_to_node(item, (*where, ""), line, lines) for item in cast("list[Any]", value)], line
        )
    text = str(value)
    if isinstance(value, bool):
        return ConfigNode(value, line, text.lower())
    if isinstance(value, (int, float)):
        return ConfigNode(value, line, text)
    return ConfigNode(text, line, text)  # text, or a date or time, which no setting uses


def _index_lines(text: str) -> dict[TomlKeyPath, int]:
    """Index the lines of tables and keys; matches within multi-line text are harmless."""
    found: dict[TomlKeyPath, int] = {}
    table: TomlKeyPath = ()
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE.match(line)
        if match is None:
            continue
        where = _parse_key(match["table"] or match["key"])
        if match["table"]:
            table = where
        else:
            where = (*table, *where)
        if len(where) > MAX_DEPTH:
            continue  # refused with its values; indexing each prefix of it would be quadratic
        for length in range(1, len(where) + 1):
            found.setdefault(where[:length], number)
    return found


def _parse_key(dotted: str) -> TomlKeyPath:
    parts: list[str] = []
    for part in re.findall(_PART, dotted):
        if part[0] == '"':
            try:
                part = str(tomllib.loads(f"x = {part}")["x"])
            except tomllib.TOMLDecodeError:
                part = part[1:-1]
        parts.append(part[1:-1] if part[0] == "'" else part)
    return tuple(parts)


def _advise(message: str) -> str:
    if "Invalid value" in message:
        return 'Text stands between quotes: command = "npx".'
    if "escape" in message or "hex value" in message:
        return (
            r"Write \\ for a backslash, or put the text between single quotes"
            " (paths on Windows need it)."
        )
    if "overwrite" in message or "twice" in message:
        return "It is written twice: keep one of them."
    return ""
