"""An operation → a tool's definition, and the plan of its call. Pure over the documents."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description.body_fields import collect_body_fields
from portico.upstream.backends.openapi.description.documents import ApiDocuments, DocumentNode
from portico.upstream.backends.openapi.description.names import (
    NameAllocator,
    clip_text,
    make_argument_name,
    make_tool_name,
)
from portico.upstream.backends.openapi.description.operations import Operation, OperationParameter
from portico.upstream.backends.openapi.description.schemas import SchemaFragment, SchemaTranslator
from portico.upstream.backends.openapi.request_plans import (
    BodyFormat,
    BodyPlan,
    FieldPlan,
    ParameterPlan,
    RequestPlan,
)

DESCRIPTION_CHARS = 1_000
PATH_CHARS = 500
ARGUMENT_CHARS = 500
TITLE_CHARS = 80
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
JSON = "application/json"
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
"""What a file is as an argument: a text, or an object that says more."""


@dataclass(frozen=True)
class ConfiguredParameters:
    """What the configuration gives to every request, so that no caller has to."""

    headers: Collection[str]
    """Lower case."""
    query: Collection[str]

    def has(self, parameter: OperationParameter) -> bool:
        """Whether a parameter is given already."""
        if parameter.location == "header":
            return parameter.name.lower() in self.headers
        return parameter.location == "query" and parameter.name in self.query


class ToolBuilder:
    """Makes the tools of one description."""

    def __init__(
        self,
        documents: ApiDocuments,
        configured: ConfiguredParameters,
        cpu_deadline: float = math.inf,
    ) -> None:
        """`until` is the CPU time of this thread from which on it is given up."""
        self._documents = documents
        self._schemas = SchemaTranslator(documents, cpu_deadline)
        self._configured = configured
        self._names = NameAllocator()

    def build(
        self, operation: Operation, server: str, required_credentials: tuple[str, ...]
    ) -> tuple[Raw, RequestPlan]:
        """The definition of an operation, and its plan."""
        name = self._names.allocate(make_tool_name(operation.id, operation.method, operation.path))
        arguments = _ArgumentBuilder(self._schemas)
        slots = tuple(
            arguments.add_parameter(parameter)
            for place in _LOCATIONS
            for parameter in operation.parameters
            if parameter.location == place and not self._configured.has(parameter)
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
            slots,
            body,
            required_credentials=required_credentials,
        )

    def _plan_body(self, operation: Operation, arguments: "_ArgumentBuilder") -> BodyPlan | None:
        given = operation.body
        if given is None:
            return None
        kind = choose_media_type(list(given.content))
        media = given.content[kind]
        schema = media.with_value(media.entries.get("schema", {}))
        shape, media_type = _choose_format(kind, self._documents.resolve(schema))
        if shape != "raw":
            found = collect_body_fields(self._documents, schema)
        else:
            found = None
        encoding = media.with_value(media.entries.get("encoding")).entries
        if found is not None:
            shown = {
                name: node
                for name, node in found.properties.items()
                if not self._schemas.is_read_only(node)
            }
            if not any(make_argument_name(name) in arguments for name in shown):
                if given.required:
                    required = set(found.required)
                else:
                    required = set[str]()
                parts = tuple(
                    arguments.add_field(
                        self._plan_field(name, node, encoding, shape),
                        node,
                        required=name in required,
                    )
                    for name, node in shown.items()
                )
                return BodyPlan(media_type, shape, given.required, fields=parts)
        inner: tuple[FieldPlan, ...] = ()
        if found is not None and shape in ("form", "multipart"):
            inner = tuple(
                self._plan_field(name, node, encoding, shape)
                for name, node in found.properties.items()
            )
        if shape == "raw" and _is_text(kind):
            # The schema says what the text means, not what it looks like.
            schema = media.with_value(
                {"type": "string", "description": f"The whole body, as {kind}."}
            )
        file = shape == "raw" and not _is_text(kind)
        argument = arguments.add_whole_body(
            schema, given.description, required=given.required, file=file
        )
        return BodyPlan(media_type, shape, given.required, argument, inner)

    def _plan_field(
        self, name: str, node: DocumentNode, encoding: Mapping[str, Any], body_format: BodyFormat
    ) -> FieldPlan:
        if isinstance(encoding.get(name), dict):
            entry = cast(Raw, encoding.get(name))
        else:
            entry = {}
        kind = entry.get("contentType")
        style = str(entry.get("style", "form"))
        return FieldPlan(
            make_argument_name(name),
            name,
            is_file=body_format == "multipart" and self._is_file(node),
            media_type=kind.partition(",")[0].strip()
            if isinstance(kind, str) and "*" not in kind
            else "",
            uses_brackets=style == "deepObject",
            separator=""
            if entry.get("explode", True) is not False
            else _SEPARATORS.get(style, ","),
        )

    def _is_file(self, node: DocumentNode) -> bool:
        entry = self._documents.resolve(node)
        if entry.entries.get("type") == "array":
            entry = self._documents.resolve(entry.with_value(entry.entries.get("items")))
        given = entry.entries
        return (
            given.get("format") in ("binary", "byte")
            or given.get("type") == "file"
            or "contentMediaType" in given
        )


class _ArgumentBuilder:
    """The arguments of one tool."""

    def __init__(self, schemas: SchemaTranslator) -> None:
        self._schemas = schemas
        self._names = NameAllocator()
        self._properties: Raw = {}
        self._required: list[str] = []
        self._fragments: list[SchemaFragment] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add_parameter(self, parameter: OperationParameter) -> ParameterPlan:
        wanted = make_argument_name(parameter.name)
        if wanted in self._names:
            wanted = f"{wanted}_{parameter.location}"
        argument = self._add_argument(
            wanted, parameter.schema, parameter.description, required=parameter.required
        )
        return ParameterPlan(
            argument,
            parameter.name,
            parameter.location,
            parameter.style,
            parameter.explode,
            parameter.required,
            parameter.allow_reserved,
            parameter.is_json,
            parameter.keeps_slashes,
        )

    def add_field(self, field: FieldPlan, node: DocumentNode, *, required: bool) -> FieldPlan:
        argument = self._add_argument(
            field.argument, node, "", required=required, file=field.is_file
        )
        return FieldPlan(
            argument,
            field.name,
            field.is_file,
            field.media_type,
            field.uses_brackets,
            field.separator,
        )

    def add_whole_body(
        self, node: DocumentNode, description: str, *, required: bool, file: bool
    ) -> str:
        return self._add_argument("body", node, description, required=required, file=file)

    def build_schema(self) -> Raw:
        found: Raw = {"type": "object", "properties": self._properties}
        if self._required:
            found["required"] = self._required
        found["additionalProperties"] = False
        if definitions := self._schemas.collect_definitions(self._fragments):
            found["$defs"] = definitions
        return found

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
        if isinstance(fragment.schema, dict):
            schema: Any = fragment.schema
        else:
            schema = {}
        if file:
            several = schema.get("type") == "array"
            described = {key: schema[key] for key in ("description",) if key in schema}
            schema = {
                **({"type": "array", "items": FILE_SCHEMA} if several else FILE_SCHEMA),
                **described,
            }
        else:
            self._fragments.append(fragment)
        if description:
            schema = {**schema, "description": clip_text(description, ARGUMENT_CHARS)}
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        return argument


def derive_annotations(method: str) -> Raw:
    """What a method promises about its operations. POST and PATCH promise nothing."""
    if method in ("GET", "HEAD", "OPTIONS", "QUERY", "TRACE"):
        return {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": True,
        }
    hints: Raw = {"readOnlyHint": False, "openWorldHint": True}
    if method == "DELETE":
        hints["destructiveHint"] = True
    if method in ("PUT", "DELETE"):
        hints["idempotentHint"] = True
    return hints


def choose_media_type(media_types: list[str]) -> str:
    """The media type that is sent, of those an operation takes."""

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
        text = schema.entries.get("type") == "string"
        if text:
            return ("raw", "application/octet-stream")
        return ("json", JSON)
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
    ends = f"{'Deprecated. ' if operation.deprecated else ''}{operation.method} {operation.path[:PATH_CHARS]}"
    return "\n\n".join(part for part in (summary, text, ends) if part)
