"""Changes tables and single statements of a TOML text, preserving everything else.

Text in, text out, with the functions of `json_editor`. Only tables with headers are supported;
inline tables (`a = { … }`) are not changed, which the caller notices because it parses every
result.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.adoption.json_editor import detect_newline
from portico.config_file.tree_reader import ConfigSyntaxError

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*+"|'
    r"'[^'\n]*+'|"
    r"\#[^\n]*+|[\[\]{}\n]",
    re.DOTALL,
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"\(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A header and its body, up to its last statement; later comments belong to the next table."""

    path: tuple[str, ...]
    start: int
    end: int


def parse(text: str) -> dict[str, Any]:
    """Parse a text; raises ConfigSyntaxError with the line."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _LINE.search(str(error))
        line = int(found.group(1)) if found else text.count("\n") + 1
        raise ConfigSyntaxError(
            line, f"not TOML: {_LINE.sub('', str(error)).strip() or 'nested too deeply'}"
        ) from None


def find_line(text: str, keys: Sequence[str]) -> int:
    """Return the line of the table at these keys, or of something that looks like its key."""
    for table in _iter_tables(text):
        if table.path[: len(keys)] == tuple(keys):
            return text.count("\n", 0, table.start) + 1
    for key in reversed(keys):
        found = re.search(rf"^[^#\n]*?\b{re.escape(key)}\b", text, re.MULTILINE)
        if found:
            return text.count("\n", 0, found.end()) + 1
    return 1


def set_value(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with this value at these keys: in place, else a table at the end."""
    newline = detect_newline(text)
    if not isinstance(value, dict):
        return _set_statement(text, keys, value)
    written = newline.join(_render_table(keys, value))
    tables = _find_tables(text, keys)
    if not tables:
        return set_raw(text, keys, written + newline)
    first = tables[0]
    tail = newline if text[: first.end].endswith("\n") else ""
    for other in reversed(tables[1:]):
        text = text[: other.start] + text[other.end :]
    return text[: first.start] + written + tail + text[first.end :]


def get_raw(text: str, keys: Sequence[str]) -> str | None:
    """Return the raw text of the tables at and under these keys."""
    newline = detect_newline(text)
    found = [
        text[table.start : table.end].rstrip("\r\n") + newline for table in _find_tables(text, keys)
    ]
    return newline.join(found) or None


def set_raw(text: str, keys: Sequence[str], raw_value: str) -> str:
    """Append these lines after a blank line; a text without a final newline stays without."""
    newline = detect_newline(text)
    if not text.strip():
        return text + raw_value
    if not text.endswith("\n"):
        return text + newline * 2 + raw_value.rstrip("\r\n")
    blank = re.search(r"\n[ \t]*\r?\n\Z", text) is not None
    return text + ("" if blank else newline) + raw_value


def remove(text: str, keys: Sequence[str]) -> str:
    """Return the text without the tables at and under these keys and the blank lines before."""
    tables = _find_tables(text, keys)
    if not tables:
        start, end = _find_statement(text, keys)
        return text[:start] + text[end:]
    for table in reversed(tables):
        head = text[: table.start]
        tail = text[table.end :]
        if not tail and not text.endswith("\n"):
            head = re.sub(r"(?:\r?\n){1,2}\Z", "", head)
        else:
            head = re.sub(r"(\n|\A)[ \t]*\r?\n\Z", r"\1", head)
        text = head + tail
    return text


def rename_key(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text with another name in the headers of the tables at and under these keys."""
    for table in reversed(_find_tables(text, keys)):
        path = (*keys[:-1], name, *table.path[len(keys) :])
        header = f"[{'.'.join(map(_render_key, path))}]"
        end = text.index("]", table.start) + 1
        start = text.index("[", table.start)
        text = text[:start] + header + text[end:]
    return text


def _set_statement(text: str, keys: Sequence[str], value: Any) -> str:
    """Write `key = value` into its table: over the old value, else after the last statement."""
    newline = detect_newline(text)
    statement = f"{_render_key(keys[-1])} = {_render_value(value)}{newline}"
    with contextlib.suppress(KeyError):
        start, end = _find_statement(text, keys)
        return text[:start] + statement + text[end:]
    if len(keys) == 1:
        return statement + text
    table = next((one for one in _iter_tables(text) if one.path == tuple(keys[:-1])), None)
    if table is None:
        return set_value(text, keys[:-1], {keys[-1]: value})
    head = text[: table.end]
    if not head.endswith("\n"):
        head += newline
    return head + statement + text[table.end :]


def _find_statement(text: str, keys: Sequence[str]) -> tuple[int, int]:
    """Return the start and end of `key = value` in its table; raises KeyError."""
    at = 0
    end = next((table.start for table in _iter_tables(text)), len(text))
    if len(keys) > 1:
        tables = [table for table in _iter_tables(text) if table.path == tuple(keys[:-1])]
        if not tables:
            raise KeyError(keys[-1])
        at = _scan_statement(text, tables[0].start)[0]
        end = tables[0].end
    while at < end:
        stop, _ = _scan_statement(text, at)
        with contextlib.suppress(tomllib.TOMLDecodeError):
            if list(tomllib.loads(text[at:stop])) == [keys[-1]]:
                return at, stop
        at = stop
    raise KeyError(keys[-1])


def _find_tables(text: str, keys: Sequence[str]) -> list[TomlTable]:
    return [table for table in _iter_tables(text) if table.path[: len(keys)] == tuple(keys)]


def _iter_tables(text: str) -> Iterator[TomlTable]:
    path: tuple[str, ...] | None = None
    start = end = at = 0
    while at < len(text):
        stop, has_content = _scan_statement(text, at)
        begin = at
        at = stop
        if not has_content:
            continue
        line = text[begin:stop]
        if line.lstrip(" \t").startswith("["):
            if path is not None:
                yield TomlTable(path, start, end)
            path = _parse_header(line)
            start = begin
        end = stop
    if path is not None:
        yield TomlTable(path, start, end)


def _scan_statement(text: str, at: int) -> tuple[int, bool]:
    """Return the end of the statement, which may span lines, and whether it has content."""
    begin = at
    depth = 0
    has_content = False
    for found in _TOKEN.finditer(text, at):
        mark = found.group()
        has_content = has_content or bool(text[at : found.start()].strip()) or mark[0] not in "#\n"
        at = found.end()
        depth += mark in ("[", "{")
        depth -= mark in ("]", "}")
        if mark == "\n" and depth <= 0:
            return at, has_content
    return len(text), has_content or bool(text[begin:].strip() and text[at:].strip())


def _parse_header(header: str) -> tuple[str, ...]:
    """`[a."b.c"]` → a, b.c"""
    found: Any = tomllib.loads(header)
    path: list[str] = []
    while found:
        if isinstance(found, list):
            found = cast("list[Any]", found)[0]
            continue
        key, found = next(iter(cast("dict[str, Any]", found).items()))
        path.append(key)
    return tuple(path)


def _render_table(keys: Sequence[str], value: dict[str, Any]) -> list[str]:
    return [
        f"[{'.'.join(map(_render_key, keys))}]",
        *(f"{_render_key(key)} = {_render_value(inner)}" for key, inner in value.items()),
    ]


def _render_key(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key):
        return key
    return _render_text(key)


def _render_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_render_value, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_render_key(key)} = {_render_value(item)}"
            for key, item in cast("dict[str, Any]", value).items()
        )
        if inner:
            return f"{{ {inner} }}"
        return "{}"
    if isinstance(value, str):
        return _render_text(value)
    return str(value).lower()


def _render_text(text: str) -> str:
    escaped: list[str] = []
    for char in text:
        if ord(char) < 32 or ord(char) == 127:
            escaped.append(f"\\u{ord(char):04x}")
        elif char in '"\\':
            escaped.append(f"\\{char}")
        else:
            escaped.append(char)
    return f'"{"".join(escaped)}"'
