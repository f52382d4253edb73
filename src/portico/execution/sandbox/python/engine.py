"""The Python engine: pydantic-monty, an interpreter that can do nothing but compute, in a few warm processes.

A script gets a fresh session of a process, and the process goes back to the others afterwards, unless it broke a limit.
prelude (what a script finds) · conversation (its turns, in a thread) → crossing (values, output), faults (what went
wrong), backstop (a last limit) · launcher, boot (the process starts inside the jail)
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from portico.execution.sandbox.calling import Calling
from portico.execution.sandbox.python.backstop import GRACE_S
from portico.execution.sandbox.python.conversation import Conversation, Ended, Pause, Reply, Turn, Waiting
from portico.execution.sandbox.python.crossing import text_in_steps
from portico.execution.sandbox.python.launcher import Launcher
from portico.execution.sandbox.script import Ask, CallFailed, Engine, Fault, Outcome, Script
from portico.upstream.descriptors import set_close_on_exec

_AFTER_FATAL_S = 0.2
"""What a script that caught a failure meant to end it may still do, before its process is killed."""
_SCRIPTS_PER_PROCESS = 500

_CLOSING = Fault("crash", "The gateway is closing.")

T = TypeVar("T")


class PythonEngine(Engine):
    """Runs Python scripts, as many at a time as it has processes; the others wait."""

    def __init__(self, workers: int = 4) -> None:
        self._workers = workers
        self._free = asyncio.Semaphore(workers)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="portico-python")
        self._pool: Any = None
        self._launcher: Launcher | None = None
        self._opening = threading.Lock()
        self._closing: Callable[[], object] | None = None
        self._closed = False
        self._leaving = asyncio.Lock()
        self._running: set[_Run] = set()

    @property
    def workers(self) -> tuple[int, int | None]:
        """How many processes run a script now; how many wait for one, the library does not tell."""
        return len(self._running), None

    @property
    def kept(self) -> tuple[str, ...]:
        """What the jail around the processes holds; empty until one was started. Starts a process and waits for it."""
        return self._launcher.report() if self._launcher is not None else ()

    async def run(self, script: Script, ask: Ask) -> Outcome:
        """Run one script; see `Engine`."""
        run = _Run(self, script, ask)
        late = Fault("time", f"The script took longer than {script.limits.wall_s:g} s, the tools it called included.")
        clock = asyncio.timeout(script.limits.wall_s)
        try:
            async with clock, self._free:
                if self._closed:
                    return Outcome(fault=_CLOSING)
                self._running.add(run)
                try:
                    return await run.to_its_end(late)
                finally:
                    self._running.discard(run)
        except TimeoutError:
            if not clock.expired():
                raise
            return run.outcome or Outcome(fault=late)

    async def close(self) -> None:
        """End every process, and the scripts in them. Idempotent."""
        self._closed = True
        for run in list(self._running):
            run.stop(_CLOSING)
        async with self._leaving:
            for _ in range(self._workers):
                await self._free.acquire()
            for _ in range(self._workers):
                self._free.release()
            await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        if self._closing is not None:
            self._closing()
        if self._launcher is not None:
            self._launcher.close()
        self._threads.shutdown()

    def in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Begin work that blocks."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def pool(self) -> Any:
        """The processes; the first to ask starts them. Blocks, and imports what nobody should wait for at start."""
        with self._opening:
            if self._pool is None:
                import pydantic_monty as monty
                from pydantic_monty._binary import find_monty_binary

                self._launcher = self._launcher or Launcher(find_monty_binary())
                pool = monty.Monty(
                    binary_path=self._launcher.path,
                    min_processes=1,
                    max_processes=self._workers,
                    max_checkouts_per_worker=_SCRIPTS_PER_PROCESS,
                    feed_duration_limit_grace=GRACE_S,
                    turn_duration_limit_grace=GRACE_S,
                )
                try:
                    self._pool = pool.__enter__()
                except RuntimeError as error:  # the program cannot be executed
                    raise OSError(str(error)) from error
                # Also when nobody closes the engine: at the interpreter's exit, while it is still whole.
                self._closing = weakref.finalize(self, self._pool.__exit__, None, None, None)
            if self._launcher is not None and not self._launcher.in_jail:
                set_close_on_exec()  # a process may be started for any script
            return self._pool


class _Run:
    """One script on its way: its conversation in a thread, its calls here."""

    def __init__(self, engine: PythonEngine, script: Script, ask: Ask) -> None:
        self._engine = engine
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._talk = Conversation(script, self._from_thread(self._call), self._from_thread(self._sleep))
        self._calls = Calling()
        self._sleeps = Calling()
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._most_waiting = script.limits.memory_bytes
        self._waiting = 0
        """Characters of answers that the script has not asked for yet."""
        self._over: asyncio.Future[Fault] = self._loop.create_future()
        self._end_by: asyncio.TimerHandle | None = None
        self.outcome: Outcome | None = None

    async def to_its_end(self, late: Fault) -> Outcome:
        """Run the script. Cancelled, it ends because it is late: so it is, unless nobody asks any more."""
        fault = late
        try:
            turn = await self._blocking(lambda: self._talk.begin(self._engine.pool), late)
            while not isinstance(turn, Ended):
                if isinstance(turn, Pause):
                    await self._first_of({self._sleeps.start(asyncio.sleep(turn.seconds))})
                    turn = await self._blocking(self._talk.wake, late)
                else:
                    turn = await self._blocking(partial(self._talk.tell, await self._replies(turn)), late)
        except _Ended as ended:
            fault = ended.fault
        finally:
            await _outlasting(self._settle(fault))
        assert self.outcome is not None
        return self.outcome

    def stop(self, fault: Fault) -> None:
        """End the script now, whatever it does."""
        self._talk.kill(fault)
        if not self._over.done():
            self._over.set_result(fault)

    async def _blocking(self, work: Callable[[], Turn], late: Fault) -> Turn:
        future = self._engine.in_thread(work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._talk.kill(late)
            await _outlasting(asyncio.wait({future}))
            raise

    async def _replies(self, waiting: Waiting) -> dict[int, Reply]:
        tasks = {number: task for number in waiting.calls if (task := self._tasks.get(number)) is not None}
        if not tasks:
            raise _Ended(Fault("deadlock", "The script waits for what nobody will answer."))
        done = await self._first_of(set(tasks.values()))
        replies = {number: _reply(self._tasks.pop(number)) for number, task in tasks.items() if task in done}
        self._waiting -= sum(len(reply.get("return_value") or "") for reply in replies.values())
        return replies

    async def _first_of(self, tasks: set[asyncio.Task[Any]]) -> set[Any]:
        done, _ = await asyncio.wait({*tasks, self._over}, return_when=asyncio.FIRST_COMPLETED)
        if done == {self._over}:
            raise _Ended(self._over.result())
        return done

    async def _settle(self, fault: Fault) -> None:
        if self._end_by is not None:
            self._end_by.cancel()
        outcome = self._talk.outcome
        unawaited = await self._calls.close()
        await self._sleeps.close()
        if outcome is None:
            unawaited = 0  # whether it would have waited for them, nobody knows
            await self._engine.in_thread(lambda: self._talk.abandon(fault))
            outcome = self._talk.outcome
        assert outcome is not None
        self.outcome = replace(outcome, unawaited=unawaited)

    def _from_thread(self, here: Callable[..., None]) -> Callable[..., None]:
        def there(*args: Any) -> None:
            self._loop.call_soon_threadsafe(here, *args)

        return there

    def _call(self, number: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        async def asked() -> str:
            text = await text_in_steps(await self._ask(namespace, name, args, kwargs))
            self._waiting += len(text)
            if self._waiting > self._most_waiting:
                self.stop(
                    Fault("memory", f"The answers that the script has not taken yet have {self._waiting:,} bytes.")
                )
            return text

        def done(task: asyncio.Task[Any]) -> None:
            self._talk.held.pop(number, None)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, CallFailed) and error.fatal and not self._over.done():
                fault = Fault("call", str(error))
                self._talk.doom(str(error))
                self._over.set_result(fault)
                # It is told first, since only the script knows at which line that was.
                self._end_by = self._loop.call_later(_AFTER_FATAL_S, self._talk.kill, fault)

        self._tasks[number] = self._calls.start(asked(), done)

    def _sleep(self, number: int, seconds: float) -> None:
        self._tasks[number] = self._sleeps.start(asyncio.sleep(seconds))


class _Ended(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _reply(task: asyncio.Task[Any]) -> Reply:
    if task.cancelled():
        return {"exc_type": "RuntimeError", "message": "the call was cancelled"}
    error = task.exception()
    if error is not None:
        return {"exc_type": "RuntimeError", "message": str(error) or type(error).__name__}
    return {"return_value": task.result()}


async def _outlasting(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for this to the end, also when cancelled; the cancellation comes afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()
