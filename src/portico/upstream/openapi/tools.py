"""An operation → a tool's definition, and the plan of its call. Pure over the documents."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.upstream.backend import Raw
from portico.upstream.openapi.documents import Documents, Node
from portico.upstream.openapi.flattening import fields
from portico.upstream.openapi.names import Names, argument_name, clipped, tool_name
from portico.upstream.openapi.operations import Operation, Parameter
from portico.upstream.openapi.plans import Body, Part, Plan, Shape, Slot
from portico.upstream.openapi.schemas import Fragment, Schemas

DESCRIPTION_CHARS = 1_000
PATH_CHARS = 500
ARGUMENT_CHARS = 500
TITLE_CHARS = 80
FORM, MULTIPART, JSON = "application/x-www-form-urlencoded", "multipart/form-data", "application/json"
_PLACES = ("path", "query", "header", "cookie")
_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}
FILE: Raw = {
    "anyOf": [
        {"type": "string", "description": "Text."},
        {
            "type": "object",
            "properties": {
                "base64": {"type": "string", "contentEncoding": "base64", "description": "Binary content."},
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
class Given:
    """What the configuration gives to every request, so that no caller has to."""

    headers: Collection[str]
    """Lower case."""
    query: Collection[str]

    def has(self, parameter: Parameter) -> bool:
        """Whether a parameter is given already."""
        if parameter.place == "header":
            return parameter.name.lower() in self.headers
        return parameter.place == "query" and parameter.name in self.query


class Tools:
    """Makes the tools of one description."""

    def __init__(self, documents: Documents, given: Given, until: float = math.inf) -> None:
        """`until` is the CPU time of this thread from which on it is given up."""
        self._documents = documents
        self._schemas = Schemas(documents, until)
        self._given = given
        self._names = Names()

    def tool(self, operation: Operation, server: str, security: tuple[str, ...]) -> tuple[Raw, Plan]:
        """The definition of an operation, and its plan."""
        name = self._names.take(tool_name(operation.id, operation.method, operation.path))
        arguments = _Arguments(self._schemas)
        slots = tuple(
            arguments.slot(parameter)
            for place in _PLACES
            for parameter in operation.parameters
            if parameter.place == place and not self._given.has(parameter)
        )
        body = self._body(operation, arguments)
        definition: Raw = {
            "name": name,
            "description": _description(operation),
            "inputSchema": arguments.schema(),
            "annotations": annotations(operation.method),
        }
        if operation.summary:
            definition["title"] = clipped(operation.summary, TITLE_CHARS)
        return definition, Plan(name, operation.method, operation.path, server, slots, body, security=security)

    def _body(self, operation: Operation, arguments: "_Arguments") -> Body | None:
        given = operation.body
        if given is None:
            return None
        kind = chosen(list(given.content))
        media = given.content[kind]
        schema = media.at(media.entries.get("schema", {}))
        shape, media_type = _shape(kind, self._documents.resolved(schema))
        found = fields(self._documents, schema) if shape != "raw" else None
        encoding = media.at(media.entries.get("encoding")).entries
        if found is not None:
            shown = {name: node for name, node in found.properties.items() if not self._schemas.is_hidden(node)}
            if not any(argument_name(name) in arguments for name in shown):
                required = set(found.required) if given.required else set[str]()
                parts = tuple(
                    arguments.part(self._part(name, node, encoding, shape), node, required=name in required)
                    for name, node in shown.items()
                )
                return Body(media_type, shape, given.required, parts=parts)
        inner: tuple[Part, ...] = ()
        if found is not None and shape in ("form", "multipart"):
            inner = tuple(self._part(name, node, encoding, shape) for name, node in found.properties.items())
        if shape == "raw" and _is_text(kind):
            # The schema says what the text means, not what it looks like.
            schema = media.at({"type": "string", "description": f"The whole body, as {kind}."})
        file = shape == "raw" and not _is_text(kind)
        argument = arguments.whole(schema, given.description, required=given.required, file=file)
        return Body(media_type, shape, given.required, argument, inner)

    def _part(self, name: str, node: Node, encoding: Mapping[str, Any], shape: Shape) -> Part:
        entry = cast(Raw, encoding.get(name)) if isinstance(encoding.get(name), dict) else {}
        kind = entry.get("contentType")
        style = str(entry.get("style", "form"))
        return Part(
            argument_name(name),
            name,
            file=shape == "multipart" and self._is_file(node),
            media_type=kind.partition(",")[0].strip() if isinstance(kind, str) and "*" not in kind else "",
            brackets=style == "deepObject",
            joined="" if entry.get("explode", True) is not False else _SEPARATORS.get(style, ","),
        )

    def _is_file(self, node: Node) -> bool:
        entry = self._documents.resolved(node)
        if entry.entries.get("type") == "array":
            entry = self._documents.resolved(entry.at(entry.entries.get("items")))
        given = entry.entries
        return given.get("format") in ("binary", "byte") or given.get("type") == "file" or "contentMediaType" in given


class _Arguments:
    """The arguments of one tool."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._names = Names()
        self._properties: Raw = {}
        self._required: list[str] = []
        self._fragments: list[Fragment] = []

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def slot(self, parameter: Parameter) -> Slot:
        wanted = argument_name(parameter.name)
        if wanted in self._names:
            wanted = f"{wanted}_{parameter.place}"
        argument = self._add(wanted, parameter.schema, parameter.description, required=parameter.required)
        return Slot(
            argument,
            parameter.name,
            parameter.place,
            parameter.style,
            parameter.explode,
            parameter.required,
            parameter.reserved,
            parameter.as_json,
            parameter.segments,
        )

    def part(self, part: Part, node: Node, *, required: bool) -> Part:
        argument = self._add(part.argument, node, "", required=required, file=part.file)
        return Part(argument, part.name, part.file, part.media_type, part.brackets, part.joined)

    def whole(self, node: Node, description: str, *, required: bool, file: bool) -> str:
        return self._add("body", node, description, required=required, file=file)

    def schema(self) -> Raw:
        found: Raw = {"type": "object", "properties": self._properties}
        if self._required:
            found["required"] = self._required
        found["additionalProperties"] = False
        if definitions := self._schemas.definitions(self._fragments):
            found["$defs"] = definitions
        return found

    def _add(self, wanted: str, node: Node, description: str, *, required: bool, file: bool = False) -> str:
        argument = self._names.take(wanted)
        fragment = self._schemas.fragment(node)
        schema: Any = fragment.schema if isinstance(fragment.schema, dict) else {}
        if file:
            several = schema.get("type") == "array"
            described = {key: schema[key] for key in ("description",) if key in schema}
            schema = {**({"type": "array", "items": FILE} if several else FILE), **described}
        else:
            self._fragments.append(fragment)
        if description:
            schema = {**schema, "description": clipped(description, ARGUMENT_CHARS)}
        self._properties[argument] = schema
        if required:
            self._required.append(argument)
        return argument


def annotations(method: str) -> Raw:
    """What a method promises about its operations. POST and PATCH promise nothing."""
    if method in ("GET", "HEAD", "OPTIONS", "QUERY", "TRACE"):
        return {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    hints: Raw = {"readOnlyHint": False, "openWorldHint": True}
    if method == "DELETE":
        hints["destructiveHint"] = True
    if method in ("PUT", "DELETE"):
        hints["idempotentHint"] = True
    return hints


def chosen(kinds: list[str]) -> str:
    """The media type that is sent, of those an operation takes."""

    def rank(kind: str) -> int:
        bare = kind.partition(";")[0].strip().lower()
        order = (JSON, "application/merge-patch+json")
        if bare in order:
            return order.index(bare)
        if bare.endswith(("+json", "/json")):
            return 3 if "json-patch" in bare else 2
        return {MULTIPART: 4, FORM: 5, "*/*": 6}.get(bare, 8 if bare.startswith("text/") else 7)

    return min(kinds, key=rank)


def _shape(kind: str, schema: Node) -> tuple[Shape, str]:
    bare = kind.partition(";")[0].strip().lower()
    if bare.endswith(("+json", "/json")):
        return "json", kind
    if bare in (FORM, MULTIPART):
        return ("form" if bare == FORM else "multipart"), bare
    if "*" in bare:
        text = schema.entries.get("type") == "string"
        return ("raw", "application/octet-stream") if text else ("json", JSON)
    return "raw", kind


def _is_text(kind: str) -> bool:
    bare = kind.partition(";")[0].strip().lower()
    return bare.startswith("text/") or bare.endswith(("xml", "yaml", "javascript", "graphql", "ndjson", "jsonl", "csv"))


def _description(operation: Operation) -> str:
    summary, text = clipped(operation.summary, 300), clipped(operation.description, DESCRIPTION_CHARS)
    if text.lower().startswith(summary.lower().rstrip(".")):
        summary = ""
    if summary and summary[-1] not in ".!?:":
        summary += "."
    ends = f"{'Deprecated. ' if operation.deprecated else ''}{operation.method} {operation.path[:PATH_CHARS]}"
    return "\n\n".join(part for part in (summary, text, ends) if part)
