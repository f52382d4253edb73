"""Reads the operations of a description, in one shape for OpenAPI 3.0–3.2 and Swagger 2.0.

A plain object's fields become arguments: an agent then sees `create_issue(owner, repo, title,
body?)`, as from a server written by hand, and search finds the tool by its fields. Any other body
is one argument, `body`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from portico.json_text.json_codec import to_list, to_object, to_text
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import ApiDocuments, DocumentNode
from portico.upstream.backends.openapi.request_encoding import ParameterPlan

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
JSON = "application/json"
_SCHEMA_KEYS = frozenset(
    ("type", "format", "items", "default", "enum", "pattern", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
     "uniqueItems", "multipleOf", "x-nullable", "example", "x-example", "properties",
     "additionalProperties", "$ref", "allOf")
)  # fmt: skip
_STYLES: Mapping[str, tuple[str, bool]] = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}


# Swagger 2.0 is converted to the shape of OpenAPI 3; schemas and references stay unchanged, because
# `#/definitions/Pet` means the same in both.


def is_swagger(root: DocumentNode) -> bool:
    return "swagger" in root.entries and "openapi" not in root.entries


def is_parameter(node: DocumentNode) -> bool:
    """Return whether it is not part of the body, which 2.0 lists among the parameters."""
    return node.entries.get("in") not in ("body", "formData")


def convert_parameter(given: Mapping[str, Any]) -> Raw:
    style, explode = _STYLES.get(str(given.get("collectionFormat", "csv")), ("form", False))
    if given.get("in") in ("path", "header") and style == "form":
        style = "simple"
    unchanged = {
        key: given[key]
        for key in ("name", "in", "required", "description", "x-multi-segment")
        if key in given
    }
    return {
        **unchanged,
        "schema": given.get("schema") or _convert_schema(given),
        "style": style,
        "explode": explode,
    }


def convert_request_body(parameters: Sequence[DocumentNode], consumes: Any) -> DocumentNode | None:
    kinds = [kind for kind in to_list(consumes) if isinstance(kind, str)]
    # Parameters of an operation follow those of its path, and override them.
    for node in reversed(parameters):
        if node.entries.get("in") == "body":
            entry = {"schema": node.entries.get("schema", {})}
            content: Raw = dict.fromkeys(kinds or [JSON], entry)
            return node.with_value({**node.entries, "content": content})
    fields = {
        str(node.entries.get("name")): node
        for node in parameters
        if node.entries.get("in") == "formData"
    }
    if not fields:
        return None
    has_files = any(node.entries.get("type") == "file" for node in fields.values())
    form_kinds = [kind for kind in kinds if kind.partition(";")[0].strip() in (FORM, MULTIPART)]
    kind = MULTIPART if has_files or (form_kinds and FORM not in form_kinds) else FORM
    required = [name for name, node in fields.items() if node.entries.get("required") is True]
    properties = {
        name: {**_convert_schema(node.entries), "description": node.entries.get("description", "")}
        for name, node in fields.items()
    }
    encoding = {name: _convert_encoding(node.entries) for name, node in fields.items()}
    schema = {"type": "object", "properties": properties, "required": required}
    content = {kind: {"schema": schema, "encoding": encoding}}
    return next(iter(fields.values())).with_value({"required": bool(required), "content": content})


def convert_servers(root: Mapping[str, Any], document_url: str) -> list[Raw]:
    """Convert `schemes`, `host` and `basePath` to servers; defaults come from the document URL."""
    own_scheme, _, rest = document_url.partition("://")
    host = strip_text(root.get("host"))
    if not host and not own_scheme.startswith("http"):
        return []
    listed = to_list(root.get("schemes"))
    candidates = [name for name in ("https", "http") if name in listed]
    candidates += [own_scheme] * own_scheme.startswith("http")
    scheme = next(iter(candidates), "https")
    path = strip_text(root.get("basePath"))
    host = host or rest.partition("/")[0]
    return [{"url": f"{scheme}://{host}/{path.strip('/')}".rstrip("/")}]


def convert_security_scheme(given: Mapping[str, Any]) -> Raw:
    if given.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return dict(given)


def _convert_schema(given: Mapping[str, Any]) -> Raw:
    schema = {key: given[key] for key in _SCHEMA_KEYS if key in given}
    if given.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return schema


def _convert_encoding(given: Mapping[str, Any]) -> Raw:
    style, explode = _STYLES.get(str(given.get("collectionFormat", "csv")), ("form", False))
    return {"style": style, "explode": explode}


METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
IGNORED_HEADERS = frozenset({"accept", "content-type", "authorization"})
"""OpenAPI ignores these as parameters: they are described elsewhere."""
FORBIDDEN_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te",
     "trailer", "expect", "proxy-authorization", "proxy-connection", "cookie")
)  # fmt: skip
"""Headers that would let a caller reach another server or smuggle a second request."""
_METHOD = re.compile(r"(?!CONNECT$)[A-Z]{1,20}")
"""Without CONNECT, which would open a tunnel to another host."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class OperationParameter:
    plan: ParameterPlan
    """How it is sent; it names no argument yet."""
    schema: DocumentNode
    description: str


@dataclass(frozen=True, slots=True)
class RequestBody:
    """Accepted media types, each with its entry (`schema`, `encoding`)."""

    content: dict[str, DocumentNode]
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    id: str
    summary: str
    description: str
    deprecated: bool
    parameters: tuple[OperationParameter, ...]
    body: RequestBody | None
    servers: Any
    """Servers of the operation or its path; None if it uses the document's."""
    security: Any


def read_operations(documents: ApiDocuments) -> Iterator[Operation]:
    paths = documents.resolve(documents.root.with_value(documents.root.entries.get("paths")))
    for path, item in paths.entries.items():
        if not str(path).startswith("/"):
            continue
        path_item = documents.resolve(paths.with_value(item))
        for method, entry in _iterate_methods(path_item):
            if isinstance(entry, dict):
                yield _build_operation(
                    documents,
                    method,
                    str(path),
                    path_item,
                    documents.resolve(path_item.with_value(entry)),
                )


def _iterate_methods(item: DocumentNode) -> Iterator[tuple[str, Any]]:
    yield from (
        (method.upper(), item.entries[method]) for method in METHODS if method in item.entries
    )
    for name, entry in to_object(item.entries.get("additionalOperations")).items():
        if _METHOD.fullmatch(method := str(name).upper()):
            yield method, entry


def _build_operation(
    documents: ApiDocuments, method: str, path: str, item: DocumentNode, node: DocumentNode
) -> Operation:
    entries = node.entries
    parameters = [
        documents.resolve(owner.with_value(parameter))
        for owner in (item, node)
        for parameter in owner.with_value(owner.entries.get("parameters")).items
    ]
    if is_swagger(documents.root):
        consumes = entries.get("consumes", documents.root.entries.get("consumes"))
        body_node = convert_request_body(parameters, consumes)
        parameters = [
            parameter.with_value(convert_parameter(parameter.entries))
            for parameter in parameters
            if is_parameter(parameter)
        ]
    else:
        body_node = documents.resolve(node.with_value(entries.get("requestBody")))
        if not isinstance(body_node.value, dict) or not body_node.value:
            body_node = None
    body = None
    if body_node is not None:
        content = documents.resolve(body_node.with_value(body_node.entries.get("content")))
        body = RequestBody(
            {
                str(media_type): documents.resolve(content.with_value(entry))
                for media_type, entry in content.entries.items()
            },
            body_node.entries.get("required") is True,
            strip_text(body_node.entries.get("description")),
        )
    unique: dict[tuple[str, str], OperationParameter] = {}
    for parameter_node in parameters:
        parameter = _build_parameter(documents, parameter_node)
        if parameter is not None:
            unique[parameter.plan.location, parameter.plan.name] = parameter
    return Operation(
        method,
        path,
        strip_text(entries.get("operationId")),
        strip_text(entries.get("summary")) or strip_text(item.entries.get("summary")),
        strip_text(entries.get("description")) or strip_text(item.entries.get("description")),
        entries.get("deprecated") is True,
        tuple(unique.values()),
        body if body is not None and body.content else None,
        entries.get("servers") or item.entries.get("servers"),
        entries.get("security", documents.root.entries.get("security")),
    )


def _build_parameter(documents: ApiDocuments, node: DocumentNode) -> OperationParameter | None:
    entries = node.entries
    name = entries.get("name")
    location = entries.get("in")
    if (
        not isinstance(name, str)
        or not name
        or location not in ("path", "query", "header", "cookie")
    ):
        return None
    if location == "header" and (
        name.lower() in IGNORED_HEADERS | FORBIDDEN_HEADERS or not _TOKEN.fullmatch(name)
    ):
        return None
    schema = node.with_value(entries.get("schema", {}))
    is_json = False
    content = node.with_value(entries.get("content"))
    for kind, entry in content.entries.items():
        media = documents.resolve(content.with_value(entry))
        schema = media.with_value(media.entries.get("schema", {}))
        is_json = "json" in str(kind)
        break
    style = entries.get("style")
    if not isinstance(style, str):
        style = "simple" if location in ("path", "header") else "form"
    explode = entries.get("explode")
    plan = ParameterPlan(
        "",
        name,
        location,
        style,
        # deepObject has no other form, but authors forget to set it.
        explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        required=entries.get("required") is True or location == "path",
        allow_reserved=entries.get("allowReserved") is True,
        is_json=is_json,
        keeps_slashes=entries.get("x-multi-segment") is True,
    )
    return OperationParameter(plan, schema, strip_text(entries.get("description")))


def strip_text(value: Any) -> str:
    """Return a text without white space around it; empty for other values."""
    return to_text(value).strip()


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
    required = to_list(entries.get("required"))
    found.required |= dict.fromkeys(name for name in required if isinstance(name, str))
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
    return all(
        isinstance(alternative, dict) and set(cast(Raw, alternative)) <= {"required"}
        for alternative in to_list(alternatives)
    )
