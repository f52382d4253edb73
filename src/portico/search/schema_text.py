"""Extracts the words of a JSON Schema: parameter names, descriptions and enum values.

`$ref` is not followed (definitions are read where they are), anything that is not a schema is
skipped, and depth and size are bounded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_NODES = 2_000
_MAX_ENUMS = 64
_CHILDREN = ("items", "additionalProperties", "not", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_TABLES = ("$defs", "definitions", "patternProperties")
_TABLE = (dict, Mapping)
"""In this order: nearly all are dicts, and the check for Mapping takes ten times as long."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The searchable text of one input schema."""

    parameters: tuple[str, ...] = ()
    descriptions: str = ""
    enums: tuple[str, ...] = ()


def extract_schema_text(schema: object) -> SchemaText:
    """Extract the text of a schema breadth first, so that the node limit cuts only the deepest."""
    names: dict[str, None] = {}
    descriptions: dict[str, None] = {}
    enums: dict[str, None] = {}
    queue: list[Any] = [schema]
    for at, node in enumerate(queue):
        if at >= _MAX_NODES:
            break
        if not isinstance(node, _TABLE):
            continue
        # The root's own description repeats the tool's.
        if at and isinstance(text := node.get("description"), str):
            descriptions[text] = None
        if "enum" in node:
            enums.update(
                (value, None) for value in _to_sequence(node["enum"]) if isinstance(value, str)
            )
        if isinstance(constant := node.get("const"), str):
            enums[constant] = None
        properties = node.get("properties")
        if isinstance(properties, _TABLE):
            names.update((name, None) for name in properties if isinstance(name, str))
            queue.extend(properties.values())
        queue.extend(node[key] for key in _CHILDREN if key in node)
        for key in _LISTS:
            if key in node:
                queue.extend(_to_sequence(node[key]))
        for key in _TABLES:
            if key in node and isinstance(table := node[key], _TABLE):
                queue.extend(table.values())
    return SchemaText(tuple(names), "\n".join(descriptions), tuple(enums)[:_MAX_ENUMS])


def _to_sequence(value: object) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    return ()
