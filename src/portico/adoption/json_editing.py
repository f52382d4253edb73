"""Puts one entry into a JSON text and takes it out again, touching nothing else: comments, commas, indentation stay.

Text in, text out. `read` tells whether a text is JSON as editors write it; the other functions trust it to be.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.config_file.reading import JsonReader, Node, Unreadable

_BLANK = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"', re.DOTALL)
_WORD = re.compile(r'[^\s"{}\[\]:,/]++')
_STRUCTURE = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*+|/\*.*?\*/|[{}\[\]]', re.DOTALL)
_SAME_LINE = re.compile(r"(?:[ \t]*+(?:/\*(?:[^*\n]|\*(?!/))*+\*/|//[^\n]*+))*+")
_SPACES = re.compile(r"[ \t]*+")


@dataclass(frozen=True, slots=True)
class Member:
    """One key of an object: where the key begins, the value begins and ends, and the comma after it is."""

    key: str
    start: int
    colon: int
    value: int
    end: int
    comma: int | None


@dataclass(frozen=True, slots=True)
class Span:
    """An object: its braces, and its members in order."""

    start: int
    end: int
    members: tuple[Member, ...]


def read(text: str) -> Any:
    """The data of a text, {} where there is nothing but comments; raises Unreadable, with the line."""
    if _BLANK.fullmatch(text):
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _plain(JsonReader(text, "", []).read())


def line_of(text: str, keys: Sequence[str]) -> int:
    """The line of the deepest of these keys that is there."""
    _, members = _walk(text, keys)
    return text.count("\n", 0, members[-1].start) + 1 if members else 1


def put(text: str, keys: Sequence[str], value: Any) -> str:
    """The text with this value at these keys; the objects on the way are made where they are missing."""
    style = _style(text)
    if _BLANK.fullmatch(text):
        gap = style.newline if text and not text.endswith("\n") else ""
        return text + gap + _rendered(_nested(keys, value), style, "") + style.newline
    spans, members = _walk(text, keys)
    if len(members) == len(keys):
        there = members[-1]
        written = _rendered(value, style, _indent(text, there.start), flat="\n" not in text[there.value : there.end])
        return text[: there.value] + written + text[there.end :]
    return _inserted(text, spans[-1], keys[len(members)], _nested(keys[len(members) + 1 :], value), style)


def raw(text: str, keys: Sequence[str]) -> str | None:
    """The value at these keys as it is written."""
    _, members = _walk(text, keys)
    return text[members[-1].value : members[-1].end] if members and len(members) == len(keys) else None


def put_raw(text: str, keys: Sequence[str], written: str) -> str:
    """As `put`, for a value that is already text."""
    if _BLANK.fullmatch(text):
        return put(text, keys, read(written))
    spans, members = _walk(text, keys)
    if len(members) != len(keys) - 1:
        return put(text, keys, read(written))
    return _inserted(text, spans[-1], keys[-1], _Written(written), _style(text))


def take_out(text: str, keys: Sequence[str]) -> str:
    """The text without what is at these keys, the line it stood on and the comma that belonged to it."""
    spans, members = _walk(text, keys)
    there, siblings = members[-1], spans[len(keys) - 1].members
    place = siblings.index(there)
    start, end = there.start, there.end
    cuts: list[tuple[int, int]] = []
    if there.comma is not None:
        if text[end : there.comma].strip():
            cuts.append((there.comma, there.comma + 1))
        else:
            end = there.comma + 1
    elif place:
        before = siblings[place - 1].comma
        if before is not None:
            cuts.append((before, before + 1))
    line = text.rfind("\n", 0, start) + 1
    rest = cast("re.Match[str]", _SPACES.match(text, end)).end()
    if line and not text[line:start].strip() and text[rest : rest + 2].startswith(("\n", "\r\n")):
        # The line goes with it; only so, because the line before may end in a comment that would swallow the rest.
        start, end = line - 1, rest
        start -= text[start - 1 : start] == "\r"
    elif there.comma is not None:
        end = rest
    elif place:
        start -= len(text[:start]) - len(text[:start].rstrip(" \t"))
    for first, last in sorted([*cuts, (start, end)], reverse=True):
        text = text[:first] + text[last:]
    return text


class _Written(str):
    """A value that is text already."""


@dataclass(frozen=True, slots=True)
class _Style:
    newline: str
    unit: str
    """One step of indentation."""
    tight: bool
    """No space after colons and commas."""
    flat: bool
    """Everything on one line."""


def _plain(node: Node) -> Any:
    if node.entries is not None:
        return {key: _plain(inner) for key, inner in node.entries.items()}
    return [_plain(inner) for inner in node.items] if node.items is not None else node.value


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _skip(text: str, at: int) -> int:
    return cast("re.Match[str]", _BLANK.match(text, at)).end()


def _value_end(text: str, at: int) -> int:
    if text[at] not in "{[":
        found = _STRING.match(text, at) or _WORD.match(text, at)
        return found.end() if found else at
    depth = 0
    for found in _STRUCTURE.finditer(text, at):
        mark = found.group()
        depth += mark in ("{", "[")
        depth -= mark in ("}", "]")
        if not depth and mark in ("}", "]"):
            return found.end()
    return len(text)


def _object(text: str, start: int) -> Span:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        written = cast("re.Match[str]", _STRING.match(text, at))
        colon = _skip(text, written.end())
        value = _skip(text, colon + 1)
        end = _value_end(text, value)
        after = _skip(text, end)
        comma = after if text[after] == "," else None
        key = json.loads(written.group(), strict=False)
        members.append(Member(key, at, colon, value, end, comma))
        at = _skip(text, after + 1) if comma is not None else after
    return Span(start, at + 1, tuple(members))


def _walk(text: str, keys: Sequence[str]) -> tuple[list[Span], list[Member]]:
    """The objects on the way to these keys, as far as they are there, and the keys themselves."""
    at = _skip(text, 0)
    spans: list[Span] = []
    members: list[Member] = []
    for key in keys:
        if at >= len(text) or text[at] != "{":
            break
        spans.append(_object(text, at))
        found = [member for member in spans[-1].members if member.key == key]
        if len(found) > 1:
            line = text.count("\n", 0, found[1].start) + 1
            raise Unreadable(line, f"{key} is written twice, and clients differ in which one counts", "Keep one.")
        if not found:
            break
        members.append(found[0])
        at = found[0].value
    return spans, members


def _style(text: str) -> _Style:
    found = text.find("\n")
    newline = "\r\n" if found > 0 and text[found - 1] == "\r" else "\n"
    root = _skip(text, 0)
    if root >= len(text):
        return _Style(newline, "  ", tight=False, flat=False)
    members = _object(text, root).members
    if not members:
        return _Style(newline, "  ", tight=False, flat=False)
    first = members[0]
    unit = "  "
    if "\n" in text[root : first.start]:
        unit = _indent(text, first.start).removeprefix(_indent(text, root))
    tight = text[first.colon + 1 : first.value] == ""
    return _Style(newline, unit, tight, flat="\n" not in text[root : members[-1].end])


def _indent(text: str, at: int) -> str:
    """What the line of this place begins with."""
    line = text.rfind("\n", 0, at) + 1
    return cast("re.Match[str]", _SPACES.match(text, line)).group()


def _rendered(value: Any, style: _Style, indent: str, *, flat: bool = False) -> str:
    if isinstance(value, _Written):
        return value
    ascii_only = not _encodable(value)
    if style.flat or flat:
        separators = (",", ":") if style.tight else (", ", ": ")
        return json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    separators = (",", ":" if style.tight else ": ")
    written = json.dumps(value, indent=style.unit, separators=separators, ensure_ascii=ascii_only)
    return written.replace("\n", style.newline + indent)


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _inserted(text: str, span: Span, key: str, value: Any, style: _Style) -> str:
    """A member after the last one, laid out as its neighbours are."""

    def member(indent: str, *, flat: bool = False) -> str:
        colon = ":" if style.tight else ": "
        return json.dumps(key, ensure_ascii=False) + colon + _rendered(value, style, indent, flat=flat)

    base = _indent(text, span.start)
    if not span.members:
        return _filled(text, span, member(base + style.unit, flat=style.flat), base, style)
    last = span.members[-1]
    indent = _indent(text, last.start)
    at = last.end if last.comma is None else last.comma + 1
    before, after = ("", ",") if last.comma is not None else (",", "")
    if text[text.rfind("\n", 0, last.start) + 1 : last.start].strip():
        gap = "" if style.tight else " "
        return text[:at] + before + gap + member(base, flat=True) + after + text[at:]
    here = cast("re.Match[str]", _SAME_LINE.match(text, at)).end()
    here -= text[here - 1] == "\r"
    return text[:at] + before + text[at:here] + style.newline + indent + member(indent) + after + text[here:]


def _filled(text: str, span: Span, member: str, base: str, style: _Style) -> str:
    """A first member in an object that has none."""
    inside = text[span.start + 1 : span.end - 1]
    if style.flat:
        return text[: span.end - 1] + member + text[span.end - 1 :]
    said = inside.rstrip()
    rest = inside[len(said) :]
    closing = rest if "\n" in rest else style.newline + base
    head = text[: span.start + 1] + said + style.newline + base + style.unit
    return head + member + closing + text[span.end - 1 :]
