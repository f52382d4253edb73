"""Snapshot: every server, every tool and the search index as one immutable value.

A query reads one snapshot from beginning to end. Lookups that few queries need are computed on
first use and cached; for a large snapshot they are computed in a thread (`run_scan`, `find_tool`,
`load_flat_names`).
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

from portico.catalog.address import (
    FLAT_NAME_CHARS,
    SCRIPT_BUILTINS,
    AddressResolver,
    assign_flat_names,
    assign_identifiers,
    find_nearest_names,
    fold,
)
from portico.catalog.app_link import NO_LINK, AppLink, is_app_uri, read_app_link
from portico.catalog.listing import LARGE_LISTING_BYTES, LARGE_LISTING_ITEMS, ServerOffers
from portico.catalog.skills import SKILLS_EXTENSION, map_files
from portico.catalog.tool import Tool, quote_text, sanitize_text
from portico.catalog.uri_template import UriTemplate, matches_any, parse_templates
from portico.config import ToolRules
from portico.errors import UnknownName
from portico.json_text.json_codec import to_text
from portico.lazy_attribute import lazy_property
from portico.policy.definition_change import DefinitionChange
from portico.search import Index
from portico.upstream.backend import InitializeInfo, Raw
from portico.upstream.protocol.extensions import UI_EXTENSION, Extensions, read_extensions
from portico.visibility import MAX_URI_CHARS, Scope

ScanResult = TypeVar("ScanResult")
_PREPARED_LOOKUPS = frozenset({"server_identifiers", "offers_version", "flat_prompts"})


@dataclass(frozen=True)
class ServerEntry:
    name: str
    title: str = ""
    description: str = ""
    kind: str = ""
    """Kind of its backend: `stdio`, `http` …"""
    tags: tuple[str, ...] = ()
    category: str = ""
    """Category the config sets for all its tools; otherwise its tags or words decide."""
    categories: Mapping[str, str] = field(default_factory=dict)
    """Categories the config sets for single tools, by name or pattern."""
    rules: ToolRules = field(default_factory=ToolRules)
    twins: tuple[str, ...] = ()
    """Names of all servers with exactly these tools, if there are several."""
    initialize_info: InitializeInfo | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    offers: ServerOffers = field(default_factory=ServerOffers)
    warnings: tuple[str, ...] = ()
    listed_at: float = 0.0
    """Unix time of the last listing; 0 means never."""
    changes: tuple[DefinitionChange, ...] = ()
    """What differs from what was trusted, held back or not."""
    held_offers: frozenset[tuple[str, str]] = frozenset()
    """Kinds and names of prompts and resource templates that must not be used."""
    looked_at: frozenset[tuple[str, str]] = frozenset()
    """Kinds and names of what a person has looked at, as it is now."""
    override_problems: tuple[str, ...] = ()
    """What of the configuration's overrides does not fit what the server lists."""

    @property
    def is_listed(self) -> bool:
        return self.listed_at > 0

    @property
    def own_title(self) -> str:
        """The configured title, or the one that the server reported; empty if it is the name."""
        title = self.title or self._get_reported("title")
        return "" if title == self.name else title

    @property
    def own_description(self) -> str:
        """The configured description, or the one that the server reported."""
        return self.description or self._get_reported("description")

    def _get_reported(self, key: str) -> str:
        info = self.initialize_info
        return " ".join(sanitize_text(to_text(info.server_info.get(key))).split()) if info else ""

    @lazy_property
    def extensions(self) -> Extensions:
        """The extensions that the server declares, be it by a tool that has an app."""
        declared = read_extensions(self.initialize_info and self.initialize_info.capabilities)
        return declared if not self.app_uris else {UI_EXTENSION: {}, **declared}

    @lazy_property
    def app_links(self) -> Mapping[str, AppLink]:
        """What the tools say of apps, by name; those that say nothing are left out."""
        links = {name: read_app_link(tool) for name, tool in self.tools.items()}
        return {name: link for name, link in links.items() if link is not NO_LINK}

    @lazy_property
    def app_uris(self) -> frozenset[str]:
        """The addresses of its apps: listed as resources, or named by its tools."""
        named = {link.uri for link in self.app_links.values() if link.uri}
        return frozenset(named.union(filter(is_app_uri, self.resource_uris)))

    @lazy_property
    def for_models(self) -> "ServerEntry":
        """The server without the tools that only apps may call."""
        hidden = {name for name, link in self.app_links.items() if not link.is_for_models}
        if not hidden:
            return self
        return replace(
            self, tools={name: tool for name, tool in self.tools.items() if name not in hidden}
        )

    @lazy_property
    def digest(self) -> str:
        """Changes exactly when a tool is added, removed or changed."""
        digest = hashlib.blake2b(self.name.encode(), digest_size=8)
        for name, tool in self.tools.items():
            digest.update(f"\0{name}\0{tool.hash}".encode())
        return digest.hexdigest()

    @lazy_property
    def tool_identifiers(self) -> Mapping[str, str]:
        return assign_identifiers(self.tools)

    @lazy_property
    def resource_uris(self) -> frozenset[str]:
        return frozenset(resource["uri"] for resource in self.offers.resources)

    @lazy_property
    def uri_templates(self) -> tuple[UriTemplate, ...]:
        return parse_templates(template["uriTemplate"] for template in self.offers.templates)

    @lazy_property
    def skills_by_uri(self) -> Mapping[str, str]:
        """The name of the skill that each file belongs to, by the file's URI."""
        if SKILLS_EXTENSION not in self.extensions:
            return {}
        return map_files(self.tools.values())

    def has_resource(self, uri: str) -> bool:
        """Return whether a URI is listed, percent-encoded or not, is a file of a skill, or matches
        a listed template."""
        if uri in self.resource_uris or uri in self.skills_by_uri:
            return True
        if len(uri) > MAX_URI_CHARS:
            return False
        return unquote(uri) in self.resource_uris or matches_any(self.uri_templates, uri)


def find_most_common(counts: Mapping[str, int]) -> str:
    """Return the category with most tools, alphabetically first on a tie, or "" if none."""
    return min(counts, key=lambda key: (-counts[key], key), default="")


@dataclass(frozen=True)
class ToolNames:
    tools: Mapping[str, Tool]

    def __contains__(self, name: object) -> bool:
        return name in self.tools or (
            isinstance(name, str) and self.find_flat_tool(name) is not None
        )

    def find_flat_tool(self, name: str) -> Tool | None:
        # Avoids building the table for text that cannot be a flat name.
        if self.can_be_flat(name):
            return self.tools_by_flat_name.get(name)
        return None

    @staticmethod
    def can_be_flat(name: str) -> bool:
        """Return whether a name looks like a flat name: a separator, or the full length."""
        return "__" in name or len(name) == FLAT_NAME_CHARS

    @lazy_property
    def tools_by_flat_name(self) -> dict[str, Tool]:
        names = assign_flat_names((tool.server, tool.name) for tool in self.tools.values())
        return dict(zip(names, self.tools.values(), strict=True))


@dataclass(frozen=True)
class Snapshot:
    """Everything known about all servers at one time."""

    servers: Mapping[str, ServerEntry] = field(default_factory=dict)
    index: Index = field(default_factory=lambda: Index.build(()))
    is_restricted: bool = False
    """Whether servers, tools or offers of the catalog are left out."""

    @lazy_property
    def is_large(self) -> bool:
        """Whether a scan of the whole snapshot would block the event loop for too long."""
        servers = self.servers.values()
        if sum(len(it.tools) + it.offers.count for it in servers) > LARGE_LISTING_ITEMS:
            return True
        tools = (tool for server in servers for tool in server.tools.values())
        return sum(len(tool.blob) for tool in tools) > 2 * LARGE_LISTING_BYTES

    async def run_scan(self, work: Callable[..., ScanResult], *args: Any) -> ScanResult:
        """Run `work`, which scans this snapshot, in a thread if the snapshot is large."""
        if self.is_large:
            return await asyncio.to_thread(work, *args)
        return work(*args)

    async def find_tool(self, name: str) -> Tool:
        """Return the tool that a name means, as `resolve_tool` finds it; raises UnknownName."""
        found = self.tools.get(name)
        if found is not None:
            return found
        return await self.run_scan(self.resolve_tool, name)

    async def find_by_flat_name(self, name: str) -> Tool | None:
        if ToolNames.can_be_flat(name):
            await self.load_flat_names()
        return self.tool_names.find_flat_tool(name)

    async def load_lookup(self, lookup: Literal["flat_prompts", "offers_version"]) -> None:
        if lookup not in vars(self):
            await self.run_scan(getattr, self, lookup)

    async def load_flat_names(self) -> None:
        if "tools_by_flat_name" not in vars(self.tool_names):
            await self.run_scan(lambda: self.tools_by_flat_name)

    def prepare(self, previous: "Snapshot") -> None:
        """Compute common lookups and those the previous snapshot was asked for. Takes a while."""
        for entry in self.servers.values():
            entry.for_models  # noqa: B018 - computed to be cached
        for name in {"tools", "version", "main_categories", "app_owners"} | (
            _PREPARED_LOOKUPS & vars(previous).keys()
        ):
            getattr(self, name)
        if "tools_by_flat_name" in vars(previous.tool_names):
            self.tool_names.tools_by_flat_name  # noqa: B018 - computed to be cached

    @lazy_property
    def version(self) -> str:
        """Identifies the set of tools; cursors and the stored index are valid for one version."""
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(self.servers):
            digest.update(self.servers[name].digest.encode())
        return digest.hexdigest()

    @lazy_property
    def offers_version(self) -> str:
        """Identifies the set of resources, resource templates and prompts."""
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
        return {
            tool.address: tool
            for name in sorted(self.servers)
            for tool in self.servers[name].tools.values()
        }

    @lazy_property
    def tool_owners(self) -> Mapping[str, tuple[str, ...]]:
        """The servers that have a tool, by its name in lower case."""
        owners: dict[str, tuple[str, ...]] = {}
        for tool in self.tools.values():
            name = tool.upstream_name.casefold()
            owners[name] = (*owners.get(name, ()), tool.server)
        return owners

    @lazy_property
    def unlisted_servers(self) -> tuple[str, ...]:
        """Names of servers whose offer is not known, in alphabetical order."""
        return tuple(sorted(name for name, entry in self.servers.items() if not entry.is_listed))

    @lazy_property
    def tool_names(self) -> ToolNames:
        return ToolNames(self.tools)

    @lazy_property
    def resolver(self) -> AddressResolver:
        return AddressResolver(self.tools)

    @lazy_property
    def server_identifiers(self) -> Mapping[str, str]:
        return assign_identifiers(self.servers, SCRIPT_BUILTINS)

    @property
    def tools_by_flat_name(self) -> dict[str, Tool]:
        return self.tool_names.tools_by_flat_name

    @lazy_property
    def flat_prompts(self) -> dict[str, tuple[str, Raw]]:
        """Every prompt with its server, by flat name `server__prompt`."""
        prompts: dict[tuple[str, str], Raw] = {}
        for server in sorted(self.servers):
            for prompt in self.servers[server].offers.prompts:
                prompts.setdefault((server, prompt["name"]), prompt)
        return {
            flat: (server, prompts[server, name])
            for flat, (server, name) in assign_flat_names(prompts).items()
        }

    @lazy_property
    def app_owners(self) -> Mapping[str, tuple[str, ...]]:
        """The servers that have an app at an address; one that several have is ambiguous."""
        owners: dict[str, tuple[str, ...]] = {}
        for name in sorted(self.servers):
            for uri in self.servers[name].app_uris:
                owners[uri] = (*owners.get(uri, ()), name)
        return owners

    def hide_app_tools(self) -> "Snapshot":
        """Return what models may see: everything but the tools that only apps may call."""
        servers = {name: entry.for_models for name, entry in self.servers.items()}
        if all(servers[name] is entry for name, entry in self.servers.items()):
            return self
        return Snapshot(servers, self.index, is_restricted=True)

    def find_addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses that a name can mean, without suggestions for an unknown one."""
        flat = self.tool_names.find_flat_tool(name)
        if flat is not None:
            return (flat.address,)
        return self.resolver.find(name)

    def resolve_tool(self, name: str) -> Tool:
        """Return the tool that a name means; raises UnknownName with the nearest."""
        found = self.tools.get(name) or self.tool_names.find_flat_tool(name)
        if found is not None:
            return found
        try:
            return self.tools[self.resolver.resolve(name)]
        except UnknownName:
            if (renamed := self._find_renamed(name)) is None:
                raise
            raise UnknownName(
                f"{quote_text(name)} is called {sanitize_text(renamed)} here",
                nearest=(renamed,),
                advice=f"Call it {sanitize_text(renamed)}.",
            ) from None

    def _find_renamed(self, name: str) -> str | None:
        """Return the address of a tool that the configuration renames, by its server's name."""
        if not self._renamed_tools:
            return None
        former = AddressResolver(self._renamed_tools).find(name)
        return self._renamed_tools[former[0]] if len(former) == 1 else None

    @lazy_property
    def _renamed_tools(self) -> Mapping[str, str]:
        """Addresses of renamed tools, by what they would be with their servers' names."""
        found = {
            f"{tool.server}.{tool.upstream_name}": tool.address
            for tool in self.tools.values()
            if tool.name != tool.upstream_name
        }
        return {former: new for former, new in found.items() if former not in self.tools}

    def resolve_server(self, name: str) -> ServerEntry:
        """Return a server by name, ignoring case and separators; raises UnknownName."""
        if entry := self.servers.get(name):
            return entry
        spelled = name.strip()
        folded = fold(name)
        matches = [key for key in self.servers if folded and fold(key) == folded]
        if found := self.server_identifiers.get(spelled) or (
            matches[0] if len(matches) == 1 else None
        ):
            return self.servers[found]
        near = tuple(matches) or find_nearest_names(spelled, self.servers)
        advice = "browse_tools without arguments lists them."
        if near:
            advice = f"Did you mean {', '.join(near)}?"
        raise UnknownName(
            f"there is no server {quote_text(name)} here", nearest=near, advice=advice
        )

    def get_category(self, address: str) -> str:
        return self.index.get_category(address)

    @lazy_property
    def tools_by_category(self) -> Mapping[str, Mapping[str, Sequence[Tool]]]:
        """Tools of each category, by server; the only pass over all tools for categories."""
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
        """Category of most tools of each server; empty for a server without tools."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in self.servers}
        for category, servers in self.tools_by_category.items():
            for name, tools in servers.items():
                counts[name][category] = len(tools)
        return {name: find_most_common(count) for name, count in counts.items()}

    def with_index(self, index: Index) -> "Snapshot":
        """Return the same servers with another index; cached lookups are kept."""
        other = replace(self, index=index)
        # Cached properties read only categories from the index, and these depend on the tools.
        other.__dict__.update({**self.__dict__, "index": index})
        return other

    def restrict_to(self, scope: Scope) -> "Snapshot":
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
        return Snapshot(servers, self.index, is_restricted=True)


def _filter_offers(server: str, offers: ServerOffers, scope: Scope) -> ServerOffers:
    return ServerOffers(
        tuple(item for item in offers.resources if scope.can_see_resource(server, item["uri"])),
        tuple(
            item for item in offers.templates if scope.can_see_resource(server, item["uriTemplate"])
        ),
        tuple(item for item in offers.prompts if scope.can_see_prompt(server, item["name"])),
    )
