"""Input and output of an engine: the types that every language shares.

An engine knows nothing of MCP, tools or callers. A script's tools are functions in namespaces
(`github.create_issue` is `create_issue` in `github`; global functions such as `search_tools` are in
the namespace `""`). Calling one sends both names and the arguments to the host.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

Language = Literal["python", "lua", "javascript", "typescript"]
LANGUAGES: tuple[str, ...] = get_args(Language)

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
    """Resource limits of one script."""

    wall_s: float = 60.0
    """In all, including calls of tools."""
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


@dataclass(frozen=True)
class Fault:
    """Reason for which a script failed."""

    kind: FaultKind
    message: str
    """In the words of the language if possible, such as `TypeError: x is not a function`."""
    line: int | None = None
    """Line of the script, from 1."""


@dataclass(frozen=True)
class ScriptOutcome:
    """Result of a script."""

    value: Any = None
    """JSON value of the last `result(…)`, else of the last expression."""
    printed: str = ""
    dropped_chars: int = 0
    """Characters printed beyond the limit."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """JSON values passed to `store(key, value)`, also by a script that failed later."""
    unawaited_calls: int = 0
    """Calls that were started and not awaited; they were cancelled."""
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
    """Runs the scripts of one or more languages."""

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
