"""Parses YAML to plain values, by the rules of 1.2 that OpenAPI requires, bounded.

YAML 1.1, PyYAML's default, would read the enum `[on, off]` as booleans and `2024-01-01` as a date.
Built from the parser's events: the library's composer recurses in C, where deep nesting ends the
process, and holds the GIL; and its nested merge keys make gigabytes of ten lines.
"""

import math
import re
from typing import Any, cast

import yaml

from portico.upstream.backend import Raw

MAX_DEPTH = 200
MAX_MERGED_ENTRIES = 1_000_000
"""Entries that merge keys may add to a whole document."""
_TAG = "tag:yaml.org,2002:"
_MAX_NUMBER_CHARS = 400
"""Longest number: Python refuses very long ones, and is slow with long ones."""
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL", ""), None),
}
_NUMBERS = frozenset("-+.0123456789")


class YamlSyntaxError(ValueError):
    """Invalid YAML; the message has the reason and the line."""


def parse_yaml(data: bytes) -> Any:
    """Return the first document of a text; raise YamlSyntaxError if it is invalid."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _YamlBuilder(loader(data)).build_document()
    except yaml.MarkedYAMLError as error:
        where = ""
        if error.problem_mark is not None:
            where = f" (line {error.problem_mark.line + 1})"
        raise YamlSyntaxError(f"{error.problem or error}{where}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlSyntaxError(str(error)) from None


class _YamlBuilder:
    """Builds the values of one text."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._anchors: dict[str, Any] = {}
        self._merged_count = 0

    def build_document(self) -> Any:
        try:
            self._loader.get_event()
            if self._loader.check_event(yaml.StreamEndEvent):
                return None
            self._loader.get_event()
            return self._build_value(self._loader.get_event(), 0)
        finally:
            self._loader.dispose()

    def _build_value(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _make_syntax_error(
                    event, f"*{event.anchor} names nothing that was written before it"
                )
            return self._anchors[event.anchor]
        if depth > MAX_DEPTH:
            raise _make_syntax_error(event, f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.ScalarEvent):
            value = _parse_scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value
            return value
        container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        if event.anchor is not None:
            self._anchors[event.anchor] = container
        if isinstance(container, dict):
            self._fill_mapping(cast(Raw, container), depth)
        else:
            while not isinstance(inner := self._loader.get_event(), yaml.SequenceEndEvent):
                container.append(self._build_value(inner, depth + 1))
        return container

    def _fill_mapping(self, found: Raw, depth: int) -> None:
        inherited: list[Any] = []
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            key = self._build_value(event, depth + 1)
            if isinstance(key, dict | list):
                raise _make_syntax_error(event, "a key is no text")
            value = self._build_value(self._loader.get_event(), depth + 1)
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                # Descriptions use merge keys, although YAML 1.2 has none.
                inherited += cast("list[Any]", value) if isinstance(value, list) else [value]
                if not all(isinstance(parent, dict) for parent in inherited):
                    raise _make_syntax_error(event, "<< takes a mapping or a list of mappings")
            else:
                found[key] = value
        for parent in inherited:
            self._merged_count += len(parent)
            if self._merged_count > MAX_MERGED_ENTRIES:
                raise YamlSyntaxError("its merge keys (<<) bring in too much")
            for name, value in parent.items():
                found.setdefault(name, value)


def _parse_scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        if event.tag == f"{_TAG}str":
            return text
        if event.tag not in {f"{_TAG}{kind}" for kind in ("int", "float", "bool", "null")}:
            raise _make_syntax_error(event, f"the tag {event.tag[:100]} means nothing here")
    elif not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in _NUMBERS and len(text) <= _MAX_NUMBER_CHARS:
        return _parse_number(text)
    return text


def _parse_number(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if (odd := _ODD_FLOAT.fullmatch(text)) is not None:
        if odd[1] is None:
            return math.nan
        if odd[1] == "-":
            return -math.inf
        return math.inf
    return text


def _make_syntax_error(event: Any, problem: str) -> YamlSyntaxError:
    return YamlSyntaxError(f"{problem} (line {event.start_mark.line + 1})")
