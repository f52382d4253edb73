"""Whether the fields of a body can be arguments of their own, and which. Pure over the documents.

A plain object's fields become arguments: an agent then sees `create_issue(owner, repo, title, body?)`, as it would from
a server written by hand, and search finds the tool by its fields. Anything else is one argument, `body`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.openapi.documents import Documents, Node

DEEPEST = 8
MOST_FIELDS = 300
_HARMLESS = frozenset(
    ("type", "properties", "required", "description", "title", "example", "examples", "nullable", "discriminator",
     "xml", "externalDocs", "deprecated", "default", "allOf", "additionalProperties", "anyOf", "oneOf", "$ref",
     "minProperties", "$schema", "$id", "$comment", "readOnly", "writeOnly")
)  # fmt: skip


@dataclass
class Fields:
    """The fields of a plain object."""

    properties: dict[str, Node] = field(default_factory=dict[str, Node])
    required: dict[str, None] = field(default_factory=dict[str, None])


def fields(documents: Documents, node: Node) -> Fields | None:
    """The fields of a body, those that `allOf` brings together too; None where it is no plain object."""
    found = Fields()
    if not _gather(documents, node, found, DEEPEST) or not found.properties or len(found.properties) > MOST_FIELDS:
        return None
    return found


def _gather(documents: Documents, node: Node, found: Fields, depth: int) -> bool:
    node = documents.resolved(node)
    given = node.entries
    if depth <= 0 or not _is_plain(given):
        return False
    for name, part in node.at(given.get("properties")).entries.items():
        if isinstance(part, dict | bool):
            found.properties[str(name)] = node.at(part)
    required = given.get("required")
    if isinstance(required, list):
        found.required.update(dict.fromkeys(name for name in cast("list[Any]", required) if isinstance(name, str)))
    return all(_gather(documents, node.at(part), found, depth - 1) for part in node.at(given.get("allOf")).items)


def _is_plain(given: Mapping[str, Any]) -> bool:
    if not given or given.get("type", "object") not in ("object", ["object"]):
        return False
    if not all(key in _HARMLESS or str(key).startswith("x-") for key in given):
        return False
    if given.get("additionalProperties") not in (None, False):
        return False
    return all(_only_requires(given.get(key)) for key in ("anyOf", "oneOf"))


def _only_requires(alternatives: Any) -> bool:
    """`anyOf: [{required: [a]}, {required: [b]}]` says which fields go together, which the API will say as well."""
    listed = cast("list[Any]", alternatives) if isinstance(alternatives, list) else []
    return alternatives is None or all(isinstance(one, dict) and set(cast(Raw, one)) <= {"required"} for one in listed)
