"""What is known now: every server, every tool, and the index over them, as one immutable value.

A query reads one snapshot from beginning to end. Lookups that few queries need are made on first
use and kept; where there are many tools, whoever is on the event loop has them made in a thread
(`look_through`, `find_tool`, `load_flat`).
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from portico.access import MAX_URI_CHARS, Scope
from portico.catalog.address import (
    FLAT_NAME_CHARS,
    SCRIPT_BUILTINS,
    AddressResolver,
    assign_flat_names,
    assign_identifiers,
    find_nearest_names,
)
from portico.catalog.listing import LARGE_LISTING_ITEMS, ServerOffers
from portico.catalog.packed_names import fold
from portico.catalog.tool import Tool
from portico.catalog.uri_template import UriTemplate, matches_any, parse_templates
from portico.catalog.visible_text import quote_text
from portico.errors import UnknownName
from portico.lazy import lazy_property
from portico.search import Index
from portico.upstream.backend import InitializeInfo, Raw

ScanResult = TypeVar("ScanResult")
_PREPARED_LOOKUPS = frozenset({"words", "offers_version", "flat_prompts"})


@dataclass(frozen=True)
class ServerEntry:
    """One server and what it offers."""

    name: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    category: str = ""
    """What the config says all its tools are; else its tags or its words decide."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """What the config says of single tools: name or pattern → category."""
    initialize_info: InitializeInfo | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    offers: ServerOffers = field(default_factory=ServerOffers)
    warnings: tuple[str, ...] = ()
    listed_at: float = 0.0
    """When it was last listed; 0 means never."""

    @property
    def is_listed(self) -> bool:
        """Whether its offer is known at all."""
        return self.listed_at > 0

    @lazy_property
    def digest(self) -> str:
        """Changes exactly when a tool comes, goes or changes."""
        digest = hashlib.blake2b(self.name.encode(), digest_size=8)
        for name, tool in self.tools.items():
            digest.update(f"\0{name}\0{tool.hash}".encode())
        return digest.hexdigest()

    @lazy_property
    def tool_identifiers(self) -> Mapping[str, str]:
        """The identifiers that scripts know its tools by, with their names."""
        return assign_identifiers(self.tools)

    @lazy_property
    def resource_uris(self) -> frozenset[str]:
        """The addresses of its listed resources."""
        return frozenset(resource["uri"] for resource in self.offers.resources)

    @lazy_property
    def uri_templates(self) -> tuple[UriTemplate, ...]:
        """Its listed templates, taken apart."""
        return parse_templates(template["uriTemplate"] for template in self.offers.templates)

    def has_resource(self, uri: str) -> bool:
        """Whether an address is listed, percent-encoded or not, or can be made from a listed
        template."""
        if uri in self.resource_uris:
            return True
        if len(uri) > MAX_URI_CHARS:
            return False
        return unquote(uri) in self.resource_uris or matches_any(self.uri_templates, uri)


def find_most_common(counts: Mapping[str, int]) -> str:
    """The category with most tools, the first of the alphabet where several have; empty where there
    is none."""
    return min(counts, key=lambda key: (-counts[key], key), default="")


@dataclass(frozen=True)
class ToolNames:
    """Every tool's address and flat name."""

    tools: Mapping[str, Tool]

    def __contains__(self, name: object) -> bool:
        return name in self.tools or (
            isinstance(name, str) and self.find_flat_tool(name) is not None
        )

    def find_flat_tool(self, name: str) -> Tool | None:
        """The tool of a flat name."""
        # Not worth a table of all for what can be none.
        if self.can_be_flat(name):
            return self.tools_by_flat_name.get(name)
        return None

    @staticmethod
    def can_be_flat(name: str) -> bool:
        """Whether it is written like one: a whole one has both parts, one that was cut the full
        length."""
        return "__" in name or len(name) == FLAT_NAME_CHARS

    @lazy_property
    def tools_by_flat_name(self) -> dict[str, Tool]:
        """Every tool by its flat name, `server__tool`."""
        names = assign_flat_names((tool.server, tool.name) for tool in self.tools.values())
        return dict(zip(names, self.tools.values(), strict=True))


@dataclass(frozen=True)
class Snapshot:
    """Everything that is known at one moment."""

    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    index: Index = field(default_factory=lambda: Index.build(()))
    scope: Scope = field(default_factory=Scope)

    @lazy_property
    def is_large(self) -> bool:
        """Whether to look through all of it takes longer than the event loop may stand still."""
        entries = 0
        for server in self.servers.values():
            offers = server.offers
            entries += (
                len(server.tools)
                + len(offers.resources)
                + len(offers.templates)
                + len(offers.prompts)
            )
        return entries > LARGE_LISTING_ITEMS

    async def run_scan(self, work: Callable[..., ScanResult], *args: Any) -> ScanResult:
        """What `work` answers, which looks through all of this snapshot: from a thread, where that
        is much."""
        if self.is_large:
            return await asyncio.to_thread(work, *args)
        return work(*args)

    async def find_tool(self, name: str) -> Tool:
        """The tool a name means, as `tool` finds it; raises UnknownName with the nearest."""
        found = self.tools.get(name)
        if found is not None:
            return found
        return await self.run_scan(self.resolve_tool, name)

    async def find_by_flat_name(self, name: str) -> Tool | None:
        """The tool of a flat name; None where there is none."""
        if ToolNames.can_be_flat(name):
            await self.load_flat_names()
        return self.tool_names.find_flat_tool(name)

    async def load_lookup(self, lookup: Literal["flat_prompts", "offers_version"]) -> None:
        """Have a lookup made, where it is not there yet."""
        if lookup not in vars(self):
            await self.run_scan(getattr, self, lookup)

    async def load_flat_names(self) -> None:
        """Have `flat` made, where it is not there yet."""
        if "flat" not in vars(self.tool_names):
            await self.run_scan(lambda: self.tools_by_flat_name)

    def prepare(self, previous: "Snapshot") -> None:
        """Work out what nearly every question asks for, and what was asked of the snapshot before.
        Takes a while."""
        for name in {"tools", "version", "main_categories"} | (
            _PREPARED_LOOKUPS & vars(previous).keys()
        ):
            getattr(self, name)
        if "flat" in vars(previous.tool_names):
            self.tool_names.tools_by_flat_name  # noqa: B018 - it is kept

    @lazy_property
    def version(self) -> str:
        """Identifies the set of tools: cursors and the stored index are only good for one."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.servers):
            digest.update(self.servers[name].digest.encode())
        return digest.hexdigest()

    @lazy_property
    def offers_version(self) -> str:
        """The same for resources, resource templates and prompts."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.servers):
            offers = self.servers[name].offers
            digest.update(f"\0\0{name}".encode())
            for items, identity in (
                (offers.resources, "uri"),
                (offers.templates, "uriTemplate"),
                (offers.prompts, "name"),
            ):
                digest.update(
                    "\0".join(item[identity] for item in items).encode(errors="surrogatepass")
                    + b"\0\0"
                )
        return digest.hexdigest()

    @lazy_property
    def tools(self) -> dict[str, Tool]:
        """Every tool by address."""
        return {
            tool.address: tool
            for name in sorted(self.servers)
            for tool in self.servers[name].tools.values()
        }

    @lazy_property
    def unlisted_servers(self) -> tuple[str, ...]:
        """The servers whose offer is not known, in alphabetical order."""
        return tuple(sorted(name for name, entry in self.servers.items() if not entry.is_listed))

    @lazy_property
    def tool_names(self) -> ToolNames:
        """Every tool's address and flat name."""
        return ToolNames(self.tools)

    @lazy_property
    def resolver(self) -> AddressResolver:
        """Finds the address a name means."""
        return AddressResolver(self.tools)

    @lazy_property
    def server_identifiers(self) -> Mapping[str, str]:
        """The identifiers that scripts know the servers by, with their names."""
        return assign_identifiers(self.servers, SCRIPT_BUILTINS)

    @property
    def tools_by_flat_name(self) -> dict[str, Tool]:
        """Every tool by its flat name, `server__tool`."""
        return self.tool_names.tools_by_flat_name

    @lazy_property
    def flat_prompts(self) -> dict[str, tuple[str, Raw]]:
        """Every prompt with its server by its flat name, `server__prompt`."""
        prompts: dict[tuple[str, str], Raw] = {}
        for server in sorted(self.servers):
            for prompt in self.servers[server].offers.prompts:
                prompts.setdefault((server, prompt["name"]), prompt)
        return {
            flat: (server, prompts[server, name])
            for flat, (server, name) in assign_flat_names(prompts).items()
        }

    def find_addresses(self, name: str) -> tuple[str, ...]:
        """The addresses that a name can mean; none is guessed for a wrong one."""
        flat = self.tool_names.find_flat_tool(name)
        if flat is not None:
            return (flat.address,)
        return self.resolver.find(name)

    def resolve_tool(self, name: str) -> Tool:
        """The tool a name means; raises UnknownName with the nearest."""
        return (
            self.tools.get(name)
            or self.tool_names.find_flat_tool(name)
            or self.tools[self.resolver.resolve(name)]
        )

    def resolve_server(self, name: str) -> ServerEntry:
        """A server by name, forgiving case and separators; raises UnknownName with the nearest."""
        if entry := self.servers.get(name):
            return entry
        spelled = name.strip()
        folded = fold(name)
        meant = [key for key in self.servers if folded and fold(key) == folded]
        if found := self.server_identifiers.get(spelled) or (meant[0] if len(meant) == 1 else None):
            return self.servers[found]
        near = tuple(meant) or find_nearest_names(spelled, self.servers)
        raise UnknownName(
            f"there is no server {quote_text(name)} here",
            nearest=near,
            advice=f"Did you mean {', '.join(near)}?"
            if near
            else "browse_tools without arguments lists them.",
        )

    def get_category(self, address: str) -> str:
        """The category of a tool, as it was read into the index."""
        return self.index.get_category(address)

    @lazy_property
    def tools_by_category(self) -> Mapping[str, Mapping[str, Sequence[Tool]]]:
        """The tools of each category, by server. The one walk through all tools that categories
        take."""
        found: dict[str, dict[str, list[Tool]]] = {}
        for name in sorted(self.servers):
            for tool in self.servers[name].tools.values():
                found.setdefault(self.get_category(tool.address), {}).setdefault(name, []).append(
                    tool
                )
        return found

    @lazy_property
    def categories(self) -> tuple[str, ...]:
        """Every category that has a tool, in alphabetical order."""
        return tuple(sorted(self.tools_by_category.keys() - {""}))

    @lazy_property
    def main_categories(self) -> Mapping[str, str]:
        """The category that most of each server's tools are in; empty for a server that has none."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.servers}
        for category, servers in self.tools_by_category.items():
            for name, tools in servers.items():
                counts[name][category] = len(tools)
        return {name: find_most_common(count) for name, count in counts.items()}

    def with_index(self, index: Index) -> "Snapshot":
        """The same servers with another index over them; what was worked out about the servers is
        kept."""
        other = replace(self, index=index)
        # Of the index, no cached property above reads anything but categories, which come with the
        # tools.
        other.__dict__.update({**self.__dict__, "index": index})
        return other

    def restrict_to(self, scope: Scope) -> "Snapshot":
        """The same moment as a scope sees it."""
        if scope.is_unrestricted:
            return self
        servers = {
            name: replace(
                entry,
                tools={
                    key: tool
                    for key, tool in entry.tools.items()
                    if scope.can_see_tool(tool.address)
                },
                offers=_filter_offers(name, entry.offers, scope),
            )
            for name, entry in self.servers.items()
            if scope.can_see_server(name)
        }
        return Snapshot(servers, self.index, scope)


def _filter_offers(server: str, offers: ServerOffers, scope: Scope) -> ServerOffers:
    return ServerOffers(
        tuple(one for one in offers.resources if scope.can_see_resource(server, one["uri"])),
        tuple(
            one for one in offers.templates if scope.can_see_resource(server, one["uriTemplate"])
        ),
        tuple(one for one in offers.prompts if scope.can_see_prompt(server, one["name"])),
    )
