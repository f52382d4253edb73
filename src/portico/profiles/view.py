"""One profile's MCP interface: every method about tools, resources or prompts, as raw dicts.

The exposures `meta` and `code` show the meta-tools, `full` every upstream tool. A full view of a
single un-prefixed server is transparent: names, URIs and unknown methods pass unchanged, and
nothing of the gateway's own is added.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portico.access import Caller
from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.snapshot import ServerEntry, Snapshot
from portico.catalog.sync import Catalog
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError, UnknownName
from portico.events import CatalogChanged, Event, EventBus, ToolsShown
from portico.meta_tools import instructions, tool_definitions
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_tools import SearchService
from portico.profiles import prompts, resources
from portico.profiles.completion import complete_argument
from portico.profiles.namespace import GatewayUri, get_not_found_code, parse_gateway_uri
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.profiles.prompts import GatewayPrompts
from portico.profiles.resources import GatewayResources
from portico.profiles.result_links import ResultLinks
from portico.profiles.state_handles import StateHandles
from portico.profiles.tools import ProfileTools
from portico.profiles.upstream_offers import UpstreamOffers
from portico.rendering.list_page import PAGE_SIZE
from portico.results.services import ResultServices
from portico.upstream.backend import Era, Raw
from portico.upstream.lifecycle.supervisor import Upstream
from portico.usage.learner import Learner
from portico.usage.ranked_catalog import RankedCatalog

if TYPE_CHECKING:
    from portico.usage.usage_data import UsageData

__all__ = ["PAGE_SIZE", "ProfileSettings", "ProfileView"]

WaitForListing = Callable[[Callable[[], bool]], Awaitable[None]]
_RESOURCE_METHODS = ("resources/read", "resources/subscribe", "resources/unsubscribe")
_DISCOVERY_TOOLS = frozenset(
    {tool_definitions.SEARCH_TOOLS, tool_definitions.BROWSE_TOOLS, tool_definitions.DESCRIBE_TOOLS}
)


class ProfileView:
    """Handler of the MCP requests of a profile's clients."""

    def __init__(
        self,
        settings: ProfileSettings,
        catalog: Catalog,
        call_pipeline: CallPipeline,
        upstreams: Mapping[str, Upstream],
        wait_for_listing: WaitForListing | None = None,
        learner: Learner | None = None,
        bus: EventBus | None = None,
        usage_data: "UsageData | None" = None,
        result_services: ResultServices | None = None,
        runtimes: Runtimes | None = None,
    ) -> None:
        """Create the view.

        `wait_for_listing` waits for servers that were never listed, until its predicate holds or
        they have had their time. Without `usage_data` there are no statistics; without
        `result_services` results are never shortened; `runtimes` run scripts and workflows.
        """
        self.profile_state = ProfileState(settings, catalog, upstreams, usage_data)
        self.search_service = SearchService(
            learner,
            bus,
            self.profile_state.get_facts,
            self.profile_state.get_popularity_boosts,
            self.profile_state.get_standings_version,
        )
        self._wait_for_listing = wait_for_listing
        self._fully_known_servers: Mapping[str, ServerEntry] | None = None
        """The server map for which every server was listed, so that requests need not wait."""
        self._call_pipeline = call_pipeline
        self._bus = bus
        links = ResultLinks()
        self._runtimes = runtimes
        self._result_services = result_services
        self.state_handles = StateHandles()
        self._tools = ProfileTools(
            self.profile_state,
            call_pipeline,
            self.search_service,
            links,
            result_services,
            runtimes,
            self.state_handles,
        )
        self._upstream_offers = UpstreamOffers(self.profile_state, call_pipeline, links)
        self._resources = GatewayResources(self.profile_state)
        self._prompts = GatewayPrompts(self.profile_state, self._resources, self.search_service)

    @property
    def settings(self) -> ProfileSettings:
        """The profile's settings."""
        return self.profile_state.settings

    def apply(self, settings: ProfileSettings) -> None:
        """Replace the settings."""
        self.profile_state.apply(settings)

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot, restricted to the profile's scope."""
        return self.profile_state.snapshot

    @property
    def ranked_catalog(self) -> RankedCatalog:
        """The visible tools, ranked by use and pins."""
        return self.profile_state.ranked_catalog

    @property
    def transparent_server(self) -> str | None:
        """The server that this view is transparent for, or None."""
        return self.profile_state.transparent_server

    def get_capabilities(self, era: Era) -> Raw:
        """Return the declared capabilities; for a transparent view those of its server."""
        if self.transparent_server and (
            info := self.snapshot.servers[self.transparent_server].initialize_info
        ):
            mirrored = dict(info.capabilities)
            if era == "modern" and info.era == "legacy":
                mirrored.pop("logging", None)
            return mirrored
        declared: Raw = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
        }
        if era == "modern":
            return declared
        return {**declared, "logging": {}}

    def render_instructions(self) -> str:
        """Return the instructions of the `initialize` response."""
        if self.transparent_server:
            info = self.snapshot.servers[self.transparent_server].initialize_info
            if info:
                return info.instructions
            return ""
        if self.settings.exposure == "full":
            return instructions.render_full_instructions(self.snapshot)
        return instructions.render_meta_instructions(
            self.snapshot, self.settings.enabled_meta_tools
        )

    def get_input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the schema that a client was shown for a tool, to check `Mcp-Param-*` headers."""
        if not self.settings.can_call_flat_names:
            return None
        tool = self._tools.listed_tools.get(name)
        return tool.input_schema if tool else None

    async def handle(self, method: str, params: Raw, context: CallContext, era: Era) -> Raw:
        """Handle one request; raises PorticoError."""
        handler = self._handlers.get(method)
        if handler is None:
            if self.transparent_server:
                return await self._call_pipeline.request(
                    self.transparent_server, method, params, context
                )
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        if (
            self._wait_for_listing is not None
            and self._fully_known_servers is not self.snapshot.servers
        ):
            await self._wait_for_servers(self._wait_for_listing, method, params)
        try:
            return await handler(params, context)
        except RemoteError as error:
            if (
                method in _RESOURCE_METHODS
                and (code := get_not_found_code(error, era)) != error.code
            ):
                raise RemoteError(
                    code, error.message, error.data, has_data=error.has_data
                ) from error
            raise

    @cached_property
    def _handlers(self) -> Mapping[str, Callable[[Raw, CallContext], Awaitable[Raw]]]:
        return {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            **{method: self._make_resource_handler(method) for method in _RESOURCE_METHODS},
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete_argument,
            "logging/setLevel": self._set_level,
        }

    async def _wait_for_servers(
        self, wait_for_listing: WaitForListing, method: str, params: Raw
    ) -> None:
        """Wait if a response now would leave out a server that is on its first start."""
        name = self._get_called_name(method, params)

        def is_enough() -> bool:
            if name is not None and name in self.snapshot.tool_names:
                return True
            return all(entry.is_listed for entry in self.snapshot.servers.values())

        needs_no_listing = (
            method == "tools/list"
            and self.settings.exposure in ("meta", "code")
            and not params.get("query")
        )
        if not needs_no_listing and not is_enough():
            await wait_for_listing(is_enough)
        servers = self.snapshot.servers
        if all(entry.is_listed for entry in servers.values()):
            self._fully_known_servers = servers

    def _get_called_name(self, method: str, params: Raw) -> str | None:
        if params.get("name") in self.settings.enabled_meta_tools:
            source = params.get("arguments")
        else:
            source = params
        if method == "tools/call" and isinstance(source, dict):
            name = source.get("name")
        else:
            name = None
        if isinstance(name, str):
            return name
        return None

    # --- tools

    async def _list_tools(self, params: Raw, context: CallContext) -> Raw:
        found = await self._tools.list_tools(params)
        self.publish_shown(context.caller, found["tools"], listing=params.get("cursor") is None)
        return found

    async def _call_tool(self, params: Raw, context: CallContext) -> Raw:
        result = await self._tools.call_tool(params, context)
        if self.settings.exposure != "full" and params.get("name") in _DISCOVERY_TOOLS:
            self.publish_shown(context.caller, result["content"][0]["text"])
        return result

    # --- resources

    def parse_gateway_uri(self, uri: str) -> GatewayUri | None:
        """Parse a gateway URI; None for a server's, and always None in a transparent view."""
        if self.transparent_server:
            return None
        return parse_gateway_uri(uri)

    async def _list_resources(self, params: Raw, context: CallContext) -> Raw:
        return await self._upstream_offers.list_resources(
            params, self._select_gateway_items(resources.RESOURCES)
        )

    async def _list_templates(self, params: Raw, context: CallContext) -> Raw:
        return await self._upstream_offers.list_templates(
            params, self._select_gateway_items(resources.TEMPLATES)
        )

    def _select_gateway_items(self, items: tuple[Raw, ...]) -> tuple[Raw, ...]:
        if self.transparent_server:
            return ()
        return items

    def _make_resource_handler(self, method: str) -> Callable[[Raw, CallContext], Awaitable[Raw]]:
        async def handle_request(params: Raw, context: CallContext) -> Raw:
            uri = params.get("uri")
            if not isinstance(uri, str):
                raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
            if (gateway_uri := self.parse_gateway_uri(uri)) is None:
                return await self._upstream_offers.request_resource(method, params, context)
            if gateway_uri.kind == "result":
                return await self._read_result(method, uri, gateway_uri, context)
            await self._resources.load_lookups(gateway_uri)
            if method != "resources/read":
                self._resources.check_exists(uri, gateway_uri)
                return {}
            found = self._resources.read(uri, gateway_uri, context.caller)
            self.publish_shown(context.caller, found["contents"][0]["text"])
            return found

        return handle_request

    async def _read_result(
        self, method: str, uri: str, gateway_uri: GatewayUri, context: CallContext
    ) -> Raw:
        """Read a stored result whole. It never changes, so it cannot be subscribed to."""
        try:
            if self._result_services is None:
                raise UnknownName("")
            if method != "resources/read":
                raise UnknownName("a result cannot be subscribed to: it never changes")
            found = await self._result_services.reader.read_resource(
                context.caller, gateway_uri.name
            )
        except UnknownName as error:
            raise resources.make_not_found_error(uri, reason=error.message) from error
        return {"contents": [{**part, "uri": uri} for part in found["contents"]]}

    def locate_resource(
        self, uri: str, owner: str, *, must_be_known: bool = True
    ) -> tuple[str, str]:
        """Return the server that has a resource, or gave this caller a link, and its own URI."""
        return self._upstream_offers.locate_resource(uri, owner, must_be_known=must_be_known)

    def can_show_resource(self, server: str, uri: str) -> bool:
        """Return whether a server's resource may be mentioned to this view's clients."""
        return self._upstream_offers.can_show_resource(server, uri)

    def can_store_values(self, method: str, params: Raw) -> bool:
        """Return whether a request may store values for later ones: only scripts do."""
        return method == "tools/call" and params.get("name") == tool_definitions.RUN_CODE

    def has_stored_values(self, caller: Caller) -> bool:
        """Return whether this caller's scripts have stored values."""
        return self._runtimes is not None and self._runtimes.scripts.state_store.has_state(caller)

    def to_outer_uri(self, server: str, uri: str) -> str:
        """Return a server's URI as this view's clients know it."""
        return self._upstream_offers.to_outer_uri(server, uri)

    # --- prompts, completion, logging

    async def _list_prompts(self, params: Raw, context: CallContext) -> Raw:
        return await self._upstream_offers.list_prompts(
            params, self._select_gateway_items(prompts.PROMPTS)
        )

    async def _get_prompt(self, params: Raw, context: CallContext) -> Raw:
        if self.transparent_server or params.get("name") not in prompts.PROMPT_NAMES:
            return await self._upstream_offers.get_prompt(params, context)
        found = await self._prompts.get(params, context)
        self.publish_shown(context.caller, found)
        return found

    async def _complete_argument(self, params: Raw, context: CallContext) -> Raw:
        if not self.transparent_server:
            ranked_catalog = self.profile_state.ranked_catalog
            found = await ranked_catalog.snapshot.run_scan(
                complete_argument, ranked_catalog, params
            )
            if found is not None:
                return found
        return await self._upstream_offers.complete_argument(params, context)

    async def _set_level(self, params: Raw, context: CallContext) -> Raw:
        if self.transparent_server:
            info = self.snapshot.servers[self.transparent_server].initialize_info
        else:
            info = None
        if (
            self.transparent_server
            and info
            and info.era == "legacy"
            and "logging" in info.capabilities
        ):
            return await self._call_pipeline.request(
                self.transparent_server, "logging/setLevel", params, context
            )
        return {}

    # --- notifications

    def publish_shown(self, caller: Caller, content: object, *, listing: bool = False) -> None:
        """Publish what a client was shown, for the token ledger."""
        if content and self._bus is not None and self._bus.has_subscribers(ToolsShown):
            self._bus.publish(ToolsShown(caller, content, listing))

    def find_changed_lists(self, event: CatalogChanged) -> set[str]:
        """Return which of `tools`, `resources` and `prompts` differ after an event."""
        if self.settings.exposure == "full":
            differ = event.tools_changed
        else:
            differ = self._tools.has_changed()
        # The gateway's resources include one per tool and server, so they change with these.
        resources_differ = event.resources_changed or (
            event.tools_changed and not self.transparent_server
        )
        kinds = {"tools": differ, "resources": resources_differ, "prompts": event.prompts_changed}
        return {kind for kind, differs in kinds.items() if differs}

    def has_changed_tool_list(self) -> bool:
        """Return whether the tool list changed because embeddings became available."""
        return self.settings.exposure == "semantic" and self._tools.has_changed()

    def is_affected(self, uri: str, event: Event) -> bool:
        """Return whether the contents of a gateway resource may differ after an event."""
        return not self.transparent_server and self._resources.is_affected(uri, event)
