"""One profile's face to its clients: every MCP method that is about tools, resources or prompts, as raw dicts.

`meta` and `code` show the meta-tools, `full` every upstream tool. A full view of a single un-prefixed server is
transparent: names, URIs and unknown methods pass as they are, and nothing of ours is added.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portico.access import Caller
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.sync import Catalog
from portico.disclosure import guidance, metatools, prompts, resources
from portico.disclosure.completion import complete
from portico.disclosure.links import Links
from portico.disclosure.namespace import Own, not_found_code, own_uri
from portico.disclosure.offers import Offered
from portico.disclosure.own_state import StateHandles
from portico.disclosure.pages import PAGE
from portico.disclosure.prompts import OwnPrompts
from portico.disclosure.resources import OwnResources
from portico.disclosure.searching import Searching
from portico.disclosure.shelves import Shelves
from portico.disclosure.sight import Face, Sight
from portico.disclosure.toolbox import Toolbox
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError, UnknownName
from portico.events import Bus, CatalogChanged, Event, Shown
from portico.execution.call import Calls, Origin
from portico.execution.large import Large
from portico.execution.means import Means
from portico.learning import Learner
from portico.upstream.backend import Era, Raw
from portico.upstream.supervisor import Upstream

if TYPE_CHECKING:
    from portico.disclosure.insight import Insight

__all__ = ["PAGE", "Face", "View"]

FirstListing = Callable[[Callable[[], bool]], Awaitable[None]]
_ABOUT_ONE_RESOURCE = ("resources/read", "resources/subscribe", "resources/unsubscribe")
_OUR_ANSWERS = frozenset({metatools.SEARCH, metatools.BROWSE, metatools.DESCRIBE})


class View:
    """Answers a profile's clients."""

    def __init__(
        self,
        face: Face,
        catalog: Catalog,
        calls: Calls,
        upstreams: Mapping[str, Upstream],
        first_listing: FirstListing | None = None,
        learner: Learner | None = None,
        bus: Bus | None = None,
        insight: "Insight | None" = None,
        large: Large | None = None,
        means: Means | None = None,
    ) -> None:
        """`first_listing` waits for servers nothing was known of: until it is enough, or they have had their chance.

        Without `insight`, nothing is known of use; without `large`, every result passes whole; `means` are for scripts
        and workflows.
        """
        self.sight = Sight(face, catalog, upstreams, insight)
        self.searching = Searching(learner, bus, self.sight.facts, self.sight.popular, self.sight.computed)
        self._first_listing = first_listing
        self._all_known: Mapping[str, ServerEntry] | None = None
        """The servers as they were when every one of them had been heard."""
        self._calls = calls
        self._bus = bus
        links = Links()
        self._means = means
        self._large = large
        self.state = StateHandles()
        self._toolbox = Toolbox(self.sight, calls, self.searching, links, large, means, self.state)
        self._offered = Offered(self.sight, calls, links)
        self._resources = OwnResources(self.sight)
        self._prompts = OwnPrompts(self.sight, self._resources, self.searching)

    @property
    def face(self) -> Face:
        """What its configuration says about it."""
        return self.sight.face

    def wear(self, face: Face) -> None:
        """Show another face from now on."""
        self.sight.wear(face)

    @property
    def snapshot(self) -> Snapshot:
        """What this profile sees now."""
        return self.sight.snapshot

    @property
    def shelves(self) -> Shelves:
        """The tools it sees, laid out by use and pins."""
        return self.sight.shelves

    @property
    def sole(self) -> str | None:
        """The server this view is transparent for, if it is."""
        return self.sight.sole

    def capabilities(self, era: Era) -> Raw:
        """What we declare; for a transparent view what its server declares."""
        if self.sole and (hello := self.snapshot.servers[self.sole].hello):
            mirrored = dict(hello.capabilities)
            if era == "modern" and hello.era == "legacy":
                mirrored.pop("logging", None)
            return mirrored
        declared: Raw = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
        }
        return declared if era == "modern" else {**declared, "logging": {}}

    def instructions(self) -> str:
        """What the client is told first."""
        if self.sole:
            hello = self.snapshot.servers[self.sole].hello
            return hello.instructions if hello else ""
        if self.face.exposure == "full":
            return guidance.full_instructions(self.snapshot)
        return guidance.meta_instructions(self.snapshot, self.face.enabled)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema a client was shown for a tool, for checking `Mcp-Param-*` headers."""
        tool = self._toolbox.listed.get(name) if self.face.direct else None
        return tool.input_schema if tool else None

    async def handle(self, method: str, params: Raw, origin: Origin, era: Era) -> Raw:
        """Answer one request; raises PorticoError."""
        handler = self._handlers.get(method)
        if handler is None:
            if self.sole:
                return await self._calls.ask(self.sole, method, params, origin)
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        if self._first_listing is not None and self._all_known is not self.snapshot.servers:
            await self._settle(self._first_listing, method, params)
        try:
            return await handler(params, origin)
        except RemoteError as error:
            if method in _ABOUT_ONE_RESOURCE and (code := not_found_code(error, era)) != error.code:
                raise RemoteError(code, error.message, error.data, has_data=error.has_data) from error
            raise

    @cached_property
    def _handlers(self) -> Mapping[str, Callable[[Raw, Origin], Awaitable[Raw]]]:
        return {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            **{method: self._with_uri(method) for method in _ABOUT_ONE_RESOURCE},
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
        }

    async def _settle(self, first_listing: FirstListing, method: str, params: Raw) -> None:
        """Wait where an answer now would leave out a server that is still on its first start."""
        name = self._named_tool(method, params)

        def enough() -> bool:
            if name is not None and name in self.snapshot.names:
                return True
            return all(entry.known for entry in self.snapshot.servers.values())

        needs_no_listing = method == "tools/list" and self.face.exposure in ("meta", "code") and not params.get("query")
        if not needs_no_listing and not enough():
            await first_listing(enough)
        servers = self.snapshot.servers
        if all(entry.known for entry in servers.values()):
            self._all_known = servers

    def _named_tool(self, method: str, params: Raw) -> str | None:
        given = params.get("arguments") if params.get("name") in self.face.enabled else params
        name = given.get("name") if method == "tools/call" and isinstance(given, dict) else None
        return name if isinstance(name, str) else None

    # --- tools

    async def _list_tools(self, params: Raw, origin: Origin) -> Raw:
        found = await self._toolbox.list(params)
        self.tell(origin.caller, found["tools"], listing=params.get("cursor") is None)
        return found

    async def _call_tool(self, params: Raw, origin: Origin) -> Raw:
        result = await self._toolbox.call(params, origin)
        if self.face.exposure != "full" and params.get("name") in _OUR_ANSWERS:
            self.tell(origin.caller, result["content"][0]["text"])
        return result

    # --- resources

    def owns(self, uri: str) -> Own | None:
        """What one of our own URIs asks for; None for a server's, and for all in a transparent view."""
        return None if self.sole else own_uri(uri)

    async def _list_resources(self, params: Raw, origin: Origin) -> Raw:
        return await self._offered.list_resources(params, self._ours(resources.RESOURCES))

    async def _list_templates(self, params: Raw, origin: Origin) -> Raw:
        return await self._offered.list_templates(params, self._ours(resources.TEMPLATES))

    def _ours(self, items: tuple[Raw, ...]) -> tuple[Raw, ...]:
        return () if self.sole else items

    def _with_uri(self, method: str) -> Callable[[Raw, Origin], Awaitable[Raw]]:
        async def forward(params: Raw, origin: Origin) -> Raw:
            uri = params.get("uri")
            if not isinstance(uri, str):
                raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
            if (own := self.owns(uri)) is None:
                return await self._offered.about(method, params, origin)
            if own.kind == "result":
                return await self._read_result(method, uri, own, origin)
            await self._resources.prepare(own)
            if method != "resources/read":
                self._resources.check(uri, own)
                return {}
            found = self._resources.read(uri, own, origin.caller)
            self.tell(origin.caller, found["contents"][0]["text"])
            return found

        return forward

    async def _read_result(self, method: str, uri: str, own: Own, origin: Origin) -> Raw:
        """A kept result is read whole; it never changes, so there is nothing to watch."""
        try:
            if self._large is None or method != "resources/read":
                raise UnknownName("a result cannot be subscribed to: it never changes" if self._large else "")
            found = await self._large.reader.resource(origin.caller, own.name)
        except UnknownName as error:
            raise resources.not_found(uri, why=error.message) from error
        return {"contents": [{**part, "uri": uri} for part in found["contents"]]}

    def locate(self, uri: str, owner: str, *, known: bool = True) -> tuple[str, str]:
        """The server that has a resource, or gave this caller a link to it, and the URI it knows it by."""
        return self._offered.locate(uri, owner, known=known)

    def shows_resource(self, server: str, uri: str) -> bool:
        """Whether a resource of a server may be told of here."""
        return self._offered.shows(server, uri)

    def stores(self, method: str, params: Raw) -> bool:
        """Whether a request may store values for the next: only scripts do."""
        return method == "tools/call" and params.get("name") == metatools.CODE

    def has_stored(self, caller: Caller) -> bool:
        """Whether values are kept that this caller's scripts stored."""
        return self._means is not None and self._means.scripts.memory.has(caller)

    def outer_uri(self, server: str, uri: str) -> str:
        """A server's URI as this view's clients know it."""
        return self._offered.outer_uri(server, uri)

    # --- prompts, completion, logging

    async def _list_prompts(self, params: Raw, origin: Origin) -> Raw:
        return await self._offered.list_prompts(params, self._ours(prompts.PROMPTS))

    async def _get_prompt(self, params: Raw, origin: Origin) -> Raw:
        if self.sole or params.get("name") not in prompts.NAMES:
            return await self._offered.prompt(params, origin)
        found = await self._prompts.get(params, origin)
        self.tell(origin.caller, found)
        return found

    async def _complete(self, params: Raw, origin: Origin) -> Raw:
        if not self.sole:
            shelves = self.sight.shelves
            found = await shelves.snapshot.look_through(complete, shelves, params)
            if found is not None:
                return found
        return await self._offered.complete(params, origin)

    async def _set_level(self, params: Raw, origin: Origin) -> Raw:
        hello = self.snapshot.servers[self.sole].hello if self.sole else None
        if self.sole and hello and hello.era == "legacy" and "logging" in hello.capabilities:
            return await self._calls.ask(self.sole, "logging/setLevel", params, origin)
        return {}

    # --- what was shown, and what changed

    def tell(self, caller: Caller, what: object, *, listing: bool = False) -> None:
        """Tell whoever keeps the ledger what a client was shown."""
        if what and self._bus is not None and self._bus.asked_for(Shown):
            self._bus.publish(Shown(caller, what, listing))

    def changed_lists(self, event: CatalogChanged) -> set[str]:
        """The lists of this view, of `tools`, `resources` and `prompts`, that are others after an event."""
        differ = event.tools if self.face.exposure == "full" else self._toolbox.differ()
        # What can be read of ours under a tool's or a server's name comes and goes with it.
        resources_differ = event.resources or (event.tools and not self.sole)
        kinds = {"tools": differ, "resources": resources_differ, "prompts": event.prompts}
        return {kind for kind, differs in kinds.items() if differs}

    def reconsidered(self) -> bool:
        """Whether the list of tools is another, now that tools can be found by their meaning."""
        return self.face.exposure == "semantic" and self._toolbox.differ()

    def touched(self, uri: str, event: Event) -> bool:
        """Whether one of our own resources may say something else after an event."""
        return not self.sole and self._resources.touched(uri, event)
