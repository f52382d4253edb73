"""What an engine is given and what it gives back: the facts that every language shares.

An engine knows nothing of MCP, tools or callers. A script's tools are functions in namespaces
(`github.create_issue` is
`create_issue` in `github`; what is global, as `search_tools`, is in the namespace `""`), and calling one is asking the
host, by both names, with whatever was passed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

Language = Literal["python", "lua", "javascript", "typescript"]
LANGUAGES: tuple[str, ...] = get_args(Language)

WORKER_NICENESS = 5
"""How far scripts stand back behind the gateway, where processors are short."""
MAX_STORED_VALUES = 1_000
"""Values that one script may store, each under its key."""

FaultKind = Literal[
    "syntax",  # it is not a script of its language
    "runtime",  # it raised
    "call",  # a call of a tool failed, and the script did not catch it
    "time",  # too long, by the clock or by the processor
    "memory",
    "recursion",
    "output",  # its answer is too large
    "value",  # its answer is nothing that JSON could say
    "deadlock",  # it waits for what nobody will answer
    "crash",  # its process ended
]


@dataclass(frozen=True)
class ScriptLimits:
    """What one script may take."""

    wall_s: float = 60.0
    """In all, the calls of tools included."""
    cpu_s: float = 5.0
    """Of the processor, the calls of tools not included."""
    memory_bytes: int = 64 * 1024**2
    recursion: int = 200
    calls: int = 200
    parallel: int = 16
    output_bytes: int = 256 * 1024
    """Of what it prints; more is counted and dropped."""
    answer_bytes: int = 16 * 1024**2


@dataclass(frozen=True)
class Script:
    """One script, bound to the functions it may call."""

    code: str
    language: Language
    namespaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Identifier of a server → identifiers of its tools that are bound; `""` → global functions
    (all awaited)."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What `load(key)` gives, JSON values; read at once, without asking the host."""
    limits: ScriptLimits = field(default_factory=ScriptLimits)


@dataclass(frozen=True)
class Fault:
    """Why a script did not end well."""

    kind: FaultKind
    message: str
    """In the language's own words where it has some, such as `TypeError: x is not a function`."""
    line: int | None = None
    """The script's own, from 1."""


@dataclass(frozen=True)
class ScriptOutcome:
    """How a script ended."""

    value: Any = None
    """A JSON value: what `result(…)` was given last, else what its last expression was."""
    printed: str = ""
    dropped_chars: int = 0
    """Characters printed beyond the limit."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """What it gave to `store(key, value)`, JSON values; also of a script that failed later."""
    unawaited_calls: int = 0
    """Calls it started and did not wait for; they were cancelled."""
    fault: Fault | None = None


class CallFailed(Exception):
    """A call that a script made did not go well; its text is for the script, which may catch it.

    `fatal` ends the script whatever it catches: a limit is no mistake to recover from.
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
        """How many processes run a script now, and how many wait for one; None where nobody knows."""
        ...

    async def run(self, script: Script, handle_call: CallHandler) -> ScriptOutcome:
        """Run one script to its end.

        Its calls start when they are made, so that several run together; `calling.Calling` keeps
        them. Whatever the script does, this returns within its limits (the engine counts processor
        time, memory, recursion and output; the caller counts calls and holds back parallel ones
        inside `ask`; both keep to `wall_s`). Cancelling it stops the script, cancels its calls and
        waits for them before it raises. A script never raises here: see `Fault`.
        """
        ...

    async def close(self) -> None:
        """End every process. Idempotent."""
        ...
