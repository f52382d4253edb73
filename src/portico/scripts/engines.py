"""Engines by language, created (with the import of their library) by the first script that needs
one.

The workers of an engine are shared fairly between callers; one caller never gets all of them, so
that another's script finds one at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import Overloaded
from portico.fair_limiter import FairLimiter, Limit, LimitExceeded
from portico.scripts.sandbox.script import Language, ScriptEngine

DEFAULT_WORKERS = 4
"""Scripts of one language that run at the same time; more are queued."""
DEFAULT_MAX_WAITING = 16
"""Maximum number of queued scripts of one caller in one language."""


class EngineRegistry:
    """Engines that have been created so far, with their limiters."""

    def __init__(
        self, workers: int = DEFAULT_WORKERS, max_waiting: int = DEFAULT_MAX_WAITING
    ) -> None:
        self._workers = workers
        self._max_waiting = max_waiting
        self._engines: dict[str, ScriptEngine] = {}
        self._limiters: dict[str, FairLimiter] = {}

    def get_engine(self, language: Language) -> ScriptEngine:
        """Return the engine of a language, created if necessary."""
        kind = _to_engine_kind(language)
        if kind not in self._engines:
            self._engines[kind] = self._create_engine(kind)
        return self._engines[kind]

    @asynccontextmanager
    async def acquire_worker(
        self, language: Language, owner: str, timeout_s: float
    ) -> AsyncGenerator[None]:
        """Hold a worker; raises Overloaded if none is free within `timeout_s` or the queue is
        full."""
        kind = _to_engine_kind(language)
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
        from portico.scripts.sandbox.worker.pool import WorkerEngine

        return WorkerEngine(kind, self._workers)

    @property
    def worker_counts(self) -> dict[str, tuple[int, int | None]]:
        """Busy and idle processes of each engine."""
        return {kind: engine.worker_counts for kind, engine in self._engines.items()}

    async def close(self) -> None:
        """End every process."""
        engines = self._engines
        self._engines = {}
        for engine in engines.values():
            await engine.close()


def _to_engine_kind(language: Language) -> str:
    if language == "typescript":
        return "javascript"
    return language
