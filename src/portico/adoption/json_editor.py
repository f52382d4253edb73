"""Changes single entries of a JSON text, preserving comments, commas and indentation.

Text in, text out. `parse` raises if a text is not JSON as editors write it; the other functions
assume that it is.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from portico.config_file.tree_reader import ConfigSyntaxError, JsonReader

_BLANK = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"', re.DOTALL)
_WORD = re.compile(r'[^\s"{}\[\]:,/]++')
_STRUCTURE = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*+|/\*.*?\*/|[{}\[\]]', re.DOTALL)
_SAME_LINE = re.compile(r"(?:[ \t]*+(?:/\*(?:[^*\n]|\*(?!/))*+\*/|//[^\n]*+))*+")
_SPACES = re.compile(r"[ \t]*+")


@dataclass(frozen=True, slots=True)
class JsonMember:
    """One key of an object, as offsets: key start, colon, value start and end, trailing comma."""

    key: str
    start: int
    colon: int
    value: int
    end: int
    comma: int | None


@dataclass(frozen=True, slots=True)
class JsonObjectSpan:
    """An object: the offsets of its braces, and its members in order."""

    start: int
    end: int
    members: tuple[JsonMember, ...]


def parse(text: str) -> Any:
    """Parse a text, {} if it has only comments; raises ConfigSyntaxError with the line."""
    if _BLANK.fullmatch(text):
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return JsonReader(text, "", []).read().to_plain()


def find_line(text: str, keys: Sequence[str]) -> int:
    """Return the line of the deepest of these keys that exists."""
    _, members = _walk_keys(text, keys)
    if members:
        return text.count("\n", 0, members[-1].start) + 1
    return 1


def set_value(text: str, keys: Sequence[str], value: Any) -> str:
    """Return the text with this value at these keys; missing objects on the path are created."""
    style = _detect_style(text)
    if _BLANK.fullmatch(text):
        gap = ""
        if text and not text.endswith("\n"):
            gap = style.newline
        return text + gap + _render(_nest(keys, value), style, "") + style.newline
    spans, members = _walk_keys(text, keys)
    if len(members) == len(keys):
        member = members[-1]
        written = _render(
            value,
            style,
            _get_indent(text, member.start),
            single_line="\n" not in text[member.value : member.end],
        )
        return text[: member.value] + written + text[member.end :]
    return _insert_member(
        text, spans[-1], keys[len(members)], _nest(keys[len(members) + 1 :], value), style
    )


def get_raw(text: str, keys: Sequence[str]) -> str | None:
    """Return the raw text of the value at these keys."""
    _, members = _walk_keys(text, keys)
    if members and len(members) == len(keys):
        return text[members[-1].value : members[-1].end]
    return None


def set_raw(text: str, keys: Sequence[str], raw_value: str) -> str:
    """Like `set_value`, for a value that is already text."""
    if _BLANK.fullmatch(text):
        return set_value(text, keys, parse(raw_value))
    spans, members = _walk_keys(text, keys)
    if len(members) != len(keys) - 1:
        return set_value(text, keys, parse(raw_value))
    return _insert_member(text, spans[-1], keys[-1], _RawJson(raw_value), _detect_style(text))


def remove(text: str, keys: Sequence[str]) -> str:
    """Return the text without the value at these keys, its line and its comma."""
    spans, members = _walk_keys(text, keys)
    member = members[-1]
    siblings = spans[len(keys) - 1].members
    index = siblings.index(member)
    start = member.start
    end = member.end
    cuts: list[tuple[int, int]] = []
    if member.comma is not None:
        if text[end : member.comma].strip():
            cuts.append((member.comma, member.comma + 1))
        else:
            end = member.comma + 1
    elif index:
        before = siblings[index - 1].comma
        if before is not None:
            cuts.append((before, before + 1))
    line = text.rfind("\n", 0, start) + 1
    rest = cast("re.Match[str]", _SPACES.match(text, end)).end()
    if line and not text[line:start].strip() and text[rest : rest + 2].startswith(("\n", "\r\n")):
        # Remove the whole line. Only here, because the line before may end in a comment that would
        # otherwise comment out the rest.
        start = line - 1
        end = rest
        start -= text[start - 1 : start] == "\r"
    elif member.comma is not None:
        end = rest
    elif index:
        start -= len(text[:start]) - len(text[:start].rstrip(" \t"))
    for first, last in sorted([*cuts, (start, end)], reverse=True):
        text = text[:first] + text[last:]
    return text


def rename_key(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text with another name for the value at these keys."""
    member = _walk_keys(text, keys)[1][len(keys) - 1]
    end = cast("re.Match[str]", _STRING.match(text, member.start)).end()
    return text[: member.start] + json.dumps(name, ensure_ascii=False) + text[end:]


class _RawJson(str):
    """A value that is already JSON text."""


@dataclass(frozen=True, slots=True)
class _JsonStyle:
    newline: str
    indent_unit: str
    """One step of indentation."""
    is_compact: bool
    """No space after colons and commas."""
    is_single_line: bool
    """Everything on one line."""

    @property
    def space(self) -> str:
        return "" if self.is_compact else " "


def _nest(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _skip_blank(text: str, at: int) -> int:
    return cast("re.Match[str]", _BLANK.match(text, at)).end()


def _find_value_end(text: str, at: int) -> int:
    if text[at] not in "{[":
        found = _STRING.match(text, at) or _WORD.match(text, at)
        if found:
            return found.end()
        return at
    depth = 0
    for found in _STRUCTURE.finditer(text, at):
        mark = found.group()
        depth += mark in ("{", "[")
        depth -= mark in ("}", "]")
        if not depth and mark in ("}", "]"):
            return found.end()
    return len(text)


def _scan_object(text: str, start: int) -> JsonObjectSpan:
    members: list[JsonMember] = []
    at = _skip_blank(text, start + 1)
    while text[at] != "}":
        written = cast("re.Match[str]", _STRING.match(text, at))
        colon = _skip_blank(text, written.end())
        value = _skip_blank(text, colon + 1)
        end = _find_value_end(text, value)
        after = _skip_blank(text, end)
        comma = after if text[after] == "," else None
        key = json.loads(written.group(), strict=False)
        members.append(JsonMember(key, at, colon, value, end, comma))
        at = after
        if comma is not None:
            at = _skip_blank(text, after + 1)
    return JsonObjectSpan(start, at + 1, tuple(members))


def _walk_keys(text: str, keys: Sequence[str]) -> tuple[list[JsonObjectSpan], list[JsonMember]]:
    """Return the existing objects and members on the path to these keys."""
    at = _skip_blank(text, 0)
    spans: list[JsonObjectSpan] = []
    members: list[JsonMember] = []
    for key in keys:
        if at >= len(text) or text[at] != "{":
            break
        spans.append(_scan_object(text, at))
        found = [member for member in spans[-1].members if member.key == key]
        if len(found) > 1:
            line = text.count("\n", 0, found[1].start) + 1
            raise ConfigSyntaxError(
                line, f"{key} is written twice, and clients differ in which one counts", "Keep one."
            )
        if not found:
            break
        members.append(found[0])
        at = found[0].value
    return spans, members


def _detect_style(text: str) -> _JsonStyle:
    newline = detect_newline(text)
    root = _skip_blank(text, 0)
    members = _scan_object(text, root).members if root < len(text) else ()
    if not members:
        return _JsonStyle(newline, "  ", is_compact=False, is_single_line=False)
    first = members[0]
    unit = "  "
    if "\n" in text[root : first.start]:
        unit = _get_indent(text, first.start).removeprefix(_get_indent(text, root))
    is_compact = text[first.colon + 1 : first.value] == ""
    return _JsonStyle(
        newline, unit, is_compact, is_single_line="\n" not in text[root : members[-1].end]
    )


def detect_newline(text: str) -> str:
    """Return the line ending that a text uses first."""
    found = text.find("\n")
    if found > 0 and text[found - 1] == "\r":
        return "\r\n"
    return "\n"


def _get_indent(text: str, at: int) -> str:
    """Return the indentation of the line at this offset."""
    line = text.rfind("\n", 0, at) + 1
    return cast("re.Match[str]", _SPACES.match(text, line)).group()


def _render(value: Any, style: _JsonStyle, indent: str, *, single_line: bool = False) -> str:
    if isinstance(value, _RawJson):
        return value
    ascii_only = not _is_encodable(value)
    if style.is_single_line or single_line:
        separators = (f",{style.space}", f":{style.space}")
        return json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    separators = (",", f":{style.space}")
    written = json.dumps(
        value, indent=style.indent_unit, separators=separators, ensure_ascii=ascii_only
    )
    return written.replace("\n", style.newline + indent)


def _is_encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _insert_member(text: str, span: JsonObjectSpan, key: str, value: Any, style: _JsonStyle) -> str:
    """Insert a member after the last one, formatted like its neighbours."""

    def render_member(indent: str, *, single_line: bool = False) -> str:
        written = _render(value, style, indent, single_line=single_line)
        return f"{json.dumps(key, ensure_ascii=False)}:{style.space}{written}"

    base = _get_indent(text, span.start)
    if not span.members:
        member = render_member(base + style.indent_unit, single_line=style.is_single_line)
        return _insert_first_member(text, span, member, base, style)
    last = span.members[-1]
    indent = _get_indent(text, last.start)
    at = last.end
    before = ","
    after = ""
    if last.comma is not None:
        at = last.comma + 1
        before = ""
        after = ","
    if text[text.rfind("\n", 0, last.start) + 1 : last.start].strip():
        member = render_member(base, single_line=True)
        return text[:at] + before + style.space + member + after + text[at:]
    line_end = cast("re.Match[str]", _SAME_LINE.match(text, at)).end()
    line_end -= text[line_end - 1] == "\r"
    line = f"{style.newline}{indent}{render_member(indent)}{after}"
    return text[:at] + before + text[at:line_end] + line + text[line_end:]


def _insert_first_member(
    text: str, span: JsonObjectSpan, member: str, base: str, style: _JsonStyle
) -> str:
    """Insert the first member of an empty object."""
    inside = text[span.start + 1 : span.end - 1]
    if style.is_single_line:
        return text[: span.end - 1] + member + text[span.end - 1 :]
    comments = inside.rstrip()
    rest = inside[len(comments) :]
    closing = rest if "\n" in rest else style.newline + base
    head = text[: span.start + 1] + comments + style.newline + base + style.indent_unit
    return head + member + closing + text[span.end - 1 :]
