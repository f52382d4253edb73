"""The pool of warm workers: each runs one script at a time, and is replaced when a script was too much for it."""

import asyncio

from portico.execution.sandbox.script import Ask, Engine, Fault, Outcome, Script
from portico.execution.sandbox.worker.process import WorkerFailed, WorkerProcess
from portico.execution.sandbox.worker.running import Running

MAX_SCRIPTS = 500
"""Of one worker: whatever an engine leaks, it leaks for so long."""


class WorkerEngine(Engine):
    """Runs scripts in up to `workers` processes at once; further scripts wait, first come, first served.

    The first script starts the first process; from then on one more than is needed is kept warm.
    """

    def __init__(self, runtime: str, workers: int = 4) -> None:
        self._runtime = runtime
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._spare: asyncio.Task[None] | None = None
        self._closed = False
        self.kept: tuple[str, ...] = ()
        """What the jail of the last worker holds; empty until one was started."""

    @property
    def workers(self) -> tuple[int, int | None]:
        """How many processes run a script now, and how many wait for one."""
        return len(self._busy), len(self._idle)

    async def run(self, script: Script, ask: Ask) -> Outcome:
        """See `Engine.run`. Waiting for a free worker counts as the script's time."""
        deadline = asyncio.get_running_loop().time() + script.limits.wall_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            waited = f"no worker was free for {script.limits.wall_s:g} s: too many scripts run at once"
            return Outcome(fault=Fault("time", waited))
        try:
            return await self._run(script, ask, deadline)
        finally:
            self._slots.release()

    async def start(self) -> None:
        """Have a worker ready before the first script; `run` does not need it."""
        self._keep_spare()
        if self._spare is not None:
            await asyncio.wait({self._spare})

    async def close(self) -> None:
        """End every process; scripts that still run end with a fault."""
        self._closed = True
        if self._spare is not None:
            self._spare.cancel()
            await asyncio.wait({self._spare})
        workers = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(worker.close() for worker in workers))

    async def _run(self, script: Script, ask: Ask, deadline: float) -> Outcome:
        try:
            worker = await self._take()
        except WorkerFailed as error:
            return Outcome(fault=Fault("crash", f"no process for {script.language} could be started: {error}"))
        self._busy.add(worker)
        running = Running(worker, script, ask, deadline)
        try:
            self._keep_spare()
            return await running.run()
        finally:
            self._busy.discard(worker)
            if running.clean and worker.usable and worker.scripts < MAX_SCRIPTS and not self._closed:
                self._idle.append(worker)
            else:
                await worker.close()
                self._keep_spare()

    async def _take(self) -> WorkerProcess:
        while not self._closed:
            if not self._idle and self._spare is not None:
                await asyncio.wait({self._spare})
            if not self._idle:
                return await self._started()
            worker = self._idle.pop()
            if worker.usable:
                return worker
            await worker.close()
        raise WorkerFailed("the gateway is closing")

    async def _started(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self._runtime)
        self.kept = worker.kept
        return worker

    def _keep_spare(self) -> None:
        if self._closed or self._idle or (self._spare is not None and not self._spare.done()):
            return
        self._spare = asyncio.create_task(self._warm(), name=f"a spare worker for {self._runtime}")

    async def _warm(self) -> None:
        try:
            worker = await self._started()
        except WorkerFailed:
            return  # whoever needs one tries again and hears why
        if self._closed:
            await worker.close()
        else:
            self._idle.append(worker)
