"""The composition root: builds every room from a configuration and owns their life.

async with Gateway(config) as gateway:
    await gateway.listed()                     # every server has been heard, or has failed
    await gateway.calls.call(gateway.view().snapshot.tool("demo.add"), {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from portico.access import Scope
from portico.catalog.entries import Source
from portico.catalog.meanings import Meanings
from portico.catalog.sharing import Sharing
from portico.catalog.sync import Catalog, Sync
from portico.config import Config, fingerprint
from portico.disclosure import cursor
from portico.disclosure.counting import Counting
from portico.disclosure.insight import Insight
from portico.disclosure.standings import Standings
from portico.disclosure.tokens import count
from portico.disclosure.view import Face, View
from portico.errors import PorticoError
from portico.events import Bus, Event, StandingsChanged, UpstreamReady
from portico.execution.large import Large
from portico.execution.means import Means
from portico.execution.pipeline import Pipeline
from portico.learning import Learner
from portico.observability.keeper import Keeper
from portico.observability.ledger import Ledger
from portico.observability.usage import Usage
from portico.search import NAME, WIDTH, EncoderUnavailable, shipped_encoder
from portico.server.door import Door
from portico.server.sessions import Watchers
from portico.storage.habits import HabitStore, Keeping
from portico.storage.index_file import IndexFile
from portico.storage.manifests import Manifests
from portico.storage.record import Record, RecordUnavailable
from portico.storage.rows import Retention
from portico.storage.vector_file import VectorFile
from portico.upstream.backend import Backend, Era
from portico.upstream.factory import UnusableBackend, make_backend
from portico.upstream.process import Guard
from portico.upstream.supervisor import Status, Upstream

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 15.0
FIRST_LISTING_S = 5.0
"""How long after its start the gateway lets a search wait for servers nothing is known of."""
ENCODER_AFTER_S = 2.0
"""How long after its start the gateway reads the encoder's model, so that the first greeting is not held up by it."""
RECORD_AFTER_S = 1.0
"""How long after its start the gateway opens the record, for the same reason; a call has it opened at once."""
ADOPTION_S = 3.0
"""How long servers nothing is known of wait for what other gateways know of them."""
GATE_PATIENCE_S = 5.0
"""How long a start counts against `limits.start_concurrency`."""
MANIFEST_FILE = "manifest.sqlite3"
RECORD_FILE = "portico.sqlite3"
HABITS_FILE = "habits.sqlite3"
RESULTS_FOLDER = "results"
INDEX_FILE = "search.index"
VECTOR_FILE = f"vectors-{NAME}.bin"


class Gateway:
    """One running Portico."""

    def __init__(
        self, config: Config, *, backends: Mapping[str, Backend] | None = None, manifests: Manifests | None = None
    ) -> None:
        """`backends` adds servers that are objects rather than configuration; `manifests` replaces the file on disk."""
        self.config = config
        self.bus = Bus()
        self._guard = Guard()
        self._manifests = manifests or Manifests(config.data_dir / MANIFEST_FILE)
        configured = {name: server for name, server in config.servers.items() if not server.disabled}
        given = dict(backends or {})
        self.catalog = Catalog(
            [
                *(
                    Source(
                        name,
                        fingerprint(server),
                        server.title,
                        server.description,
                        server.tags,
                        server.category,
                        server.tools,
                    )
                    for name, server in configured.items()
                ),
                *(Source(name, "given") for name in given),
            ],
            self._manifests,
            self.bus,
            index_file=IndexFile(config.data_dir / INDEX_FILE if manifests is None else None),
            meanings=Meanings(
                shipped_encoder(), VectorFile(config.data_dir / VECTOR_FILE if manifests is None else None, WIDTH)
            ),
        )
        self.catalog.load()
        self.upstreams: dict[str, Upstream] = {}
        self._syncs: dict[str, Sync] = {}
        for name, server in configured.items():
            backend = make_backend(name, server, config.limits, self._guard)
            timeouts = server.timeouts
            instances = server.max_instances if server.isolation == "session" else 0
            self._add(name, backend, timeouts.start_s, timeouts.list_s, server.ttl_s, instances)
        for name, backend in given.items():
            self._add(name, backend, 30, 30, 3_600)
        url = config.database_url.get_secret_value() if config.database_url is not None else None
        self.record = Record(url, config.data_dir / RECORD_FILE if manifests is None else None)
        self._pipeline = Pipeline.over(
            configured,
            self.upstreams,
            self.catalog,
            self._syncs,
            self.record,
            self.bus,
            longest=float(config.limits.call_s),
        )
        self.calls = self._pipeline.calls
        results = config.data_dir / RESULTS_FOLDER if manifests is None else None
        self._large = Large.kept_in(results, config.results, count, cursor)
        learning = config.learning
        keeping = Keeping(learning.half_life_days * 86_400, learning.max_followed, learning.max_together)
        self._habits = HabitStore(config.data_dir / HABITS_FILE if manifests is None else None, keeping)
        self.learner = Learner(learning.scope, self._habits, self.bus)
        self._means = Means(self.calls, self._pipeline.shapes, config, self.learner, self.record)
        self._counting = Counting(self.catalog, self.bus)
        self.insight, self._keeper = self._bookkeeping(origin := secrets.token_hex(8))
        self._sharing = Sharing(self.catalog, self._manifests, self.record, origin=origin)
        self._sharing.on_adopted = self._adopted
        self._sharing.on_tiers = lambda: self._begin(self._keeper.reread())
        self._doors: dict[str, Door] = {}
        self._watchers = Watchers()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bus.subscribe(self._heard)
        self._warming: asyncio.Task[None] | None = None
        self._started_at = time.monotonic()

    def _bookkeeping(self, origin: str) -> tuple[Insight, Keeper]:
        keep = Retention(**self.config.usage.model_dump())
        usage = Usage(self.record, self.bus, keep)
        ledger = Ledger(self.record, self.bus, self._listing_cost, count=count)
        insight = Insight(
            usage, Standings(usage, self.record, origin=origin, kept=keep.daily_days > 0), ledger, self._pipeline.shapes
        )
        return insight, Keeper(
            self.record, self.bus, usage, ledger, keep, chores=(self._tend_standings, self._pipeline.shapes.tend)
        )

    def _add(
        self, name: str, backend: Backend, start_timeout: float, list_timeout: float, ttl: float, instances: int = 0
    ) -> None:
        era = self.catalog.eras.get(name)
        remembered: Era | None = "modern" if era == "modern" else "legacy" if era else None
        upstream = Upstream(
            name,
            backend,
            self.bus,
            start_timeout=start_timeout,
            isolated=instances > 0,
            max_instances=instances,
            era=remembered,
            known=self.catalog.snapshot.servers[name].known,
        )
        if isinstance(backend, UnusableBackend):
            upstream.mark("disabled", backend.problem)
        self.upstreams[name] = upstream
        self._syncs[name] = Sync(upstream, self.catalog, self.bus, timeout=list_timeout, ttl=ttl)

    async def __aenter__(self) -> Self:
        self._started_at = time.monotonic()
        for chore in (self._keep_house(), self._read_encoder(), self._counting.run(), self._share()):
            self._begin(chore)
        self._keeper.start(RECORD_AFTER_S)
        self._warming = asyncio.create_task(self._start_servers(), name="start servers")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop everything; when this returns no process, socket or task of ours is left."""
        tasks = {*self._tasks, *({self._warming} if self._warming else ())}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        # Before calls are cut off: that is no fault of their tools.
        await self.learner.close()
        answers = await self._keeper.close()
        await self._means.close()
        # In this order, in one go: a server that gets ready in between would be listed by nobody's leave.
        await asyncio.gather(
            *(upstream.stop() for upstream in self.upstreams.values()), *(sync.close() for sync in self._syncs.values())
        )
        for door in self._doors.values():
            await door.close()
        await self.catalog.close()
        await asyncio.to_thread(self._large.store.close)
        if answers:
            await self._pipeline.shapes.finish()
            await self._sharing.finish()
        await self.record.close()
        self._manifests.close()
        self._guard.close()

    def view(self, profile: str | None = None) -> View:
        """What a profile's clients see."""
        return self.door(profile).view

    def door(self, profile: str | None = None) -> Door:
        """The door of a profile; the empty name is the default one."""
        key = profile or ""
        if key not in self._doors:
            settings = self.config.view(profile)
            face = Face(
                exposure=settings.exposure,
                scope=Scope(settings.servers, settings.tools),
                prefixed=self.config.prefix == "always",
                discovery_budget=settings.discovery_budget,
                result_budget=settings.result_budget,
                metatools=settings.metatools,
                languages=self.config.code.languages,
                pins=self.config.pins,
                intent=settings.intent,
                top_k=settings.top_k,
                listing_budget=settings.listing_budget,
                profile=key,
                unlisted=self._hides_nothing(settings.tools),
            )
            view = View(
                face,
                self.catalog,
                self.calls,
                self.upstreams,
                self._first_listing,
                self.learner,
                self.bus,
                self.insight,
                self._large,
                self._means,
            )
            self._doors[key] = Door(view, self.upstreams, self.bus, self._watchers)
        return self._doors[key]

    def _hides_nothing(self, tools: Iterable[str]) -> bool:
        rules = [server.tools for server in self.config.servers.values()]
        return "*" in tools and all(rule.allow == ("*",) and not rule.deny for rule in rules)

    def doors(self) -> dict[str, Door]:
        """Every door: the default one under the empty name, and one per profile."""
        return {"": self.door(), **{name: self.door(name) for name in self.config.profiles}}

    def statuses(self) -> list[Status]:
        """Every server's state."""
        return [upstream.status() for _, upstream in sorted(self.upstreams.items())]

    async def listed(self) -> None:
        """Wait until every server whose offer was unknown has been listed or has failed."""
        if self._warming is not None:
            await asyncio.shield(self._warming)

    async def _first_listing(self, enough: Callable[[], bool]) -> None:
        """Wait for servers nothing is known of, but not long: one that never answers must not hold up the others."""
        patience = self._started_at + FIRST_LISTING_S - time.monotonic()
        warming = self._warming
        if warming is None or patience <= 0:
            return
        heard = asyncio.Event()
        wake: Callable[[object], None] = lambda _: heard.set()  # noqa: E731
        forget = self.bus.subscribe(wake)
        warming.add_done_callback(wake)
        try:
            async with asyncio.timeout(patience):
                while not warming.done() and not enough():
                    heard.clear()
                    await heard.wait()
        except TimeoutError:
            return
        finally:
            forget()
            warming.remove_done_callback(wake)

    async def refresh(self, servers: Iterable[str] | None = None, heard: Callable[[str], None] | None = None) -> None:
        """Ask these servers (default: all) anew; `heard` is told each name as it is done."""
        await self._warm(list(servers if servers is not None else self.upstreams), heard)

    async def _start_servers(self) -> None:
        if self.record.shared and any(upstream.state == "configured" for upstream in self.upstreams.values()):
            # Another gateway may have listed them: then they need not be started to be known.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sharing.caught_up.wait(), ADOPTION_S)
        await self._warm(self._to_start())

    def _to_start(self) -> list[str]:
        """Servers to start with the gateway: those that want it, and those nothing is known of."""
        return [
            name
            for name, upstream in self.upstreams.items()
            if upstream.state == "configured"
            or (name in self.config.servers and self.config.servers[name].start == "boot")
        ]

    async def _warm(self, names: Iterable[str], heard: Callable[[str], None] | None = None) -> None:
        gate = asyncio.Semaphore(self.config.limits.start_concurrency)

        async def warm(name: str) -> None:
            try:
                # Only this crowd waits at the gate: a call to any of these servers starts it at once.
                async with gate:
                    # A few servers that never answer must not keep the others outside until they are given up.
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.upstreams[name].connect(), GATE_PATIENCE_S)
                await self._syncs[name].refresh()
            except PorticoError as error:
                logger.info("%s was not started: %s", name, error.message)
            except Exception:  # one server's fault is no other's
                logger.exception("%s could not be started or listed", name)
            if heard is not None:
                heard(name)

        await asyncio.gather(*(warm(name) for name in names))

    async def _read_encoder(self) -> None:
        """So that the first search need not, and tools known from last time have vectors even if nobody lists them."""
        await asyncio.sleep(ENCODER_AFTER_S)
        index = self.catalog.snapshot.index
        if index.encoder is not None and len(index):
            with contextlib.suppress(EncoderUnavailable):
                await asyncio.to_thread(index.encoder.load)
                self.catalog.encode()

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            # Together: one server that will not go must not keep the others up.
            self._pipeline.cache.expire()
            self._means.expire()
            chores = [
                self.learner.flush(),
                asyncio.to_thread(self._large.store.sweep),
                *map(self._tend, self.upstreams),
            ]
            outcomes = await asyncio.gather(*chores, return_exceptions=True)
            for name, outcome in zip(("what was learnt", "large results", *self.upstreams), outcomes, strict=True):
                if isinstance(outcome, Exception):
                    logger.error("%s could not be looked after: %r", name, outcome)

    async def _tend(self, name: str) -> None:
        upstream, server = self.upstreams[name], self.config.servers.get(name)
        self._syncs[name].expire()
        if server is not None and server.idle_s and (upstream.backend.kind == "stdio" or upstream.isolated):
            await upstream.rest(server.idle_s, self._watchers.who(name))

    # --- the record

    async def recall(self) -> None:
        """Know what is on record, for a command that only looks; without a record, only what happened here."""
        with contextlib.suppress(RecordUnavailable):
            await self.record.open()
            await self.insight.usage.load()
            await self.insight.ledger.load()
            await self.insight.standings.load()

    async def _share(self) -> None:
        await asyncio.sleep(0 if self.record.shared else RECORD_AFTER_S)
        await self._sharing.run()

    def _adopted(self, server: str) -> None:
        self.upstreams[server].recall()

    async def _tend_standings(self) -> None:
        before = self.insight.standings.computed_at
        await self.insight.standings.tend()
        if self.insight.standings.computed_at != before:
            self.bus.publish(StandingsChanged())

    def _listing_cost(self, profile: str) -> int:
        return self._counting.cost(self.view(profile or None).snapshot)

    def _begin(self, chore: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(task := asyncio.create_task(chore, name=chore.__name__.strip("_").replace("_", " ")))
        task.add_done_callback(self._tasks.discard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, UpstreamReady) and self._watchers.of(event.server):
            self._begin(self._watchers.watch_again(self.upstreams[event.server], HOUSEKEEPING_S))
