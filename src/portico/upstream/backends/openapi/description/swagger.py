"""Swagger 2.0 → the words of OpenAPI 3: parameters, bodies, servers and security. Pure.

Schemas and references stay where they are: `#/definitions/Pet` means the same in either version.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.documents import DocumentNode

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
JSON = "application/json"
_SCHEMA_KEYS = frozenset(
    ("type", "format", "items", "default", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum",
     "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "multipleOf", "x-nullable",
     "example", "x-example", "properties", "additionalProperties", "$ref", "allOf")
)  # fmt: skip
_STYLES: Mapping[str, tuple[str, bool]] = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}


def is_swagger(root: DocumentNode) -> bool:
    """Whether a description is of the version before OpenAPI 3."""
    return "swagger" in root.entries and "openapi" not in root.entries


def is_parameter(node: DocumentNode) -> bool:
    """Whether it is no part of the body, which 2.0 lists among the parameters."""
    return node.entries.get("in") not in ("body", "formData")


def convert_parameter(given: Mapping[str, Any]) -> Raw:
    """A parameter with its `schema`, `style` and `explode`."""
    style, explode = _STYLES.get(str(given.get("collectionFormat", "csv")), ("form", False))
    if given.get("in") in ("path", "header") and style == "form":
        style = "simple"
    kept = {
        key: given[key]
        for key in ("name", "in", "required", "description", "x-multi-segment")
        if key in given
    }
    return {
        **kept,
        "schema": given.get("schema") or _convert_schema(given),
        "style": style,
        "explode": explode,
    }


def convert_request_body(parameters: Sequence[DocumentNode], consumes: Any) -> DocumentNode | None:
    """The body that the parameters of an operation make up; None where they make none."""
    if isinstance(consumes, list):
        kinds = [kind for kind in cast("list[Any]", consumes) if isinstance(kind, str)]
    else:
        kinds = []
    # What an operation says comes after what its path does, and wins.
    for node in reversed(parameters):
        if node.entries.get("in") == "body":
            given = node.entries
            entry = {"schema": given.get("schema", {})}
            return node.with_value(
                {
                    **_convert_body_attributes(given),
                    "content": dict.fromkeys(kinds or [JSON], entry),
                }
            )
    fields = {
        str(node.entries.get("name")): node
        for node in parameters
        if node.entries.get("in") == "formData"
    }
    if not fields:
        return None
    files = any(node.entries.get("type") == "file" for node in fields.values())
    wanted = [kind for kind in kinds if kind.partition(";")[0].strip() in (FORM, MULTIPART)]
    if files or (wanted and FORM not in wanted):
        kind = MULTIPART
    else:
        kind = FORM
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
    """`schemes`, `host` and `basePath` as servers; what is missing is the description's own."""
    own, _, rest = document_url.partition("://")
    if isinstance(root.get("host"), str):
        host = root.get("host")
    else:
        host = ""
    if not host and not own.startswith("http"):
        return []
    listed = root.get("schemes")
    if isinstance(listed, list):
        schemes = [s for s in cast("list[Any]", listed) if s in ("http", "https")]
    else:
        schemes = []
    if "https" in schemes:
        scheme = "https"
    elif schemes:
        scheme = schemes[0]
    elif own.startswith("http"):
        scheme = own
    else:
        scheme = "https"
    if isinstance(root.get("basePath"), str):
        path = root.get("basePath")
    else:
        path = ""
    return [
        {"url": f"{scheme}://{host or rest.partition('/')[0]}/{str(path).strip('/')}".rstrip("/")}
    ]


def convert_security_scheme(given: Mapping[str, Any]) -> Raw:
    """A `securityDefinitions` entry in the words of 3."""
    if given.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    return dict(given)


def _convert_body_attributes(given: Mapping[str, Any]) -> Raw:
    return {"required": given.get("required") is True, "description": given.get("description", "")}


def _convert_schema(given: Mapping[str, Any]) -> Raw:
    found = {key: given[key] for key in _SCHEMA_KEYS if key in given}
    if given.get("type") == "file":
        found |= {"type": "string", "format": "binary"}
    return found


def _convert_encoding(given: Mapping[str, Any]) -> Raw:
    style, explode = _STYLES.get(str(given.get("collectionFormat", "csv")), ("form", False))
    return {"style": style, "explode": explode}
