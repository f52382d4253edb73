"""The Python engine: pydantic-monty, an isolated interpreter, in a few warm processes.

A script gets a fresh session of a process; the process is reused afterwards unless it exceeded a
limit.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from portico.scripts.sandbox.clock import MAX_PAUSED_S
from portico.scripts.sandbox.python.launcher import GRACE_S, Launcher
from portico.scripts.sandbox.python.monty_driver import (
    CallsAwaited,
    DriverEvent,
    MontyDriver,
    MontyReply,
    ScriptFinished,
    SleepRequested,
)
from portico.scripts.sandbox.python.script_io import to_json_text_off_loop
from portico.scripts.sandbox.script import (
    LATE_CALLS_S,
    CallFailed,
    CallHandler,
    CallTaskGroup,
    Fault,
    Script,
    ScriptEngine,
    ScriptOutcome,
)
from portico.upstream.transports.own_processes import set_close_on_exec

_FATAL_GRACE_S = 0.2
"""Seconds that a script which caught a fatal call error may continue before its process is
killed."""
_SCRIPTS_PER_PROCESS = 500

_CLOSING_FAULT = Fault("crash", "The gateway is closing.")

T = TypeVar("T")


class PythonEngine(ScriptEngine):
    """Runs Python scripts, as many at a time as there are processes; others wait."""

    def __init__(self, workers: int = 4) -> None:
        self._workers = workers
        self._worker_slots = asyncio.Semaphore(workers)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="portico-python")
        self._pool: Any = None
        self._launcher: Launcher | None = None
        self._pool_lock = threading.Lock()
        self._close_pool: Callable[[], object] | None = None
        self._closed = False
        self._close_lock = asyncio.Lock()
        self._running: set[_PythonScriptRun] = set()

    @property
    def worker_counts(self) -> tuple[int, int | None]:
        """Busy processes; the library does not report idle ones."""
        return len(self._running), None

    @property
    def restrictions(self) -> tuple[str, ...]:
        """Restrictions of the jail, empty before the first start. Starts a process and waits for
        it."""
        return self._launcher.report_restrictions() if self._launcher is not None else ()

    async def run(self, script: Script, handle_call: CallHandler) -> ScriptOutcome:
        run = _PythonScriptRun(self, script, handle_call)
        timeout_fault = Fault(
            "time",
            f"The script took longer than {script.limits.wall_s:g} s, "
            "the tools it called included.",
        )
        deadline = asyncio.get_running_loop().time() + script.limits.wall_s
        clock = asyncio.timeout_at(deadline)

        def move_deadline() -> None:
            if not clock.expired():
                paused_s = MAX_PAUSED_S if script.clock.is_paused else script.clock.paused_s
                clock.reschedule(deadline + paused_s)

        script.clock.on_change = move_deadline
        try:
            async with clock, self._worker_slots:
                if self._closed:
                    return ScriptOutcome(fault=_CLOSING_FAULT)
                self._running.add(run)
                try:
                    return await run.run(timeout_fault)
                finally:
                    self._running.discard(run)
        except TimeoutError:
            if not clock.expired():
                raise
            return run.outcome or ScriptOutcome(fault=timeout_fault)
        finally:
            script.clock.on_change = lambda: None

    async def close(self) -> None:
        """End every process and its script. Idempotent."""
        self._closed = True
        for run in list(self._running):
            run.stop(_CLOSING_FAULT)
        async with self._close_lock:
            for _ in range(self._workers):
                await self._worker_slots.acquire()
            for _ in range(self._workers):
                self._worker_slots.release()
            await asyncio.to_thread(self._shut_down)

    def _shut_down(self) -> None:
        if self._close_pool is not None:
            self._close_pool()
        if self._launcher is not None:
            self._launcher.close()
        self._threads.shutdown()

    def run_in_thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def get_pool(self) -> Any:
        """Return the pool of processes, started by the first call. Blocks, and imports the
        library."""
        with self._pool_lock:
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
                # Also closed without `close`: at exit, while the interpreter is still intact.
                self._close_pool = weakref.finalize(self, self._pool.__exit__, None, None, None)
            if self._launcher is not None and not self._launcher.is_jailed:
                set_close_on_exec()  # a process may be started for any script
            return self._pool


class _PythonScriptRun:
    """A running script: its driver in a thread, its calls in the event loop."""

    def __init__(self, engine: PythonEngine, script: Script, handle_call: CallHandler) -> None:
        self._engine = engine
        self._handle_call = handle_call
        self._loop = asyncio.get_running_loop()
        self._driver = MontyDriver(
            script,
            self._make_threadsafe(self._start_call),
            self._make_threadsafe(self._start_sleep),
        )
        self._call_tasks = CallTaskGroup()
        self._sleep_tasks = CallTaskGroup()
        self._tasks_by_id: dict[int, asyncio.Task[Any]] = {}
        self._max_unread_chars = script.limits.memory_bytes
        self._unread_chars = 0
        """Characters of results that the script has not taken yet."""
        self._stop_fault: asyncio.Future[Fault] = self._loop.create_future()
        self._kill_timer: asyncio.TimerHandle | None = None
        self._late_calls = 0
        self.outcome: ScriptOutcome | None = None

    async def run(self, timeout_fault: Fault) -> ScriptOutcome:
        """Run the script. On cancellation `outcome` has `timeout_fault`, for a caller that timed
        out."""
        fault = timeout_fault
        try:
            event = await self._run_blocking(
                lambda: self._driver.begin(self._engine.get_pool), timeout_fault
            )
            while not isinstance(event, ScriptFinished):
                if isinstance(event, SleepRequested):
                    sleep = self._sleep_tasks.start(asyncio.sleep(event.seconds))
                    await self._wait_for_first({sleep})
                    resume = self._driver.resume_after_sleep
                else:
                    replies = await self._wait_for_replies(event)
                    resume = partial(self._driver.resume_with_replies, replies)
                event = await self._run_blocking(resume, timeout_fault)
            outcome = self._driver.outcome
            if outcome is not None and outcome.fault is None:
                self._late_calls = await self._call_tasks.finish(LATE_CALLS_S)
        except _RunStopped as ended:
            fault = ended.fault
        finally:
            await _wait_despite_cancellation(self._finish(fault))
        assert self.outcome is not None
        return self.outcome

    def stop(self, fault: Fault) -> None:
        self._driver.kill(fault)
        if not self._stop_fault.done():
            self._stop_fault.set_result(fault)

    async def _run_blocking(
        self, work: Callable[[], DriverEvent], timeout_fault: Fault
    ) -> DriverEvent:
        future = self._engine.run_in_thread(work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._driver.kill(timeout_fault)
            await _wait_despite_cancellation(asyncio.wait({future}))
            raise

    async def _wait_for_replies(self, waiting: CallsAwaited) -> dict[int, MontyReply]:
        tasks = {
            number: task
            for number in waiting.call_ids
            if (task := self._tasks_by_id.get(number)) is not None
        }
        if not tasks:
            raise _RunStopped(Fault("deadlock", "The script waits for what nobody will answer."))
        done = await self._wait_for_first(set(tasks.values()))
        replies = {
            number: _build_reply(self._tasks_by_id.pop(number))
            for number, task in tasks.items()
            if task in done
        }
        self._unread_chars -= sum(
            len(reply.get("return_value") or "") for reply in replies.values()
        )
        return replies

    async def _wait_for_first(self, tasks: set[asyncio.Task[Any]]) -> set[Any]:
        done, _ = await asyncio.wait(
            {*tasks, self._stop_fault}, return_when=asyncio.FIRST_COMPLETED
        )
        if done == {self._stop_fault}:
            raise _RunStopped(self._stop_fault.result())
        return done

    async def _finish(self, fault: Fault) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        outcome = self._driver.outcome
        unawaited = await self._call_tasks.close()
        await self._sleep_tasks.close()
        if outcome is None:
            unawaited = 0  # unknown, because the script was interrupted
            await self._engine.run_in_thread(lambda: self._driver.abandon(fault))
            outcome = self._driver.outcome
        assert outcome is not None
        self.outcome = replace(outcome, unawaited_calls=unawaited, late_calls=self._late_calls)

    def _make_threadsafe(self, callback: Callable[..., None]) -> Callable[..., None]:
        def schedule(*args: Any) -> None:
            self._loop.call_soon_threadsafe(callback, *args)

        return schedule

    def _start_call(
        self, number: int, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        async def run_call() -> str:
            text = await to_json_text_off_loop(
                await self._handle_call(namespace, name, args, kwargs)
            )
            self._unread_chars += len(text)
            if self._unread_chars > self._max_unread_chars:
                size = f"{self._unread_chars:,} bytes"
                message = f"The answers that the script has not taken yet have {size}."
                self.stop(Fault("memory", message))
            return text

        def handle_done(task: asyncio.Task[Any]) -> None:
            self._driver.pending_argument_chars.pop(number, None)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, CallFailed) and error.fatal and not self._stop_fault.done():
                fault = Fault("call", str(error))
                self._driver.mark_fatal(str(error))
                self._stop_fault.set_result(fault)
                # The script gets the error first, because only it knows the line.
                self._kill_timer = self._loop.call_later(_FATAL_GRACE_S, self._driver.kill, fault)

        self._tasks_by_id[number] = self._call_tasks.start(run_call(), handle_done)

    def _start_sleep(self, number: int, seconds: float) -> None:
        self._tasks_by_id[number] = self._sleep_tasks.start(asyncio.sleep(seconds))


class _RunStopped(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _build_reply(task: asyncio.Task[Any]) -> MontyReply:
    if task.cancelled():
        return {"exc_type": "RuntimeError", "message": "the call was cancelled"}
    error = task.exception()
    if error is not None:
        return {"exc_type": "RuntimeError", "message": str(error) or type(error).__name__}
    return {"return_value": task.result()}


async def _wait_despite_cancellation(work: Coroutine[Any, Any, Any]) -> None:
    """Wait for this to the end even if cancelled, then raise the cancellation."""
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
