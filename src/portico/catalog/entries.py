"""What a server offers in its three forms: a fresh listing, a manifest on disk, an entry of the catalog. Pure."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.listing import Listing, Offers
from portico.catalog.snapshot import ServerEntry
from portico.catalog.tool import Tool, content_hash, encoded
from portico.config import ToolRules
from portico.events import CatalogChanged
from portico.storage.manifests import Manifest, ToolRow
from portico.upstream import jsontext
from portico.upstream.backend import Hello

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """What the configuration says about a server, as far as its offer is concerned."""

    name: str
    fingerprint: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    rules: ToolRules = field(default_factory=ToolRules)


def unknown(source: Source) -> ServerEntry:
    """A server that was never listed."""
    return ServerEntry(
        source.name,
        source.title,
        source.description,
        source.tags,
        category=source.category,
        categories=source.rules.categories,
    )


def manifest_of(source: Source, listing: Listing) -> Manifest:
    """What is kept of a listing."""
    rows = tuple(
        # A copy, because it is kept: the encoder of JSON leaves its buffer four times as large as what it wrote.
        ToolRow(entry.name, content_hash(entry.blob), bytes(memoryview(entry.blob)), entry.warnings)
        for entry in listing.tools
    )
    hello = {**vars(listing.hello), "warnings": listing.warnings}
    try:
        head, offers = encoded(hello), encoded(vars(listing.offers))
    except ValueError as error:
        # Its tools are as good as any; only the next start has to ask for them again.
        logger.warning("what %s says about itself cannot be kept: %s", source.name, error)
        head = offers = b""
    return Manifest(source.name, source.fingerprint, listing.hello.era, head, offers, rows, time.time())


def listed(source: Source, listing: Listing, manifest: Manifest) -> ServerEntry:
    """A server as it was just listed."""
    return replace(
        unknown(source),
        hello=listing.hello,
        tools=_tools(source, manifest.tools),
        offers=listing.offers,
        warnings=listing.warnings,
        listed_at=manifest.listed_at,
    )


def remembered(source: Source, manifest: Manifest | None) -> ServerEntry:
    """A server as it was when its manifest was made."""
    if manifest is None:
        return unknown(source)
    try:
        return _from_manifest(source, manifest)
    except (ValueError, TypeError, AttributeError) as error:
        logger.warning("what is remembered of %s cannot be read (%s): it will be listed again", source.name, error)
        return unknown(source)


def _from_manifest(source: Source, manifest: Manifest) -> ServerEntry:
    hello: dict[str, Any] = jsontext.loads(manifest.hello)
    warnings = tuple(hello.pop("warnings", ()))
    offers = jsontext.loads(manifest.offers)
    return replace(
        unknown(source),
        hello=Hello(**hello),
        tools=_tools(source, manifest.tools),
        offers=Offers(**{key: tuple(value) for key, value in offers.items()}),
        warnings=warnings,
        listed_at=manifest.listed_at,
    )


def _tools(source: Source, rows: Iterable[ToolRow]) -> dict[str, Tool]:
    kept = {row.name: row for row in rows if source.rules.permits(row.name)}
    names = _names({name: source.rules.name_of(name) for name in kept})
    tools: dict[str, Tool] = {}
    for upstream_name, name in names.items():
        row, wanted = kept[upstream_name], source.rules.name_of(upstream_name)
        refused = () if name == wanted else (f"it cannot be renamed {wanted!r}: another tool has that name",)
        warnings = (*row.warnings, *refused)
        tools[name] = Tool(source.name, name, upstream_name, row.definition, row.hash, warnings, source.tags)
    return tools


def _names(wanted: Mapping[str, str]) -> dict[str, str]:
    """Upstream name → name here. A new name that is somebody's already is not given: no tool may hide another."""
    names = dict(wanted)
    while len(set(names.values())) < len(names):
        taken = Counter(names.values())
        names = {own: own if taken[name] > 1 else name for own, name in names.items()}
    return names


def difference(before: ServerEntry, after: ServerEntry) -> CatalogChanged:
    """What changed about a server's offer."""
    old, new = before.tools, after.tools
    address: Callable[[str], str] = lambda name: f"{after.name}.{name}"  # noqa: E731
    changed = [name for name in new if name in old and new[name].hash != old[name].hash]
    return CatalogChanged(
        after.name,
        added=tuple(address(name) for name in new if name not in old),
        removed=tuple(address(name) for name in old if name not in new),
        changed=tuple(map(address, changed)),
        resources=(before.offers.resources, before.offers.templates)
        != (after.offers.resources, after.offers.templates),
        prompts=before.offers.prompts != after.offers.prompts,
        earlier={old[name].hash: old[name].blob for name in changed},
    )
