"""Converts a server's offer: listing, stored manifest, catalog entry, search documents. Pure."""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.category_assignment import assign_categories, collect_classification_inputs
from portico.catalog.listing import ServerListing, ServerOffers
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, compute_hash, encode_json
from portico.config import ToolRules, Trust
from portico.events import CatalogChanged
from portico.json_text import json_codec
from portico.search import SearchDocument, compose_text, compute_fingerprint, extract_schema_text
from portico.storage.manifests import Manifest, ToolRow
from portico.upstream.backend import InitializeInfo

logger = logging.getLogger(__name__)


MAX_INSTRUCTIONS = 1_000


@dataclass(frozen=True)
class ServerSource:
    """The part of a server's configuration that affects its catalog entry."""

    name: str
    fingerprint: str
    title: str = ""
    description: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    rules: ToolRules = field(default_factory=ToolRules)
    trust: Trust = "always"


def create_unlisted_entry(source: ServerSource) -> ServerEntry:
    return ServerEntry(
        source.name,
        source.title,
        source.description,
        source.kind,
        source.tags,
        category=source.category,
        categories=source.rules.categories,
        rules=source.rules,
    )


def build_manifest(source: ServerSource, listing: ServerListing) -> Manifest:
    rows = tuple(
        # Copied, because the JSON encoder's buffer is up to four times as large as its content.
        ToolRow(entry.name, compute_hash(entry.blob), bytes(memoryview(entry.blob)), entry.warnings)
        for entry in listing.tools
    )
    initialize_info = {**vars(listing.initialize_info), "warnings": listing.warnings}
    try:
        head = encode_json(initialize_info)
        offers = encode_json(vars(listing.offers))
    except ValueError as error:
        # The tools are usable; only the next start has to list the server again.
        logger.warning("the listing of %s cannot be kept: %s", source.name, error)
        head = offers = b""
    era = listing.initialize_info.era
    return Manifest(source.name, source.fingerprint, era, head, offers, rows, time.time())


def build_entry(source: ServerSource, listing: ServerListing, manifest: Manifest) -> ServerEntry:
    return replace(
        create_unlisted_entry(source),
        initialize_info=listing.initialize_info,
        tools=_build_tools(source, manifest.tools),
        offers=listing.offers,
        warnings=listing.warnings,
        listed_at=manifest.listed_at,
    )


def restore_entry(source: ServerSource, manifest: Manifest | None) -> ServerEntry:
    """Build the entry of a server from its manifest, unlisted if there is none or it is damaged."""
    if manifest is None:
        return create_unlisted_entry(source)
    try:
        return _parse_manifest(source, manifest)
    except (ValueError, TypeError, AttributeError) as error:
        message = "what is remembered of %s cannot be read (%s): it will be listed again"
        logger.warning(message, source.name, error)
        return create_unlisted_entry(source)


def _parse_manifest(source: ServerSource, manifest: Manifest) -> ServerEntry:
    hello: dict[str, Any] = json_codec.loads(manifest.hello)
    warnings = tuple(hello.pop("warnings", ()))
    offers = json_codec.loads(manifest.offers)
    return replace(
        create_unlisted_entry(source),
        initialize_info=InitializeInfo(**hello),
        tools=_build_tools(source, manifest.tools),
        offers=ServerOffers(**{key: tuple(value) for key, value in offers.items()}),
        warnings=warnings,
        listed_at=manifest.listed_at,
    )


def _build_tools(source: ServerSource, rows: Iterable[ToolRow]) -> dict[str, Tool]:
    permitted = {row.name: row for row in rows if source.rules.permits(row.name)}
    exposed = _assign_names({name: source.rules.get_exposed_name(name) for name in permitted})
    tools: dict[str, Tool] = {}
    for upstream_name, name in exposed.items():
        row = permitted[upstream_name]
        wanted = source.rules.get_exposed_name(upstream_name)
        conflict = ()
        if name != wanted:
            conflict = (f"it cannot be renamed {wanted!r}: another tool has that name",)
        names = (source.name, name, upstream_name)
        warnings = (*row.warnings, *conflict)
        tools[name] = Tool(*names, row.definition, row.hash, warnings, source.tags)
    return tools


def _assign_names(wanted: Mapping[str, str]) -> dict[str, str]:
    """Map upstream names to exposed names; a rename that collides is not applied."""
    names = dict(wanted)
    while len(set(names.values())) < len(names):
        uses = Counter(names.values())
        names = {
            upstream_name: upstream_name if uses[name] > 1 else name
            for upstream_name, name in names.items()
        }
    return names


def compare_entries(before: ServerEntry, after: ServerEntry) -> CatalogChanged:
    old = before.tools
    new = after.tools
    changed = [name for name in new if name in old and new[name].hash != old[name].hash]
    return CatalogChanged(
        after.name,
        added=tuple(f"{after.name}.{name}" for name in new if name not in old),
        removed=tuple(f"{after.name}.{name}" for name in old if name not in new),
        changed=tuple(f"{after.name}.{name}" for name in changed),
        resources_changed=(before.offers.resources, before.offers.templates)
        != (after.offers.resources, after.offers.templates),
        prompts_changed=before.offers.prompts != after.offers.prompts,
        previous_definitions={old[name].hash: old[name].blob for name in changed},
    )


def link_twins(servers: Mapping[str, ServerEntry]) -> dict[str, ServerEntry]:
    """Return the entries with `twins` set, so that one program has one category for each tool,
    under whatever names it is configured."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(servers):
        if servers[name].tools:
            groups.setdefault(_compute_tools_key(servers[name]), []).append(name)
    linked = dict(servers)
    for names in groups.values():
        twins = tuple(names) if len(names) > 1 else ()
        for name in names:
            if servers[name].twins != twins:
                linked[name] = replace(servers[name], twins=twins)
    return linked


def _compute_tools_key(entry: ServerEntry) -> tuple[str, ...]:
    return tuple(tool.hash for tool in entry.tools.values())


def build_documents(entry: ServerEntry) -> Iterator[SearchDocument]:
    server_text = _compose_server_text(entry)
    fingerprint = _compute_server_fingerprint(entry)
    categories = assign_categories(entry)
    return (
        _build_document(tool, entry, server_text, fingerprint, categories[name])
        for name, tool in entry.tools.items()
    )


def compute_document_hashes(entry: ServerEntry) -> dict[str, str]:
    """Map document ids to hashes for `Index.has_group`, without parsing a definition."""
    fingerprint = _compute_server_fingerprint(entry)
    return {
        tool.address: compute_fingerprint(tool.address, tool.hash, fingerprint)
        for tool in entry.tools.values()
    }


def compose_tool_text(tool: Tool) -> str:
    """Return the text the encoder reads of a tool, as `compose_document_text` would."""
    return compose_text(tool.server, tool.name, tool.description, tool.title)


def _compose_server_text(entry: ServerEntry) -> str:
    info = entry.initialize_info
    instructions = info.instructions[:MAX_INSTRUCTIONS] if info else ""
    return " ".join(part for part in (entry.title, entry.description, instructions) if part)


def _compute_server_fingerprint(entry: ServerEntry) -> str:
    """Return the identity of all inputs of a document except the tool itself.

    The category also depends on the server's other tools, but these are replaced together with it.
    """
    return compute_fingerprint(
        _compose_server_text(entry), *entry.tags, "", *collect_classification_inputs(entry)
    )


def _build_document(
    tool: Tool, entry: ServerEntry, server_text: str, server_fingerprint: str, category: str
) -> SearchDocument:
    text = extract_schema_text(tool.input_schema)
    return SearchDocument(
        id=tool.address,
        hash=compute_fingerprint(tool.address, tool.hash, server_fingerprint),
        group=tool.server,
        name=tool.name,
        title=tool.title,
        server=tool.server,
        server_text=server_text,
        description=tool.description,
        parameters=text.parameters,
        parameter_text=text.descriptions,
        enums=text.enums,
        tags=entry.tags,
        category=category,
    )
