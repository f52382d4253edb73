"""Tools as clients list and call them: the meta-tools, or every upstream tool by its flat name."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from portico.calls.definition_tracker import CHANGED_PHRASE
from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.shape_view import call_for_shape
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible_text import quote_text
from portico.errors import (
    INVALID_PARAMS,
    BackendUnavailable,
    DefinitionChanged,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.meta_tools import browse_tools, describe_tools, tool_definitions
from portico.meta_tools.arguments import check_arguments
from portico.meta_tools.code_tools import CodeTools
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService
from portico.profiles.namespace import confine_links
from portico.profiles.profile_state import ProfileSettings, ProfileState
from portico.profiles.relevant_tools import IntentTools, parse_query, select_relevant_tools
from portico.profiles.result_links import ResultLinks
from portico.profiles.state_handles import SESSION_ARGUMENT, StateHandles
from portico.profiles.tool_details import collect_tool_details
from portico.rendering import tool_result
from portico.rendering.call_notes import SERVER_TEXT_NOTICE, add_call_notes
from portico.rendering.list_page import make_list_page
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.token_count import count_tokens
from portico.results.marks import without_mismatch
from portico.results.services import ResultServices
from portico.upstream.backend import Raw

_LARGE_DEFINITIONS = 8 * 1024
"""Bytes of definitions above which they are described in a thread, to keep the event loop free."""


class ProfileTools:
    """Listing and calling of one view's tools."""

    def __init__(
        self,
        profile_state: ProfileState,
        call_pipeline: CallPipeline,
        search_service: SearchService,
        links: ResultLinks,
        result_services: ResultServices | None = None,
        runtimes: Runtimes | None = None,
        state_handles: StateHandles | None = None,
    ) -> None:
        self._profile_state = profile_state
        self._call_pipeline = call_pipeline
        self._search_service = search_service
        self._links = links
        self._result_services = result_services
        if state_handles is None:
            self._state_handles = StateHandles()
        else:
            self._state_handles = state_handles
        self._intent_tools = IntentTools(profile_state)
        self._code_tools = CodeTools(profile_state, search_service, runtimes, result_services)
        self._categories: dict[str, str] = {}
        """Category of each server when it entered the capability index."""
        self._server_index: dict[str, str] = {}
        self._definitions: list[Raw] | None = None
        self._definitions_for: tuple[Snapshot, ProfileSettings] | None = None

    # --- listing

    async def list_tools(self, params: Raw) -> Raw:
        """Return a page of the tool list."""
        settings = self._profile_state.settings
        version = self._profile_state.snapshot.version
        if query := parse_query(params):
            return await self._list_relevant(query, params)
        if settings.exposure == "semantic":
            await self._intent_tools.load_encoder()
            selected = self._intent_tools.select_tools()
            return make_list_page(
                "tools/list",
                "tools",
                [*self.build_definitions(), *selected.definitions],
                version,
                params,
                selected.meta,
            )
        if settings.exposure != "full":
            return make_list_page("tools/list", "tools", self.build_definitions(), version, params)
        await self._load_listed_tools()

        def render_item(named_tool: tuple[str, Tool]) -> Raw:
            return to_strict_tool(named_tool[1].definition, named_tool[0])

        return make_list_page(
            "tools/list", "tools", [*self.listed_tools.items()], version, params, render=render_item
        )

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
        if settings.exposure == "full":
            meta_tools = []
        else:
            meta_tools = self.build_definitions()
        # A cursor is valid only for the query that it came with.
        listing = f"tools/list\n{query}"
        return make_list_page(
            listing,
            "tools",
            [*meta_tools, *selected.definitions],
            snapshot.version,
            params,
            selected.meta,
        )

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
        settings = self._profile_state.settings
        transparent = self._profile_state.transparent_server
        if settings.exposure == "full":
            context = replace(context, via="flat")
            await self._load_listed_tools()
            tool = self.listed_tools.get(name)
            if tool is not None:
                return await self._run_tool(tool, arguments, context)
            if transparent and settings.allows_unlisted:
                return await self._call_pipeline.request(transparent, "tools/call", params, context)
            return await self._run_tool(
                await self._find_tool(name, arguments, context), arguments, context
            )
        if name not in settings.enabled_meta_tools:
            context = replace(context, via="flat")
            if (
                settings.can_call_flat_names
                and (tool := await self._profile_state.snapshot.find_by_flat_name(name)) is not None
            ):
                return await self._run_tool(tool, arguments, context, unabridged=True)
            advice = f"It has: {', '.join(settings.enabled_meta_tools)}."
            call_tool = tool_definitions.CALL_TOOL
            if call_tool in settings.enabled_meta_tools:
                advice += f" Tools behind this gateway are run by {call_tool}(name, arguments)."
            unknown = UnknownName(
                f"there is no tool {quote_text(name)} in this list",
                nearest=settings.enabled_meta_tools,
                advice=advice,
            )
            await self._call_pipeline.record_refusal(name, arguments, context, unknown)
            raise unknown
        return await self._call_meta_tool(name, arguments, context)

    async def _find_tool(self, name: str, arguments: Any, context: CallContext) -> Tool:
        """Return the tool of that name. Records an unknown name and raises UnknownName."""
        try:
            return await self._profile_state.snapshot.find_tool(name)
        except UnknownName as error:
            await self._call_pipeline.record_refusal(name, arguments, context, error)
            raise

    async def _call_meta_tool(self, name: str, arguments: Any, context: CallContext) -> Raw:
        try:
            checked = check_arguments(name, arguments)
            if (session := checked.pop(SESSION_ARGUMENT, None)) is not None:
                context = replace(
                    context,
                    caller=replace(context.caller, handle=self._state_handles.redeem(session)),
                )
            if name == tool_definitions.CALL_TOOL:
                return await self._call_named_tool(checked, context)
            if name == tool_definitions.SEARCH_TOOLS:
                return tool_result.make_text_result(
                    await self.search_tools(SearchRequest.from_arguments(checked), context)
                )
            if name == tool_definitions.RUN_CODE:
                return await self._code_tools.run_code(checked, context)
            if name == tool_definitions.RUN_WORKFLOW:
                return await self._code_tools.run_workflow(checked, context)
            if name == tool_definitions.READ_RESULT:
                return tool_result.make_text_result(await self._read_result(checked, context))
            return await self._browse_or_describe(name, checked)
        except PorticoError as error:
            if isinstance(error, RemoteError):
                raise
            return tool_result.make_error_result(error)

    async def search_tools(self, request: SearchRequest, context: CallContext) -> str:
        """Return a page of search results."""
        state = self._profile_state
        page = await self._search_service.search(
            state.snapshot,
            request,
            context.caller,
            state.get_server_states(),
            state.settings.discovery_budget,
            state.settings.enabled_meta_tools,
        )
        return page.text

    async def _browse_or_describe(self, name: str, arguments: Raw) -> Raw:
        states = self._profile_state.get_server_states()
        budget = self._profile_state.settings.discovery_budget
        snapshot = self._profile_state.snapshot
        ranked_catalog = self._profile_state.ranked_catalog
        if name == tool_definitions.DESCRIBE_TOOLS:
            named = await snapshot.run_scan(
                describe_tools.resolve_names, snapshot, arguments.pop("names"), states
            )
            body, found = await self._describe(snapshot, named, arguments)
            if found:
                return tool_result.make_text_result(body)
            return {**tool_result.make_text_result(body), "isError": True}
        if arguments.get("server") or arguments.get("category"):
            browse = partial(browse_tools.browse, ranked_catalog, states, budget, **arguments)
            return tool_result.make_text_result(await snapshot.run_scan(browse))
        overview = partial(
            browse_tools.render_overview, ranked_catalog, states, budget, arguments.get("cursor")
        )
        return tool_result.make_text_result(await snapshot.run_scan(overview))

    async def _describe(
        self, snapshot: Snapshot, named: describe_tools.ResolvedNames, arguments: Raw
    ) -> tuple[str, bool]:
        """Return the text and whether a tool was found; large definitions use a thread."""
        profile_state = self._profile_state
        rendered = describe_tools.choose_rendered(named.tools)
        details: dict[str, Mapping[str, Any]] = {}
        if arguments.get("detail") == "full":
            # Not in the thread: usage data changes on the event loop.
            details = {
                address: collect_tool_details(profile_state, tool)
                for address, tool in rendered.items()
            }
        describe = partial(
            describe_tools.describe,
            snapshot,
            profile_state.settings.discovery_budget,
            named,
            **arguments,
            get_details=lambda tool: details[tool.address],
        )
        if sum(len(tool.blob) for tool in rendered.values()) < _LARGE_DEFINITIONS:
            return describe()
        return await asyncio.to_thread(describe)

    async def _call_named_tool(self, arguments: Raw, context: CallContext) -> Raw:
        name = arguments["name"]
        tool_arguments = arguments.get("arguments") or {}
        snapshot = self._profile_state.snapshot
        context = replace(context, via="call_tool")
        try:
            tool = await self._find_tool(name, tool_arguments, context)
        except UnknownName as error:
            raise browse_tools.explain_unknown_name(
                error, name, snapshot, self._profile_state.get_server_states()
            ) from error
        if arguments.get("view") == "shape":
            confirm = bool(arguments.get("confirm"))
            call = call_for_shape(
                self._call_pipeline,
                tool,
                tool_arguments,
                context,
                confirm=confirm,
                count=count_tokens,
            )
            return self._add_call_notes(tool, await self._await_result(tool, call))
        return await self._run_tool(tool, tool_arguments, context)

    async def _read_result(self, arguments: Raw, context: CallContext) -> str:
        if self._result_services is None:
            raise UnknownName("there is no such result")
        return await self._result_services.reader.read(
            context.caller, **arguments, budget=self._profile_state.settings.result_budget
        )

    async def _run_tool(
        self, tool: Tool, arguments: Any, context: CallContext, *, unabridged: bool = False
    ) -> Raw:
        settings = self._profile_state.settings
        unabridged = unabridged or settings.exposure == "full"
        result = await self._await_result(
            tool, self._call_pipeline.call(tool, arguments, context), raise_remote=unabridged
        )
        self._links.remember(context.caller, tool.server, result)
        if not self._profile_state.transparent_server:
            result = await confine_links(tool.server, result)
        if unabridged:
            # A client that lists the tool checks its result against the declared schema.
            return without_mismatch(result)
        if self._result_services is not None:
            budget = settings.result_budget
            has_read_result = tool_definitions.READ_RESULT in settings.enabled_meta_tools
            result = await self._result_services.handles.fit_to_budget(
                tool, result, context.caller, budget=budget, has_read_result=has_read_result
            )
        return self._add_call_notes(tool, result)

    def _add_call_notes(self, tool: Tool, result: Raw) -> Raw:
        return add_call_notes(result, lambda: self._render_hint(tool))

    def _render_hint(self, tool: Tool) -> str:
        """Render the parameters of the current definition; it may have changed during the call."""
        current = self._profile_state.snapshot.tools.get(tool.address, tool)
        return browse_tools.render_schema_hint(
            current, self._profile_state.settings.discovery_budget
        )

    def _render_error_hint(self, error: PorticoError, tool: Tool) -> str:
        """Render the parameters below an error, marked as server text if they changed."""
        changed = CHANGED_PHRASE in error.advice or isinstance(error, DefinitionChanged)
        if changed:
            return f"{SERVER_TEXT_NOTICE}\n{self._render_hint(tool)}"
        return self._render_hint(tool)

    async def _await_result(
        self, tool: Tool, call: Awaitable[Raw], *, raise_remote: bool = False
    ) -> Raw:
        """Return a call's result, or its failure as an error result.

        With `raise_remote`, and for codes the client must handle, a server's own error is raised.
        """
        try:
            return await call
        except (InvalidArguments, DefinitionChanged) as error:
            return tool_result.make_error_result(error, hint=self._render_error_hint(error, tool))
        except BackendUnavailable as error:
            return tool_result.make_error_result(error)
        except RemoteError as error:
            if raise_remote or error.code in tool_result.CLIENT_ERROR_CODES:
                raise
            hint = ""
            if error.code == INVALID_PARAMS or error.advice:
                hint = self._render_error_hint(error, tool)
            return tool_result.make_error_result(error, hint=hint)
