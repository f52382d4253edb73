"""Engines by language, created (with the import of their library) by the first script that needs
one.

The workers of an engine are shared fairly between callers; one caller never gets all of them, so
that another's script finds one at once. The pool keeps workers warm: each runs one script at a time
and is replaced after exceeding a limit.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import Overloaded
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded
from portico.scripts.sandbox.script import (
    CallHandler,
    Fault,
    Language,
    Script,
    ScriptEngine,
    ScriptOutcome,
    to_language_family,
)
from portico.scripts.sandbox.worker.process import WorkerProcess, WorkerStartFailed
from portico.scripts.sandbox.worker.script_run import WorkerScriptRun

DEFAULT_WORKERS = 4
"""Scripts of one language that run at the same time; more are queued."""
DEFAULT_MAX_WAITING = 16
"""Maximum number of queued scripts of one caller in one language."""


class EngineRegistry:
    def __init__(
        self, workers: int = DEFAULT_WORKERS, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> None:
        self._workers = workers
        self._max_waiting = max_waiting
        self._engines: dict[str, ScriptEngine] = {}
        self._limiters: dict[str, FairLimiter] = {}

    def get_engine(self, language: Language) -> ScriptEngine:
        kind = to_language_family(language)
        if kind not in self._engines:
            self._engines[kind] = self._create_engine(kind)
        return self._engines[kind]

    @asynccontextmanager
    async def acquire_worker(
        self, language: Language, owner: str, timeout_s: float
    ) -> AsyncGenerator[None]:
        """Hold a worker; raises Overloaded if none is free within `timeout_s` or the queue is
        full."""
        kind = to_language_family(language)
        if kind not in self._limiters:
            caller_limit = Limit(max(1, self._workers - 1), queue=self._max_waiting)
            self._limiters[kind] = FairLimiter(Limit(self._workers), caller_limit)
        limiter = self._limiters[kind]
        try:
            await limiter.acquire(owner, timeout_s)
        except LimitExceeded as refused:
            raise Overloaded(
                f"no worker is free for another script: {refused.reason}",
                advice=f"Nothing was begun. Try again in {refused.retry_after_s:g} s, "
                "or run fewer scripts at once.",
                retry_after_s=refused.retry_after_s,
            ) from None
        try:
            yield
        finally:
            limiter.release(owner)

    def _create_engine(self, kind: str) -> ScriptEngine:
        if kind == "python":
            from portico.scripts.sandbox.python.engine import PythonEngine

            return PythonEngine(self._workers)
        from portico.scripts.engines import WorkerEngine

        return WorkerEngine(kind, self._workers)

    @property
    def worker_counts(self) -> dict[str, tuple[int, int | None]]:
        return {kind: engine.worker_counts for kind, engine in self._engines.items()}

    async def close(self) -> None:
        engines = self._engines
        self._engines = {}
        for engine in engines.values():
            await engine.close()


MAX_SCRIPTS_PER_WORKER = 500
"""Scripts after which a worker is replaced, which bounds the leaks of an engine."""


class WorkerEngine(ScriptEngine):
    """Runs scripts in up to `workers` processes; further scripts wait, first in, first out.

    The first script starts the first process; from then on one spare process is kept warm.
    """

    def __init__(self, runtime: str, workers: int = 4) -> None:
        self._runtime = runtime
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._spare_task: asyncio.Task[None] | None = None
        self._closed = False
        self.restrictions: tuple[str, ...] = ()
        """Restrictions of the last worker's jail; empty before the first start."""

    @property
    def worker_counts(self) -> tuple[int, int | None]:
        return len(self._busy), len(self._idle)

    async def run(self, script: Script, handle_call: CallHandler) -> ScriptOutcome:
        """Run a script; see `ScriptEngine.run`. Waiting for a worker counts as its time."""
        deadline = asyncio.get_running_loop().time() + script.limits.wall_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            message = (
                f"no worker was free for {script.limits.wall_s:g} s: too many scripts run at once"
            )
            return ScriptOutcome(fault=Fault("time", message))
        try:
            return await self._run_on_worker(script, handle_call, deadline)
        finally:
            self._slots.release()

    async def start(self) -> None:
        """Start a worker before the first script; optional."""
        self._keep_spare()
        if self._spare_task is not None:
            await asyncio.wait({self._spare_task})

    async def close(self) -> None:
        """End every process; running scripts end with a fault."""
        self._closed = True
        if self._spare_task is not None:
            self._spare_task.cancel()
            await asyncio.wait({self._spare_task})
        workers = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(worker.close() for worker in workers))

    async def _run_on_worker(
        self, script: Script, handle_call: CallHandler, deadline: float
    ) -> ScriptOutcome:
        try:
            worker = await self._take_worker()
        except WorkerStartFailed as error:
            return ScriptOutcome(
                fault=Fault("crash", f"no process for {script.language} could be started: {error}")
            )
        self._busy.add(worker)
        script_run = WorkerScriptRun(worker, script, handle_call, deadline)
        try:
            self._keep_spare()
            return await script_run.run()
        finally:
            self._busy.discard(worker)
            if (
                script_run.is_worker_reusable
                and worker.is_usable
                and worker.script_count < MAX_SCRIPTS_PER_WORKER
                and not self._closed
            ):
                self._idle.append(worker)
            else:
                await worker.close()
                self._keep_spare()

    async def _take_worker(self) -> WorkerProcess:
        while not self._closed:
            if not self._idle and self._spare_task is not None:
                await asyncio.wait({self._spare_task})
            if not self._idle:
                return await self._start_worker()
            worker = self._idle.pop()
            if worker.is_usable:
                return worker
            await worker.close()
        raise WorkerStartFailed("the gateway is closing")

    async def _start_worker(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self._runtime)
        self.restrictions = worker.restrictions
        return worker

    def _keep_spare(self) -> None:
        if (
            self._closed
            or self._idle
            or (self._spare_task is not None and not self._spare_task.done())
        ):
            return
        self._spare_task = asyncio.create_task(
            self._start_spare(), name=f"a spare worker for {self._runtime}"
        )

    async def _start_spare(self) -> None:
        try:
            worker = await self._start_worker()
        except WorkerStartFailed:
            return  # the next script tries again and reports the error
        if self._closed:
            await worker.close()
        else:
            self._idle.append(worker)
