"""Input and output of an engine: the types that every language shares.

An engine knows nothing of MCP, tools or callers. A script's tools are functions in namespaces
(`github.create_issue` is `create_issue` in `github`; global functions such as `search_tools` are in
the namespace `""`). Calling one sends both names and the arguments to the host.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, get_args

from portico.scripts.sandbox.clock import PausableClock

Language = Literal["python", "lua", "javascript", "typescript"]
LANGUAGES: tuple[str, ...] = get_args(Language)


def to_language_family(language: Language) -> str:
    """Return the language whose engine runs it: TypeScript runs as JavaScript."""
    return "javascript" if language == "typescript" else language


WORKER_NICENESS = 5
"""Niceness of script processes, so that the gateway takes precedence on a busy machine."""
MAX_STORED_VALUES = 1_000
"""Maximum number of values that one script may store."""

FaultKind = Literal[
    "syntax",  # not valid in its language
    "runtime",  # an uncaught exception
    "call",  # an uncaught failure of a tool call
    "time",  # over the wall clock or CPU limit
    "memory",
    "recursion",
    "output",  # the answer is too large
    "value",  # the answer cannot be encoded as JSON
    "deadlock",  # it waits for something that never happens
    "crash",  # its process ended
]


@dataclass(frozen=True)
class ScriptLimits:
    wall_s: float = 60.0
    """In all, including calls of tools, but not the time that a person takes to approve one."""
    cpu_s: float = 5.0
    """CPU time, excluding calls of tools."""
    memory_bytes: int = 64 * 1024**2
    recursion: int = 200
    calls: int = 200
    parallel: int = 16
    output_bytes: int = 256 * 1024
    """Maximum of printed output; more is counted and dropped."""
    answer_bytes: int = 16 * 1024**2


@dataclass(frozen=True)
class Script:
    """One script, bound to the functions it may call."""

    code: str
    language: Language
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Server identifier → identifiers of its bound tools; `""` → global functions (all
    awaited)."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for `load(key)`; read without a call to the host."""
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    clock: PausableClock = field(default_factory=PausableClock, compare=False)
    """Stands still while a call waits for a person; `wall_s` does not count that."""


@dataclass(frozen=True)
class Fault:
    kind: FaultKind
    message: str
    """In the words of the language if possible, such as `TypeError: x is not a function`."""
    line: int | None = None
    """Line of the script, from 1."""


@dataclass(frozen=True)
class ScriptOutcome:
    value: Any = None
    """JSON value of the last `result(…)`, else of the last expression."""
    printed: str = ""
    dropped_chars: int = 0
    """Characters printed beyond the limit."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """JSON values passed to `store(key, value)`, also by a script that failed later."""
    unawaited_calls: int = 0
    """Calls that were started and not awaited; they were cancelled."""
    late_calls: int = 0
    """Calls that were started and not awaited; they ended within `LATE_CALLS_S` of the script."""
    fault: Fault | None = None


class CallFailed(Exception):
    """A call of a script failed; the text is for the script, which may catch it.

    A `fatal` one ends the script even if it is caught, such as an exceeded limit.
    """

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


CallHandler = Callable[[str, str, list[Any], dict[str, Any]], Awaitable[Any]]
"""Namespace, function, positional and named arguments → a JSON value; raises CallFailed.
Cancellable."""


class ScriptEngine(Protocol):
    @property
    def worker_counts(self) -> tuple[int, int | None]:
        """Busy and idle processes; None if unknown."""
        ...

    async def run(self, script: Script, handle_call: CallHandler) -> ScriptOutcome:
        """Run one script to its end.

        Calls start when they are made, so that several run in parallel; `CallTaskGroup` tracks
        them. This returns within the limits whatever the script does: the engine enforces CPU time,
        memory, recursion and output; `handle_call` enforces the number of calls and their
        parallelism; both enforce `wall_s`. Cancelling stops the script, and cancels and awaits its
        calls. Errors of a script are returned as `Fault`, never raised.
        """
        ...

    async def close(self) -> None:
        """End every process. Idempotent."""
        ...


LATE_CALLS_S = 3.0
"""How long calls that a script did not await may go on after it: one that is cancelled may have
taken effect, and whoever makes it again has the effect twice."""


class CallTaskGroup:
    """Tasks of one script's calls; leaving `async with` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self,
        call: Coroutine[Any, Any, Any],
        on_done: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> asyncio.Task[Any]:
        """Start a call at once; `on_done` is called with its task unless the group was closed."""
        task = asyncio.create_task(call, name="a script's call")
        self._tasks.add(task)

        def handle_done(task: asyncio.Task[Any]) -> None:
            is_tracked = task in self._tasks
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # retrieved, because nobody may await it
            if is_tracked and on_done is not None:
                on_done(task)

        task.add_done_callback(handle_done)
        return task

    async def finish(self, seconds: float) -> int:
        """Wait so long for unfinished calls; returns how many ended."""
        if not self._tasks or seconds <= 0:
            return 0
        done, _ = await asyncio.wait(self._tasks, timeout=seconds)
        return len(done)

    async def close(self) -> int:
        """Cancel and await unfinished calls; returns their number."""
        running = self._tasks
        self._tasks = set()
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        return len(running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
