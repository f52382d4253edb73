"""One running Portico: every room built from a configuration, opened, looked after and closed.

async with Gateway(config) as gateway:
    await gateway.listed()                     # every server has been heard, or has failed
    await gateway.calls.call(gateway.view().snapshot.tool("demo.add"), {"a": 1, "b": 2})
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from portico.app.auditing import audit_of
from portico.app.changes import Change, changes, in_use
from portico.app.faces import face_of
from portico.app.places import HABITS_FILE, INDEX_FILE, MANIFEST_FILE, RECORD_FILE, RESULTS_FOLDER, VECTOR_FILE
from portico.app.servers import Servers, sources
from portico.app.warming import Warming
from portico.catalog.meanings import Meanings
from portico.catalog.sharing import Sharing
from portico.catalog.spare_memory import give_back
from portico.catalog.sync import Catalog
from portico.config import Config
from portico.disclosure import cursor
from portico.disclosure.counting import Counting
from portico.disclosure.insight import Insight
from portico.disclosure.standings import Standings
from portico.disclosure.tokens import count
from portico.disclosure.view import View
from portico.events import Bus, ConfigRefused, ConfigTaken, Event, StandingsChanged, UpstreamReady
from portico.execution.large import Large
from portico.execution.means import Means
from portico.execution.pipeline import Pipeline
from portico.learning import Learner
from portico.observability.keeper import Keeper
from portico.observability.ledger import Ledger
from portico.observability.usage import Usage
from portico.search import WIDTH, EncoderUnavailable, shipped_encoder
from portico.server.admission import Admission
from portico.server.door import Door
from portico.server.parked import Parking
from portico.server.sessions import Watchers
from portico.storage.habits import HabitStore, Keeping
from portico.storage.index_file import IndexFile
from portico.storage.manifests import Manifests
from portico.storage.record import Record, RecordUnavailable
from portico.storage.rows import Retention
from portico.storage.vector_file import VectorFile
from portico.upstream.backend import Backend
from portico.upstream.error_mask import ErrorMask
from portico.upstream.process import Guard
from portico.upstream.supervisor import Status

if TYPE_CHECKING:
    from portico.app.measured import Watched

logger = logging.getLogger(__name__)

HOUSEKEEPING_S = 15.0
ENCODER_AFTER_S = 2.0
"""How long after its start the gateway reads the encoder's model, so that the first greeting is not held up by it."""
RECORD_AFTER_S = 1.0
"""How long after its start the gateway opens the record, for the same reason; a call has it opened at once."""
FAREWELL_S = 1.0
"""How long callers may take to hear that their calls were cut off at the end."""
COUNTING_S = 0.5
"""How long the end may be held up to know what a short conversation has saved."""
ADOPTION_S = 3.0
"""How long servers nothing is known of wait for what other gateways know of them."""


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
        self._given = dict(backends or {})
        self.catalog = Catalog(
            sources(config, self._given),
            self._manifests,
            self.bus,
            index_file=IndexFile(config.data_dir / INDEX_FILE if manifests is None else None),
            meanings=Meanings(
                shipped_encoder(), VectorFile(config.data_dir / VECTOR_FILE if manifests is None else None, WIDTH)
            ),
        )
        self.catalog.load()
        self._mask = ErrorMask(lambda: self.config)
        remembered = config.data_dir if manifests is None else None
        self._servers = Servers(config.limits, self._given, self.catalog, self.bus, self._guard, self._mask, remembered)
        for name, server in in_use(config).items():
            self._servers.add(name, server)
        self.upstreams, self._syncs = self._servers.upstreams, self._servers.syncs
        self._warming = Warming(self._servers, self.bus, config.limits.start_concurrency)
        url = config.database_url.get_secret_value() if config.database_url is not None else None
        self.record = Record(url, config.data_dir / RECORD_FILE if manifests is None else None)
        self._pipeline = Pipeline.over(
            in_use(config),
            self.upstreams,
            self.catalog,
            self._syncs,
            self.record,
            self.bus,
            longest=float(config.limits.call_s),
            audit=audit_of(config) if manifests is None or config.audit.file is not None else None,
        )
        self.calls = self._pipeline.calls
        results = config.data_dir / RESULTS_FOLDER if manifests is None else None
        self._large = Large.kept_in(results, config.results, count, cursor)
        learning = config.learning
        keeping = Keeping(learning.half_life_days * 86_400, learning.max_followed, learning.max_together)
        self._habits = HabitStore(config.data_dir / HABITS_FILE if manifests is None else None, keeping)
        self.learner = Learner(learning.scope, self._habits, self.bus)
        self._means = Means(self.calls, self._pipeline.shapes, config, self.learner, self.record, self.bus)
        self._counting = Counting(self.catalog, self.bus)
        self.insight, self._keeper = self._bookkeeping(origin := secrets.token_hex(8))
        self._sharing = Sharing(self.catalog, self._manifests, self.record, origin=origin)
        self._sharing.on_adopted = self._adopted
        self._sharing.on_tiers = lambda: self._begin(self._keeper.reread())
        self._doors: dict[str, Door] = {}
        self._admission = Admission(config.limits)
        self._parking = Parking(config.limits.question_s, config.limits.questions)
        self._watched: Watched | None = None
        self._watchers = Watchers()
        self._tasks: set[asyncio.Task[None]] = set()
        self.bus.subscribe(self._heard)
        self._applying = asyncio.Lock()
        self.refused = ""
        """Why the configuration on disk is not the one that this goes by; empty if it is."""

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

    async def __aenter__(self) -> Self:
        for chore in (self._keep_house(), self._read_encoder(), self._counting.run(), self._share()):
            self._begin(chore)
        self._keeper.start(RECORD_AFTER_S)
        self._warming.begin(self._begin(self._start_servers()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def watched(self) -> "Watched":
        """What a platform asks of it: its figures, which are counted from now on, and whether it may be sent work."""
        if self._watched is None:
            from portico.app.measured import Watched  # nobody asks a gateway on stdio

            self._watched = Watched.of(
                self.bus,
                self.upstreams,
                self.catalog,
                ledger=self.insight.ledger,
                pipeline=self._pipeline,
                large=self._large,
                means=self._means,
                record=self.record,
                doors=self._doors.values,
                admission=self._admission,
                listed=lambda: self._warming.done,
                refused=lambda: self.refused,
                unaudited=lambda: self.calls.audit.trouble if self.calls.audit is not None else "",
            )
            self._begin(self._watched.metrics.watch())
        return self._watched

    async def drain(self) -> None:
        """Begin nothing more, and let calls that are under way end, but not for longer than `limits.drain_s`."""
        if self._watched is not None:
            self._watched.readiness.drain()
        if not await self._admission.drained(self.config.limits.drain_s):
            # Whoever still waits is told why, while there is a way to tell it.
            await self._parking.close()
            await self._servers.close()
            await self._admission.drained(FAREWELL_S)

    async def close(self) -> None:
        """Stop everything; when this returns no process, socket or task of ours is left."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self.insight.ledger.owing:
            await self._counting.finish(COUNTING_S)
        # Before calls are cut off: that is no fault of their tools.
        await self.learner.close()
        answers = await self._keeper.close()
        await self._means.close()
        await self._parking.close()
        await self._servers.close()
        if self._watched is not None:
            self._watched.metrics.end()
        for door in self._doors.values():
            await door.close()
        await self.catalog.close()
        await asyncio.to_thread(self._large.store.close)
        if answers:
            await self._pipeline.shapes.finish()
            await self._sharing.finish()
        if self.calls.audit is not None:
            self.calls.audit.close()
        await self.record.close()
        self._manifests.close()
        self._guard.close()

    # --- another configuration

    async def apply(self, config: Config) -> Change:
        """Go by another configuration from now on: only what it changes is touched, and calls under way end as begun.

        Settings that only a new start can take (where it listens, where it keeps things) are named in the answer.
        """
        async with self._applying:
            change = changes(self.config, config)
            self.refused = ""
            if not change:
                return change
            before, servers, now = self.config, self._servers, in_use(config)
            await self.catalog.configure(sources(config, self._given))
            # Nothing is awaited from here until all rooms go by the new one: no call finds half of it.
            self.config = config
            self._mask.reset(before)
            for name in (*change.removed, *change.restarted):
                servers.let_go(name, before.servers[name].restart.drain_s)
            for name in (*change.added, *change.restarted):
                servers.add(name, now[name])
            for name in change.adjusted:
                servers.adjust(name, now[name])
            self._pipeline.configure(now, self.upstreams, (*change.removed, *change.restarted))
            self._admission.configure(config.limits)
            self._parking.configure(config.limits.question_s, config.limits.questions)
            for name, door in list(self._doors.items()):
                if not name or name in config.profiles:
                    door.wear(face_of(config, name or None))
                else:
                    self._begin(self._doors.pop(name).close())
            starting = self._to_start((*change.added, *change.restarted))
            self._warming.begin(self._begin(self._warming.warm(starting)))
            self.bus.publish(ConfigTaken(str(change)))
            return change

    def refuse(self, reason: str) -> None:
        """A changed configuration cannot be used: what runs stays, and whoever asks is told why."""
        self.refused = self._mask.text(reason)
        self.bus.publish(ConfigRefused(self.refused))

    def view(self, profile: str | None = None) -> View:
        """What a profile's clients see."""
        return self.door(profile).view

    def door(self, profile: str | None = None) -> Door:
        """The door of a profile; the empty name is the default one."""
        key = profile or ""
        if key not in self._doors:
            view = View(
                face_of(self.config, profile),
                self.catalog,
                self.calls,
                self.upstreams,
                self._warming.first_listing,
                self.learner,
                self.bus,
                self.insight,
                self._large,
                self._means,
            )
            self._doors[key] = Door(view, self.upstreams, self.bus, self._watchers, self._admission, self._parking)
        return self._doors[key]

    def doors(self) -> dict[str, Door]:
        """Every door: the default one under the empty name, and one per profile."""
        return {"": self.door(), **{name: self.door(name) for name in self.config.profiles}}

    def statuses(self) -> list[Status]:
        """Every server's state."""
        return [upstream.status() for _, upstream in sorted(self.upstreams.items())]

    async def listed(self) -> None:
        """Wait until every server whose offer was unknown has been listed or has failed."""
        await self._warming.listed()

    async def refresh(self, servers: Iterable[str] | None = None, heard: Callable[[str], None] | None = None) -> None:
        """Ask these servers (default: all) anew; `heard` is told each name as it is done."""
        await self._warming.warm(list(servers if servers is not None else self.upstreams), heard)

    async def _start_servers(self) -> None:
        if self.record.shared and any(upstream.state == "configured" for upstream in self.upstreams.values()):
            # Another gateway may have listed them: then they need not be started to be known.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._sharing.caught_up.wait(), ADOPTION_S)
        await self._warming.warm(self._to_start(self.upstreams))

    def _to_start(self, names: Iterable[str]) -> list[str]:
        """Of these, the servers to start unasked: those that want it, those nothing is known of, those watched."""
        configured = self.config.servers
        return [
            name
            for name in names
            if self.upstreams[name].state == "configured"
            or (name in configured and configured[name].start == "boot")
            or self._watchers.of(name)
        ]

    async def _read_encoder(self) -> None:
        """So that the first search need not, and tools known from last time have vectors even if nobody lists them."""
        await asyncio.sleep(ENCODER_AFTER_S)
        index = self.catalog.snapshot.index
        if index.encoder is not None and len(index):
            with contextlib.suppress(EncoderUnavailable):
                await asyncio.to_thread(index.encoder.load)
                self.catalog.encode()

    async def _keep_house(self) -> None:
        await asyncio.sleep(HOUSEKEEPING_S)
        await asyncio.to_thread(give_back)  # what only starting needed
        while True:
            # Together: one server that will not go must not keep the others up.
            self._pipeline.cache.expire()
            self._means.expire()
            chores = {
                "what was learnt": self.learner.flush(),
                "large results": asyncio.to_thread(self._large.store.sweep),
                **{name: self._tend(name) for name in self.upstreams},
            }
            outcomes = await asyncio.gather(*chores.values(), return_exceptions=True)
            for name, outcome in zip(chores, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    logger.error("%s could not be looked after: %r", name, outcome)
            await asyncio.sleep(HOUSEKEEPING_S)

    async def _tend(self, name: str) -> None:
        upstream, server, watchers = self.upstreams[name], self.config.servers.get(name), self._watchers.who(name)
        self._syncs[name].expire()
        # Of what nothing is known, nothing can be called: nobody would ever start it again.
        wanted = not self.catalog.snapshot.servers[name].known or (server is not None and server.start == "boot")
        await upstream.tend(wanted=bool(watchers) or wanted)
        if server is not None and server.idle_s and (upstream.backend.kind == "stdio" or upstream.isolated):
            await upstream.rest(server.idle_s, watchers)

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
        # One that was taken away since a client came by it costs what the front door does.
        return self._counting.cost(self.view(profile if profile in self.config.profiles else None).snapshot)

    def _begin(self, chore: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._tasks.add(task := asyncio.create_task(chore, name=chore.__name__.strip("_").replace("_", " ")))
        task.add_done_callback(self._tasks.discard)
        return task

    def _heard(self, event: Event) -> None:
        if not isinstance(event, UpstreamReady) or (upstream := self.upstreams.get(event.server)) is None:
            return
        if self._watchers.of(event.server):
            self._begin(self._watchers.watch_again(upstream, HOUSEKEEPING_S))
