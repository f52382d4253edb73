"""Tools as clients list and call them: the meta-tools, or every upstream tool under its flat name."""

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
"""Bytes of definitions that take longer to describe than the event loop may stand still."""


class ProfileTools:
    """One view's tools."""

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
        """The category that each server had when it came into the capability index."""
        self._server_index: dict[str, str] = {}
        self._definitions: list[Raw] | None = None
        self._definitions_for: tuple[Snapshot, ProfileSettings] | None = None

    # --- listing

    async def list_tools(self, params: Raw) -> Raw:
        """A page of the list."""
        face = self._profile_state.settings
        version = self._profile_state.snapshot.version
        if query := parse_query(params):
            return await self._list_relevant(query, params)
        if face.exposure == "semantic":
            await self._intent_tools.load_encoder()
            chosen = self._intent_tools.select_tools()
            return make_list_page(
                "tools/list",
                "tools",
                [*self.build_definitions(), *chosen.definitions],
                version,
                params,
                chosen.meta,
            )
        if face.exposure != "full":
            return make_list_page("tools/list", "tools", self.build_definitions(), version, params)
        await self._load_listed_tools()

        def render_item(one: tuple[str, Tool]) -> Raw:
            return to_strict_tool(one[1].definition, one[0])

        return make_list_page(
            "tools/list", "tools", [*self.listed_tools.items()], version, params, render=render_item
        )

    async def _list_relevant(self, query: str, params: Raw) -> Raw:
        """The tools that serve a query, after the meta-tools where there are any; an extension of
        the protocol."""
        await self._intent_tools.load_encoder()
        await self._load_listed_tools()
        face = self._profile_state.settings
        snapshot = self._profile_state.snapshot
        most, names = (face.top_k, self.listed_tools) if face.can_call_flat_names else (0, {})
        chosen = select_relevant_tools(
            snapshot, names, query, most, face.listing_budget, require_match=True
        )
        if face.exposure == "full":
            ours = []
        else:
            ours = self.build_definitions()
        # A cursor goes on with its own query, and with no other.
        asking = f"tools/list\n{query}"
        return make_list_page(
            asking, "tools", [*ours, *chosen.definitions], snapshot.version, params, chosen.meta
        )

    @property
    def listed_tools(self) -> Mapping[str, Tool]:
        """Every tool by the name that it is listed under, where it is."""
        snapshot = self._profile_state.snapshot
        sole = self._profile_state.transparent_server
        if sole:
            return snapshot.servers[sole].tools
        return snapshot.tools_by_flat_name

    async def _load_listed_tools(self) -> None:
        if not self._profile_state.transparent_server:
            await self._profile_state.snapshot.load_flat_names()

    def build_definitions(self) -> "list[Raw]":
        """The meta-tools; the same bytes until a server gets known, or goes."""
        snapshot = self._profile_state.snapshot
        face = self._profile_state.settings
        made = self._definitions
        made_for = self._definitions_for
        if (
            made is None
            or made_for is None
            or made_for[0] is not snapshot
            or made_for[1] is not face
        ):
            index = self._index_servers(snapshot)
            worn = made_for is None or made_for[1] is not face
            self._definitions_for = snapshot, face
            if made is None or worn or index != self._server_index:
                self._server_index = index
                self._definitions = made = tool_definitions.build_definitions(
                    face.enabled_meta_tools, index, self._make_options(snapshot)
                )
        return made

    def has_changed(self) -> bool:
        """Whether the list is another than the one that was listed last; who has listed none,
        misses none."""
        before = self._definitions
        ours = before is not None and self.build_definitions() != before
        return (
            self._profile_state.settings.exposure == "semantic" and self._intent_tools.has_changed()
        ) or ours

    def _make_options(self, snapshot: Snapshot) -> tool_definitions.MetaToolOptions:
        tagged = any(entry.tags for entry in snapshot.servers.values())
        return tool_definitions.MetaToolOptions(
            self._profile_state.settings.languages,
            tagged,
            bool(self._profile_state.isolated_servers),
        )

    def _index_servers(self, snapshot: Snapshot) -> dict[str, str]:
        """Every server with its category, none where no tool of it is known.

        A server keeps the category it came in with: clients cache prompts on this text.
        """
        for name, entry in snapshot.servers.items():
            if entry.tools and name not in self._categories:
                self._categories[name] = snapshot.main_categories[name]
        return {name: self._categories.get(name, "") for name in sorted(snapshot.servers)}

    # --- calling

    async def call_tool(self, params: Raw, context: CallContext) -> Raw:
        """A tool's result, or what a meta-tool answers."""
        name = params.get("name")
        arguments = params.get("arguments")
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "tools/call needs the name of a tool")
        if arguments is None:
            arguments = {}
        else:
            arguments = arguments
        face = self._profile_state.settings
        sole = self._profile_state.transparent_server
        if face.exposure == "full":
            context = replace(context, via="flat")
            await self._load_listed_tools()
            tool = self.listed_tools.get(name)
            if tool is not None:
                return await self._run_tool(tool, arguments, context)
            if sole and face.allows_unlisted:
                return await self._call_pipeline.request(sole, "tools/call", params, context)
            return await self._run_tool(
                await self._find_tool(name, arguments, context), arguments, context
            )
        if name not in face.enabled_meta_tools:
            context = replace(context, via="flat")
            if (
                face.can_call_flat_names
                and (tool := await self._profile_state.snapshot.find_by_flat_name(name)) is not None
            ):
                return await self._run_tool(tool, arguments, context, unabridged=True)
            there = f" Tools behind this gateway are run by {tool_definitions.CALL_TOOL}(name, arguments)."
            unknown = UnknownName(
                f"there is no tool {quote_text(name)} in this list",
                nearest=face.enabled_meta_tools,
                advice=f"It has: {', '.join(face.enabled_meta_tools)}.{there if tool_definitions.CALL_TOOL in face.enabled_meta_tools else ''}",
            )
            await self._call_pipeline.record_refusal(name, arguments, context, unknown)
            raise unknown
        return await self._call_meta_tool(name, arguments, context)

    async def _find_tool(self, name: str, arguments: Any, context: CallContext) -> Tool:
        """The tool of that name; that somebody asked for one that is not there is written down."""
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
        """A page of what is found."""
        sight = self._profile_state
        about = (
            sight.get_server_states(),
            sight.settings.discovery_budget,
            sight.settings.enabled_meta_tools,
        )
        return (
            await self._search_service.search(sight.snapshot, request, context.caller, *about)
        ).text

    async def _browse_or_describe(self, name: str, arguments: Raw) -> Raw:
        sight = self._profile_state
        states = self._profile_state.get_server_states()
        budget = self._profile_state.settings.discovery_budget
        snapshot = sight.snapshot
        shelves = sight.ranked_catalog
        if name == tool_definitions.DESCRIBE_TOOLS:
            named = await snapshot.run_scan(
                describe_tools.resolve_names, snapshot, arguments.pop("names"), states
            )
            body, found = await self._describe(snapshot, named, arguments)
            if found:
                return tool_result.make_text_result(body)
            return {**tool_result.make_text_result(body), "isError": True}
        if arguments.get("server") or arguments.get("category"):
            browse = partial(browse_tools.browse, shelves, states, budget, **arguments)
            return tool_result.make_text_result(await snapshot.run_scan(browse))
        overview = partial(
            browse_tools.render_overview, shelves, states, budget, arguments.get("cursor")
        )
        return tool_result.make_text_result(await snapshot.run_scan(overview))

    async def _describe(
        self, snapshot: Snapshot, named: describe_tools.ResolvedNames, arguments: Raw
    ) -> tuple[str, bool]:
        """The text and whether a tool was found; large definitions are rendered in a thread."""
        profile_state = self._profile_state
        rendered = describe_tools.choose_rendered(named.tools)
        known: dict[str, Mapping[str, Any]] = {}
        if arguments.get("detail") == "full":
            # Here and not in the thread: what is known of a tool's use changes on the event loop.
            known = {
                address: collect_tool_details(profile_state, tool)
                for address, tool in rendered.items()
            }
        describe = partial(
            describe_tools.describe,
            snapshot,
            profile_state.settings.discovery_budget,
            named,
            **arguments,
            get_details=lambda tool: known[tool.address],
        )
        if sum(len(tool.blob) for tool in rendered.values()) < _LARGE_DEFINITIONS:
            return describe()
        return await asyncio.to_thread(describe)

    async def _call_named_tool(self, arguments: Raw, context: CallContext) -> Raw:
        name = arguments["name"]
        given = arguments.get("arguments") or {}
        snapshot = self._profile_state.snapshot
        context = replace(context, via="call_tool")
        try:
            tool = await self._find_tool(name, given, context)
        except UnknownName as error:
            raise browse_tools.explain_unknown_name(
                error, name, snapshot, self._profile_state.get_server_states()
            ) from error
        if arguments.get("view") == "shape":
            confirm = bool(arguments.get("confirm"))
            call = call_for_shape(
                self._call_pipeline, tool, given, context, confirm=confirm, count=count_tokens
            )
            return self._add_call_notes(tool, await self._await_result(tool, call))
        return await self._run_tool(tool, given, context)

    async def _read_result(self, arguments: Raw, context: CallContext) -> str:
        if self._result_services is None:
            raise UnknownName("there is no such result")
        return await self._result_services.reader.read(
            context.caller, **arguments, budget=self._profile_state.settings.result_budget
        )

    async def _run_tool(
        self, tool: Tool, arguments: Any, context: CallContext, *, unabridged: bool = False
    ) -> Raw:
        face = self._profile_state.settings
        unabridged = unabridged or face.exposure == "full"
        result = await self._await_result(
            tool, self._call_pipeline.call(tool, arguments, context), raise_remote=unabridged
        )
        self._links.remember(context.caller, tool.server, result)
        if not self._profile_state.transparent_server:
            result = await confine_links(tool.server, result)
        if unabridged:
            return without_mismatch(
                result
            )  # a client that lists a tool itself holds its result against the declared schema
        if self._result_services is not None:
            budget = face.result_budget
            by_tool = tool_definitions.READ_RESULT in face.enabled_meta_tools
            result = await self._result_services.handles.fit_to_budget(
                tool, result, context.caller, budget=budget, has_read_result=by_tool
            )
        return self._add_call_notes(tool, result)

    def _add_call_notes(self, tool: Tool, result: Raw) -> Raw:
        return add_call_notes(result, lambda: self._render_hint(tool))

    def _render_hint(self, tool: Tool) -> str:
        """The parameters of a tool as it is now: it may have changed while it was called."""
        now = self._profile_state.snapshot.tools.get(tool.address, tool)
        return browse_tools.render_schema_hint(now, self._profile_state.settings.discovery_budget)

    def _render_error_hint(self, error: PorticoError, tool: Tool) -> str:
        """The same below an error; where the definition changed, marked as the server's words."""
        changed = CHANGED_PHRASE in error.advice or isinstance(error, DefinitionChanged)
        if changed:
            return f"{SERVER_TEXT_NOTICE}\n{self._render_hint(tool)}"
        return self._render_hint(tool)

    async def _await_result(
        self, tool: Tool, call: Awaitable[Raw], *, raise_remote: bool = False
    ) -> Raw:
        """A call's result; where it failed, the reason as a result, but a server's own error as it
        is where `raw`."""
        try:
            return await call
        except (InvalidArguments, DefinitionChanged) as error:
            return tool_result.make_error_result(error, hint=self._render_error_hint(error, tool))
        except BackendUnavailable as error:
            return tool_result.make_error_result(error)
        except RemoteError as error:
            if raise_remote or error.code in tool_result.CLIENT_ERROR_CODES:
                raise
            return tool_result.make_error_result(
                error,
                hint=self._render_error_hint(error, tool)
                if error.code == INVALID_PARAMS or error.advice
                else "",
            )
