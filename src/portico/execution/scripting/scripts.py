"""One script, from its text to how it ended. Whatever it calls goes through the pipeline, as if its caller had called.

The script's tools get their results whole: what is too large for an answer is not too large for a script.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import Code
from portico.errors import InvalidArguments, PorticoError
from portico.execution.cache import age_of
from portico.execution.call import Calls, Origin
from portico.execution.json_stream import weight
from portico.execution.learned import value_of
from portico.execution.marks import REPAIRED, marks_of
from portico.execution.sandbox.script import CallFailed, Language, Limits, Outcome, Script
from portico.execution.schema_cost import MAX_VALUES, measure
from portico.execution.scripting.binding import Bound, arguments_of, bind_off_loop
from portico.execution.scripting.engines import Engines
from portico.execution.scripting.hints import hint
from portico.execution.scripting.memory import Memory
from portico.observability.tracing import current, within
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

MAX_CODE = 256 * 1024
MAX_ARGUMENTS = 2 * 1024**2
"""Characters: what is checked against a schema is checked where everybody waits."""
CALL = "call_tool"
MAX_ASKED = 8_192
"""Characters of a question to the gateway's own functions, which everybody waits for."""
_HEAVY = 256 * 1024
"""Characters of a result that is read in a thread."""
_ERROR_CHARS = 2_000
_NOT_WAITED_S = 0.1
_REPAIRS, _SEEN, _KEYS = 5, 60, 12
_LOADS = re.compile(r"\bload\s*\(")
_NOTHING_LOADED = "Nothing is stored here for load: pass the session that the answer of the storing script told you."
_FENCED = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?```\s*", re.DOTALL)

Function = Callable[..., Awaitable[Any]]
"""Something of the gateway's own that scripts may call; raises PorticoError."""


@dataclass(frozen=True)
class Made:
    """A call that a script made."""

    tool: str
    seconds: float
    ok: bool
    cached: bool = False
    cancelled: bool = False
    """Nobody waited for it."""


@dataclass(frozen=True)
class Ran:
    """How a script went."""

    outcome: Outcome
    calls: tuple[Made, ...] = ()
    hint: str = ""
    """What to do about its fault, or about what it forgot."""
    seconds: float = 0.0
    repaired: tuple[str, ...] = ()
    """What was wrong with the arguments of its calls, and put right."""


@dataclass(frozen=True)
class Around:
    """What a script finds around it."""

    snapshot: Snapshot
    """The tools that its caller sees."""
    functions: Mapping[str, Function] = field(default_factory=dict)
    """The gateway's own, by their names."""
    line: Callable[[Tool], str] = lambda tool: tool.address
    """How a tool is told, where its arguments were wrong."""


class Scripts:
    """Runs scripts."""

    def __init__(
        self, calls: Calls, engines: Engines | None = None, memory: Memory | None = None, limits: Limits | None = None
    ) -> None:
        self._calls = calls
        self._engines = engines or Engines()
        # An empty memory is false, and still the one that is meant.
        self.memory = Memory() if memory is None else memory
        self._limits = limits or Limits()

    @classmethod
    def within(cls, calls: Calls, config: Code) -> "Scripts":
        """Scripts within configured limits."""
        limits = Limits(
            wall_s=config.wall_s,
            cpu_s=config.cpu_s,
            memory_bytes=int(config.memory),
            recursion=config.recursion,
            calls=config.calls,
            parallel=config.parallel,
            output_bytes=int(config.output),
            answer_bytes=int(config.answer),
        )
        memory = Memory(ttl_s=config.state_s, max_bytes=int(config.state_bytes))
        return cls(calls, Engines(config.workers, config.waiting), memory, limits)

    async def run(
        self, code: str, language: Language, around: Around, origin: Origin, timeout_s: float | None = None
    ) -> Ran:
        """Run a script; `timeout_s` can only shorten what it may take."""
        if len(code) > MAX_CODE:
            raise InvalidArguments(f"a script may have {MAX_CODE:,} characters", advice="Pass data as arguments.")
        code = unfenced(code)
        limits = replace(self._limits, wall_s=min(timeout_s or self._limits.wall_s, self._limits.wall_s))
        bound = await bind_off_loop(code, around.snapshot)
        host = _Host(self._calls, bound, around, origin, limits)
        script = Script(
            code,
            language,
            {**bound.namespaces(words_only=language == "python"), "": (*around.functions, CALL)},
            self.memory.load(origin.caller) if "load" in code else {},
            limits,
        )
        # A client with a session knows what it stored; another may have left out the handle to it.
        lost = not origin.caller.session and not self.memory.has(origin.caller) and bool(_LOADS.search(code))
        started = time.perf_counter()
        async with self._engines.take_turn(language, origin.caller.owner, limits.wall_s):
            outcome = await self._engines.of(language).run(
                _deduct_wait(script, time.perf_counter() - started), host.ask
            )
        refused = self.memory.store(origin.caller, outcome.stored)
        advised = await around.snapshot.look_through(hint, script, outcome, around.snapshot, host.answers)
        told = (advised, refused, _NOTHING_LOADED if lost else "")
        advice = " ".join(filter(None, told))
        return Ran(outcome, tuple(host.made), advice, time.perf_counter() - started, tuple(host.repairs))

    @property
    def workers(self) -> dict[str, tuple[int, int | None]]:
        """The processes of each engine: at work, and waiting."""
        return self._engines.workers

    async def close(self) -> None:
        """End every process."""
        await self._engines.close()


def _deduct_wait(script: Script, waited_s: float) -> Script:
    """The same script with the time taken off that it waited for its turn."""
    if waited_s < _NOT_WAITED_S:
        return script
    wall_s = max(_NOT_WAITED_S, round(script.limits.wall_s - waited_s, 1))
    return replace(script, limits=replace(script.limits, wall_s=wall_s))


class _Host:
    """The other side of one script's calls."""

    def __init__(self, calls: Calls, bound: Bound, around: Around, origin: Origin, limits: Limits) -> None:
        self.made: list[Made] = []
        self.repairs: dict[str, None] = {}
        self.answers: dict[str, str] = {}
        """What the tools answered last, in a few words: for whoever took it for something else."""
        self._calls = calls
        self._bound = bound
        self._around = around
        # What the client sent beside its question (a progress token, answers to questions) was for the script alone.
        self._origin = Origin(origin.caller, origin.relay, way="script")
        # A script's calls come from its engine, which knows nothing of the request that brought it.
        self._span = current()
        self._limits = limits
        self._turns = asyncio.Semaphore(limits.parallel)
        self._begun = 0
        meta = origin.extra.get("_meta")
        self._progress = meta.get("progressToken") if isinstance(meta, dict) else None

    async def ask(self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Answer a script's call; raises CallFailed."""
        self._begun += 1
        if self._begun > self._limits.calls:
            raise CallFailed(f"a script may make {self._limits.calls} calls", fatal=True)
        if measure([args, kwargs]).values > MAX_VALUES:
            raise CallFailed(f"the arguments of a call may have {MAX_VALUES:,} values")
        if weight([args, kwargs], MAX_ARGUMENTS) >= MAX_ARGUMENTS:
            raise CallFailed(f"the arguments of a call may have {MAX_ARGUMENTS:,} characters")
        try:
            if namespace:
                tool = self._bound.tool(namespace, name)
                return await self._run(tool, arguments_of(tool, args, kwargs))
            if name == CALL:
                tool, arguments = await self._by_name(args, kwargs)
                return await self._run(tool, arguments)
            if weight([args, kwargs], MAX_ASKED) >= MAX_ASKED:
                raise CallFailed(f"{name} takes at most {MAX_ASKED:,} characters")
            return await self._run_own(name, args, kwargs)
        except PorticoError as error:
            raise CallFailed(_told(error)) from error
        except CallFailed:
            raise
        except Exception as error:
            # The script must be told, but not of what the gateway is made.
            logger.exception("a script's call of %s failed in the gateway", f"{namespace}.{name}".lstrip("."))
            raise CallFailed(f"{name} failed in the gateway, whose log says more") from error

    async def _run_own(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of the gateway's own."""
        function = self._around.functions.get(name)
        if function is None:
            raise CallFailed(f"there is no function {name} here")
        try:
            given = signature(function).bind(*args, **kwargs)
        except TypeError as error:  # its text names what was passed, and nothing of ours
            raise CallFailed(f"{name}: {error}") from error
        return await function(*given.args, **given.kwargs)

    async def _by_name(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[Tool, dict[str, Any]]:
        """The tool that is named first, or as `name`; then its arguments, as one object or each by its name."""
        given = dict(kwargs)
        name, *rest = args if args else [given.pop("name", None)]
        if not rest and given.keys() == {"arguments"}:
            rest, given = [given["arguments"] or {}], {}
        if not isinstance(name, str) or len(name) > MAX_ASKED or not all(isinstance(one, dict | None) for one in rest):
            raise CallFailed(f"{CALL} takes a tool's name and an object of arguments")
        tool = await self._around.snapshot.find_tool(name)
        return tool, arguments_of(tool, [one or {} for one in rest], given)

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        async with self._turns:
            started = time.perf_counter()
            ok = cached = cancelled = False
            try:
                with within(self._span):
                    result = await self._calls.call(tool, arguments, self._origin)
                cached = age_of(result) is not None
                for note in marks_of(result).get(REPAIRED, ())[:_REPAIRS]:
                    self.repairs[f"{tool.address}: {note}"] = None
                if result.get("isError"):
                    raise CallFailed(f"{tool.address} answered with an error: {_words(result)}")
                if result.get("resultType", "complete") != "complete":
                    raise CallFailed(f"{tool.address} asks for more input: call it by {CALL} outside of a script")
                ok = True
            except InvalidArguments as error:
                raise CallFailed(f"{_told(error)} {self._around.line(tool)}") from error
            except asyncio.CancelledError:
                cancelled = True
                raise
            finally:
                self.made.append(Made(tool.address, time.perf_counter() - started, ok, cached, cancelled))
                await self._report(tool)
        heavy = weight(result, _HEAVY) >= _HEAVY
        value = await asyncio.to_thread(_value, result) if heavy else _value(result)
        self.answers[tool.address] = described(value)
        return value

    async def _report(self, tool: Tool) -> None:
        if self._progress is not None and self._origin.relay is not None:
            told = {"progressToken": self._progress, "progress": len(self.made), "message": f"called {tool.address}"}
            await self._origin.relay.notify("notifications/progress", told)


def _value(result: Raw) -> Any:
    """What a result is to a script: its value, or the blocks of one that is neither data nor text."""
    value = value_of(result)
    return value if value is not None else result.get("content") or None


def unfenced(code: str) -> str:
    """A script without the fence that it was written in, every line where it was."""
    found = _FENCED.fullmatch(code)
    return f"\n{found[1]}" if found else code


def described(value: Any) -> str:
    """What a value is, in a few words."""
    if isinstance(value, str):
        return f"text, beginning {value[:_SEEN]!r}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(str, list(value)[:_KEYS])) or 'nothing'}"
    if isinstance(value, list):
        return f"a list of {len(value)}" + (f", the first {described(value[0])}" if value else "")
    return f"{type(value).__name__} {value}" if value is not None else "nothing"


def _words(result: Raw) -> str:
    value = value_of({"content": result.get("content")})
    return value[:_ERROR_CHARS] if isinstance(value, str) else str(value)[:_ERROR_CHARS]


def _told(error: PorticoError) -> str:
    return f"{error.kind}: {error.message}" + (f". {error.advice}" if error.advice else "")
