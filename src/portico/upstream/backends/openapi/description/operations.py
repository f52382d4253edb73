"""A description → its operations, in one shape for OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0."""

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
"""OpenAPI says so: they have their own places in a description."""
FORBIDDEN_HEADERS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect",
     "proxy-authorization", "proxy-connection", "cookie")
)  # fmt: skip
"""A caller that could set these would speak to another server, or send two requests as one."""


_METHOD = re.compile(r"(?!CONNECT$)[A-Z]{1,20}")
"""CONNECT would ask for a tunnel to some other place."""
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
    """What may be sent: media type → its entry, with `schema` and `encoding`."""

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
    """Its own, or its path's; None where it has the document's."""
    security: Any


def read_operations(documents: ApiDocuments) -> Iterator[Operation]:
    """Every operation of a description, in its order."""
    paths = documents.resolve(documents.root.with_value(documents.root.entries.get("paths")))
    for path, item in paths.entries.items():
        if not str(path).startswith("/"):
            continue
        shared = documents.resolve(paths.with_value(item))
        for method, entry in _iterate_methods(shared):
            if isinstance(entry, dict):
                yield _build_operation(
                    documents,
                    method,
                    str(path),
                    shared,
                    documents.resolve(shared.with_value(entry)),
                )


def _iterate_methods(item: DocumentNode) -> Iterator[tuple[str, Any]]:
    yield from (
        (method.upper(), item.entries[method]) for method in METHODS if method in item.entries
    )
    more = item.entries.get("additionalOperations")
    if isinstance(more, dict):
        named = ((str(name).upper(), entry) for name, entry in cast(Raw, more).items())
        yield from ((method, entry) for method, entry in named if _METHOD.fullmatch(method))


def _build_operation(
    documents: ApiDocuments, method: str, path: str, item: DocumentNode, node: DocumentNode
) -> Operation:
    given = node.entries
    old = swagger.is_swagger(documents.root)
    listed = [
        documents.resolve(whose.with_value(one))
        for whose in (item, node)
        for one in _get_list(whose, "parameters")
    ]
    body = None
    if old:
        consumes = given.get("consumes", documents.root.entries.get("consumes"))
        made = swagger.convert_request_body(listed, consumes)
        listed = [
            one.with_value(swagger.convert_parameter(one.entries))
            for one in listed
            if swagger.is_parameter(one)
        ]
    else:
        wanted = documents.resolve(node.with_value(given.get("requestBody")))
        if isinstance(wanted.value, dict) and wanted.value:
            made = wanted
        else:
            made = None
    if made is not None:
        content = documents.resolve(made.with_value(made.entries.get("content")))
        body = RequestBody(
            {
                str(kind): documents.resolve(content.with_value(entry))
                for kind, entry in content.entries.items()
            },
            made.entries.get("required") is True,
            _strip_text(made.entries.get("description")),
        )
    unique = {
        (one.location, one.name): one
        for entry in listed
        if (one := _build_parameter(documents, entry)) is not None
    }
    return Operation(
        method,
        path,
        _strip_text(given.get("operationId")),
        _strip_text(given.get("summary")) or _strip_text(item.entries.get("summary")),
        _strip_text(given.get("description")) or _strip_text(item.entries.get("description")),
        given.get("deprecated") is True,
        tuple(unique.values()),
        body if body is not None and body.content else None,
        given.get("servers") or item.entries.get("servers"),
        given.get("security", documents.root.entries.get("security")),
    )


def _build_parameter(documents: ApiDocuments, node: DocumentNode) -> OperationParameter | None:
    given = node.entries
    name = given.get("name")
    place = given.get("in")
    if not isinstance(name, str) or not name or place not in ("path", "query", "header", "cookie"):
        return None
    if place == "header" and (
        name.lower() in IGNORED_HEADERS | FORBIDDEN_HEADERS or not _TOKEN.fullmatch(name)
    ):
        return None
    schema = node.with_value(given.get("schema", {}))
    as_json = False
    content = node.with_value(given.get("content"))
    for kind, entry in content.entries.items():
        media = documents.resolve(content.with_value(entry))
        schema = media.with_value(media.entries.get("schema", {}))
        as_json = "json" in str(kind)
        break
    style = given.get("style")
    if not isinstance(style, str):
        if place in ("path", "header"):
            style = "simple"
        else:
            style = "form"
    explode = given.get("explode")
    return OperationParameter(
        name,
        place,
        schema,
        given.get("required") is True or place == "path",
        _strip_text(given.get("description")),
        style,
        # deepObject has no other form; authors forget to say so.
        explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        given.get("allowReserved") is True,
        as_json,
        given.get("x-multi-segment") is True,
    )


def _get_list(node: DocumentNode, key: str) -> list[Any]:
    found = node.entries.get(key)
    if isinstance(found, list):
        return cast("list[Any]", found)
    return []


def _strip_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ""
