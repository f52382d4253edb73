"""Decides whether the fields of a body become arguments, and which. Pure.

A plain object's fields become arguments: an agent then sees `create_issue(owner, repo, title,
body?)`, as from a server written by hand, and search finds the tool by its fields. Anything else is
one argument, `body`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode

MAX_DEPTH = 8
MAX_FIELDS = 300
_PLAIN_OBJECT_KEYWORDS = frozenset(
    ("type", "properties", "required", "description", "title", "example", "examples", "nullable",
     "discriminator", "xml", "externalDocs", "deprecated", "default", "allOf",
     "additionalProperties", "anyOf", "oneOf", "$ref", "minProperties", "$schema", "$id",
     "$comment", "readOnly", "writeOnly")
)  # fmt: skip


@dataclass
class BodyFields:
    """Fields of a plain object."""

    properties: dict[str, DocumentNode] = field(default_factory=dict[str, DocumentNode])
    required: dict[str, None] = field(default_factory=dict[str, None])


def collect_body_fields(documents: ApiDocuments, node: DocumentNode) -> BodyFields | None:
    """Return the fields of a body, including those of `allOf`; None if it is no plain object."""
    fields = BodyFields()
    if (
        not _gather_fields(documents, node, fields, MAX_DEPTH)
        or not fields.properties
        or len(fields.properties) > MAX_FIELDS
    ):
        return None
    return fields


def _gather_fields(
    documents: ApiDocuments, node: DocumentNode, found: BodyFields, depth: int
) -> bool:
    node = documents.resolve(node)
    entries = node.entries
    if depth <= 0 or not _is_plain_object(entries):
        return False
    for name, part in node.with_value(entries.get("properties")).entries.items():
        if isinstance(part, dict | bool):
            found.properties[str(name)] = node.with_value(part)
    required = entries.get("required")
    if isinstance(required, list):
        found.required.update(
            dict.fromkeys(name for name in cast("list[Any]", required) if isinstance(name, str))
        )
    return all(
        _gather_fields(documents, node.with_value(part), found, depth - 1)
        for part in node.with_value(entries.get("allOf")).items
    )


def _is_plain_object(given: Mapping[str, Any]) -> bool:
    if not given or given.get("type", "object") not in ("object", ["object"]):
        return False
    if not all(key in _PLAIN_OBJECT_KEYWORDS or str(key).startswith("x-") for key in given):
        return False
    if given.get("additionalProperties") not in (None, False):
        return False
    return all(_has_only_required(given.get(key)) for key in ("anyOf", "oneOf"))


def _has_only_required(alternatives: Any) -> bool:
    """Return whether alternatives only name required fields, which the API checks itself."""
    if alternatives is None or not isinstance(alternatives, list):
        return True
    return all(
        isinstance(alternative, dict) and set(cast(Raw, alternative)) <= {"required"}
        for alternative in cast("list[Any]", alternatives)
    )
