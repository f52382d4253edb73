"""Resolves `$ref` within and across documents, by the `referencing` library.

Real descriptions have references to nothing; each is treated as empty and reported.

YAML is read by the rules of 1.2 that OpenAPI requires: those of 1.1, PyYAML's default, would read
the enum `[on, off]` as booleans and `2024-01-01` as a date. Values are built from the parser's
events: the library's composer recurses in C, where deep nesting ends the process, and holds the
GIL; and its nested merge keys make gigabytes of ten lines.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, cast
from urllib.parse import urldefrag, urljoin

import yaml
from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable

from portico.json_text import json_codec
from portico.json_text.json_codec import to_list, to_object
from portico.upstream.backend import Raw

MAX_VALUES = 20_000
"""Values of a converted default, enum or example."""
MAX_CHARACTERS = 1_000_000
"""Characters of a converted default, enum or example."""


def parse_document(data: bytes) -> Raw:
    """Return the object in a document; raise ValueError with a reason if there is none."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return _require_object(json_codec.loads(data))
        except ValueError as error:
            if data.lstrip()[:1] == b"[":
                raise ValueError(f"it is no JSON: {error}") from None
            try:
                return _require_object(parse_yaml(data))
            except ValueError:
                raise ValueError(f"it is no JSON: {error}") from None
    return _require_object(parse_yaml(data))


def _require_object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise ValueError("it is no object, but a description of an API is one")
    return cast(Raw, value)


def to_json_value(value: Any) -> Any:
    """Return a value as JSON; raise ValueError if it is circular, unsupported or too large."""
    if not _is_small(value):
        raise ValueError("it is too large to be shown")
    try:
        return json_codec.loads(json_codec.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it cannot be said in JSON") from None


def _is_small(value: Any) -> bool:
    """Return whether a value stays small when written out, unlike nested YAML aliases."""
    count = characters = 0
    stack = [value]
    while stack:
        node: Any = stack.pop()
        count += 1
        if isinstance(node, str):
            characters += len(node)
        elif isinstance(node, dict):
            characters += sum(len(str(key)) for key in cast(Raw, node))
            stack.extend(cast(Raw, node).values())
        elif isinstance(node, list):
            stack.extend(cast("list[Any]", node))
        if count + len(stack) > MAX_VALUES or characters > MAX_CHARACTERS:
            return False
    return True


MAX_REFERENCE_CHAIN = 20
"""Consecutive references after which a chain counts as circular."""


class DocumentNode(NamedTuple):
    value: Any
    base: str

    @property
    def entries(self) -> Raw:
        """Of an object; empty for other values."""
        return to_object(self.value)

    @property
    def items(self) -> list[Any]:
        """Of a list; empty for other values."""
        return to_list(self.value)

    def with_value(self, value: Any) -> "DocumentNode":
        return DocumentNode(value, self.base)


class DocumentUnavailable(Exception):
    """A referenced document must not or cannot be read."""


class ApiDocuments:
    def __init__(self, uri: str, root: Raw, read_document: Callable[[str], Raw]) -> None:
        """`read_document` returns the document at a URL or raises DocumentUnavailable."""
        self.root = DocumentNode(root, uri)
        self.dangling_references: dict[str, str] = {}
        """Unresolvable references, with the reason."""
        self._resources = {uri: _create_resource(root)}
        self._read_document = read_document
        self._resolved_nodes: dict[str, DocumentNode | None] = {}
        self._registry: Registry[Any] = Registry(
            retrieve=self._retrieve  # pyright: ignore[reportCallIssue]
        )

    def resolve_url(self, ref: str, base: str) -> str:
        if ref[:1] == "#":
            return base + ref
        return urljoin(base, ref)

    def look_up(self, ref: str, base: str) -> DocumentNode | None:
        address = self.resolve_url(ref, base)
        if address not in self._resolved_nodes:
            self._resolved_nodes[address] = self._look_up_url(address)
        return self._resolved_nodes[address]

    def resolve(self, node: DocumentNode) -> DocumentNode:
        """Follow references; return the node itself if it is none, an empty one if unresolvable."""
        for _ in range(MAX_REFERENCE_CHAIN):
            ref = node.entries.get("$ref")
            if not isinstance(ref, str):
                return node
            target = self.look_up(ref, node.base)
            if target is None:
                return node.with_value({})
            node = target
        return node.with_value({})

    def _look_up_url(self, url: str) -> DocumentNode | None:
        document, _ = urldefrag(url)
        try:
            resolved = self._registry.resolver(document).lookup(url)
        except (
            Unresolvable,
            NoSuchResource,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
        ) as error:
            cause = error.__cause__
            self.dangling_references[url] = (
                str(cause) if isinstance(cause, DocumentUnavailable) else "nothing is there"
            )
            return None
        return DocumentNode(resolved.contents, document)

    def _retrieve(self, uri: str) -> "Resource[Any]":
        document = self._resources.get(uri)
        if document is None:
            try:
                document = _create_resource(self._read_document(uri))
            except DocumentUnavailable as error:
                raise NoSuchResource(ref=uri) from error
            self._resources[uri] = document
        return document


def _create_resource(value: Raw) -> "Resource[Any]":
    # Opaque: a description is no schema, so nothing in it is an `$id` or an anchor.
    return Specification.OPAQUE.create_resource(value)


MAX_DEPTH = 200
MAX_MERGED_ENTRIES = 1_000_000
"""Entries that merge keys may add to a whole document."""
_TAG = "tag:yaml.org,2002:"
_NOT_YAML = "it is neither JSON nor YAML: "
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


def parse_yaml(data: bytes) -> Any:
    """Return the first document of a text; raise ValueError with reason and line if it is none."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _YamlBuilder(loader(data)).build_document()
    except yaml.MarkedYAMLError as error:
        where = ""
        if error.problem_mark is not None:
            where = f" (line {error.problem_mark.line + 1})"
        raise ValueError(f"{_NOT_YAML}{error.problem or error}{where}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ValueError(f"{_NOT_YAML}{error}") from None


class _YamlBuilder:
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
                raise ValueError(f"{_NOT_YAML}its merge keys (<<) bring in too much")
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


def _make_syntax_error(event: Any, problem: str) -> ValueError:
    return ValueError(f"{_NOT_YAML}{problem} (line {event.start_mark.line + 1})")
