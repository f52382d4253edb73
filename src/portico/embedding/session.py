"""One agent's conversation with the house: opened and closed, and at its door like any client's."""

import asyncio
import logging
import secrets
import time

from portico.access import Caller
from portico.app import GatewayRuntime as House
from portico.app.warmup import FIRST_LISTING_S
from portico.calls.pipeline import CallContext
from portico.catalog.tool import Tool
from portico.config import Exposure
from portico.embedding.result_errors import to_exception
from portico.embedding.results import Matches, Result, to_match, to_result
from portico.embedding.settings import GatewaySettings
from portico.errors import PorticoError, UnknownName
from portico.events import SearchCompleted, ToolsFound
from portico.meta_tools import search_page, tool_definitions
from portico.meta_tools.browse_tools import explain_unknown_name, render_schema_hint
from portico.meta_tools.search_request import SearchRequest
from portico.profiles.view import ProfileView
from portico.server.requests.admission import AdmissionControl, AdmissionTicket, classify_request
from portico.storage.manifests import ManifestStore
from portico.upstream.backend import Raw

EMBEDDING_TIMEOUT_S = 10.0
"""How long a search waits until the few tools that are new can be found by their meaning."""
_MAX_NEW_TOOLS = 2_000
"""Tools that can be encoded in that time."""
_NULL_HANDLER = logging.NullHandler()


class EmbeddedSession:
    """What passes between an agent and its gateway. One event loop's own."""

    def __init__(
        self, settings: GatewaySettings, profile: str | None, name: str, *, in_memory: bool
    ) -> None:
        self.caller = Caller(f"embedded-{secrets.token_hex(8)}", name, profile or "")
        self._settings = settings
        self._profile = profile
        self._in_memory = in_memory
        self._runtime: House | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened_at = 0.0

    # --- its life

    async def open(self) -> None:
        """Put the house together, and let its life begin."""
        if self._runtime is not None:
            raise PorticoError(
                "the gateway is open already", advice="Make another one for another conversation."
            )
        # So that Python's handler of last resort prints nothing where an agent has not set up
        # logging.
        logging.getLogger("portico").addHandler(_NULL_HANDLER)
        backends = self._settings.backends
        house = House(
            self._settings.config,
            backends=backends,
            manifests=ManifestStore(None) if self._in_memory else None,
        )
        try:
            await house.__aenter__()
            if backends:
                # What was remembered of objects may be of others that had their name.
                await house.refresh(backends)
        except BaseException:
            await house.close()
            raise
        self._runtime = house
        self._loop = asyncio.get_running_loop()
        self._opened_at = time.monotonic()

    async def close(self) -> None:
        """End it; nothing is left."""
        house = self._runtime
        self._runtime = None
        if house is not None:
            await house.close()

    @property
    def is_open(self) -> bool:
        """Whether anything can be asked."""
        return self._runtime is not None

    @property
    def runtime(self) -> House:
        """The house, from within its own loop; raises PorticoError from anywhere else."""
        if self._runtime is None:
            raise PorticoError(
                "the gateway is not open",
                advice="Use it inside `async with Gateway(…) as gateway:`.",
            )
        if _get_running_loop() is not self._loop:
            raise PorticoError(
                "the gateway was opened in another event loop",
                advice="Open one for each loop, or share a SyncGateway between threads.",
            )
        return self._runtime

    @property
    def view(self) -> ProfileView:
        """What this agent's profile sees."""
        return self.runtime.get_view(self._profile)

    def get_view(self, exposure: Exposure) -> ProfileView:
        """What a model sees that is shown so much: of tools that it does not have, it should not
        read."""
        if exposure == "code":
            return self.runtime.get_view(self._settings.code_profile)
        return self.view

    async def wait_until_listed(self, timeout: float | None) -> bool:
        """Wait until every server has been heard or has failed, for at most so many seconds;
        whether they have."""
        house = self.runtime
        try:
            async with asyncio.timeout(timeout):
                await house.wait_until_listed()
        except TimeoutError:
            return False
        return True

    async def wait_for_first_listing(self, *names: str) -> None:
        """Wait for servers nothing is known of, but not long, and not where these tools are known."""
        view = self.view
        if names and all(name in view.snapshot.tool_names for name in names):
            return
        left = self._opened_at + FIRST_LISTING_S - time.monotonic()
        if left > 0 and not all(entry.is_listed for entry in view.snapshot.servers.values()):
            await self.wait_until_listed(left)

    async def wait_for_embeddings(self) -> None:
        """The same, and for what is new to be found by its meaning."""
        await self.wait_for_first_listing()
        catalog = self.runtime.catalog
        if (
            0 < catalog.unencoded_count <= _MAX_NEW_TOOLS
            and (encoding := catalog.start_encoding()) is not None
        ):
            # Not cancelled when time is up: what it has done by then is kept.
            await asyncio.wait({encoding}, timeout=EMBEDDING_TIMEOUT_S)

    # --- asking

    def find_tool(self, name: str) -> Tool:
        """The tool a name means; raises UnknownName with the nearest, or why nothing is known of
        its server."""
        view = self.view
        try:
            return view.snapshot.resolve_tool(name)
        except UnknownName as error:
            raise explain_unknown_name(
                error, name, view.snapshot, view.profile_state.get_server_states()
            ) from error

    async def search(self, request: SearchRequest) -> Matches:
        """What a search finds, as facts; whoever learns from searches hears of it."""
        await self.wait_for_embeddings()
        view = self.view
        self.require_meta_tool(tool_definitions.SEARCH_TOOLS)
        # Its own refusals are raised: it is no model that asks.
        visit = AdmissionTicket(
            self.caller.session, classify_request("tools/call", tool_definitions.SEARCH_TOOLS)
        )
        found = await self._admission.run(visit, lambda _: self._run_search(view, request))
        assert isinstance(found, Matches)
        return found

    async def _run_search(self, view: ProfileView, request: SearchRequest) -> Matches:
        started = time.perf_counter()
        bus = self.runtime.bus
        vector, search = await view.search_service.prepare_search(
            view.snapshot, request, self.caller
        )
        page = search_page.rank_page(search, request.limit)
        hits = page.hits
        ranking = page.ranking
        tools = search.snapshot.tools
        shown = tuple(name for hit in hits for name in (hit.id, *hit.duplicates))
        bus.publish(SearchCompleted(time.perf_counter() - started, bool(shown)))
        if shown and bus.has_subscribers(ToolsFound):
            bus.publish(ToolsFound(request.query, shown, self.caller, vector))
        states = view.profile_state.get_server_states()
        budget = view.settings.discovery_budget
        there = view.settings.enabled_meta_tools
        return Matches(
            request.query,
            tuple(to_match(tools[hit.id], round(hit.score, 4), hit.duplicates) for hit in hits),
            "none" if ranking.is_weak or not hits else "unsure" if ranking.is_unsure else "good",
            lambda: search_page.render_search_page(search, states, budget, there).text,
        )

    def require_meta_tool(self, name: str) -> None:
        """Raise UnknownName for a meta-tool that is switched off."""
        if name not in self.view.settings.enabled_meta_tools:
            raise UnknownName(
                f"{name} is switched off here",
                advice="`metatools` in the configuration has the switch.",
            )

    async def call_meta_tool(self, name: str, arguments: Raw) -> Result:
        """What one of the meta-tools answers; raises what it refuses."""
        self.require_meta_tool(name)
        return self.unwrap_result(
            await self.call_tool(name, arguments), str(arguments.get("name", ""))
        )

    async def call_tool(self, name: str, arguments: Raw, exposure: Exposure = "meta") -> Raw:
        """One call of a tool under the name that clients have it by, refusals as answers; raises
        PorticoError."""
        if name == tool_definitions.SEARCH_TOOLS:
            await self.wait_for_embeddings()
        view = self.get_view(exposure)
        params = {"name": name, "arguments": arguments}
        ours = name in view.settings.enabled_meta_tools
        visit = AdmissionTicket(
            self.caller.session, classify_request("tools/call", name if ours else ""), ours
        )

        async def handle_call(waited: float) -> Raw:
            return await view.handle(
                "tools/call", params, CallContext(self.caller, queued_s=waited), "modern"
            )

        return await self._admission.run(visit, handle_call)

    async def list_tools(self, query: str = "", exposure: Exposure = "meta") -> list[Raw]:
        """The meta-tools and, where there is a query, what serves it best."""
        if query:
            params: Raw = {"query": query}
        else:
            params = {}
        return (
            await self.get_view(exposure).handle(
                "tools/list", params, CallContext(self.caller), "modern"
            )
        )["tools"]

    def unwrap_result(self, raw: Raw, name: str) -> Result:
        """An answer for a program: raises what is a refusal, with what the tool of that name takes."""
        view = self.view
        try:
            if name:
                hint = render_schema_hint(
                    view.snapshot.resolve_tool(name), view.settings.discovery_budget
                )
            else:
                hint = ""
        except UnknownName:
            hint = ""
        if (error := to_exception(raw, hint)) is not None:
            raise error
        return to_result(raw)

    @property
    def _admission(self) -> AdmissionControl:
        admission = self.runtime.get_endpoint(self._profile).admission
        assert admission is not None, "the house gives every door one"
        return admission


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
