"""Whether the fields of a body can be arguments of their own, and which. Pure over the documents.

A plain object's fields become arguments: an agent then sees `create_issue(owner, repo, title,
body?)`, as it would from a server written by hand, and search finds the tool by its fields.
Anything else is one argument, `body`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode

MAX_DEPTH = 8
MAX_FIELDS = 300
_PLAIN_OBJECT_KEYWORDS = frozenset(
    ("type", "properties", "required", "description", "title", "example", "examples", "nullable", "discriminator",
     "xml", "externalDocs", "deprecated", "default", "allOf", "additionalProperties", "anyOf", "oneOf", "$ref",
     "minProperties", "$schema", "$id", "$comment", "readOnly", "writeOnly")
)  # fmt: skip


@dataclass
class BodyFields:
    """The fields of a plain object."""

    properties: dict[str, DocumentNode] = field(default_factory=dict[str, DocumentNode])
    required: dict[str, None] = field(default_factory=dict[str, None])


def collect_body_fields(documents: ApiDocuments, node: DocumentNode) -> BodyFields | None:
    """The fields of a body, those that `allOf` brings together too; None where it is no plain
    object."""
    found = BodyFields()
    if (
        not _gather_fields(documents, node, found, MAX_DEPTH)
        or not found.properties
        or len(found.properties) > MAX_FIELDS
    ):
        return None
    return found


def _gather_fields(
    documents: ApiDocuments, node: DocumentNode, found: BodyFields, depth: int
) -> bool:
    node = documents.resolve(node)
    given = node.entries
    if depth <= 0 or not _is_plain_object(given):
        return False
    for name, part in node.with_value(given.get("properties")).entries.items():
        if isinstance(part, dict | bool):
            found.properties[str(name)] = node.with_value(part)
    required = given.get("required")
    if isinstance(required, list):
        found.required.update(
            dict.fromkeys(name for name in cast("list[Any]", required) if isinstance(name, str))
        )
    return all(
        _gather_fields(documents, node.with_value(part), found, depth - 1)
        for part in node.with_value(given.get("allOf")).items
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
    """`anyOf: [{required: [a]}, {required: [b]}]` says which fields go together, which the API will say as well."""
    if isinstance(alternatives, list):
        listed = cast("list[Any]", alternatives)
    else:
        listed = []
    return alternatives is None or all(
        isinstance(one, dict) and set(cast(Raw, one)) <= {"required"} for one in listed
    )
