"""Who runs which language, and whose turn it is. An engine is made, and its library imported, by the first script that
needs it.

The workers of an engine are shared by callers: they take turns, and one of them never has all workers, so that the
script of another finds one at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.errors import Overloaded
from portico.execution.sandbox.script import Engine, Language
from portico.execution.turns import Limit, TurnedAway, Turns

WORKERS = 4
"""Scripts of one language that run at the same time; more wait their turn."""
WAITING = 16
"""Scripts of one caller in one language that may wait for their turn."""


class Engines:
    """The engines that have been needed so far."""

    def __init__(self, workers: int = WORKERS, waiting: int = WAITING) -> None:
        self._workers = workers
        self._waiting = waiting
        self._made: dict[str, Engine] = {}
        self._turns: dict[str, Turns] = {}

    def of(self, language: Language) -> Engine:
        """The engine of a language."""
        kind = _kind(language)
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

    @asynccontextmanager
    async def take_turn(self, language: Language, owner: str, patience_s: float) -> AsyncGenerator[None]:
        """Have a worker to oneself; raises Overloaded where there is none in time, or too many wait already."""
        kind = _kind(language)
        if kind not in self._turns:
            each = Limit(max(1, self._workers - 1), queue=self._waiting)
            self._turns[kind] = Turns(Limit(self._workers), each)
        turns = self._turns[kind]
        try:
            await turns.enter(owner, patience_s)
        except TurnedAway as refused:
            raise Overloaded(
                f"no worker is free for another script: {refused.why}",
                advice=f"Nothing was begun. Try again in {refused.retry_after_s:g} s, or run fewer scripts at once.",
                retry_after_s=refused.retry_after_s,
            ) from None
        try:
            yield
        finally:
            turns.leave(owner)

    def _make(self, kind: str) -> Engine:
        if kind == "python":
            from portico.execution.sandbox.python.engine import PythonEngine

            return PythonEngine(self._workers)
        from portico.execution.sandbox.worker.pool import WorkerEngine

        return WorkerEngine(kind, self._workers)

    @property
    def workers(self) -> dict[str, tuple[int, int | None]]:
        """The processes at work, and those that wait, of each engine that has been needed."""
        return {kind: engine.workers for kind, engine in self._made.items()}

    async def close(self) -> None:
        """End every process."""
        made, self._made = self._made, {}
        for engine in made.values():
            await engine.close()


def _kind(language: Language) -> str:
    return "javascript" if language == "typescript" else language
