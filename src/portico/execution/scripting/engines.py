"""Who runs which language. An engine is made, and its library imported, by the first script that needs it."""

from portico.execution.sandbox.script import Engine, Language

WORKERS = 4
"""Scripts of one language that run at the same time; more wait their turn."""


class Engines:
    """The engines that have been needed so far."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._workers = workers
        self._made: dict[str, Engine] = {}

    def of(self, language: Language) -> Engine:
        """The engine of a language."""
        kind = "javascript" if language == "typescript" else language
        if kind not in self._made:
            self._made[kind] = self._make(kind)
        return self._made[kind]

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
