"""Tools as clients list and call them: the meta-tools, or every upstream tool under its flat name."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.catalog.visible import quoted
from portico.disclosure import answer, describing, discovery, metatools
from portico.disclosure.arguments import checked_arguments
from portico.disclosure.doing import Doing
from portico.disclosure.extras import extras
from portico.disclosure.links import Links
from portico.disclosure.listable import listable
from portico.disclosure.namespace import confine_links
from portico.disclosure.own_state import ARGUMENT, StateHandles
from portico.disclosure.pages import page
from portico.disclosure.question import Question
from portico.disclosure.relevant import Intended, asked, relevant
from portico.disclosure.remarks import IN_ITS_WORDS, remarked
from portico.disclosure.searching import Searching
from portico.disclosure.sight import Face, Sight
from portico.disclosure.tokens import count
from portico.errors import (
    INVALID_PARAMS,
    BackendUnavailable,
    DefinitionChanged,
    InvalidArguments,
    PorticoError,
    RemoteError,
    UnknownName,
)
from portico.execution.call import Calls, Origin
from portico.execution.changes import SINCE
from portico.execution.large import Large
from portico.execution.looking import shape_of_call
from portico.execution.marks import unjudged
from portico.execution.means import Means
from portico.upstream.backend import Raw

_LARGE_DEFINITIONS = 8 * 1024
"""Bytes of definitions that take longer to describe than the event loop may stand still."""


class Toolbox:
    """One view's tools."""

    def __init__(
        self,
        sight: Sight,
        calls: Calls,
        searching: Searching,
        links: Links,
        large: Large | None = None,
        means: Means | None = None,
        state: StateHandles | None = None,
    ) -> None:
        self._sight = sight
        self._calls = calls
        self._searching = searching
        self._links = links
        self._large = large
        self._state = StateHandles() if state is None else state
        self._intended = Intended(sight)
        self._doing = Doing(sight, searching, means, large)
        self._categories: dict[str, str] = {}
        """The category that each server had when it came into the capability index."""
        self._index: dict[str, str] = {}
        self._defined: list[Raw] | None = None
        self._defined_for: tuple[Snapshot, Face] | None = None

    # --- listing

    async def list(self, params: Raw) -> Raw:
        """A page of the list."""
        face, version = self._sight.face, self._sight.snapshot.version
        if query := asked(params):
            return await self._list_for(query, params)
        if face.exposure == "semantic":
            await self._intended.ready()
            chosen = self._intended.now()
            return page("tools/list", "tools", [*self.definitions(), *chosen.definitions], version, params, chosen.meta)
        if face.exposure != "full":
            return page("tools/list", "tools", self.definitions(), version, params)
        await self._load_listed()

        def show(one: tuple[str, Tool]) -> Raw:
            return listable(one[1].definition, one[0])

        return page("tools/list", "tools", [*self.listed.items()], version, params, show=show)

    async def _list_for(self, query: str, params: Raw) -> Raw:
        """The tools that serve a query, after the meta-tools where there are any; an extension of the protocol."""
        await self._intended.ready()
        await self._load_listed()
        face, snapshot = self._sight.face, self._sight.snapshot
        most, names = (face.top_k, self.listed) if face.direct else (0, {})
        chosen = relevant(snapshot, names, query, most, face.listing_budget, fitting=True)
        ours = [] if face.exposure == "full" else self.definitions()
        # A cursor goes on with its own query, and with no other.
        asking = f"tools/list\n{query}"
        return page(asking, "tools", [*ours, *chosen.definitions], snapshot.version, params, chosen.meta)

    @property
    def listed(self) -> Mapping[str, Tool]:
        """Every tool by the name that it is listed under, where it is."""
        snapshot, sole = self._sight.snapshot, self._sight.sole
        return snapshot.servers[sole].tools if sole else snapshot.flat

    async def _load_listed(self) -> None:
        if not self._sight.sole:
            await self._sight.snapshot.load_flat()

    def definitions(self) -> "list[Raw]":
        """The meta-tools; the same bytes until a server gets known, or goes."""
        snapshot, face = self._sight.snapshot, self._sight.face
        made, made_for = self._defined, self._defined_for
        if made is None or made_for is None or made_for[0] is not snapshot or made_for[1] is not face:
            index, worn = self._index_of(snapshot), made_for is None or made_for[1] is not face
            self._defined_for = snapshot, face
            if made is None or worn or index != self._index:
                self._index = index
                self._defined = made = metatools.definitions(face.enabled, index, self._offer(snapshot))
        return made

    def differ(self) -> bool:
        """Whether the list is another than the one that was listed last; who has listed none, misses none."""
        before = self._defined
        ours = before is not None and self.definitions() != before
        return (self._sight.face.exposure == "semantic" and self._intended.differs()) or ours

    def _offer(self, snapshot: Snapshot) -> metatools.Offer:
        tagged = any(entry.tags for entry in snapshot.servers.values())
        return metatools.Offer(self._sight.face.languages, tagged, bool(self._sight.isolated))

    def _index_of(self, snapshot: Snapshot) -> dict[str, str]:
        """Every server with its category, none where no tool of it is known.

        A server keeps the category it came in with: clients cache prompts on this text.
        """
        for name, entry in snapshot.servers.items():
            if entry.tools and name not in self._categories:
                self._categories[name] = snapshot.main_categories[name]
        return {name: self._categories.get(name, "") for name in sorted(snapshot.servers)}

    # --- calling

    async def call(self, params: Raw, origin: Origin) -> Raw:
        """A tool's result, or what a meta-tool answers."""
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise RemoteError(INVALID_PARAMS, "tools/call needs the name of a tool")
        arguments = {} if arguments is None else arguments
        face, sole = self._sight.face, self._sight.sole
        if face.exposure == "full":
            origin = replace(origin, way="flat")
            await self._load_listed()
            tool = self.listed.get(name)
            if tool is not None:
                return await self._run(tool, arguments, origin)
            if sole and face.unlisted:
                return await self._calls.ask(sole, "tools/call", params, origin)
            return await self._run(await self._named(name, arguments, origin), arguments, origin)
        if name not in face.enabled:
            origin = replace(origin, way="flat")
            if face.direct and (tool := await self._sight.snapshot.find_flat(name)) is not None:
                return await self._run(tool, arguments, origin, whole=True)
            there = f" Tools behind this gateway are run by {metatools.CALL}(name, arguments)."
            unknown = UnknownName(
                f"there is no tool {quoted(name)} in this list",
                nearest=face.enabled,
                advice=f"It has: {', '.join(face.enabled)}.{there if metatools.CALL in face.enabled else ''}",
            )
            await self._calls.refused(name, arguments, origin, unknown)
            raise unknown
        return await self._meta_call(name, arguments, origin)

    async def _named(self, name: str, arguments: Any, origin: Origin) -> Tool:
        """The tool of that name; that somebody asked for one that is not there is written down."""
        try:
            return await self._sight.snapshot.find_tool(name)
        except UnknownName as error:
            await self._calls.refused(name, arguments, origin, error)
            raise

    async def _meta_call(self, name: str, arguments: Any, origin: Origin) -> Raw:
        try:
            checked = checked_arguments(name, arguments)
            if (session := checked.pop(ARGUMENT, None)) is not None:
                origin = replace(origin, caller=replace(origin.caller, handle=self._state.redeem(session)))
            if name == metatools.CALL:
                return await self._call_by_name(checked, origin)
            if name == metatools.SEARCH:
                return answer.text(await self.search(Question.of(checked), origin))
            if name == metatools.CODE:
                return await self._doing.code(checked, origin)
            if name == metatools.FLOW:
                return await self._doing.flow(checked, origin)
            if name == metatools.READ:
                return answer.text(await self._read(checked, origin))
            return await self._discover(name, checked)
        except PorticoError as error:
            if isinstance(error, RemoteError):
                raise
            return answer.refusal(error)

    async def search(self, question: Question, origin: Origin) -> str:
        """A page of what is found."""
        sight = self._sight
        about = (sight.states(), sight.face.discovery_budget, sight.face.enabled)
        return (await self._searching.answer(sight.snapshot, question, origin.caller, *about)).text

    async def _discover(self, name: str, arguments: Raw) -> Raw:
        sight, states, budget = self._sight, self._sight.states(), self._sight.face.discovery_budget
        snapshot, shelves = sight.snapshot, sight.shelves
        if name == metatools.DESCRIBE:
            named = await snapshot.look_through(describing.find_named, snapshot, arguments.pop("names"), states)
            body, found = await self._describe(snapshot, named, arguments)
            return answer.text(body) if found else {**answer.text(body), "isError": True}
        if arguments.get("server") or arguments.get("category"):
            browse = partial(discovery.browse, shelves, states, budget, **arguments)
            return answer.text(await snapshot.look_through(browse))
        overview = partial(discovery.overview, shelves, states, budget, arguments.get("cursor"))
        return answer.text(await snapshot.look_through(overview))

    async def _describe(self, snapshot: Snapshot, named: describing.Named, arguments: Raw) -> tuple[str, bool]:
        """The text and whether a tool was found; large definitions are rendered in a thread."""
        sight = self._sight
        rendered = describing.choose_rendered(named.tools)
        known: dict[str, Mapping[str, Any]] = {}
        if arguments.get("detail") == "full":
            # Here and not in the thread: what is known of a tool's use changes on the event loop.
            known = {address: extras(sight, tool) for address, tool in rendered.items()}
        describe = partial(
            describing.describe,
            snapshot,
            sight.face.discovery_budget,
            named,
            **arguments,
            extra=lambda tool: known[tool.address],
        )
        if sum(len(tool.blob) for tool in rendered.values()) < _LARGE_DEFINITIONS:
            return describe()
        return await asyncio.to_thread(describe)

    async def _call_by_name(self, arguments: Raw, origin: Origin) -> Raw:
        name, given, snapshot = arguments["name"], arguments.get("arguments") or {}, self._sight.snapshot
        origin = replace(origin, way="call_tool")
        try:
            tool = await self._named(name, given, origin)
        except UnknownName as error:
            raise discovery.explained(error, name, snapshot, self._sight.states()) from error
        if arguments.get("view") == "shape":
            confirm = bool(arguments.get("confirm"))
            call = shape_of_call(self._calls, tool, given, origin, confirm=confirm, count=count)
            return self._remarked(tool, await self._answered(tool, call))
        return await self._run(tool, given, origin)

    async def _read(self, arguments: Raw, origin: Origin) -> str:
        if self._large is None:
            raise UnknownName("there is no such result")
        return await self._large.reader.read(origin.caller, **arguments, budget=self._sight.face.result_budget)

    async def _run(self, tool: Tool, arguments: Any, origin: Origin, *, whole: bool = False) -> Raw:
        face = self._sight.face
        whole = whole or face.exposure == "full"
        result = await self._answered(tool, self._calls.call(tool, arguments, origin), raw=whole)
        self._links.remember(origin.caller, tool.server, result)
        if not self._sight.sole:
            result = await confine_links(tool.server, result)
        if whole:
            return unjudged(result)  # a client that lists a tool itself holds its result against the declared schema
        if self._large is not None:
            budget, by_tool = face.result_budget, metatools.READ in face.enabled
            result = await self._large.handles.fit(tool, result, origin.caller, budget=budget, by_tool=by_tool)
        return self._remarked(tool, result)

    def _remarked(self, tool: Tool, result: Raw) -> Raw:
        return remarked(result, lambda: self._hint(tool))

    def _hint(self, tool: Tool) -> str:
        """The parameters of a tool as it is now: it may have changed while it was called."""
        now = self._sight.snapshot.tools.get(tool.address, tool)
        return discovery.schema_hint(now, self._sight.face.discovery_budget)

    def _hint_after(self, error: PorticoError, tool: Tool) -> str:
        """The same below an error; where the definition changed, marked as the server's words."""
        changed = SINCE in error.advice or isinstance(error, DefinitionChanged)
        return f"{IN_ITS_WORDS}\n{self._hint(tool)}" if changed else self._hint(tool)

    async def _answered(self, tool: Tool, call: Awaitable[Raw], *, raw: bool = False) -> Raw:
        """A call's result; where it failed, the reason as a result, but a server's own error as it is where `raw`."""
        try:
            return await call
        except (InvalidArguments, DefinitionChanged) as error:
            return answer.refusal(error, more=self._hint_after(error, tool))
        except BackendUnavailable as error:
            return answer.refusal(error)
        except RemoteError as error:
            if raw or error.code in answer.PROTOCOL:
                raise
            return answer.refusal(
                error, more=self._hint_after(error, tool) if error.code == INVALID_PARAMS or error.advice else ""
            )
