"""The session of one agent with its gateway, handled like any client's."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from portico.callers import Caller
from portico.calls.pipeline import CallContext
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Exposure
from portico.errors import Overloaded, PorticoError, UnknownName
from portico.events import SearchCompleted, ToolsFound
from portico.gateway import GatewayRuntime
from portico.library.results import Matches, Result, to_exception, to_match, to_result
from portico.library.settings import GatewaySettings
from portico.meta_tools import search_page, tool_definitions
from portico.meta_tools.browse_tools import explain_unknown_name, render_schema_hint
from portico.meta_tools.call_tool import get_call_tool_name
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import run_search
from portico.profiles.view import ProfileView
from portico.rendering.strict_definitions import to_strict_tool
from portico.rendering.tool_result import make_error_result
from portico.server.admission import classify_request
from portico.storage.manifests import ManifestStore
from portico.upstream.backend import Raw

EMBEDDING_TIMEOUT_S = 10.0
"""How long a search waits for the embeddings of new tools, in seconds."""
_MAX_NEW_TOOLS = 2_000
"""Number of tools that can be encoded in that time."""
_NULL_HANDLER = logging.NullHandler()


class EmbeddedSession:
    """An agent's session and the gateway it owns. Belongs to one event loop."""

    def __init__(
        self, settings: GatewaySettings, profile: str | None, name: str, *, in_memory: bool
    ) -> None:
        self.caller = Caller(f"embedded-{secrets.token_hex(8)}", name, profile or "")
        self._settings = settings
        self._profile = profile
        self._in_memory = in_memory
        self._runtime: GatewayRuntime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- lifecycle

    async def open(self) -> None:
        """Build the gateway and start it."""
        if self._runtime is not None:
            raise PorticoError(
                "the gateway is open already", advice="Make another one for another conversation."
            )
        # Otherwise Python's last-resort handler prints log lines of an agent without logging set
        # up.
        logging.getLogger("portico").addHandler(_NULL_HANDLER)
        backends = self._settings.backends
        runtime = GatewayRuntime(
            self._settings.config,
            backends=backends,
            manifests=ManifestStore(None) if self._in_memory else None,
        )
        try:
            await runtime.__aenter__()
            if backends:
                # The stored listing may be of other objects under the same name.
                await runtime.refresh(backends)
        except BaseException:
            await runtime.close()
            raise
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Stop the gateway. Idempotent."""
        runtime = self._runtime
        self._runtime = None
        if runtime is not None:
            await runtime.close()

    @property
    def is_open(self) -> bool:
        """Whether requests can be made."""
        return self._runtime is not None

    @property
    def runtime(self) -> GatewayRuntime:
        """The gateway; raises PorticoError if it is closed or belongs to another event loop."""
        if self._runtime is None:
            raise PorticoError(
                "the gateway is not open",
                advice="Use it inside `async with Gateway(…) as gateway:`.",
            )
        if get_running_loop() is not self._loop:
            raise PorticoError(
                "the gateway was opened in another event loop",
                advice="Open one for each loop, or share a SyncGateway between threads.",
            )
        return self._runtime

    @property
    def view(self) -> ProfileView:
        """The view of this agent's profile."""
        return self.runtime.get_view(self._profile, self.caller)

    def get_view(self, exposure: Exposure) -> ProfileView:
        """Return the view for an exposure: with `code`, texts mention no tools that the model
        lacks.
        """
        if exposure == "code":
            return self.runtime.get_view(self._settings.code_profile, self.caller)
        return self.view

    async def wait_until_listed(self, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds until every server is listed or has failed; return whether
        so.
        """
        runtime = self.runtime
        try:
            async with asyncio.timeout(timeout):
                await runtime.wait_until_listed()
        except TimeoutError:
            return False
        return True

    async def wait_for_first_listing(self, *names: str) -> None:
        """Wait briefly for servers never listed before, unless the named tools are all known."""
        if not names or not all(name in self.view.snapshot.tool_names for name in names):
            await self.view.first_listing.wait_for_all()

    async def wait_for_embeddings(self) -> None:
        """Wait for the embeddings of new tools; of tools at all, if nothing is known yet."""
        await self.view.first_listing.wait_for(
            "tools/call", {"name": tool_definitions.SEARCH_TOOLS}
        )
        catalog = self.runtime.catalog
        if (
            0 < catalog.unencoded_count <= _MAX_NEW_TOOLS
            and (encoding := catalog.start_encoding()) is not None
        ):
            # Not cancelled on timeout: the vectors computed so far are kept.
            await asyncio.wait({encoding}, timeout=EMBEDDING_TIMEOUT_S)

    # --- requests

    def find_tool(self, name: str) -> Tool:
        """Resolve a tool name.

        Raises UnknownName with the nearest names, or with why the server is not listed.
        """
        view = self.view
        try:
            return view.snapshot.resolve_tool(name)
        except UnknownName as error:
            raise explain_unknown_name(
                error, name, view.snapshot, view.profile_state.get_server_states()
            ) from error

    async def search(self, request: SearchRequest) -> Matches:
        """Search and return matches; publishes the search events that learning uses."""
        await self.wait_for_embeddings()
        view = self.view
        self.require_meta_tool(tool_definitions.SEARCH_TOOLS)
        # Errors are raised, because the caller is a program.
        await self.runtime.admission.acquire(self.caller.session, "rate")
        return await self._run_search(view, request)

    async def _run_search(self, view: ProfileView, request: SearchRequest) -> Matches:
        started = time.perf_counter()
        bus = self.runtime.bus
        vector, search = await view.search_service.prepare_search(
            view.snapshot, request, self.caller
        )
        page = await run_search(search, search_page.rank_page, search, request.limit)
        hits = page.hits
        ranking = page.ranking
        tools = search.snapshot.tools
        shown = tuple(name for hit in hits for name in (hit.id, *hit.duplicates))
        bus.publish(SearchCompleted(time.perf_counter() - started, bool(shown)))
        if shown and bus.has_subscribers(ToolsFound):
            bus.publish(ToolsFound(request.query, shown, self.caller, vector))
        states = view.profile_state.get_server_states()
        budget = view.settings.discovery_budget
        meta_tools = view.settings.enabled_meta_tools
        fit = "good"
        if ranking.is_weak or not hits:
            fit = "none"
        elif ranking.is_unsure:
            fit = "unsure"
        return Matches(
            request.query,
            tuple(to_match(tools[hit.id], round(hit.score, 4), hit.duplicates) for hit in hits),
            fit,
            lambda: search_page.render_search_page(search, states, budget, meta_tools).text,
        )

    def require_meta_tool(self, name: str) -> None:
        """Raise UnknownName for a meta-tool that is switched off."""
        if name not in self.view.settings.enabled_meta_tools:
            raise UnknownName(
                f"{name} is switched off here",
                advice="`metatools` in the configuration has the switch.",
            )

    def choose_call_tool(self, name: str) -> str:
        """Return the meta-tool that calls a tool: not `call_tool` where calls are split."""
        if not self.view.settings.splits_calls:
            return tool_definitions.CALL_TOOL
        try:
            return get_call_tool_name(self.find_tool(name))
        except UnknownName:
            return tool_definitions.CALL_TOOL_READ  # says that there is none, with the nearest

    async def call_meta_tool(self, name: str, arguments: Raw) -> Result:
        """Call a meta-tool; raises the errors it reports."""
        self.require_meta_tool(name)
        return self.unwrap_result(
            await self.call_tool(name, arguments), str(arguments.get("name", ""))
        )

    async def call_tool(self, name: str, arguments: Raw, exposure: Exposure = "meta") -> Raw:
        """Call a tool by the name that clients use.

        Errors of the call are results; raises PorticoError if the gateway is closed or overloaded.
        """
        if name == tool_definitions.SEARCH_TOOLS:
            await self.wait_for_embeddings()
        view = self.get_view(exposure)
        params = {"name": name, "arguments": arguments}
        is_meta_tool = name in view.settings.enabled_meta_tools
        admission = self.runtime.admission
        requirement = classify_request("tools/call", name if is_meta_tool else "")
        try:
            queued_s = await admission.acquire(self.caller.session, requirement)
        except Overloaded as error:
            if is_meta_tool:
                return make_error_result(error)
            raise
        try:
            context = CallContext(self.caller, queued_s=queued_s)
            return await view.handle("tools/call", params, context, "modern")
        finally:
            admission.release(self.caller.session, requirement)

    async def list_tools(self, query: str = "", exposure: Exposure = "meta") -> list[Raw]:
        """List the meta-tools and, with a query, the tools that match it best."""
        params: Raw = {}
        if query:
            params["query"] = query
        listing = await self.get_view(exposure).handle(
            "tools/list", params, CallContext(self.caller), "modern"
        )
        return listing["tools"]

    def unwrap_result(self, raw: Raw, name: str) -> Result:
        """Convert a raw result, raising gateway errors; `name` is the tool whose schema is the
        hint.
        """
        view = self.view
        hint = ""
        if name:
            with contextlib.suppress(UnknownName):
                tool = view.snapshot.resolve_tool(name)
                hint = render_schema_hint(tool, view.settings.discovery_budget)
        if (error := to_exception(raw, hint)) is not None:
            raise error
        return to_result(raw)


def get_running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread; None without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_MAX_LISTED = 20


class OfferedTools:
    """The tool names that one gateway's models were given."""

    def __init__(self, exposure: Exposure) -> None:
        self._exposure = exposure
        self._names: set[str] = set()
        self._exposures: set[Exposure] = set()
        self._snapshot: Snapshot | None = None
        self._flat_names: Mapping[str, str] = {}

    def add(self, names: Iterable[str], exposure: Exposure) -> None:
        """Record tools that a model was given."""
        self._names.update(names)
        self._exposures.add(exposure)

    @property
    def exposure(self) -> Exposure:
        """`code` if models were given nothing else, else `meta`."""
        if (self._exposures or {self._exposure}) == {"code"}:
            return "code"
        return "meta"

    def has(self, name: str, view: ProfileView) -> bool:
        """Return whether a model may call `name`; before `add`, whatever the exposure shows."""
        if self._names:
            return name in self._names
        return name in self._list_meta_tools(view) or (
            self._exposure in ("full", "semantic") and name in view.snapshot.tools_by_flat_name
        )

    def list_names(self, view: ProfileView) -> list[str]:
        """Return at most 20 names that a model may call, for an error message."""
        names = sorted(self._names) or [*self._list_meta_tools(view)]
        if len(names) <= _MAX_LISTED:
            return names
        return [*names[:_MAX_LISTED], "…"]

    def _list_meta_tools(self, view: ProfileView) -> tuple[str, ...]:
        return replace(view.settings, exposure=self._exposure).enabled_meta_tools

    def map_flat_names(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Map every tool address to its unique flat name: 1 to 64 of A-Z a-z 0-9 _ -."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._flat_names = {
                tool.address: name for name, tool in snapshot.tools_by_flat_name.items()
            }
        return self._flat_names

    def make_definition(self, snapshot: Snapshot, tool: Tool) -> Raw:
        """Return a tool's MCP definition under its flat name."""
        return to_strict_tool(tool.definition, self.map_flat_names(snapshot)[tool.address])
