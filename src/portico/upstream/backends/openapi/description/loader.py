"""A description → an `Api`: its tools, and how each is called. Runs in a thread: a large one takes
a second or two."""

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portico.errors import BackendUnavailable
from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.description import swagger
from portico.upstream.backends.openapi.description.documents import ApiDocuments
from portico.upstream.backends.openapi.description.names import clip_text
from portico.upstream.backends.openapi.description.operations import read_operations
from portico.upstream.backends.openapi.description.parser import parse_document
from portico.upstream.backends.openapi.description.reader import (
    MAX_BYTES,
    DescriptionReader,
    DescriptionSource,
    compute_digest,
)
from portico.upstream.backends.openapi.description.schemas import TranslationTimeout
from portico.upstream.backends.openapi.description.security_schemes import (
    describe_required_credentials,
    describe_security_schemes,
)
from portico.upstream.backends.openapi.description.tools import ConfiguredParameters, ToolBuilder
from portico.upstream.backends.openapi.request_plans import RequestPlan
from portico.upstream.backends.openapi.urls import find_server_url, parse_origin
from portico.upstream.transports.http_headers import redact_url

MAX_TOOLS = 20_000
MAX_DEFINITIONS_BYTES = 64 * 2**20
"""Bytes of all tools together: a small description can refer to one large schema from every
operation."""
MAX_CPU_S = 60.0
_PIECE_BYTES = 2**17
_TITLE_CHARS = 200
_NOTE_CHARS = 300
_INSTRUCTIONS_CHARS = 1_000


@dataclass(frozen=True)
class ApiDescription:
    """What is kept of a description: some kilobytes for each of its operations, packed."""

    title: str
    version: str
    instructions: str
    server: str
    """Where the API is; credentials go to its origin and nowhere else."""
    plans: Mapping[str, RequestPlan]
    compressed_definitions: tuple[bytes, ...]
    """Lists of tools, compressed: pieces, so that reading them back holds no other thread up for
    long."""
    change_markers: Mapping[str, object]
    digest: str
    warnings: tuple[str, ...] = ()

    def load_definitions(self) -> list[Raw]:
        """The tools."""
        return [
            tool
            for piece in self.compressed_definitions
            for tool in json_codec.loads(zlib.decompress(piece))
        ]


def load_description(
    source: DescriptionSource,
    configured: ConfiguredParameters,
    previous: ApiDescription | None = None,
    max_bytes: int = MAX_BYTES,
) -> ApiDescription:
    """Read a description; `known` is given back where nothing has changed.

    Raises DescriptionTooLarge beyond `limit` bytes.
    """
    with DescriptionReader(source, max_bytes) as reading:
        data = reading.read_root()
        if (
            previous is not None
            and previous.digest == compute_digest(data)
            and len(previous.change_markers) == 1
        ):
            return previous
        reading.check_size()
        try:
            documents = ApiDocuments(source.uri, parse_document(data), reading.read_part)
            api = _build_description(documents, source, configured, reading, compute_digest(data))
            # Once more: what is raised while a reference is followed only makes it one that leads
            # nowhere.
            reading.check_size()
            return api
        except ValueError as error:
            reading.check_size()
            raise BackendUnavailable(
                f"{source.display_location} is no description of an API: {error}",
                advice="It has to be OpenAPI 3 or Swagger 2.0, as JSON or YAML.",
            ) from error


def _build_description(
    documents: ApiDocuments,
    source: DescriptionSource,
    configured: ConfiguredParameters,
    reader: DescriptionReader,
    content_digest: str,
) -> ApiDescription:
    root = documents.root
    version = root.entries.get("openapi", root.entries.get("swagger"))
    if not str(version).startswith(("2", "3")):
        raise ValueError("it says neither `openapi: 3…` nor `swagger: 2.0`")
    server = _find_server(documents, source)
    known = describe_security_schemes(documents)
    size = 0
    until = time.thread_time() + MAX_CPU_S
    tools = ToolBuilder(documents, configured, until)
    plans: dict[str, RequestPlan] = {}
    definitions: list[bytes] = []
    elsewhere: set[str] = set()
    for operation in read_operations(documents):
        if len(plans) >= MAX_TOOLS or size > MAX_DEFINITIONS_BYTES:
            break
        if time.thread_time() > until:
            raise TranslationTimeout
        if source.base_url is not None:
            own = ""
        else:
            own = find_server_url(operation.servers, root.base)
        if own and parse_origin(own) != parse_origin(server):
            elsewhere.add(redact_url(own))
        definition, plan = tools.build(
            operation, own or server, describe_required_credentials(operation.security, known)
        )
        definitions.append(json_codec.dumps(definition))
        size += len(definitions[-1])
        plans[plan.name] = plan
    if not plans:
        raise ValueError("it has no operations")
    info = root.with_value(root.entries.get("info")).entries
    return ApiDescription(
        clip_text(_strip_text(info.get("title")), _TITLE_CHARS),
        clip_text(_strip_text(info.get("version")), _TITLE_CHARS),
        clip_text(_strip_text(info.get("description")), _INSTRUCTIONS_CHARS),
        server,
        plans,
        _compress_definitions(definitions),
        dict(reader.change_markers),
        content_digest,
        tuple(
            note[:_NOTE_CHARS] for note in _collect_warnings(documents, elsewhere, len(plans), size)
        ),
    )


def _find_server(documents: ApiDocuments, source: DescriptionSource) -> str:
    root = documents.root
    if source.base_url is not None:
        return source.base_url.rstrip("/")
    old = swagger.is_swagger(root)
    if old:
        listed = swagger.convert_servers(root.entries, root.base)
    else:
        listed = root.entries.get("servers") or [{"url": "/"}]
    found = find_server_url(listed, root.base)
    if not found:
        error = BackendUnavailable(
            f"{source.display_location} does not say where the API is",
            advice=f"Give the server {source.name} a `base_url`, such as https://api.example.com/v1.",
        )
        error.retryable = False
        raise error
    return found


def _compress_definitions(definitions: list[bytes]) -> tuple[bytes, ...]:
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for definition in definitions:
        waiting.append(definition)
        size += len(definition)
        if size > _PIECE_BYTES:
            pieces.append(zlib.compress(b"[%b]" % b",".join(waiting), 1))
            waiting = []
            size = 0
    if waiting:
        pieces.append(zlib.compress(b"[%b]" % b",".join(waiting), 1))
    return tuple(pieces)


def _collect_warnings(
    documents: ApiDocuments, elsewhere: set[str], count: int, size: int
) -> list[str]:
    notes: list[str] = []
    if documents.dangling_references:
        ref, reason = next(iter(documents.dangling_references.items()))
        notes.append(
            f"{len(documents.dangling_references)} references lead nowhere, such as {format_reference(ref)}: {reason}"
        )
    if elsewhere:
        notes.append(
            f"some operations are on other hosts and are not called: {', '.join(sorted(elsewhere)[:5])}"
        )
    if count >= MAX_TOOLS or size > MAX_DEFINITIONS_BYTES:
        notes.append(
            f"only its first {count} operations are tools: there may be more, but the whole is too large"
        )
    return notes


def format_reference(address: str) -> str:
    """A reference as it may be shown."""
    document, _, place = address.partition("#")
    return f"{document.rpartition('/')[2].partition('?')[0]}#{place}"


def _strip_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ""
