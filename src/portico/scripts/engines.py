"""Who runs which language, and whose turn it is. An engine is made, and its library imported, by
the first script that needs it.

The workers of an engine are shared by callers: they take turns, and one of them never has all
workers, so that the script of another finds one at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import Overloaded
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded
from portico.scripts.sandbox.script import Language, ScriptEngine

DEFAULT_WORKERS = 4
"""Scripts of one language that run at the same time; more wait their turn."""
DEFAULT_MAX_WAITING = 16
"""Scripts of one caller in one language that may wait for their turn."""


class EngineRegistry:
    """The engines that have been needed so far."""

    def __init__(
        self, workers: int = DEFAULT_WORKERS, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> None:
        self._workers = workers
        self._max_waiting = max_waiting
        self._engines: dict[str, ScriptEngine] = {}
        self._limiters: dict[str, FairLimiter] = {}

    def get_engine(self, language: Language) -> ScriptEngine:
        """The engine of a language."""
        kind = _to_engine_kind(language)
        if kind not in self._engines:
            self._engines[kind] = self._create_engine(kind)
        return self._engines[kind]

    @asynccontextmanager
    async def acquire_worker(
        self, language: Language, owner: str, timeout_s: float
    ) -> AsyncGenerator[None]:
        """Have a worker to oneself; raises Overloaded where there is none in time, or too many wait
        already."""
        kind = _to_engine_kind(language)
        if kind not in self._limiters:
            each = Limit(max(1, self._workers - 1), queue=self._max_waiting)
            self._limiters[kind] = FairLimiter(Limit(self._workers), each)
        turns = self._limiters[kind]
        try:
            await turns.acquire(owner, timeout_s)
        except LimitExceeded as refused:
            raise Overloaded(
                f"no worker is free for another script: {refused.reason}",
                advice=f"Nothing was begun. Try again in {refused.retry_after_s:g} s, or run fewer scripts at once.",
                retry_after_s=refused.retry_after_s,
            ) from None
        try:
            yield
        finally:
            turns.release(owner)

    def _create_engine(self, kind: str) -> ScriptEngine:
        if kind == "python":
            from portico.scripts.sandbox.python.engine import PythonEngine

            return PythonEngine(self._workers)
        from portico.scripts.sandbox.worker.pool import WorkerEngine

        return WorkerEngine(kind, self._workers)

    @property
    def worker_counts(self) -> dict[str, tuple[int, int | None]]:
        """The processes at work, and those that wait, of each engine that has been needed."""
        return {kind: engine.worker_counts for kind, engine in self._engines.items()}

    async def close(self) -> None:
        """End every process."""
        made = self._engines
        self._engines = {}
        for engine in made.values():
            await engine.close()


def _to_engine_kind(language: Language) -> str:
    if language == "typescript":
        return "javascript"
    return language
