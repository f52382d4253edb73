"""A description → an `Api`: its tools, and how each is called. Runs in a thread: a large one takes a second or two."""

import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portico.errors import BackendUnavailable
from portico.upstream import jsontext
from portico.upstream.backend import Raw
from portico.upstream.http_headers import safe_url
from portico.upstream.openapi import swagger
from portico.upstream.openapi.addresses import origin, server_url
from portico.upstream.openapi.advice import schemes, wanted
from portico.upstream.openapi.documents import Documents
from portico.upstream.openapi.names import clipped
from portico.upstream.openapi.operations import operations
from portico.upstream.openapi.plans import Plan
from portico.upstream.openapi.reading import MAX_BYTES, Reading, Source, digest
from portico.upstream.openapi.schemas import TooLong
from portico.upstream.openapi.text import parsed
from portico.upstream.openapi.tools import Given, Tools

MAX_TOOLS = 20_000
MAX_DEFINITIONS = 64 * 2**20
"""Bytes of all tools together: a small description can refer to one large schema from every operation."""
MAX_CPU_S = 60.0
_PIECE_BYTES = 2**17
_TITLE_CHARS = 200
_NOTE_CHARS = 300
_INSTRUCTIONS_CHARS = 1_000


@dataclass(frozen=True)
class Api:
    """What is kept of a description: some kilobytes for each of its operations, packed."""

    title: str
    version: str
    instructions: str
    server: str
    """Where the API is; credentials go to its origin and nowhere else."""
    plans: Mapping[str, Plan]
    packed: tuple[bytes, ...]
    """Lists of tools, compressed: pieces, so that reading them back holds no other thread up for long."""
    marks: Mapping[str, object]
    digest: str
    notes: tuple[str, ...] = ()

    def definitions(self) -> list[Raw]:
        """The tools."""
        return [tool for piece in self.packed for tool in jsontext.loads(zlib.decompress(piece))]


def load(source: Source, given: Given, known: Api | None = None, limit: int = MAX_BYTES) -> Api:
    """Read a description; `known` is given back where nothing has changed.

    Raises DescriptionTooLarge beyond `limit` bytes.
    """
    with Reading(source, limit) as reading:
        data = reading.root()
        if known is not None and known.digest == digest(data) and len(known.marks) == 1:
            return known
        reading.check_size()
        try:
            documents = Documents(source.uri, parsed(data), reading.part)
            api = _api(documents, source, given, reading, digest(data))
            # Once more: what is raised while a reference is followed only makes it one that leads nowhere.
            reading.check_size()
            return api
        except ValueError as error:
            reading.check_size()
            raise BackendUnavailable(
                f"{source.shown} is no description of an API: {error}",
                advice="It has to be OpenAPI 3 or Swagger 2.0, as JSON or YAML.",
            ) from error


def _api(documents: Documents, source: Source, given: Given, reading: Reading, identity: str) -> Api:
    root = documents.root
    version = root.entries.get("openapi", root.entries.get("swagger"))
    if not str(version).startswith(("2", "3")):
        raise ValueError("it says neither `openapi: 3…` nor `swagger: 2.0`")
    server, known = _server(documents, source), schemes(documents)
    size, until = 0, time.thread_time() + MAX_CPU_S
    tools = Tools(documents, given, until)
    plans: dict[str, Plan] = {}
    definitions: list[bytes] = []
    elsewhere: set[str] = set()
    for operation in operations(documents):
        if len(plans) >= MAX_TOOLS or size > MAX_DEFINITIONS:
            break
        if time.thread_time() > until:
            raise TooLong
        own = "" if source.base_url is not None else server_url(operation.servers, root.base)
        if own and origin(own) != origin(server):
            elsewhere.add(safe_url(own))
        definition, plan = tools.tool(operation, own or server, wanted(operation.security, known))
        definitions.append(jsontext.dumps(definition))
        size += len(definitions[-1])
        plans[plan.name] = plan
    if not plans:
        raise ValueError("it has no operations")
    info = root.at(root.entries.get("info")).entries
    return Api(
        clipped(_text(info.get("title")), _TITLE_CHARS),
        clipped(_text(info.get("version")), _TITLE_CHARS),
        clipped(_text(info.get("description")), _INSTRUCTIONS_CHARS),
        server,
        plans,
        _packed(definitions),
        dict(reading.marks),
        identity,
        tuple(note[:_NOTE_CHARS] for note in _notes(documents, elsewhere, len(plans), size)),
    )


def _server(documents: Documents, source: Source) -> str:
    root = documents.root
    if source.base_url is not None:
        return source.base_url.rstrip("/")
    old = swagger.is_swagger(root)
    listed = swagger.servers(root.entries, root.base) if old else root.entries.get("servers") or [{"url": "/"}]
    found = server_url(listed, root.base)
    if not found:
        error = BackendUnavailable(
            f"{source.shown} does not say where the API is",
            advice=f"Give the server {source.name} a `base_url`, such as https://api.example.com/v1.",
        )
        error.retryable = False
        raise error
    return found


def _packed(definitions: list[bytes]) -> tuple[bytes, ...]:
    pieces: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for definition in definitions:
        waiting.append(definition)
        size += len(definition)
        if size > _PIECE_BYTES:
            pieces.append(zlib.compress(b"[%b]" % b",".join(waiting), 1))
            waiting, size = [], 0
    if waiting:
        pieces.append(zlib.compress(b"[%b]" % b",".join(waiting), 1))
    return tuple(pieces)


def _notes(documents: Documents, elsewhere: set[str], count: int, size: int) -> list[str]:
    notes: list[str] = []
    if documents.dangling:
        ref, reason = next(iter(documents.dangling.items()))
        notes.append(f"{len(documents.dangling)} references lead nowhere, such as {safe_ref(ref)}: {reason}")
    if elsewhere:
        notes.append(f"some operations are on other hosts and are not called: {', '.join(sorted(elsewhere)[:5])}")
    if count >= MAX_TOOLS or size > MAX_DEFINITIONS:
        notes.append(f"only its first {count} operations are tools: there may be more, but the whole is too large")
    return notes


def safe_ref(address: str) -> str:
    """A reference as it may be shown."""
    document, _, place = address.partition("#")
    return f"{document.rpartition('/')[2].partition('?')[0]}#{place}"


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
