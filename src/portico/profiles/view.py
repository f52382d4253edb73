"""One profile's MCP interface: every method about tools, resources or prompts, as raw dicts.

The exposures `meta` and `code` show the meta-tools, `full` every upstream tool. A full view of a
single un-prefixed server is transparent: names, URIs and unknown methods pass unchanged, and
nothing of the gateway's own is added.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from portico.callers import Caller
from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.server_task import make_extension_needed_error
from portico.calls.task_tickets import is_ticket
from portico.catalog.skills import SKILLS_EXTENSION
from portico.catalog.snapshot import Snapshot
from portico.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RemoteError, UnknownName
from portico.events import CatalogChanged, Event
from portico.json_text import json_codec
from portico.meta_tools import instructions, tool_definitions
from portico.meta_tools.result_links import ResultLinks
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_tools import SearchService
from portico.policy.rules import CallerRules
from portico.policy.target import Target
from portico.profiles import prompts, resources
from portico.profiles.apps import Apps
from portico.profiles.first_listing import FirstListing, WaitForListing
from portico.profiles.passthrough import UpstreamOffers
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.profiles.prompts import GatewayPrompts, complete_argument
from portico.profiles.resources import GatewayResources
from portico.profiles.skills import SKILL_METHODS, ProfileSkills
from portico.profiles.state_handles import StateHandles
from portico.profiles.tasks import TASK_METHODS
from portico.profiles.tools import ProfileTools
from portico.rendering.cursor import PAGE_SIZE
from portico.rendering.resource_uris import GatewayUri, get_not_found_code, parse_gateway_uri
from portico.rendering.tool_result import make_annotations
from portico.upstream.backend import Era, Raw
from portico.upstream.protocol.extensions import (
    UI_EXTENSION,
    Extensions,
    merge_declared,
    select_agreed,
)
from portico.usage.learner import Learner
from portico.usage.tool_tiers import RankedCatalog

__all__ = ["PAGE_SIZE", "ProfileSettings", "ProfileView"]

MAX_NARROWED_VIEWS = 64
"""Different selections of rules whose view of a profile is kept."""
_RESOURCE_METHODS = ("resources/read", "resources/subscribe", "resources/unsubscribe")


class ProfileView:
    """Handler of the MCP requests of a profile's clients."""

    def __init__(
        self,
        profile_state: ProfileState,
        call_pipeline: CallPipeline,
        *,
        wait_for_listing: WaitForListing | None = None,
        learner: Learner | None = None,
        runtimes: Runtimes | None = None,
        shared: "ProfileView | None" = None,
    ) -> None:
        """`wait_for_listing` waits for servers that were never listed, until its predicate holds or
        they have had their time; `runtimes` run scripts and workflows. Links and state handles are
        those of `shared`, if given."""
        self.profile_state = profile_state
        self._wait_for_listing = wait_for_listing
        self._learner = learner
        self._narrowed: OrderedDict[CallerRules, ProfileView] = OrderedDict()
        """What callers see from whom rules hide something, by these rules; the latest used."""
        self.search_service = SearchService(
            learner,
            profile_state.bus,
            self.profile_state.get_facts,
            self.profile_state.get_popularity_boosts,
            self.profile_state.get_standings_version,
        )
        self.first_listing = FirstListing(self.profile_state, wait_for_listing)
        self._call_pipeline = call_pipeline
        self._runtimes = runtimes
        self._links = links = shared._links if shared else ResultLinks()
        self.state_handles = shared.state_handles if shared else StateHandles()
        apps = Apps(self.profile_state, links)
        self._tools = ProfileTools(
            self.profile_state,
            call_pipeline,
            self.search_service,
            links,
            apps,
            self.state_handles,
            runtimes,
        )
        self.upstream_offers = UpstreamOffers(self.profile_state, call_pipeline, links, apps)
        self._resources = GatewayResources(self.profile_state)
        self._skills = ProfileSkills(self.profile_state)
        self._prompts = GatewayPrompts(self.profile_state, self._resources, self.search_service)
        self._handlers: Mapping[str, Callable[[Raw, CallContext], Awaitable[Raw]]] = {
            "tools/list": self._tools.list_tools,
            "tools/call": self._tools.call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": partial(self._change_subscription, "resources/subscribe"),
            "resources/unsubscribe": partial(self._change_subscription, "resources/unsubscribe"),
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete_argument,
            "logging/setLevel": self._set_level,
            "skills/list": self._skills.list_skills,
            "skills/get": self._skills.get_skill,
            **{method: partial(self._tools.tasks.handle, method) for method in TASK_METHODS},
        }

    @property
    def settings(self) -> ProfileSettings:
        return self.profile_state.settings

    def apply(self, settings: ProfileSettings) -> None:
        self.profile_state.apply(settings)
        self._narrowed.clear()

    def select_for(self, caller: Caller) -> "ProfileView":
        """Return what a caller sees of this profile: the same for all with the same rules."""
        rules = self._call_pipeline.enforcement.rules.select_for(caller)
        if rules.hides_nothing:
            return self
        if rules in self._narrowed:
            self._narrowed.move_to_end(rules)
            return self._narrowed[rules]
        view = ProfileView(
            self.profile_state.narrow(rules),
            self._call_pipeline,
            wait_for_listing=self._wait_for_listing,
            learner=self._learner,
            runtimes=self._runtimes,
            shared=self,
        )
        self._narrowed[rules] = view
        if len(self._narrowed) > MAX_NARROWED_VIEWS:
            self._narrowed.popitem(last=False)
        return view

    def denies_resource(self, caller: Caller, server: str, uri: str) -> bool:
        """Return whether the rules deny a caller a resource of a server."""
        rules = self._call_pipeline.enforcement.rules.select_for(caller)
        return rules.decide(Target("resource", server, uri), {"uri": uri}).effect == "deny"

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
        return self.profile_state.transparent_server

    def get_capabilities(self, era: Era, extensions: Extensions) -> Raw:
        """Return what is declared to a client that declares these extensions; for a transparent
        view what its server declares."""
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
        servers = merge_declared(
            entry.extensions for entry in self.profile_state.scoped_snapshot.servers.values()
        )
        if self.settings.apps == "off":
            servers.pop(UI_EXTENSION, None)
        agreed = select_agreed(extensions, servers)
        if SKILLS_EXTENSION in servers:
            # Servers declare it whatever their client does; folders are not read here.
            agreed[SKILLS_EXTENSION] = {}
        if agreed:
            declared["extensions"] = agreed
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
        if method in TASK_METHODS:
            if era == "modern" and context.task_mode != "return":
                raise make_extension_needed_error()
            if era == "legacy" or (self.transparent_server and not _has_ticket(params)):
                handler = None
        if method in SKILL_METHODS and self.transparent_server:
            handler = None
        if handler is None:
            if self.transparent_server:
                return await self._call_pipeline.request(
                    self.transparent_server, method, params, context
                )
            raise RemoteError(METHOD_NOT_FOUND, "Method not found", method)
        await self.profile_state.load_snapshot()
        if self.first_listing.complete_servers is not self.profile_state.snapshot.servers:
            await self.first_listing.wait_for(method, params)
        if self.profile_state.usage_data is not None:
            await self.profile_state.usage_data.restored.wait()
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

    async def run_tool(self, name: str, arguments: Raw, context: CallContext) -> Raw:
        """Run a tool by its address for a client that does not speak MCP; raises PorticoError.

        A failure of the tool is a result; a large result is shortened to the profile's budget.
        """
        if self.profile_state.usage_data is not None:
            await self.profile_state.usage_data.restored.wait()
        return await self._tools.run_tool(name, arguments, context)

    # --- resources

    def parse_gateway_uri(self, uri: str) -> GatewayUri | None:
        """Parse a gateway URI; None for a server's, and always None in a transparent view."""
        if self.transparent_server:
            return None
        return parse_gateway_uri(uri)

    async def _list_resources(self, params: Raw, context: CallContext) -> Raw:
        return await self.upstream_offers.list_resources(
            params, self._select_gateway_items(resources.RESOURCES)
        )

    async def _list_templates(self, params: Raw, context: CallContext) -> Raw:
        return await self.upstream_offers.list_templates(
            params, self._select_gateway_items(resources.TEMPLATES)
        )

    def _select_gateway_items(self, items: tuple[Raw, ...]) -> tuple[Raw, ...]:
        if self.transparent_server:
            return ()
        return items

    async def _read_resource(self, params: Raw, context: CallContext) -> Raw:
        uri = _get_uri("resources/read", params)
        if (gateway_uri := self.parse_gateway_uri(uri)) is None:
            return await self.upstream_offers.request_resource("resources/read", params, context)
        if gateway_uri.kind == "result":
            return await self._read_result(uri, gateway_uri, context)
        await self._resources.load_lookups(gateway_uri)
        found = self._resources.read(uri, gateway_uri, context.caller)
        self.profile_state.publish_shown(context.caller, found["contents"][0]["text"])
        return found

    async def _change_subscription(self, method: str, params: Raw, context: CallContext) -> Raw:
        uri = _get_uri(method, params)
        if (gateway_uri := self.parse_gateway_uri(uri)) is None:
            return await self.upstream_offers.request_resource(method, params, context)
        if gateway_uri.kind == "result":
            reason = "a result cannot be subscribed to: it never changes"
            raise resources.make_not_found_error(uri, reason=reason)
        await self._resources.load_lookups(gateway_uri)
        self._resources.check_exists(uri, gateway_uri)
        return {}

    async def _read_result(self, uri: str, gateway_uri: GatewayUri, context: CallContext) -> Raw:
        """Read a stored result whole."""
        services = self.profile_state.result_services
        if services is None:
            raise resources.make_not_found_error(uri)
        if is_ticket(gateway_uri.name):
            result = await self._tools.tasks.read(gateway_uri.name, context)
            text = json_codec.dumps(result).decode(errors="replace")
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
        try:
            found = await services.reader.read_resource(context.caller, gateway_uri.name)
        except UnknownName as error:
            raise resources.make_not_found_error(uri, reason=error.message) from error
        (part,) = found["contents"]
        marks = make_annotations(part.get("text") or part.get("blob", ""))
        return {"contents": [{**part, "uri": uri, "annotations": marks}]}

    def can_store_values(self, method: str, params: Raw) -> bool:
        """Return whether a request may store values for later ones: only scripts do."""
        return method == "tools/call" and params.get("name") == tool_definitions.RUN_CODE

    def has_stored_values(self, caller: Caller) -> bool:
        """Return whether this caller's scripts have stored values."""
        return self._runtimes is not None and self._runtimes.scripts.state_store.has_state(caller)

    # --- prompts, completion, logging

    async def _list_prompts(self, params: Raw, context: CallContext) -> Raw:
        return await self.upstream_offers.list_prompts(
            params, self._select_gateway_items(prompts.PROMPTS)
        )

    async def _get_prompt(self, params: Raw, context: CallContext) -> Raw:
        if self.transparent_server or params.get("name") not in prompts.PROMPT_NAMES:
            return await self.upstream_offers.get_prompt(params, context)
        found = await self._prompts.get(params, context)
        self.profile_state.publish_shown(context.caller, found)
        return found

    async def _complete_argument(self, params: Raw, context: CallContext) -> Raw:
        if not self.transparent_server:
            ranked_catalog = self.profile_state.ranked_catalog
            found = await ranked_catalog.snapshot.run_scan(
                complete_argument, ranked_catalog, params
            )
            if found is not None:
                return found
        return await self.upstream_offers.complete_argument(params, context)

    async def _set_level(self, params: Raw, context: CallContext) -> Raw:
        server = self.transparent_server
        info = self.snapshot.servers[server].initialize_info if server else None
        if server and info and info.era == "legacy" and "logging" in info.capabilities:
            return await self._call_pipeline.request(server, "logging/setLevel", params, context)
        return {}

    # --- notifications

    def find_changed_lists(self, event: CatalogChanged) -> set[str]:
        """Return which of `tools`, `resources` and `prompts` differ after an event."""
        if self.settings.exposure == "full":
            differ = event.tools_changed
        else:
            differ = any(view.has_changed_definitions() for view in self._list_views())
        # The gateway's resources include one per tool and server, so they change with these.
        resources_differ = event.resources_changed or (
            event.tools_changed and not self.transparent_server
        )
        kinds = {"tools": differ, "resources": resources_differ, "prompts": event.prompts_changed}
        return {kind for kind, differs in kinds.items() if differs}

    def has_changed_tool_list(self) -> bool:
        """Return whether the tool list changed because embeddings became available."""
        return self.settings.exposure == "semantic" and any(
            view.has_changed_definitions() for view in self._list_views()
        )

    def has_changed_definitions(self) -> bool:
        """Return whether the tool list differs from the last one listed."""
        return self._tools.has_changed()

    def _list_views(self) -> "tuple[ProfileView, ...]":
        return (self, *self._narrowed.values())

    def is_affected(self, uri: str, event: Event) -> bool:
        """Return whether the contents of a gateway resource may differ after an event."""
        return not self.transparent_server and self._resources.is_affected(uri, event)


def _has_ticket(params: Raw) -> bool:
    ticket = params.get("taskId")
    return isinstance(ticket, str) and is_ticket(ticket)


def _get_uri(method: str, params: Raw) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise RemoteError(INVALID_PARAMS, f"{method} needs a uri")
    return uri
