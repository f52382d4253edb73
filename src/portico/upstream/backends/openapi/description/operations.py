"""Reads the operations of a description, in one shape for OpenAPI 3.0–3.2 and Swagger 2.0."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description import swagger
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode
from portico.upstream.backends.openapi.request_plans import ParameterLocation

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
    """One parameter."""

    name: str
    location: ParameterLocation
    schema: DocumentNode
    required: bool
    description: str
    style: str
    explode: bool
    allow_reserved: bool
    is_json: bool
    keeps_slashes: bool


@dataclass(frozen=True, slots=True)
class RequestBody:
    """Accepted media types, each with its entry (`schema`, `encoding`)."""

    content: dict[str, DocumentNode]
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

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
    """Yield every operation of a description, in its order."""
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
    additional = item.entries.get("additionalOperations")
    if isinstance(additional, dict):
        named = ((str(name).upper(), entry) for name, entry in cast(Raw, additional).items())
        yield from ((method, entry) for method, entry in named if _METHOD.fullmatch(method))


def _build_operation(
    documents: ApiDocuments, method: str, path: str, item: DocumentNode, node: DocumentNode
) -> Operation:
    entries = node.entries
    parameters = [
        documents.resolve(owner.with_value(parameter))
        for owner in (item, node)
        for parameter in _get_list(owner, "parameters")
    ]
    if swagger.is_swagger(documents.root):
        consumes = entries.get("consumes", documents.root.entries.get("consumes"))
        body_node = swagger.convert_request_body(parameters, consumes)
        parameters = [
            parameter.with_value(swagger.convert_parameter(parameter.entries))
            for parameter in parameters
            if swagger.is_parameter(parameter)
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
            _strip_text(body_node.entries.get("description")),
        )
    unique: dict[tuple[str, str], OperationParameter] = {}
    for parameter_node in parameters:
        parameter = _build_parameter(documents, parameter_node)
        if parameter is not None:
            unique[parameter.location, parameter.name] = parameter
    return Operation(
        method,
        path,
        _strip_text(entries.get("operationId")),
        _strip_text(entries.get("summary")) or _strip_text(item.entries.get("summary")),
        _strip_text(entries.get("description")) or _strip_text(item.entries.get("description")),
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
    return OperationParameter(
        name,
        location,
        schema,
        entries.get("required") is True or location == "path",
        _strip_text(entries.get("description")),
        style,
        # deepObject has no other form, but authors forget to set it.
        explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        entries.get("allowReserved") is True,
        is_json,
        entries.get("x-multi-segment") is True,
    )


def _get_list(node: DocumentNode, key: str) -> list[Any]:
    items = node.entries.get(key)
    if isinstance(items, list):
        return cast("list[Any]", items)
    return []


def _strip_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ""
