"""Converts a server's offer between fresh listing, stored manifest and catalog entry. Pure."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.listing import ServerListing, ServerOffers
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, compute_hash, encode_json
from portico.config import ToolRules
from portico.events import CatalogChanged
from portico.json_text import json_codec
from portico.storage.manifests import Manifest, ToolRow
from portico.upstream.backend import InitializeInfo

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServerSource:
    """The part of a server's configuration that affects its catalog entry."""

    name: str
    fingerprint: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    rules: ToolRules = field(default_factory=ToolRules)


def create_unlisted_entry(source: ServerSource) -> ServerEntry:
    """Create the entry of a server that was never listed."""
    return ServerEntry(
        source.name,
        source.title,
        source.description,
        source.tags,
        category=source.category,
        categories=source.rules.categories,
    )


def build_manifest(source: ServerSource, listing: ServerListing) -> Manifest:
    """Build the manifest to store for a listing."""
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
    return Manifest(
        source.name,
        source.fingerprint,
        listing.initialize_info.era,
        head,
        offers,
        rows,
        time.time(),
    )


def build_entry(source: ServerSource, listing: ServerListing, manifest: Manifest) -> ServerEntry:
    """Build the entry of a server from a fresh listing."""
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
        logger.warning(
            "what is remembered of %s cannot be read (%s): it will be listed again",
            source.name,
            error,
        )
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
    names = _assign_names({name: source.rules.get_exposed_name(name) for name in permitted})
    tools: dict[str, Tool] = {}
    for upstream_name, name in names.items():
        row = permitted[upstream_name]
        wanted = source.rules.get_exposed_name(upstream_name)
        conflict = ()
        if name != wanted:
            conflict = (f"it cannot be renamed {wanted!r}: another tool has that name",)
        warnings = (*row.warnings, *conflict)
        tools[name] = Tool(
            source.name, name, upstream_name, row.definition, row.hash, warnings, source.tags
        )
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
    """Return what changed between two entries of a server."""
    old = before.tools
    new = after.tools
    address: Callable[[str], str] = lambda name: f"{after.name}.{name}"  # noqa: E731
    changed = [name for name in new if name in old and new[name].hash != old[name].hash]
    return CatalogChanged(
        after.name,
        added=tuple(address(name) for name in new if name not in old),
        removed=tuple(address(name) for name in old if name not in new),
        changed=tuple(map(address, changed)),
        resources_changed=(before.offers.resources, before.offers.templates)
        != (after.offers.resources, after.offers.templates),
        prompts_changed=before.offers.prompts != after.offers.prompts,
        previous_definitions={old[name].hash: old[name].blob for name in changed},
    )
