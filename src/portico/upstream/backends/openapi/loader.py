"""Loads a description into an `ApiDescription`: its tools, and the request plan of each.

Runs in a thread: a large description takes a second or two.
"""

import contextlib
import io
import os
import pickle  # both ends run this module, in the same version, as the same user
import subprocess
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO, cast

from portico.errors import BackendUnavailable
from portico.json_text import json_codec
from portico.json_text.json_codec import to_list
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.documents import (
    ApiDocuments,
    DocumentNode,
    parse_document,
)
from portico.upstream.backends.openapi.names import clip_text
from portico.upstream.backends.openapi.operations import (
    convert_security_scheme,
    convert_servers,
    is_swagger,
    read_operations,
    strip_text,
)
from portico.upstream.backends.openapi.reader import (
    MAX_BYTES,
    MAX_READ_S,
    DescriptionReader,
    DescriptionSource,
    compute_digest,
    find_server_url,
    parse_origin,
)
from portico.upstream.backends.openapi.request_encoding import RequestPlan
from portico.upstream.backends.openapi.schemas import TranslationTimeout
from portico.upstream.backends.openapi.tools import ConfiguredParameters, ToolBuilder
from portico.upstream.transports.http_headers import redact_url
from portico.upstream.transports.own_processes import render_main_import

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
        clip_text(strip_text(info.get("title")), _TITLE_CHARS),
        clip_text(strip_text(info.get("version")), _TITLE_CHARS),
        clip_text(strip_text(info.get("description")), _INSTRUCTIONS_CHARS),
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
    if is_swagger(root):
        servers = convert_servers(root.entries, root.base)
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


MAX_THREAD_BYTES = 2**17
"""Bytes of a description and its parts for which a thread is enough: about 20 ms at once."""
MAX_MEMORY_BYTES = 4 * 2**30
_PLANS_PER_PIECE = 200
"""Plans that are unpickled at once, because that holds the GIL too."""


def load_in_process(source: DescriptionSource, configured: ConfiguredParameters) -> ApiDescription:
    """Load a large description as `load_description` does; blocks until its process has ended.

    A thread is not enough: the JSON and YAML parsers hold the GIL, and thereby every request, for a
    tenth of a second per megabyte. The process also limits the memory that a description can take.
    """
    command = [sys.executable, "-I", "-S", "-c", render_main_import(__name__) + "main()"]
    request = pickle.dumps((source, configured))
    try:
        completed = subprocess.run(  # noqa: S603 - own interpreter, no input of others
            command,
            input=request,
            capture_output=True,
            timeout=MAX_READ_S + MAX_CPU_S + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _make_load_error(source, "it took too long") from None
    output = io.BytesIO(completed.stdout)
    try:
        outcome: Any = pickle.load(output)  # noqa: S301
    except (EOFError, pickle.UnpicklingError):
        last_line = completed.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _make_load_error(
            source, last_line or f"its process ended with {completed.returncode}"
        ) from None
    if isinstance(outcome, BackendUnavailable):
        raise outcome
    plans: dict[str, RequestPlan] = {}
    while piece := pickle.load(output):  # noqa: S301
        plans |= cast("dict[str, RequestPlan]", piece)
    return replace(cast(ApiDescription, outcome), plans=plans)


def main() -> None:
    """Read the source from stdin and write the description, or an error, to stdout."""
    if os.name == "posix":
        import resource

        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    source, configured = pickle.load(sys.stdin.buffer)  # noqa: S301
    try:
        api = load_description(source, configured)
    except BackendUnavailable as error:
        pickle.dump(error, sys.stdout.buffer)
    except MemoryError:
        pickle.dump(
            _make_load_error(source, f"it takes over {MAX_MEMORY_BYTES >> 30} GiB of memory"),
            sys.stdout.buffer,
        )
    else:
        _write_description(api, sys.stdout.buffer)


def _write_description(api: ApiDescription, sink: BinaryIO) -> None:
    pickle.dump(replace(api, plans={}), sink)
    plans = iter(api.plans.items())
    while piece := dict(islice(plans, _PLANS_PER_PIECE)):
        pickle.dump(piece, sink)
    pickle.dump({}, sink)


def _make_load_error(source: DescriptionSource, why: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"the description {source.display_location} cannot be read: {why}",
        advice="Take what is not needed out of the description.",
    )


MAX_SCHEMES = 5
MAX_SCHEME_CHARS = 300


def describe_security_schemes(documents: ApiDocuments) -> Mapping[str, str]:
    root = documents.root
    if is_swagger(root):
        schemes = root.with_value(root.entries.get("securityDefinitions"))
    else:
        components = documents.resolve(root.with_value(root.entries.get("components")))
        schemes = components.with_value(components.entries.get("securitySchemes"))
    return {
        str(name): _describe_scheme(documents.resolve(schemes.with_value(entry)))
        for name, entry in schemes.entries.items()
    }


def describe_required_credentials(
    security: Any, known_schemes: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what an operation requires; empty if it may be called without credentials."""
    alternatives = to_list(security)
    requirements = [cast(Raw, entry) for entry in alternatives if isinstance(entry, dict)]
    if not all(requirements):
        return ()
    described = [
        " and ".join(known_schemes.get(name, str(name)) for name in requirement)[:MAX_SCHEME_CHARS]
        for requirement in requirements
    ]
    return tuple(dict.fromkeys(described))[:MAX_SCHEMES]


def _describe_scheme(scheme: DocumentNode) -> str:
    entries = convert_security_scheme(scheme.entries)
    kind = entries.get("type")
    name = entries.get("name")
    if kind == "apiKey" and isinstance(name, str):
        location = entries.get("in")
        if location == "query":
            return f'`query: {{{name}: "${{API_KEY}}"}}`'
        if location == "cookie":
            return f'`headers: {{Cookie: "{name}=${{API_KEY}}"}}`'
        return f'`headers: {{{name}: "${{API_KEY}}"}}`'
    if kind == "http" and str(entries.get("scheme")).lower() == "basic":
        return '`headers: {Authorization: "Basic ${BASE64_OF_USER_AND_PASSWORD}"}`'
    if kind == "http" and str(entries.get("scheme")).lower() != "bearer":
        return f'`headers: {{Authorization: "{entries.get("scheme")} ${{TOKEN}}"}}`'
    if kind == "mutualTLS":
        return "a client certificate, which cannot be configured"
    return '`headers: {Authorization: "Bearer ${TOKEN}"}`'
