"""The pool of warm workers: each runs one script at a time, and is replaced when a script was too
much for it."""

import asyncio

from portico.scripts.sandbox.script import CallHandler, Fault, Script, ScriptEngine, ScriptOutcome
from portico.scripts.sandbox.worker.process import WorkerProcess, WorkerStartFailed
from portico.scripts.sandbox.worker.script_run import WorkerScriptRun

MAX_SCRIPTS_PER_WORKER = 500
"""Of one worker: whatever an engine leaks, it leaks for so long."""


class WorkerEngine(ScriptEngine):
    """Runs scripts in up to `workers` processes at once; further scripts wait, first come, first
    served.

    The first script starts the first process; from then on one more than is needed is kept warm.
    """

    def __init__(self, runtime: str, workers: int = 4) -> None:
        self._runtime = runtime
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._spare_task: asyncio.Task[None] | None = None
        self._closed = False
        self.restrictions: tuple[str, ...] = ()
        """What the jail of the last worker holds; empty until one was started."""

    @property
    def worker_counts(self) -> tuple[int, int | None]:
        """How many processes run a script now, and how many wait for one."""
        return len(self._busy), len(self._idle)

    async def run(self, script: Script, handle_call: CallHandler) -> ScriptOutcome:
        """See `Engine.run`. Waiting for a free worker counts as the script's time."""
        deadline = asyncio.get_running_loop().time() + script.limits.wall_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            waited = (
                f"no worker was free for {script.limits.wall_s:g} s: too many scripts run at once"
            )
            return ScriptOutcome(fault=Fault("time", waited))
        try:
            return await self._run_on_worker(script, handle_call, deadline)
        finally:
            self._slots.release()

    async def start(self) -> None:
        """Have a worker ready before the first script; `run` does not need it."""
        self._keep_spare()
        if self._spare_task is not None:
            await asyncio.wait({self._spare_task})

    async def close(self) -> None:
        """End every process; scripts that still run end with a fault."""
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
        running = WorkerScriptRun(worker, script, handle_call, deadline)
        try:
            self._keep_spare()
            return await running.run()
        finally:
            self._busy.discard(worker)
            if (
                running.is_worker_reusable
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
            return  # whoever needs one tries again and hears why
        if self._closed:
            await worker.close()
        else:
            self._idle.append(worker)
