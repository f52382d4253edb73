"""One agent's conversation with the house: opened and closed, and at its door like any client's."""

import asyncio
import logging
import secrets
import time

from portico.access import Caller
from portico.app import Gateway as House
from portico.app.warming import FIRST_LISTING_S
from portico.catalog.tool import Tool
from portico.config import Exposure
from portico.disclosure import metatools, results
from portico.disclosure.discovery import explained, schema_hint
from portico.disclosure.question import Question
from portico.disclosure.view import View
from portico.embedding.raising import refused
from portico.embedding.results import Matches, Result, match_of, result_of
from portico.embedding.settings import Settings
from portico.errors import PorticoError, UnknownName
from portico.events import Searched, SearchEnded
from portico.execution.call import Origin
from portico.server.admission import Admission, Visit, needed
from portico.storage.manifests import Manifests
from portico.upstream.backend import Raw

ENCODING_S = 10.0
"""How long a search waits until the few tools that are new can be found by their meaning."""
_FEW = 2_000
"""Tools that can be encoded in that time."""
_SILENT = logging.NullHandler()


class Conversation:
    """What passes between an agent and its gateway. One event loop's own."""

    def __init__(self, settings: Settings, profile: str | None, name: str, *, in_memory: bool) -> None:
        self.caller = Caller(f"embedded-{secrets.token_hex(8)}", name, profile or "")
        self._settings = settings
        self._profile = profile
        self._in_memory = in_memory
        self._house: House | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened_at = 0.0

    # --- its life

    async def open(self) -> None:
        """Put the house together, and let its life begin."""
        if self._house is not None:
            raise PorticoError("the gateway is open already", advice="Make another one for another conversation.")
        # So that Python's handler of last resort prints nothing where an agent has not set up logging.
        logging.getLogger("portico").addHandler(_SILENT)
        backends = self._settings.backends
        house = House(self._settings.config, backends=backends, manifests=Manifests(None) if self._in_memory else None)
        try:
            await house.__aenter__()
            if backends:
                # What was remembered of objects may be of others that had their name.
                await house.refresh(backends)
        except BaseException:
            await house.close()
            raise
        self._house, self._loop, self._opened_at = house, asyncio.get_running_loop(), time.monotonic()

    async def close(self) -> None:
        """End it; nothing is left."""
        house, self._house = self._house, None
        if house is not None:
            await house.close()

    @property
    def is_open(self) -> bool:
        """Whether anything can be asked."""
        return self._house is not None

    @property
    def house(self) -> House:
        """The house, from within its own loop; raises PorticoError from anywhere else."""
        if self._house is None:
            raise PorticoError("the gateway is not open", advice="Use it inside `async with Gateway(…) as gateway:`.")
        if _running() is not self._loop:
            raise PorticoError(
                "the gateway was opened in another event loop",
                advice="Open one for each loop, or share a SyncGateway between threads.",
            )
        return self._house

    @property
    def view(self) -> View:
        """What this agent's profile sees."""
        return self.house.view(self._profile)

    def shown(self, exposure: Exposure) -> View:
        """What a model sees that is shown so much: of tools that it does not have, it should not read."""
        return self.house.view(self._settings.in_code) if exposure == "code" else self.view

    async def ready(self, timeout: float | None) -> bool:
        """Wait until every server has been heard or has failed, for at most so many seconds; whether they have."""
        house = self.house
        try:
            async with asyncio.timeout(timeout):
                await house.listed()
        except TimeoutError:
            return False
        return True

    async def heard(self, *names: str) -> None:
        """Wait for servers nothing is known of, but not long, and not where these tools are known."""
        view = self.view
        if names and all(name in view.snapshot.names for name in names):
            return
        left = self._opened_at + FIRST_LISTING_S - time.monotonic()
        if left > 0 and not all(entry.known for entry in view.snapshot.servers.values()):
            await self.ready(left)

    async def encoded(self) -> None:
        """The same, and for what is new to be found by its meaning."""
        await self.heard()
        catalog = self.house.catalog
        if 0 < catalog.unencoded <= _FEW and (encoding := catalog.encode()) is not None:
            # Not cancelled when time is up: what it has done by then is kept.
            await asyncio.wait({encoding}, timeout=ENCODING_S)

    # --- asking

    def named(self, name: str) -> Tool:
        """The tool a name means; raises UnknownName with the nearest, or why nothing is known of its server."""
        view = self.view
        try:
            return view.snapshot.tool(name)
        except UnknownName as error:
            raise explained(error, name, view.snapshot, view.sight.states()) from error

    async def search(self, question: Question) -> Matches:
        """What a search finds, as facts; whoever learns from searches hears of it."""
        await self.encoded()
        view = self.view
        self.check(metatools.SEARCH)
        # Its own refusals are raised: it is no model that asks.
        visit = Visit(self.caller.session, needed("tools/call", metatools.SEARCH))
        found = await self._admission.answered(visit, lambda _: self._found(view, question))
        assert isinstance(found, Matches)
        return found

    async def _found(self, view: View, question: Question) -> Matches:
        started, bus = time.perf_counter(), self.house.bus
        vector, search = await view.searching.prepared(view.snapshot, question, self.caller)
        page = results.page(search, question.limit)
        hits, ranking, tools = page.hits, page.ranking, search.snapshot.tools
        shown = tuple(name for hit in hits for name in (hit.id, *hit.twins))
        bus.publish(SearchEnded(time.perf_counter() - started, bool(shown)))
        if shown and bus.asked_for(Searched):
            bus.publish(Searched(question.query, shown, self.caller, vector))
        states, budget, there = view.sight.states(), view.face.discovery_budget, view.face.enabled
        return Matches(
            question.query,
            tuple(match_of(tools[hit.id], round(hit.score, 4), hit.twins) for hit in hits),
            "none" if ranking.weak or not hits else "unsure" if ranking.unsure else "good",
            lambda: results.answer(search, states, budget, there).text,
        )

    def check(self, name: str) -> None:
        """Raise UnknownName for a meta-tool that is switched off."""
        if name not in self.view.face.enabled:
            raise UnknownName(f"{name} is switched off here", advice="`metatools` in the configuration has the switch.")

    async def meta(self, name: str, arguments: Raw) -> Result:
        """What one of the meta-tools answers; raises what it refuses."""
        self.check(name)
        return self.result(await self.asked(name, arguments), str(arguments.get("name", "")))

    async def asked(self, name: str, arguments: Raw, exposure: Exposure = "meta") -> Raw:
        """One call of a tool under the name that clients have it by, refusals as answers; raises PorticoError."""
        if name == metatools.SEARCH:
            await self.encoded()
        view, params = self.shown(exposure), {"name": name, "arguments": arguments}
        ours = name in view.face.enabled
        visit = Visit(self.caller.session, needed("tools/call", name if ours else ""), ours)

        async def answer(waited: float) -> Raw:
            return await view.handle("tools/call", params, Origin(self.caller, waited=waited), "modern")

        return await self._admission.answered(visit, answer)

    async def listed(self, query: str = "", exposure: Exposure = "meta") -> list[Raw]:
        """The meta-tools and, where there is a query, what serves it best."""
        params: Raw = {"query": query} if query else {}
        return (await self.shown(exposure).handle("tools/list", params, Origin(self.caller), "modern"))["tools"]

    def result(self, raw: Raw, name: str) -> Result:
        """An answer for a program: raises what is a refusal, with what the tool of that name takes."""
        view = self.view
        try:
            hint = schema_hint(view.snapshot.tool(name), view.face.discovery_budget) if name else ""
        except UnknownName:
            hint = ""
        if (error := refused(raw, hint)) is not None:
            raise error
        return result_of(raw)

    @property
    def _admission(self) -> Admission:
        admission = self.house.door(self._profile).admission
        assert admission is not None, "the house gives every door one"
        return admission


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
