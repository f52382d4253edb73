"""Tools as clients list and call them: the meta-tools, or every upstream tool by its flat name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.skills import PREFIX as SKILL_PREFIX
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool, quote_text
from portico.errors import (
    INVALID_PARAMS,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.json_text.json_codec import LARGE_CHARS
from portico.meta_tools import browse_tools, describe_tools, tool_definitions
from portico.meta_tools.arguments import check_meta_tool_arguments
from portico.meta_tools.call_tool import CallTool
from portico.meta_tools.read_result import read_result
from portico.meta_tools.result_links import ResultLinks
from portico.meta_tools.run_code import run_code
from portico.meta_tools.run_workflow import run_workflow
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.profiles.apps import NO_APPS, Apps, ListedApps
from portico.profiles.json_objects import collect_tool_details
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.profiles.relevant_tools import IntentTools, parse_query, select_relevant_tools
from portico.profiles.state_handles import SESSION_ARGUMENT, StateHandles
from portico.profiles.tasks import ProfileTasks
from portico.rendering.cursor import make_list_page
from portico.rendering.tool_result import annotate_blocks, make_error_result, make_text_result
from portico.upstream.backend import Raw

_DISCOVERY_TOOLS = frozenset(
    {tool_definitions.SEARCH_TOOLS, tool_definitions.BROWSE_TOOLS, tool_definitions.DESCRIBE_TOOLS}
)


class ProfileTools:
    """Listing and calling of one view's tools."""

    def __init__(
        self,
        profile_state: ProfileState,
        call_pipeline: CallPipeline,
        search_service: SearchService,
        links: ResultLinks,
        apps: Apps,
        state_handles: StateHandles,
        runtimes: Runtimes | None = None,
    ) -> None:
        self._profile_state = profile_state
        self._call_pipeline = call_pipeline
        self._search_service = search_service
        self._state_handles = state_handles
        self._apps = apps
        self._call_tool = CallTool(profile_state, call_pipeline, links, apps)
        self.tasks = ProfileTasks(self._call_tool, call_pipeline)
        self._meta_tools: Mapping[str, Callable[[Raw, CallContext], Awaitable[Raw]]] = {
            tool_definitions.SEARCH_TOOLS: self._search_tools,
            tool_definitions.BROWSE_TOOLS: self._browse_tools,
            tool_definitions.DESCRIBE_TOOLS: self._describe_tools,
            tool_definitions.CALL_TOOL: self._call_tool.run,
            **{
                name: partial(self._call_tool.run, called_as=name)
                for name in tool_definitions.SPLIT_CALL_NAMES
            },
            tool_definitions.RUN_CODE: partial(run_code, profile_state, search_service, runtimes),
            tool_definitions.RUN_WORKFLOW: partial(
                run_workflow, profile_state, search_service, runtimes
            ),
            tool_definitions.READ_RESULT: partial(
                read_result, profile_state, self._call_tool.read_task
            ),
        }
        self._intent_tools = IntentTools(profile_state)
        self._categories: dict[str, str] = {}
        """Category of each server when it entered the capability index."""
        self._server_index: dict[str, str] = {}
        self._definitions: list[Raw] | None = None
        self._pinned: list[Tool] | None = None
        """Pinned tools as last listed."""
        self._definitions_for: tuple[Snapshot, ProfileSettings] | None = None

    # --- listing

    async def list_tools(self, params: Raw, context: CallContext) -> Raw:
        page = await self._make_page(params, shows_apps=self._apps.are_shown(context))
        is_first = params.get("cursor") is None
        self._profile_state.publish_shown(context.caller, page["tools"], listing=is_first)
        return page

    async def _make_page(self, params: Raw, *, shows_apps: bool) -> Raw:
        settings = self._profile_state.settings
        version = self._profile_state.snapshot.version
        if query := parse_query(params):
            return await self._list_relevant(query, params)
        if settings.exposure == "full" or settings.list_pins or shows_apps:
            await self._load_listed_tools()
        listed_apps = await self._load_listed_apps() if shows_apps else NO_APPS
        if settings.exposure == "semantic":
            await self._intent_tools.load_encoder()
            selected = self._intent_tools.select_tools()
            definitions = [*self.build_definitions(), *selected.render(self._apps.render_tool)]
            definitions += (one for one in self._list_pinned() if one not in definitions)
            definitions += self._render_apps(listed_apps, definitions)
            return make_list_page(
                "tools/list", "tools", definitions, version, params, selected.meta
            )
        if settings.exposure != "full":
            definitions = [*self.build_definitions(), *self._list_pinned()]
            definitions += self._render_apps(listed_apps, definitions)
            return make_list_page("tools/list", "tools", definitions, version, params)

        def render_item(named_tool: tuple[str, Tool]) -> Raw:
            return self._apps.render_tool(named_tool[1], named_tool[0])

        # A client that lists every tool has skills as resources, or by `skills/list`.
        tools = [
            item for item in self.listed_tools.items() if not item[1].name.startswith(SKILL_PREFIX)
        ]
        items = [*tools, *listed_apps.app_only.items()]
        return make_list_page("tools/list", "tools", items, version, params, render=render_item)

    async def _load_listed_apps(self) -> ListedApps:
        """Return the tools listed for apps; a transparent view has them in its list."""
        if self._profile_state.transparent_server:
            return NO_APPS
        await self._profile_state.scoped_snapshot.load_flat_names()
        self._apps.record_shown()
        return self._apps.select_listed()

    def _render_apps(self, apps: ListedApps, listed: list[Raw]) -> list[Raw]:
        """Render the tools listed for apps that are not in the list yet."""
        names = {definition["name"] for definition in listed}
        tools = apps.tools.items()
        return [self._apps.render_tool(tool, name) for name, tool in tools if name not in names]

    async def _list_relevant(self, query: str, params: Raw) -> Raw:
        """List the tools that match a query, after the meta-tools. An extension of the protocol."""
        await self._intent_tools.load_encoder()
        await self._load_listed_tools()
        settings = self._profile_state.settings
        snapshot = self._profile_state.snapshot
        limit = settings.top_k if settings.can_call_flat_names else 0
        tools = self.listed_tools if settings.can_call_flat_names else {}
        selected = select_relevant_tools(
            snapshot, tools, query, limit, settings.listing_budget, require_match=True
        )
        meta_tools = [] if settings.exposure == "full" else self.build_definitions()
        # A cursor is valid only for the query that it came with.
        listing = f"tools/list\n{query}"
        return make_list_page(
            listing,
            "tools",
            [*meta_tools, *selected.render(self._apps.render_tool)],
            snapshot.version,
            params,
            selected.meta,
        )

    def _list_pinned(self) -> list[Raw]:
        """Return the definitions of the pinned tools, if they are listed."""
        self._pinned = self._select_pinned()
        names: dict[str, str] = {}
        if self._pinned:
            names = {tool.address: name for name, tool in self.listed_tools.items()}
        return [self._apps.render_tool(tool, names[tool.address]) for tool in self._pinned]

    def _select_pinned(self) -> list[Tool]:
        settings = self._profile_state.settings
        if not settings.list_pins or not settings.can_call_flat_names:
            return []
        tools = self._profile_state.snapshot.tools
        return [tools[address] for address in settings.pins if address in tools]

    @property
    def listed_tools(self) -> Mapping[str, Tool]:
        """Every tool by the name that it is or would be listed under."""
        snapshot = self._profile_state.snapshot
        transparent = self._profile_state.transparent_server
        if transparent:
            return snapshot.servers[transparent].tools
        return snapshot.tools_by_flat_name

    async def _load_listed_tools(self) -> None:
        if not self._profile_state.transparent_server:
            await self._profile_state.snapshot.load_flat_names()

    def build_definitions(self) -> "list[Raw]":
        """Return the meta-tools' definitions: the same bytes until the known servers change."""
        snapshot = self._profile_state.snapshot
        settings = self._profile_state.settings
        definitions = self._definitions
        built_for = self._definitions_for
        if (
            definitions is None
            or built_for is None
            or built_for[0] is not snapshot
            or built_for[1] is not settings
        ):
            index = self._index_servers(snapshot)
            has_new_settings = built_for is None or built_for[1] is not settings
            self._definitions_for = snapshot, settings
            if definitions is None or has_new_settings or index != self._server_index:
                self._server_index = index
                self._definitions = definitions = tool_definitions.build_definitions(
                    settings.enabled_meta_tools, index, self._make_options(snapshot)
                )
        return definitions

    def has_changed(self) -> bool:
        """Return whether the list differs from the last one listed; False if none was listed."""
        previous = self._definitions
        meta_tools_changed = previous is not None and self.build_definitions() != previous
        if self._pinned is not None and self._pinned != self._select_pinned():
            return True
        if self._apps.has_changed():
            return True
        return (
            self._profile_state.settings.exposure == "semantic" and self._intent_tools.has_changed()
        ) or meta_tools_changed

    def _make_options(self, snapshot: Snapshot) -> tool_definitions.MetaToolOptions:
        has_tags = any(entry.tags for entry in snapshot.servers.values())
        return tool_definitions.MetaToolOptions(
            self._profile_state.settings.languages,
            has_tags,
            bool(self._profile_state.isolated_servers),
        )

    def _index_servers(self, snapshot: Snapshot) -> dict[str, str]:
        """Return every server with its category; the category is empty while no tool is known.

        A server keeps the category that it entered with, because clients cache prompts on this
        text.
        """
        for name, entry in snapshot.servers.items():
            if entry.tools and name not in self._categories:
                self._categories[name] = snapshot.main_categories[name]
        return {name: self._categories.get(name, "") for name in sorted(snapshot.servers)}

    # --- calling

    async def call_tool(self, params: Raw, context: CallContext) -> Raw:
        """Run a tool or a meta-tool and return its result."""
        name = params.get("name")
        arguments = params.get("arguments")
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "tools/call needs the name of a tool")
        if arguments is None:
            arguments = {}
        if name not in self._profile_state.settings.enabled_meta_tools:
            context = replace(context, via="flat")
            return await self._call_by_flat_name(name, arguments, params, context)
        try:
            check = partial(check_meta_tool_arguments, name, arguments)
            checked = await asyncio.to_thread(check) if _has_long_text(arguments) else check()
            if (session := checked.pop(SESSION_ARGUMENT, None)) is not None:
                caller = context.caller
                handle = self._state_handles.redeem(session, caller.principal.id)
                context = replace(context, caller=replace(caller, handle=handle))
            result = annotate_blocks(await self._meta_tools[name](checked, context))
        except PorticoError as error:
            if isinstance(error, RemoteError):
                raise
            result = make_error_result(error)
        if name in _DISCOVERY_TOOLS:
            self._profile_state.publish_shown(context.caller, result["content"][0]["text"])
        return result

    async def run_tool(self, name: str, arguments: Raw, context: CallContext) -> Raw:
        """Run a tool by its address; raises PorticoError for an unknown name."""
        try:
            tool = await self._profile_state.snapshot.find_tool(name)
        except UnknownName as error:
            await self._call_pipeline.record_refusal(name, arguments, context, error)
            raise
        return await self._call_tool.run_tool(tool, arguments, context)

    async def _call_by_flat_name(
        self, name: str, arguments: Any, params: Raw, context: CallContext
    ) -> Raw:
        state = self._profile_state
        settings = state.settings
        if tool := await self._find_for_app(name, arguments, context):
            return await self._call_tool.run_tool(tool, arguments, context, unabridged=True)
        if settings.exposure == "full":
            await self._load_listed_tools()
            tool = self.listed_tools.get(name)
            if tool is None and state.transparent_server and settings.allows_unlisted:
                return await self._call_pipeline.request(
                    state.transparent_server, "tools/call", params, context
                )
            try:
                tool = tool or await state.snapshot.find_tool(name)
            except UnknownName as error:
                await self._call_pipeline.record_refusal(name, arguments, context, error)
                raise
            return await self._call_tool.run_tool(tool, arguments, context, unabridged=True)
        if settings.can_call_flat_names:
            tool = await state.snapshot.find_by_flat_name(name)
            if tool is not None:
                return await self._call_tool.run_tool(tool, arguments, context, unabridged=True)
        advice = f"It has: {', '.join(settings.enabled_meta_tools)}."
        call_tool = tool_definitions.CALL_TOOL
        if call_tool in settings.enabled_meta_tools:
            advice += f" Tools behind this gateway are run by {call_tool}(name, arguments)."
        elif tool_definitions.CALL_TOOL_READ in settings.enabled_meta_tools:
            advice += (
                " Tools behind this gateway are run by call_tool_read, call_tool_write or"
                " call_tool_destructive(name, arguments), by what they do."
            )
        unknown = UnknownName(
            f"there is no tool {quote_text(name)} in this list",
            nearest=settings.enabled_meta_tools,
            advice=advice,
        )
        await self._call_pipeline.record_refusal(name, arguments, context, unknown)
        raise unknown

    async def _find_for_app(self, name: str, arguments: Any, context: CallContext) -> Tool | None:
        """Return the tool that a host, or an app by its server's own name, calls for an app."""
        state = self._profile_state
        if not (state.settings.can_call_flat_names and self._apps.are_shown(context)):
            return None
        if state.transparent_server or await state.snapshot.find_by_flat_name(name) is not None:
            return None
        if (tool := await state.scoped_snapshot.find_by_flat_name(name)) is not None:
            return tool
        try:
            return self._apps.find_called(name, context.caller)
        except InvalidArguments as error:
            await self._call_pipeline.record_refusal(name, arguments, context, error)
            raise

    # --- meta-tools, each in the module of its name

    async def _search_tools(self, arguments: Raw, context: CallContext) -> Raw:
        state = self._profile_state
        page = await self._search_service.search(
            state.snapshot,
            SearchRequest.from_arguments(arguments),
            context.caller,
            state.get_server_states(),
            state.settings.discovery_budget,
            state.settings.enabled_meta_tools,
        )
        return make_text_result(page.text)

    def _browse_tools(self, arguments: Raw, _: CallContext) -> Awaitable[Raw]:
        return browse_tools.run(self._profile_state, arguments)

    def _describe_tools(self, arguments: Raw, _: CallContext) -> Awaitable[Raw]:
        collect_details = partial(collect_tool_details, self._profile_state)
        return describe_tools.run(self._profile_state, collect_details, arguments)


def _has_long_text(arguments: Any) -> bool:
    values = arguments.values() if isinstance(arguments, dict) else ()
    return any(isinstance(value, str) and len(value) >= LARGE_CHARS for value in values)
