"""Loads a description into an `ApiDescription`: its tools, and the request plan of each.

Runs in a thread: a large description takes a second or two.
"""

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
"""Bytes of all tools: a small description can refer to a large schema from each operation."""
MAX_CPU_S = 60.0
_PIECE_BYTES = 2**17
_TITLE_CHARS = 200
_NOTE_CHARS = 300
_INSTRUCTIONS_CHARS = 1_000


@dataclass(frozen=True)
class ApiDescription:
    """The loaded form of a description: some kilobytes per operation, compressed."""

    title: str
    version: str
    instructions: str
    server: str
    """Base URL of the API; credentials go to its origin only."""
    plans: Mapping[str, RequestPlan]
    compressed_definitions: tuple[bytes, ...]
    """Compressed lists of tools; in pieces, so that decoding does not block other threads long."""
    change_markers: Mapping[str, object]
    digest: str
    warnings: tuple[str, ...] = ()

    def load_definitions(self) -> list[Raw]:
        """Return the tool definitions."""
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
    """Read a description; return `previous` if nothing has changed.

    Raises DescriptionTooLarge above `max_bytes`, and BackendUnavailable if it is invalid.
    """
    with DescriptionReader(source, max_bytes) as reader:
        data = reader.read_root()
        if (
            previous is not None
            and previous.digest == compute_digest(data)
            and len(previous.change_markers) == 1
        ):
            return previous
        reader.check_size()
        try:
            documents = ApiDocuments(source.uri, parse_document(data), reader.read_part)
            api = _build_description(documents, source, configured, reader, compute_digest(data))
            # Checked again: raised while a reference is resolved, it only makes that one dangling.
            reader.check_size()
            return api
        except ValueError as error:
            reader.check_size()
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
    schemes = describe_security_schemes(documents)
    size = 0
    cpu_deadline = time.thread_time() + MAX_CPU_S
    tools = ToolBuilder(documents, configured, cpu_deadline)
    plans: dict[str, RequestPlan] = {}
    definitions: list[bytes] = []
    other_hosts: set[str] = set()
    for operation in read_operations(documents):
        if len(plans) >= MAX_TOOLS or size > MAX_DEFINITIONS_BYTES:
            break
        if time.thread_time() > cpu_deadline:
            raise TranslationTimeout
        own_server = ""
        if source.base_url is None:
            own_server = find_server_url(operation.servers, root.base)
        if own_server and parse_origin(own_server) != parse_origin(server):
            other_hosts.add(redact_url(own_server))
        definition, plan = tools.build(
            operation,
            own_server or server,
            describe_required_credentials(operation.security, schemes),
        )
        definitions.append(json_codec.dumps(definition))
        size += len(definitions[-1])
        plans[plan.name] = plan
    if not plans:
        raise ValueError("it has no operations")
    warnings = _collect_warnings(documents, other_hosts, len(plans), size)
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
        tuple(warning[:_NOTE_CHARS] for warning in warnings),
    )


def _find_server(documents: ApiDocuments, source: DescriptionSource) -> str:
    root = documents.root
    if source.base_url is not None:
        return source.base_url.rstrip("/")
    if swagger.is_swagger(root):
        servers = swagger.convert_servers(root.entries, root.base)
    else:
        servers = root.entries.get("servers") or [{"url": "/"}]
    server = find_server_url(servers, root.base)
    if not server:
        error = BackendUnavailable(
            f"{source.display_location} does not say where the API is",
            advice=f"Give the server {source.name} a `base_url`, "
            "such as https://api.example.com/v1.",
        )
        error.retryable = False
        raise error
    return server


def _compress_definitions(definitions: list[bytes]) -> tuple[bytes, ...]:
    pieces: list[bytes] = []
    batch: list[bytes] = []
    size = 0
    for definition in definitions:
        batch.append(definition)
        size += len(definition)
        if size > _PIECE_BYTES:
            pieces.append(zlib.compress(b"[%b]" % b",".join(batch), 1))
            batch = []
            size = 0
    if batch:
        pieces.append(zlib.compress(b"[%b]" % b",".join(batch), 1))
    return tuple(pieces)


def _collect_warnings(
    documents: ApiDocuments, elsewhere: set[str], count: int, size: int
) -> list[str]:
    warnings: list[str] = []
    if documents.dangling_references:
        ref, reason = next(iter(documents.dangling_references.items()))
        count_text = f"{len(documents.dangling_references)} references lead nowhere"
        warnings.append(f"{count_text}, such as {format_reference(ref)}: {reason}")
    if elsewhere:
        hosts = ", ".join(sorted(elsewhere)[:5])
        warnings.append(f"some operations are on other hosts and are not called: {hosts}")
    if count >= MAX_TOOLS or size > MAX_DEFINITIONS_BYTES:
        warnings.append(
            f"only its first {count} operations are tools: "
            "there may be more, but the whole is too large"
        )
    return warnings


def format_reference(address: str) -> str:
    """Return a reference that may be shown: file name and fragment only."""
    document, _, place = address.partition("#")
    return f"{document.rpartition('/')[2].partition('?')[0]}#{place}"


def _strip_text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ""
