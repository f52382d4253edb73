"""Converts Swagger 2.0 to OpenAPI 3: parameters, bodies, servers and security. Pure.

Schemas and references stay unchanged: `#/definitions/Pet` means the same in both versions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.documents import DocumentNode

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


def is_swagger(root: DocumentNode) -> bool:
    """Return whether a description is Swagger 2.0."""
    return "swagger" in root.entries and "openapi" not in root.entries


def is_parameter(node: DocumentNode) -> bool:
    """Return whether it is not part of the body, which 2.0 lists among the parameters."""
    return node.entries.get("in") not in ("body", "formData")


def convert_parameter(given: Mapping[str, Any]) -> Raw:
    """Return a parameter with `schema`, `style` and `explode`."""
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
    """Return the body that an operation's parameters describe, or None."""
    kinds: list[str] = []
    if isinstance(consumes, list):
        kinds = [kind for kind in cast("list[Any]", consumes) if isinstance(kind, str)]
    # Parameters of an operation follow those of its path, and override them.
    for node in reversed(parameters):
        if node.entries.get("in") == "body":
            attributes = _convert_body_attributes(node.entries)
            entry = {"schema": node.entries.get("schema", {})}
            content: Raw = dict.fromkeys(kinds or [JSON], entry)
            return node.with_value({**attributes, "content": content})
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
    host = root.get("host")
    if not isinstance(host, str):
        host = ""
    if not host and not own_scheme.startswith("http"):
        return []
    listed = root.get("schemes")
    schemes: list[Any] = []
    if isinstance(listed, list):
        schemes = [scheme for scheme in cast("list[Any]", listed) if scheme in ("http", "https")]
    if "https" in schemes:
        scheme = "https"
    elif schemes:
        scheme = schemes[0]
    elif own_scheme.startswith("http"):
        scheme = own_scheme
    else:
        scheme = "https"
    path = root.get("basePath")
    if not isinstance(path, str):
        path = ""
    host = host or rest.partition("/")[0]
    return [{"url": f"{scheme}://{host}/{path.strip('/')}".rstrip("/")}]


def convert_security_scheme(given: Mapping[str, Any]) -> Raw:
    """Convert a `securityDefinitions` entry to OpenAPI 3."""
    if given.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return dict(given)


def _convert_body_attributes(given: Mapping[str, Any]) -> Raw:
    return {"required": given.get("required") is True, "description": given.get("description", "")}


def _convert_schema(given: Mapping[str, Any]) -> Raw:
    schema = {key: given[key] for key in _SCHEMA_KEYS if key in given}
    if given.get("type") == "file":
        schema |= {"type": "string", "format": "binary"}
    return schema


def _convert_encoding(given: Mapping[str, Any]) -> Raw:
    style, explode = _STYLES.get(str(given.get("collectionFormat", "csv")), ("form", False))
    return {"style": style, "explode": explode}
