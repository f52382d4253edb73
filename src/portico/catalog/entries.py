"""What a server offers in its three forms: a fresh listing, a manifest on disk, an entry of the
catalog. Pure."""

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
    """What the configuration says about a server, as far as its offer is concerned."""

    name: str
    fingerprint: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    rules: ToolRules = field(default_factory=ToolRules)


def create_unlisted_entry(source: ServerSource) -> ServerEntry:
    """A server that was never listed."""
    return ServerEntry(
        source.name,
        source.title,
        source.description,
        source.tags,
        category=source.category,
        categories=source.rules.categories,
    )


def build_manifest(source: ServerSource, listing: ServerListing) -> Manifest:
    """What is kept of a listing."""
    rows = tuple(
        # A copy, because it is kept: the encoder of JSON leaves its buffer four times as large as
        # what it wrote.
        ToolRow(entry.name, compute_hash(entry.blob), bytes(memoryview(entry.blob)), entry.warnings)
        for entry in listing.tools
    )
    hello = {**vars(listing.initialize_info), "warnings": listing.warnings}
    try:
        head = encode_json(hello)
        offers = encode_json(vars(listing.offers))
    except ValueError as error:
        # Its tools are as good as any; only the next start has to ask for them again.
        logger.warning("what %s says about itself cannot be kept: %s", source.name, error)
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
    """A server as it was just listed."""
    return replace(
        create_unlisted_entry(source),
        initialize_info=listing.initialize_info,
        tools=_build_tools(source, manifest.tools),
        offers=listing.offers,
        warnings=listing.warnings,
        listed_at=manifest.listed_at,
    )


def restore_entry(source: ServerSource, manifest: Manifest | None) -> ServerEntry:
    """A server as it was when its manifest was made."""
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
    kept = {row.name: row for row in rows if source.rules.permits(row.name)}
    names = _assign_names({name: source.rules.get_exposed_name(name) for name in kept})
    tools: dict[str, Tool] = {}
    for upstream_name, name in names.items():
        row = kept[upstream_name]
        wanted = source.rules.get_exposed_name(upstream_name)
        if name == wanted:
            refused = ()
        else:
            refused = (f"it cannot be renamed {wanted!r}: another tool has that name",)
        warnings = (*row.warnings, *refused)
        tools[name] = Tool(
            source.name, name, upstream_name, row.definition, row.hash, warnings, source.tags
        )
    return tools


def _assign_names(wanted: Mapping[str, str]) -> dict[str, str]:
    """Upstream name → name here. A new name that is somebody's already is not given: no tool may
    hide another."""
    names = dict(wanted)
    while len(set(names.values())) < len(names):
        taken = Counter(names.values())
        names = {own: own if taken[name] > 1 else name for own, name in names.items()}
    return names


def compare_entries(before: ServerEntry, after: ServerEntry) -> CatalogChanged:
    """What changed about a server's offer."""
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
