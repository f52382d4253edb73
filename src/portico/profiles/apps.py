"""MCP Apps of one view: which tools a host lists for them, where they are, and what their own calls
mean.

A host renders the apps of the tools that it lists. So where it declares MCP Apps, or the
configuration says `apps: always`, tools with an app stand beside the meta-tools, within
`budgets.apps`; servers take turns, so that none takes it all. Tools that only apps may call follow
for the host: models are never shown them, so that they cost nothing.

An app calls tools and reads resources by its server's own names, and its host does not say which
app it is. A name is taken for an app's where one server with an app has it, or where of several the
caller has opened the app of one; among others nothing is guessed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from portico.callers import Caller
from portico.calls.pipeline import CallContext
from portico.catalog.app_link import NO_LINK, add_app, rename_app
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.tool import Tool, quote_text
from portico.errors import InvalidArguments
from portico.json_text import json_codec
from portico.meta_tools.result_links import ResultLinks
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.rendering.resource_uris import parse_app_uri, to_app_uri, to_outer_uri
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_budget import count_tokens
from portico.upstream.backend import Raw
from portico.upstream.protocol.extensions import EXTENSIONS, UI_EXTENSION, UI_SCHEME

MAX_APP_ONLY_TOOLS = 200
"""Tools that only apps may call, as listed to hosts."""


@dataclass(frozen=True)
class ListedApps:
    """Tools that hosts list for their apps, by flat name."""

    for_models: Mapping[str, Tool]
    app_only: Mapping[str, Tool]

    @property
    def tools(self) -> dict[str, Tool]:
        return {**self.for_models, **self.app_only}


NO_APPS = ListedApps({}, {})


class Apps:
    """The apps of one view."""

    def __init__(self, profile_state: ProfileState, links: ResultLinks) -> None:
        self._profile_state = profile_state
        self._links = links
        self._listed = NO_APPS
        self._listed_for: tuple[Snapshot, ProfileSettings] | None = None
        self._last_shown: tuple[tuple[str, str], ...] | None = None
        """Names and hashes as last listed to a host."""

    def are_shown(self, context: CallContext) -> bool:
        """Return whether the client of a request is told of apps."""
        if self._profile_state.settings.apps != "listed":
            return self._profile_state.settings.apps == "always"
        relay = context.relay
        return relay is not None and UI_EXTENSION in relay.capabilities.get(EXTENSIONS, {})

    # --- addresses

    def to_outer_uri(self, server: str, uri: str) -> str:
        """Return a server's URI as this view's clients know it."""
        if self._profile_state.transparent_server:
            return uri
        if not uri.startswith(UI_SCHEME):
            return to_outer_uri(server, uri)
        owners = self._profile_state.scoped_snapshot.app_owners.get(uri)
        is_plain = owners == (server,) and parse_app_uri(uri) is None
        return uri if is_plain else to_app_uri(server, uri)

    def to_outer_link(self, server: str, uri: str) -> str:
        """Return a URI in a server's result as this view's clients know it: as it is, unless it
        is that of another's app, too."""
        owners = self._profile_state.scoped_snapshot.app_owners
        is_ambiguous = owners.get(uri, (server,)) != (server,) or parse_app_uri(uri) is not None
        return to_app_uri(server, uri) if is_ambiguous else uri

    def render_tool(self, tool: Tool, name: str) -> Raw:
        """Return a tool's definition as clients list it."""
        listed = to_strict_tool(tool.definition, name)
        if "_meta" not in listed or self._profile_state.transparent_server:
            return listed
        return rename_app(listed, lambda uri: self.to_outer_uri(tool.server, uri))

    def rename_in_result(self, server: str, result: Raw) -> Raw:
        """Return a server's result whose app has the address that clients know."""
        if "_meta" not in result or self._profile_state.transparent_server:
            return result
        return rename_app(result, lambda uri: self.to_outer_uri(server, uri))

    def link_result(self, tool: Tool, result: Raw, context: CallContext) -> Raw:
        """Return the result of a tool that the client has not listed, with the address of its app
        if it has one."""
        uri = self._get_links(tool.server).get(tool.name, NO_LINK).uri
        if not uri or "content" not in result or not self.are_shown(context):
            return result
        return add_app(result, self.to_outer_uri(tool.server, uri))

    def has_app(self, server: str, uri: str) -> bool:
        """Return whether a visible server has an app at this address."""
        entry = self._profile_state.scoped_snapshot.servers.get(server)
        return entry is not None and uri in entry.app_uris

    def _get_links(self, server: str) -> Mapping[str, Any]:
        entry = self._profile_state.scoped_snapshot.servers.get(server)
        return entry.app_links if entry is not None else {}

    # --- what an app calls and reads by its server's own names

    def remember_opened(self, caller: Caller, server: str, uri: str) -> None:
        """Record that a caller reads an app, to know whose names it will use."""
        if self.has_app(server, uri):
            link = {"type": "resource_link", "uri": uri}
            self._links.remember(caller, server, {"content": [link]})

    def has_opened(self, owner: str, entry: ServerEntry) -> bool:
        """Return whether a caller has read an app of a server."""
        return bool(owner) and any(
            entry.name in self._links.find_servers(owner, uri) for uri in entry.app_uris
        )

    def find_called(self, name: str, caller: Caller) -> Tool | None:
        """Return the tool that an app means by its server's own name; None if there is none.

        Raises InvalidArguments where several servers have it, and the caller has opened the apps of
        none of them or of more than one.
        """
        found = list(self._iterate_called(name))
        if len(found) > 1:
            servers = self._profile_state.scoped_snapshot.servers
            owner = caller.link_owner
            opened = [one for one in found if self.has_opened(owner, servers[one.server])]
            found = opened or found
        if len(found) > 1:
            names = ", ".join(tool.address for tool in found[:5])
            raise InvalidArguments(
                f"{quote_text(name)} is a tool of several servers with apps, and it is not known"
                f" whose app calls it: {names}",
                advice="Open one of these apps at a time, or give each server its own profile.",
            )
        return found[0] if found else None

    def _iterate_called(self, name: str) -> Iterator[Tool]:
        for entry in self._profile_state.scoped_snapshot.servers.values():
            if not entry.app_uris:
                continue
            tool = entry.tools.get(name)
            if tool is None or tool.upstream_name != name:
                renamed = (one for one in entry.tools.values() if one.upstream_name == name)
                tool = next(renamed, None)
            if tool is not None and entry.app_links.get(tool.name, NO_LINK).is_for_apps:
                yield tool

    # --- listing

    def select_listed(self) -> ListedApps:
        """Return the tools that hosts list for their apps, by flat name."""
        snapshot = self._profile_state.scoped_snapshot
        settings = self._profile_state.settings
        if (
            self._listed_for is None
            or self._listed_for[0].servers is not snapshot.servers
            or self._listed_for[1] is not settings
        ):
            self._listed = self._select(snapshot, settings)
            self._listed_for = snapshot, settings
        return self._listed

    def _select(self, snapshot: Snapshot, settings: ProfileSettings) -> ListedApps:
        if not any(entry.app_uris for entry in snapshot.servers.values()):
            return NO_APPS
        names = {tool.address: name for name, tool in snapshot.tools_by_flat_name.items()}
        left = settings.apps_budget
        for_models: dict[str, Tool] = {}
        for tool in _take_turns(map(_list_app_tools, snapshot.servers.values())):
            name = names[tool.address]
            cost = count_tokens(json_codec.dumps(self.render_tool(tool, name)).decode())
            if cost <= left:
                for_models[name] = tool
                left -= cost
        only = (tool for entry in snapshot.servers.values() for tool in _list_app_only(entry))
        app_only = {names[tool.address]: tool for tool in islice(only, MAX_APP_ONLY_TOOLS)}
        return ListedApps(dict(sorted(for_models.items())), dict(sorted(app_only.items())))

    def record_shown(self) -> None:
        """Record what a host was shown, for `has_changed`."""
        self._last_shown = self._fingerprint()

    def has_changed(self) -> bool:
        """Return whether the list differs from the last one shown; False if none was."""
        return self._last_shown is not None and self._last_shown != self._fingerprint()

    def _fingerprint(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, tool.hash) for name, tool in self.select_listed().tools.items())


def _list_app_tools(entry: ServerEntry) -> list[Tool]:
    """Return the tools with an app that models may call."""
    links = entry.app_links.items()
    return [entry.tools[name] for name, link in links if link.uri and link.is_for_models]


def _list_app_only(entry: ServerEntry) -> list[Tool]:
    links = entry.app_links.items()
    return [entry.tools[name] for name, link in links if not link.is_for_models]


def _take_turns(lists: Iterable[list[Tool]]) -> Iterator[Tool]:
    """Yield the first of each list, then the second of each, and so on."""
    for turn in zip_longest(*lists):
        yield from filter(None, turn)
