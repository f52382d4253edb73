"""A client's file as bytes ↔ a document with a server map.

Every change is parsed again before it is written. A file that cannot be parsed, or changed without
side effects, is refused with its file and line.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, cast

from portico.adoption import json_editor, toml_editor
from portico.adoption.clients import ClientConfigLocation
from portico.config_file.tree_reader import ConfigSyntaxError, decode_text
from portico.errors import ConfigError

ENTRY_NAME = "portico"
"""The name of our entry."""
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass(frozen=True, slots=True)
class ClientDocument:
    """The content of a file and its encoding."""

    location: ClientConfigLocation
    text: str
    data: Mapping[str, Any]
    byte_order_mark: bytes = b""
    encoding: str = "utf-8"

    @property
    def file_bytes(self) -> bytes:
        return self.byte_order_mark + self.text.encode(self.encoding)

    @property
    def servers(self) -> Mapping[str, Any]:
        """The servers by name; empty if the map is missing."""
        found: Any = self.data
        for depth, key in enumerate(self.location.keys, 1):
            if not isinstance(found, Mapping):
                self.refuse(self.location.keys[: depth - 1], "is not a map")
            if key not in found:
                return {}
            found = cast("Mapping[str, Any]", found)[key]
        if not isinstance(found, Mapping):
            self.refuse(self.location.keys, "is not a map of servers")
        return cast("Mapping[str, Any]", found)

    def count_missing_keys(self) -> int:
        """Count the keys on the path to the server map that do not exist."""
        found: Any = self.data
        for depth, key in enumerate(self.location.keys):
            if key not in found:
                return len(self.location.keys) - depth
            found = found[key]
        return 0

    def refuse(self, keys: Sequence[str], problem: str, advice: str = "") -> NoReturn:
        """Raise ConfigError with the line of a key."""
        where = ".".join(keys) or "the file"
        raise ConfigError(
            f"{where} {problem}; the file was left as it is",
            advice=advice or "Correct it there, or name another file with --file.",
            file=str(self.location.path),
            line=get_document_format(self.location).find_line(self.text, keys),
            key=".".join(keys),
        )


class DocumentFormat(Protocol):
    """Operations on a text in one file format."""

    def parse(self, text: str) -> Any: ...
    def find_line(self, text: str, keys: Sequence[str]) -> int: ...
    def set_value(self, text: str, keys: Sequence[str], value: Any) -> str: ...
    def get_raw(self, text: str, keys: Sequence[str]) -> str | None: ...
    def set_raw(self, text: str, keys: Sequence[str], raw_value: str) -> str: ...
    def remove(self, text: str, keys: Sequence[str]) -> str: ...


def get_document_format(location: ClientConfigLocation) -> DocumentFormat:
    """Return the editor module for a location's format."""
    if location.format == "toml":
        return toml_editor
    return json_editor


def parse_document(location: ClientConfigLocation, data: bytes) -> ClientDocument:
    """Parse the bytes of a client's file; raises ConfigError if the client could not read it."""
    mark = next((mark for mark in _BYTE_ORDER_MARKS if data.startswith(mark)), b"")
    encoding = _BYTE_ORDER_MARKS.get(mark, "utf-8")
    try:
        text = decode_text(data)
        found = get_document_format(location).parse(text)
        # Refuses a key on the path that is written twice.
        get_document_format(location).find_line(text, (*location.keys, ENTRY_NAME))
    except ConfigSyntaxError as error:
        raise ConfigError(
            f"{error.message}; the file was left as it is",
            advice=error.advice or "Correct it, or name another file with --file.",
            file=str(location.path),
            line=error.line,
        ) from None
    if not isinstance(found, dict):
        kind = {list: "list", str: "text"}.get(type(found), "value")
        raise ConfigError(
            f"holds a {kind} where a map is expected; the file was left as it is",
            advice="Name another file with --file.",
            file=str(location.path),
            line=1,
        )
    document = ClientDocument(location, text, cast("dict[str, Any]", found), mark, encoding)
    if document.file_bytes != data:
        document.refuse((), "cannot be written back as it is encoded", "Save it as UTF-8.")
    return document


def add_server(document: ClientDocument, name: str, entry: Mapping[str, Any]) -> ClientDocument:
    keys = (*document.location.keys, name)
    text = get_document_format(document.location).set_value(document.text, keys, dict(entry))
    return _apply_edit(document, keys, dict(entry), text)


def copy_server(document: ClientDocument, name: str, source: ClientDocument) -> ClientDocument:
    """Return the document with an entry copied verbatim from another document."""
    keys = (*document.location.keys, name)
    document_format = get_document_format(document.location)
    raw_value = document_format.get_raw(source.text, keys)
    if raw_value is None:
        return add_server(document, name, source.servers[name])
    text = document_format.set_raw(document.text, keys, raw_value)
    return _apply_edit(document, keys, source.servers[name], text)


def remove_keys(document: ClientDocument, keys: Sequence[str]) -> ClientDocument:
    """Return the document without the value at these keys."""
    try:
        text = get_document_format(document.location).remove(document.text, keys)
    except KeyError:
        document.refuse(
            keys, "is written in a way that cannot be taken out here", "Remove it by hand."
        )
    except ConfigSyntaxError as error:
        document.refuse(keys[:-1], f"cannot be changed: {error.message}", error.advice)
    return _apply_edit(document, keys, None, text)


def _apply_edit(
    document: ClientDocument, keys: Sequence[str], value: Any, text: str
) -> ClientDocument:
    expected = _set_path(document.data, keys, value)
    document_format = get_document_format(document.location)
    try:
        found: Any = document_format.parse(text)
    except ConfigSyntaxError:
        found = None
    if (
        value is None
        and document.location.format == "toml"
        and found is not None
        and keys[0] not in found
        and _is_empty_tree(expected[keys[0]])
    ):
        # Removing the last table also removes the map that its header created.
        expected = _set_path(document.data, keys[:1], None)
    if found is None or not _is_equal(found, expected):
        hint = "Remove it by hand."
        if value is not None:
            hint = f"Add this by hand:\n{document_format.set_value('', keys, value).rstrip()}"
        document.refuse(keys, "cannot be changed without disturbing what is around it", hint)
    return replace(document, text=text, data=cast("dict[str, Any]", found))


def _set_path(data: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = keys
    changed = dict(data)
    if rest:
        changed[first] = _set_path(changed.get(first, {}), rest, value)
    elif value is None:
        changed.pop(first, None)
    else:
        changed[first] = value
    return changed


def _is_empty_tree(value: Any) -> bool:
    """Return whether it contains nothing, at any depth."""
    return isinstance(value, Mapping) and all(
        map(_is_empty_tree, cast("Mapping[str, Any]", value).values())
    )


def _is_equal(one: Any, other: Any) -> bool:
    """Compare data, treating NaN as equal to itself."""
    return one == other or json.dumps(one, default=str, sort_keys=True) == json.dumps(
        other, default=str, sort_keys=True
    )
