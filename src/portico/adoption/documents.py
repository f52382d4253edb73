"""A client's file as bytes ↔ text with its server map. Every change is read again before anybody writes it.

What cannot be read, or cannot be changed without disturbing something else, is refused with its file and line.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, cast

from portico.adoption import json_editing, toml_editing
from portico.adoption.places import Place
from portico.config_file.reading import Unreadable, decode
from portico.errors import ConfigError

NAME = "portico"
"""What our entry is called."""
_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and how it is written."""

    place: Place
    text: str
    data: Mapping[str, Any]
    mark: bytes = b""
    encoding: str = "utf-8"

    @property
    def bytes(self) -> bytes:
        return self.mark + self.text.encode(self.encoding)

    @property
    def servers(self) -> Mapping[str, Any]:
        """The servers by name; none where the map is missing."""
        found: Any = self.data
        for depth, key in enumerate(self.place.keys, 1):
            if not isinstance(found, Mapping):
                self.refuse(self.place.keys[: depth - 1], "is not a map")
            if key not in found:
                return {}
            found = cast("Mapping[str, Any]", found)[key]
        if not isinstance(found, Mapping):
            self.refuse(self.place.keys, "is not a map of servers")
        return cast("Mapping[str, Any]", found)

    def missing(self) -> int:
        """How many of the keys that lead to the server map are not there."""
        found: Any = self.data
        for depth, key in enumerate(self.place.keys):
            if key not in found:
                return len(self.place.keys) - depth
            found = found[key]
        return 0

    def refuse(self, keys: Sequence[str], problem: str, advice: str = "") -> NoReturn:
        """Leave the file alone, and say where and why."""
        where = ".".join(keys) or "the file"
        raise ConfigError(
            f"{where} {problem}; the file was left as it is",
            advice=advice or "Correct it there, or name another file with --file.",
            file=str(self.place.path),
            line=editing(self.place).line_of(self.text, keys),
            key=".".join(keys),
        )


class Language(Protocol):
    """What can be done to a text, in any language."""

    def read(self, text: str) -> Any: ...
    def line_of(self, text: str, keys: Sequence[str]) -> int: ...
    def put(self, text: str, keys: Sequence[str], value: Any) -> str: ...
    def raw(self, text: str, keys: Sequence[str]) -> str | None: ...
    def put_raw(self, text: str, keys: Sequence[str], written: str) -> str: ...
    def take_out(self, text: str, keys: Sequence[str]) -> str: ...


def editing(place: Place) -> Language:
    """The functions that know a place's language."""
    return toml_editing if place.format == "toml" else json_editing


def opened(place: Place, data: bytes) -> Document:
    """The document in these bytes; raises ConfigError where it is not what a client would read."""
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    encoding = _MARKS.get(mark, "utf-8")
    try:
        text = decode(data)
        found = editing(place).read(text)
        editing(place).line_of(text, (*place.keys, NAME))  # refuses a key on the way that is there twice
    except Unreadable as error:
        raise ConfigError(
            f"{error.message}; the file was left as it is",
            advice=error.advice or "Correct it, or name another file with --file.",
            file=str(place.path),
            line=error.line,
        ) from None
    if not isinstance(found, dict):
        raise ConfigError(
            f"holds a {_kind(found)} where a map is expected; the file was left as it is",
            advice="Name another file with --file.",
            file=str(place.path),
            line=1,
        )
    document = Document(place, text, cast("dict[str, Any]", found), mark, encoding)
    if document.bytes != data:
        document.refuse((), "cannot be written back as it is encoded", "Save it as UTF-8.")
    return document


def with_server(document: Document, name: str, entry: Mapping[str, Any]) -> Document:
    """The document with this entry in its server map."""
    keys = (*document.place.keys, name)
    return _changed(document, keys, dict(entry), editing(document.place).put(document.text, keys, dict(entry)))


def with_written(document: Document, name: str, source: Document) -> Document:
    """The document with an entry as another one writes it."""
    keys = (*document.place.keys, name)
    language = editing(document.place)
    written = language.raw(source.text, keys)
    if written is None:
        return with_server(document, name, source.servers[name])
    return _changed(document, keys, source.servers[name], language.put_raw(document.text, keys, written))


def without(document: Document, keys: Sequence[str]) -> Document:
    """The document without what is at these keys."""
    try:
        text = editing(document.place).take_out(document.text, keys)
    except KeyError:
        document.refuse(keys, "is written in a way that cannot be taken out here", "Remove it by hand.")
    except Unreadable as error:
        document.refuse(keys[:-1], f"cannot be changed: {error.message}", error.advice)
    return _changed(document, keys, None, text)


def _changed(document: Document, keys: Sequence[str], value: Any, text: str) -> Document:
    expected = _with(document.data, keys, value)
    language = editing(document.place)
    try:
        found: Any = language.read(text)
    except Unreadable:
        found = None
    if value is None and document.place.format == "toml" and found is not None and keys[0] not in found:
        # The last table takes the map along that its header made.
        expected = _with(document.data, keys[:1], None) if _only(expected[keys[0]]) else expected
    if found is None or not _same(found, expected):
        hint = (
            f"Add this by hand:\n{language.put('', keys, value).rstrip()}"
            if value is not None
            else "Remove it by hand."
        )
        document.refuse(keys, "cannot be changed without disturbing what is around it", hint)
    return replace(document, text=text, data=cast("dict[str, Any]", found))


def _with(data: Mapping[str, Any], keys: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = keys
    changed = dict(data)
    if rest:
        changed[first] = _with(changed.get(first, {}), rest, value)
    elif value is None:
        changed.pop(first, None)
    else:
        changed[first] = value
    return changed


def _only(value: Any) -> bool:
    """Whether there is nothing in it, however deep."""
    return isinstance(value, Mapping) and all(map(_only, cast("Mapping[str, Any]", value).values()))


def _same(one: Any, other: Any) -> bool:
    """Equal, with what is not a number equal to itself."""
    return one == other or json.dumps(one, default=str, sort_keys=True) == json.dumps(
        other, default=str, sort_keys=True
    )


def _kind(value: Any) -> str:
    return "list" if isinstance(value, list) else "text" if isinstance(value, str) else "value"
