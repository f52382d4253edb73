"""Builds a tool definition and a request plan from an operation. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.json_text.json_codec import to_object
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import ApiDocuments, DocumentNode
from portico.upstream.backends.openapi.names import (
    NameAllocator,
    clip_text,
    make_argument_name,
    make_tool_name,
)
from portico.upstream.backends.openapi.operations import (
    FORM,
    JSON,
    MULTIPART,
    Operation,
    OperationParameter,
    collect_body_fields,
)
from portico.upstream.backends.openapi.request_encoding import (
    BodyFormat,
    BodyPlan,
    FieldPlan,
    ParameterPlan,
    RequestPlan,
)
from portico.upstream.backends.openapi.schemas import SchemaFragment, SchemaTranslator

DESCRIPTION_CHARS = 1_000
PATH_CHARS = 500
ARGUMENT_CHARS = 500
TITLE_CHARS = 80
_LOCATIONS = ("path", "query", "header", "cookie")
_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}
FILE_SCHEMA: Raw = {
    "anyOf": [
        {"type": "string", "description": "Text."},
        {
            "type": "object",
            "properties": {
                "base64": {
                    "type": "string",
                    "contentEncoding": "base64",
                    "description": "Binary content.",
                },
                "text": {"type": "string"},
                "filename": {"type": "string"},
                "media_type": {"type": "string"},
            },
            "additionalProperties": False,
        },
    ]
}
"""Schema of a file argument: a text, or an object with content, name and type."""


@dataclass(frozen=True)
class ConfiguredParameters:
    """Headers and query parameters that the configuration sets on every request."""

    headers: Collection[str]
    """Names in lower case."""
    query: Collection[str]

    def has(self, parameter: OperationParameter) -> bool:
        plan = parameter.plan
        if plan.location == "header":
            return plan.name.lower() in self.headers
        return plan.location == "query" and plan.name in self.query


class ToolBuilder:
    def __init__(
        self,
        documents: ApiDocuments,
        configured: ConfiguredParameters,
        cpu_deadline: float = math.inf,
    ) -> None:
        """`cpu_deadline` is the CPU time of this thread at which translation is aborted."""
        self._documents = documents
        self._schemas = SchemaTranslator(documents, cpu_deadline)
        self._configured = configured
        self._names = NameAllocator()

    def build(
        self, operation: Operation, server: str, required_credentials: tuple[str, ...]
    ) -> tuple[Raw, RequestPlan]:
        name = self._names.allocate(make_tool_name(operation.id, operation.method, operation.path))
        arguments = _ArgumentBuilder(self._schemas)
        parameter_plans = tuple(
            arguments.add_parameter(parameter)
            for location in _LOCATIONS
            for parameter in operation.parameters
            if parameter.plan.location == location and not self._configured.has(parameter)
        )
        body = self._plan_body(operation, arguments)
        definition: Raw = {
            "name": name,
            "description": _compose_description(operation),
            "inputSchema": arguments.build_schema(),
            "annotations": derive_annotations(operation.method),
        }
        if operation.summary:
            definition["title"] = clip_text(operation.summary, TITLE_CHARS)
        return definition, RequestPlan(
            name,
            operation.method,
            operation.path,
            server,
            parameter_plans,
            body,
            required_credentials=required_credentials,
        )

    def _plan_body(self, operation: Operation, arguments: "_ArgumentBuilder") -> BodyPlan | None:
        request_body = operation.body
        if request_body is None:
            return None
        required = request_body.required
        kind = choose_media_type(list(request_body.content))
        media = request_body.content[kind]
        schema = media.with_value(media.entries.get("schema", {}))
        body_format, media_type = _choose_format(kind, self._documents.resolve(schema))
        body_fields = None
        if body_format != "raw":
            body_fields = collect_body_fields(self._documents, schema)
        encoding = media.with_value(media.entries.get("encoding")).entries
        if body_fields is not None:
            shown = {
                name: node
                for name, node in body_fields.properties.items()
                if not self._schemas.is_read_only(node)
            }
            if not any(make_argument_name(name) in arguments for name in shown):
                fields = tuple(
                    arguments.add_field(
                        self._plan_field(name, node, encoding, body_format),
                        node,
                        required=required and name in body_fields.required,
                    )
                    for name, node in shown.items()
                )
                return BodyPlan(media_type, body_format, required, fields=fields)
        inner: tuple[FieldPlan, ...] = ()
        if body_fields is not None and body_format in ("form", "multipart"):
            inner = tuple(
                self._plan_field(name, node, encoding, body_format)
                for name, node in body_fields.properties.items()
            )
        is_text = _is_text(kind)
        if body_format == "raw" and is_text:
            # The schema describes the meaning of the text, not its form.
            schema = media.with_value(
                {"type": "string", "description": f"The whole body, as {kind}."}
            )
        argument = arguments.add_whole_body(
            schema,
            request_body.description,
            required=required,
            file=body_format == "raw" and not is_text,
        )
        return BodyPlan(media_type, body_format, required, argument, inner)

    def _plan_field(
        self, name: str, node: DocumentNode, encoding: Mapping[str, Any], body_format: BodyFormat
    ) -> FieldPlan:
        entry = node.with_value(encoding.get(name)).entries
        content_type = entry.get("contentType")
        media_type = ""
        if isinstance(content_type, str) and "*" not in content_type:
            media_type = content_type.partition(",")[0].strip()
        style = str(entry.get("style", "form"))
        separator = ""
        if entry.get("explode", True) is False:
            separator = _SEPARATORS.get(style, ",")
        return FieldPlan(
            make_argument_name(name),
            name,
            is_file=body_format == "multipart" and self._is_file(node),
            media_type=media_type,
            uses_brackets=style == "deepObject",
            separator=separator,
        )

    def _is_file(self, node: DocumentNode) -> bool:
        entry = self._documents.resolve(node)
        if entry.entries.get("type") == "array":
            entry = self._documents.resolve(entry.with_value(entry.entries.get("items")))
        entries = entry.entries
        return (
            entries.get("format") in ("binary", "byte")
            or entries.get("type") == "file"
            or "contentMediaType" in entries
        )


class _ArgumentBuilder:
    def __init__(self, schemas: SchemaTranslator) -> None:
        self._schemas = schemas
        self._names = NameAllocator()
        self._properties: Raw = {}
        self._required: list[str] = []
        self._fragments: list[SchemaFragment] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add_parameter(self, parameter: OperationParameter) -> ParameterPlan:
        plan = parameter.plan
        name = make_argument_name(plan.name)
        if name in self._names:
            name = f"{name}_{plan.location}"
        argument = self._add_argument(
            name, parameter.schema, parameter.description, required=plan.required
        )
        return replace(plan, argument=argument)

    def add_field(self, field: FieldPlan, node: DocumentNode, *, required: bool) -> FieldPlan:
        argument = self._add_argument(
            field.argument, node, "", required=required, file=field.is_file
        )
        return replace(field, argument=argument)

    def add_whole_body(
        self, node: DocumentNode, description: str, *, required: bool, file: bool
    ) -> str:
        return self._add_argument("body", node, description, required=required, file=file)

    def build_schema(self) -> Raw:
        schema: Raw = {"type": "object", "properties": self._properties}
        if self._required:
            schema["required"] = self._required
        schema["additionalProperties"] = False
        if definitions := self._schemas.collect_definitions(self._fragments):
            schema["$defs"] = definitions
        return schema

    def _add_argument(
        self,
        wanted: str,
        node: DocumentNode,
        description: str,
        *,
        required: bool,
        file: bool = False,
    ) -> str:
        argument = self._names.allocate(wanted)
        fragment = self._schemas.translate(node)
        schema: Any = to_object(fragment.schema)
        if file:
            file_schema = dict(FILE_SCHEMA)
            if schema.get("type") == "array":
                file_schema = {"type": "array", "items": FILE_SCHEMA}
            if "description" in schema:
                file_schema["description"] = schema["description"]
            schema = file_schema
        else:
            self._fragments.append(fragment)
        if description:
            schema = {**schema, "description": clip_text(description, ARGUMENT_CHARS)}
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        return argument


def derive_annotations(method: str) -> Raw:
    """Return the annotations that an HTTP method implies; POST and PATCH imply nothing."""
    hints: Raw = {"readOnlyHint": False, "openWorldHint": True}
    if method in ("GET", "HEAD", "OPTIONS", "QUERY", "TRACE"):
        hints |= {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}
    if method == "DELETE":
        hints["destructiveHint"] = True
    if method in ("PUT", "DELETE"):
        hints["idempotentHint"] = True
    return hints


def choose_media_type(media_types: list[str]) -> str:
    """Return the media type to send, of those an operation accepts."""

    def rank(kind: str) -> int:
        bare = kind.partition(";")[0].strip().lower()
        order = (JSON, "application/merge-patch+json")
        if bare in order:
            return order.index(bare)
        if bare.endswith(("+json", "/json")):
            if "json-patch" in bare:
                return 3
            return 2
        return {MULTIPART: 4, FORM: 5, "*/*": 6}.get(bare, 8 if bare.startswith("text/") else 7)

    return min(media_types, key=rank)


def _choose_format(kind: str, schema: DocumentNode) -> tuple[BodyFormat, str]:
    bare = kind.partition(";")[0].strip().lower()
    if bare.endswith(("+json", "/json")):
        return "json", kind
    if bare in (FORM, MULTIPART):
        return ("form" if bare == FORM else "multipart"), bare
    if "*" in bare:
        if schema.entries.get("type") == "string":
            return "raw", "application/octet-stream"
        return "json", JSON
    return "raw", kind


def _is_text(kind: str) -> bool:
    bare = kind.partition(";")[0].strip().lower()
    return bare.startswith("text/") or bare.endswith(
        ("xml", "yaml", "javascript", "graphql", "ndjson", "jsonl", "csv")
    )


def _compose_description(operation: Operation) -> str:
    summary = clip_text(operation.summary, 300)
    text = clip_text(operation.description, DESCRIPTION_CHARS)
    if text.lower().startswith(summary.lower().rstrip(".")):
        summary = ""
    if summary and summary[-1] not in ".!?:":
        summary += "."
    request_line = f"{operation.method} {operation.path[:PATH_CHARS]}"
    if operation.deprecated:
        request_line = f"Deprecated. {request_line}"
    return "\n\n".join(part for part in (summary, text, request_line) if part)
