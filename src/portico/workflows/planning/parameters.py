"""The leaves of a tool's parameters: where a value may be put, and how it is described. Pure."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from portico.catalog.address import to_identifier
from portico.catalog.schema_outline import SchemaOutline, SchemaParameter, build_outline
from portico.catalog.schema_types import to_one_line
from portico.catalog.tool import Tool

MAX_LEAVES = 48
"""Parameters of one tool that are looked at; the required ones come first."""
MAX_OPTIONS = 24
_MAX_READ = 400
"""Leaves that are read before the required ones are chosen."""
_MAX_DEPTH = 3
_MAX_DESCRIPTION = 8_000
"""Characters of a tool's description that are searched for lines on its parameters."""
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+|(?<=[A-Za-z])(?=\d)")

LeafPath = tuple[str | int, ...]
"""Names of properties; 0 for the only item of a list of objects."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One place for a value."""

    path: LeafPath
    schema: SchemaParameter
    required: bool
    """Required, and so are all objects around it."""
    required_beside: bool
    """Required where its object is there."""
    types: frozenset[str]
    item_types: frozenset[str]
    """Types of a list's items; empty if it is no list."""
    options: tuple[Any, ...]
    """Enumerated values, or true and false."""

    @property
    def name(self) -> str:
        """The names along the path."""
        return ".".join(str(part) for part in self.path if part != 0)

    @property
    def plain_name(self) -> str:
        """The name of an input for it: one that can be written in a reference."""
        return to_plain_name(self.name)

    @property
    def is_plural(self) -> bool:
        """Whether its name is that of several things."""
        last = str(self.path[-1])
        return last.endswith("s") and not last.endswith(("ss", "us", "is"))

    def describe(self) -> str:
        """Return its words, type and description, as the reader was trained to read them."""
        words = " ".join(split_identifier(self.name))
        kinds = " or ".join(sorted(self.types))
        need = "required" if self.required else "optional"
        return f"{words} ({kinds}, {need}): {to_one_line(self.schema.description)[:200]}"


@lru_cache(maxsize=256)
def list_leaves(tool: Tool) -> tuple[Leaf, ...]:
    """Return the leaves of a tool's input, the required ones first."""
    outline = build_outline(tool.input_schema)
    found = list(islice(_iter_leaves(outline.parameters, outline, (), True, 0), _MAX_READ))
    found.sort(key=lambda leaf: not leaf.required)
    found = [_describe_leaf(leaf, tool.description) for leaf in found]
    return tuple(found[:MAX_LEAVES])


def _describe_leaf(leaf: Leaf, text: str) -> Leaf:
    """Return a parameter without a description with the line on it in a tool's own: `name: …`."""
    if leaf.schema.description or len(leaf.path) > 1:
        return leaf
    name = re.escape(leaf.name)
    line = re.search(
        rf"^[ \t*-]*`?{name}`?[ \t]*(?:\([^)\n]*\))?:[ \t]*(\S.*)$",
        text[:_MAX_DESCRIPTION],
        re.MULTILINE,
    )
    if line is None:
        return leaf
    return replace(leaf, schema=replace(leaf.schema, description=line[1]))


def _iter_leaves(
    parameters: Sequence[SchemaParameter],
    outline: SchemaOutline,
    path: LeafPath,
    required: bool,
    depth: int,
) -> Iterator[Leaf]:
    for written in parameters[:MAX_LEAVES]:
        if written.is_pattern:
            continue
        needed = required and written.required
        inner = (*path, written.name)
        param = outline.types.get(written.ref, written)
        children = _list_children(param, outline)
        if children and depth < _MAX_DEPTH:
            at = (*inner, 0) if param.type == "array" else inner
            yield from _iter_leaves(children, outline, at, needed, depth + 1)
        if not children or param.type == "array" or depth >= _MAX_DEPTH:
            is_leaf = not children or depth >= _MAX_DEPTH
            yield _make_leaf(inner, written, param, needed and is_leaf)


def _list_children(param: SchemaParameter, outline: SchemaOutline) -> tuple[SchemaParameter, ...]:
    """Return the properties of an object, or of the objects in a list."""
    if param.type == "array" and param.items is not None:
        param = outline.types.get(param.items.ref, param.items)
    elif param.type == "union":
        return _list_variant_children(param, outline)
    if param.type != "object":
        return ()
    return tuple(child for child in param.children if not child.is_pattern)


def _list_variant_children(
    param: SchemaParameter, outline: SchemaOutline
) -> tuple[SchemaParameter, ...]:
    """Return the properties of a union of objects: required where all of them require it."""
    variants = [outline.types.get(variant.ref, variant) for variant in param.variants]
    # A text beside objects is one of them, written as JSON.
    if not all(variant.type in ("object", "null", "string", "union") for variant in variants):
        return ()
    inner = [part for variant in variants if variant.type == "union" for part in variant.variants]
    variants += [outline.types.get(variant.ref, variant) for variant in inner]
    found: dict[str, SchemaParameter] = {}
    objects = [variant for variant in variants if variant.children]
    for child in (child for variant in objects for child in variant.children):
        is_required = all(
            any(other.name == child.name and other.required for other in variant.children)
            for variant in objects
        )
        found.setdefault(child.name, replace(child, required=is_required))
    return tuple(child for child in found.values() if not child.is_pattern)


def _make_leaf(
    path: LeafPath, written: SchemaParameter, param: SchemaParameter, required: bool
) -> Leaf:
    variants = param.variants or (param,)
    types = frozenset(variant.type for variant in variants) - {"null"}
    items = [variant.items for variant in variants if variant.items is not None]
    item_types = frozenset(item.type for item in items)
    options: list[Any] = []
    for part in (param, *variants, *items):
        options.extend(value for value in part.enum if value is not None)
    if not options and "boolean" in types:
        options = [True, False]
    described = param if param.description else written
    return Leaf(
        path,
        described,
        required,
        written.required,
        types or frozenset({"any"}),
        item_types,
        tuple(dict.fromkeys(map(_freeze_option, options)))[:MAX_OPTIONS],
    )


def _freeze_option(value: Any) -> Any:
    """Return a value that can be hashed."""
    if isinstance(value, (dict, list)):
        return str(cast("object", value))
    return value


def to_plain_name(name: str) -> str:
    """Convert a name to one that can be written in a reference."""
    plain = re.sub(r"\W", "_", to_identifier(name.replace(".", "_")), flags=re.ASCII)
    if re.match(r"[A-Za-z_]", plain):
        return plain
    return f"_{plain}"


def split_identifier(name: str) -> list[str]:
    """Return the words of an identifier, in lower case."""
    return [part.lower() for part in _PARTS.split(name[:120]) if part]


def get_at(arguments: Mapping[str, Any], path: LeafPath) -> Any:
    """Return the value at a path; KeyError if there is none, or a list of several objects."""
    value: Any = arguments
    for part in path:
        if isinstance(part, int):
            if not isinstance(value, list) or len(cast("list[Any]", value)) != 1:
                raise KeyError(part)
            value = cast("list[Any]", value)[0]
        elif isinstance(value, dict):
            value = cast("dict[str, Any]", value)[part]
        else:
            raise KeyError(part)
    return value


def set_at(arguments: dict[str, Any], path: LeafPath, value: Any) -> None:
    """Put a value at a path, with the objects and lists around it."""
    place: Any = arguments
    for part, following in itertools.pairwise(path):
        empty: Any = [{}] if following == 0 else {}
        place = place[part] if part == 0 else place.setdefault(part, empty)
    place[path[-1]] = value
