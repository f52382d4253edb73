"""Lists the fields of a tool's result that later steps can use, with path and subject. Pure.

From the output schema, or from the learned shape of real results; where neither is known, only the
whole result is available. Bounded, whatever the schema holds.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from portico.catalog.schema_outline import SchemaOutline, SchemaParameter, build_outline
from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.results.shape import Shape
from portico.workflows.planning.name_parts import ParsedName, get_tool_nouns, parse_name

MAX_OFFERS = 160
_DEPTH = 5
_FIELDS = 40
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EACH = "[*]"
_TEXTS = ("content", "text", "markdown", "body", "transcript", "html")

ShapeOf = Callable[[Tool], Shape | None]


@dataclass(frozen=True, slots=True)
class OutputField:
    """One field of an answer."""

    path: tuple[str, ...]
    """Field names, and `[*]` where a list is entered."""
    name: ParsedName
    about: frozenset[str]
    """What the answer says it is about: the fields it stands in, and the tool's own nouns."""
    types: frozenset[str]

    def to_reference(self, step: str, *, many: bool = False, which: str = "") -> str:
        """What a later step writes to have it: all of them as a list, the first, or the first for
        `which` it holds."""
        text = step
        if _EACH in self.path:
            last = len(self.path) - 1 - self.path[::-1].index(_EACH)
        else:
            last = -1
        for at, part in enumerate(self.path):
            if part == _EACH:
                text += which if which and at == last else "[]" if many else "[0]"
            else:
                text += (
                    f".{part}" if PLAIN.fullmatch(part) else f".{json_codec.dumps(part).decode()}"
                )
        if which:
            return f"${{{text} | [0]}}"
        return f"${{{text}}}"

    @property
    def is_in_list(self) -> bool:
        """Whether there may be several."""
        return _EACH in self.path


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What is known of a tool's answer."""

    fields: tuple[OutputField, ...] = ()
    has_known_fields: bool = False
    """Whether its fields are."""
    text_path: tuple[str, ...] = ()
    """Where its text is: the field that it is for, or all there is."""
    types: frozenset[str] = frozenset()


def get_tool_output(tool: Tool, shapes: ShapeOf) -> ToolOutput:
    """What a tool's answer offers."""
    shape = shapes(tool)
    if shape is not None:
        return _read_shape_output(tool, shape)
    return read_schema_output(tool)


@lru_cache(maxsize=1_024)
def read_schema_output(tool: Tool) -> ToolOutput:
    schema = tool.definition.get("outputSchema")
    if not isinstance(schema, dict):
        return ToolOutput()
    read = build_outline(schema)
    found: list[OutputField] = []
    for offer in _iter_schema_fields(
        read.root, read, (), get_tool_nouns(tool.name, tool.server), 0
    ):
        found.append(offer)
        if len(found) >= MAX_OFFERS:
            break
    texts = [
        child.name
        for child in read.root.children
        if child.type == "string" and not child.is_pattern
    ]
    path = _text_path(texts, len(read.root.children))
    return ToolOutput(tuple(found), bool(found), path, frozenset({read.root.type}))


def _text_path(texts: Sequence[str], fields: int) -> tuple[str, ...]:
    """Of the fields that are texts, the one that the answer is there for."""
    if fields == 1:
        return tuple(texts)
    return next(((name,) for name in _TEXTS if name in texts), ())


def _iter_schema_fields(
    param: SchemaParameter,
    read: SchemaOutline,
    path: tuple[str, ...],
    about: frozenset[str],
    depth: int,
) -> Iterator[OutputField]:
    if param.ref:
        param = read.types.get(param.ref, param)
    else:
        param = param
    if depth > _DEPTH:
        return
    for variant in param.variants[:4]:
        yield from _iter_schema_fields(variant, read, path, about, depth + 1)
    if param.items is not None and param.type == "array":
        yield from _iter_field(param.items, read, (*path, _EACH), "", about, depth)
    for child in param.children[:_FIELDS]:
        if not child.is_pattern:
            yield from _iter_field(child, read, (*path, child.name), child.name, about, depth)


def _iter_field(
    param: SchemaParameter,
    read: SchemaOutline,
    path: tuple[str, ...],
    field: str,
    about: frozenset[str],
    depth: int,
) -> Iterator[OutputField]:
    if param.ref:
        meant = read.types.get(param.ref, param)
    else:
        meant = param
    types = frozenset(variant.type for variant in meant.variants) or frozenset({meant.type})
    name = parse_name(field or next((part for part in reversed(path) if part != _EACH), ""))
    if path[-1] != _EACH or types & {"string", "integer", "number"}:
        yield OutputField(path, name, about, types)
    if field and field != "result":
        inner = about | name.about
    else:
        inner = about
    yield from _iter_schema_fields(meant, read, path, inner, depth + 1)


def _read_shape_output(tool: Tool, shape: Shape) -> ToolOutput:
    found: list[OutputField] = []
    for offer in _iter_shape_fields(shape, (), get_tool_nouns(tool.name, tool.server), 0):
        found.append(offer)
        if len(found) >= MAX_OFFERS:
            break
    fields = shape.fields or {}
    texts = [name for name, one in fields.items() if "string" in one.scalars]
    return ToolOutput(
        tuple(found), bool(found), _text_path(texts, len(fields)), _get_shape_types(shape)
    )


def _iter_shape_fields(
    shape: Shape, path: tuple[str, ...], about: frozenset[str], depth: int
) -> Iterator[OutputField]:
    if depth > _DEPTH:
        return
    if shape.items is not None:
        inner = (*path, _EACH)
        if shape.items.scalars & {"string", "integer", "number"}:
            name = parse_name(next((part for part in reversed(path) if part != _EACH), ""))
            yield OutputField(inner, name, about, _get_shape_types(shape.items))
        yield from _iter_shape_fields(shape.items, inner, about, depth + 1)
    for field, one in list((shape.fields or {}).items())[:_FIELDS]:
        if field == "…":
            continue
        name = parse_name(field)
        yield OutputField((*path, field), name, about, _get_shape_types(one))
        yield from _iter_shape_fields(one, (*path, field), about | name.about, depth + 1)


def _get_shape_types(shape: Shape) -> frozenset[str]:
    found = set(shape.scalars - {"…", "null"})
    if shape.fields is not None or shape.keys is not None:
        found.add("object")
    if shape.length is not None:
        found.add("array")
    return frozenset(found or {"any"})
