"""Fields of an earlier result that fit a parameter. Pure.

The fields come from the output schema, or from the learned shape of real results; where neither is
known nothing is joined. A field fits by its name (`channels[*].id` is a `channel_id`) and type.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from portico.catalog.schema_outline import SchemaOutline, SchemaParameter, build_outline
from portico.catalog.tool import Tool
from portico.json_text import json_codec
from portico.results.shape import Shape
from portico.workflows.planning.name_matching import get_context_words, score_name, to_words
from portico.workflows.planning.parameters import Leaf

ShapeLookup = Callable[[Tool], Shape | None]

MAX_FIELDS = 160
_MAX_DEPTH = 5
_MAX_CHILDREN = 40
_EACH = "[*]"
_GOOD = 0.75
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = frozenset(("integer", "number", "string"))


@dataclass(frozen=True, slots=True)
class OutputField:
    """One field of a result."""

    path: tuple[str, ...]
    """Field names, and `[*]` where a list is entered."""
    types: frozenset[str]

    @property
    def name(self) -> str:
        """Its name, behind that of the object it belongs to."""
        return "_".join([part for part in self.path if part != _EACH][-2:])

    def to_reference(self, step: str, *, many: bool = False) -> str:
        """Return the reference to it in a later step: to the first, or to all as a list."""
        text = step
        for part in self.path:
            if part == _EACH:
                text += "[]" if many else "[0]"
            elif _PLAIN.fullmatch(part):
                text += f".{part}"
            else:
                text += f".{json_codec.dumps(part).decode()}"
        return f"${{{text}}}"


def list_output_fields(tool: Tool, shapes: ShapeLookup) -> tuple[OutputField, ...]:
    """Return the fields of a tool's result: as it was seen, or as its schema declares it."""
    shape = shapes(tool)
    if shape is not None:
        return tuple(islice(_iter_shape_fields(shape, (), 0), MAX_FIELDS))
    schema = tool.definition.get("outputSchema")
    if not isinstance(schema, dict):
        return ()
    outline = build_outline(schema)
    return tuple(islice(_iter_schema_fields(outline.root, outline, (), 0), MAX_FIELDS))


def _iter_schema_fields(
    param: SchemaParameter, outline: SchemaOutline, path: tuple[str, ...], depth: int
) -> Iterator[OutputField]:
    param = outline.types.get(param.ref or "", param)
    if depth > _MAX_DEPTH:
        return
    parts = [
        (child.name, child) for child in param.children[:_MAX_CHILDREN] if not child.is_pattern
    ]
    if param.items is not None and param.type == "array":
        parts.insert(0, (_EACH, param.items))
    for step, part in parts:
        meant = outline.types.get(part.ref or "", part)
        types = frozenset(variant.type for variant in meant.variants) or frozenset({meant.type})
        yield OutputField((*path, step), types)
        yield from _iter_schema_fields(meant, outline, (*path, step), depth + 1)


def _iter_shape_fields(shape: Shape, path: tuple[str, ...], depth: int) -> Iterator[OutputField]:
    if depth > _MAX_DEPTH:
        return
    if shape.items is not None:
        yield OutputField((*path, _EACH), frozenset(shape.items.scalars))
        yield from _iter_shape_fields(shape.items, (*path, _EACH), depth + 1)
    for field, child in list((shape.fields or {}).items())[:_MAX_CHILDREN]:
        if field != "…":
            yield OutputField((*path, field), frozenset(child.scalars))
            yield from _iter_shape_fields(child, (*path, field), depth + 1)


def find_join(
    leaf: Leaf, tool: Tool, earlier: Tool, fields: tuple[OutputField, ...]
) -> OutputField | None:
    """Return the field of an earlier tool's result that fits a parameter; None if none does.

    An id or a number means something on one server only.
    """
    words = to_words(leaf.name)
    if not words or leaf.options:
        return None
    is_key = words[-1] in ("id", "key", "number", "uid", "gid", "iid")
    if is_key and tool.server != earlier.server:
        return None
    context = get_context_words(tool)
    nouns = get_context_words(earlier)
    best: OutputField | None = None
    best_score = _GOOD
    for field in fields:
        if field.types and not field.types & _SCALARS & _widen(leaf.types | leaf.item_types):
            continue
        parts = to_words(field.name)
        if not parts:
            continue
        # `id` of what `create_issue` answers is an issue's.
        about = {*parts, *nouns}
        subject = [word for word in words if word not in ("id", "key", "number", "name")]
        if not set(subject) <= about:
            continue
        score = score_name(field.name, leaf, context)
        if is_key and subject and parts[-1] == words[-1]:
            score = max(score, 0.9)
        if score > best_score:
            best = field
            best_score = score
    return best


def _widen(types: frozenset[str]) -> frozenset[str]:
    """Return the types that can be made into these."""
    if types & {"any", "union", "string"}:
        return _SCALARS
    if types & {"integer", "number"}:
        return types | {"integer", "number"}
    return types
