"""One script, from its text to how it ended. Whatever it calls goes through the pipeline, as if its
caller had called.

The script's tools get their results whole: what is too large for an answer is not too large for a
script.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from portico.calls.pipeline import CallContext, CallPipeline
from portico.calls.schema_cost import MAX_VALUES, measure_value
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import CodeConfig
from portico.errors import InvalidArguments, PorticoError
from portico.json_text.part_stream import estimate_size
from portico.observability.tracing import get_current_span, use_span
from portico.results.learned_shapes import extract_value
from portico.results.marks import REPAIRED, get_cache_age, get_marks
from portico.scripts.engines import EngineRegistry
from portico.scripts.hints import build_hint
from portico.scripts.sandbox.script import CallFailed, Language, Script, ScriptLimits, ScriptOutcome
from portico.scripts.state_store import ScriptStateStore
from portico.scripts.tool_bindings import ToolBindings, bind_tools_off_loop, build_arguments
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

MAX_CODE_CHARS = 256 * 1024
MAX_ARGUMENT_CHARS = 2 * 1024**2
"""Characters: what is checked against a schema is checked where everybody waits."""
CALL_FUNCTION = "call_tool"
MAX_BUILTIN_CHARS = 8_192
"""Characters of a question to the gateway's own functions, which everybody waits for."""
_LARGE_CHARS = 256 * 1024
"""Characters of a result that is read in a thread."""
_ERROR_CHARS = 2_000
_MIN_WAIT_S = 0.1
_MAX_REPAIRS = 5
_MAX_PREVIEW_CHARS = 60
_MAX_KEYS = 12
_LOAD_CALL = re.compile(r"\bload\s*\(")
_NOTHING_STORED_HINT = "Nothing is stored here for load: pass the session that the answer of the storing script told you."
_CODE_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?```\s*", re.DOTALL)

BuiltinFunction = Callable[..., Awaitable[Any]]
"""Something of the gateway's own that scripts may call; raises PorticoError."""


@dataclass(frozen=True)
class ToolCallRecord:
    """A call that a script made."""

    tool: str
    seconds: float
    ok: bool
    cached: bool = False
    cancelled: bool = False
    """Nobody waited for it."""


@dataclass(frozen=True)
class ScriptResult:
    """How a script went."""

    outcome: ScriptOutcome
    calls: tuple[ToolCallRecord, ...] = ()
    hint: str = ""
    """What to do about its fault, or about what it forgot."""
    seconds: float = 0.0
    repairs: tuple[str, ...] = ()
    """What was wrong with the arguments of its calls, and put right."""


@dataclass(frozen=True)
class ScriptContext:
    """What a script finds around it."""

    snapshot: Snapshot
    """The tools that its caller sees."""
    functions: Mapping[str, BuiltinFunction] = field(default_factory=dict)
    """The gateway's own, by their names."""
    describe_tool: Callable[[Tool], str] = lambda tool: tool.address
    """How a tool is told, where its arguments were wrong."""


class ScriptRunner:
    """Runs scripts."""

    def __init__(
        self,
        calls: CallPipeline,
        engines: EngineRegistry | None = None,
        state_store: ScriptStateStore | None = None,
        limits: ScriptLimits | None = None,
    ) -> None:
        self._calls = calls
        self._engines = engines or EngineRegistry()
        # An empty memory is false, and still the one that is meant.
        if state_store is None:
            self.state_store = ScriptStateStore()
        else:
            self.state_store = state_store
        self._limits = limits or ScriptLimits()

    @classmethod
    def from_config(cls, calls: CallPipeline, config: CodeConfig) -> "ScriptRunner":
        """Scripts within configured limits."""
        limits = ScriptLimits(
            wall_s=config.wall_s,
            cpu_s=config.cpu_s,
            memory_bytes=int(config.memory),
            recursion=config.recursion,
            calls=config.calls,
            parallel=config.parallel,
            output_bytes=int(config.output),
            answer_bytes=int(config.answer),
        )
        memory = ScriptStateStore(ttl_s=config.state_s, max_bytes=int(config.state_bytes))
        return cls(calls, EngineRegistry(config.workers, config.waiting), memory, limits)

    async def run(
        self,
        code: str,
        language: Language,
        context: ScriptContext,
        origin: CallContext,
        timeout_s: float | None = None,
    ) -> ScriptResult:
        """Run a script; `timeout_s` can only shorten what it may take."""
        if len(code) > MAX_CODE_CHARS:
            raise InvalidArguments(
                f"a script may have {MAX_CODE_CHARS:,} characters", advice="Pass data as arguments."
            )
        code = strip_code_fence(code)
        limits = replace(
            self._limits, wall_s=min(timeout_s or self._limits.wall_s, self._limits.wall_s)
        )
        bound = await bind_tools_off_loop(code, context.snapshot)
        host = _ScriptHost(self._calls, bound, context, origin, limits)
        script = Script(
            code,
            language,
            {
                **bound.list_namespaces(identifiers_only=language == "python"),
                "": (*context.functions, CALL_FUNCTION),
            },
            self.state_store.load(origin.caller) if "load" in code else {},
            limits,
        )
        # A client with a session knows what it stored; another may have left out the handle to it.
        lost = (
            not origin.caller.session
            and not self.state_store.has_state(origin.caller)
            and bool(_LOAD_CALL.search(code))
        )
        started = time.perf_counter()
        async with self._engines.acquire_worker(language, origin.caller.owner, limits.wall_s):
            outcome = await self._engines.get_engine(language).run(
                _deduct_wait(script, time.perf_counter() - started), host.handle_call
            )
        refused = self.state_store.store(origin.caller, outcome.stored)
        advised = await context.snapshot.run_scan(
            build_hint, script, outcome, context.snapshot, host.tool_answers
        )
        told = (advised, refused, _NOTHING_STORED_HINT if lost else "")
        advice = " ".join(filter(None, told))
        return ScriptResult(
            outcome,
            tuple(host.call_records),
            advice,
            time.perf_counter() - started,
            tuple(host.repairs),
        )

    @property
    def worker_counts(self) -> dict[str, tuple[int, int | None]]:
        """The processes of each engine: at work, and waiting."""
        return self._engines.worker_counts

    async def close(self) -> None:
        """End every process."""
        await self._engines.close()


def _deduct_wait(script: Script, waited_s: float) -> Script:
    """The same script with the time taken off that it waited for its turn."""
    if waited_s < _MIN_WAIT_S:
        return script
    wall_s = max(_MIN_WAIT_S, round(script.limits.wall_s - waited_s, 1))
    return replace(script, limits=replace(script.limits, wall_s=wall_s))


class _ScriptHost:
    """The other side of one script's calls."""

    def __init__(
        self,
        calls: CallPipeline,
        bindings: ToolBindings,
        context: ScriptContext,
        origin: CallContext,
        limits: ScriptLimits,
    ) -> None:
        self.call_records: list[ToolCallRecord] = []
        self.repairs: dict[str, None] = {}
        self.tool_answers: dict[str, str] = {}
        """What the tools answered last, in a few words: for whoever took it for something else."""
        self._calls = calls
        self._bindings = bindings
        self._context = context
        # What the client sent beside its question (a progress token, answers to questions) was for
        # the script alone.
        self._origin = CallContext(origin.caller, origin.relay, via="script")
        # A script's calls come from its engine, which knows nothing of the request that brought it.
        self._span = get_current_span()
        self._limits = limits
        self._parallel_slots = asyncio.Semaphore(limits.parallel)
        self._call_count = 0
        meta = origin.extra.get("_meta")
        if isinstance(meta, dict):
            self._progress_token = meta.get("progressToken")
        else:
            self._progress_token = None

    async def handle_call(
        self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Answer a script's call; raises CallFailed."""
        self._call_count += 1
        if self._call_count > self._limits.calls:
            raise CallFailed(f"a script may make {self._limits.calls} calls", fatal=True)
        if measure_value([args, kwargs]).values > MAX_VALUES:
            raise CallFailed(f"the arguments of a call may have {MAX_VALUES:,} values")
        if estimate_size([args, kwargs], MAX_ARGUMENT_CHARS) >= MAX_ARGUMENT_CHARS:
            raise CallFailed(f"the arguments of a call may have {MAX_ARGUMENT_CHARS:,} characters")
        try:
            if namespace:
                tool = self._bindings.get_tool(namespace, name)
                return await self._call_tool(tool, build_arguments(tool, args, kwargs))
            if name == CALL_FUNCTION:
                tool, arguments = await self._resolve_named_call(args, kwargs)
                return await self._call_tool(tool, arguments)
            if estimate_size([args, kwargs], MAX_BUILTIN_CHARS) >= MAX_BUILTIN_CHARS:
                raise CallFailed(f"{name} takes at most {MAX_BUILTIN_CHARS:,} characters")
            return await self._call_builtin(name, args, kwargs)
        except PorticoError as error:
            raise CallFailed(_format_error(error)) from error
        except CallFailed:
            raise
        except Exception as error:
            # The script must be told, but not of what the gateway is made.
            logger.exception(
                "a script's call of %s failed in the gateway", f"{namespace}.{name}".lstrip(".")
            )
            raise CallFailed(f"{name} failed in the gateway, whose log says more") from error

    async def _call_builtin(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of the gateway's own."""
        function = self._context.functions.get(name)
        if function is None:
            raise CallFailed(f"there is no function {name} here")
        try:
            given = signature(function).bind(*args, **kwargs)
        except TypeError as error:  # its text names what was passed, and nothing of ours
            raise CallFailed(f"{name}: {error}") from error
        return await function(*given.args, **given.kwargs)

    async def _resolve_named_call(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[Tool, dict[str, Any]]:
        """The tool that is named first, or as `name`; then its arguments, as one object or each by
        its name."""
        given = dict(kwargs)
        name, *rest = args if args else [given.pop("name", None)]
        if not rest and given.keys() == {"arguments"}:
            rest = [given["arguments"] or {}]
            given = {}
        if (
            not isinstance(name, str)
            or len(name) > MAX_BUILTIN_CHARS
            or not all(isinstance(one, dict | None) for one in rest)
        ):
            raise CallFailed(f"{CALL_FUNCTION} takes a tool's name and an object of arguments")
        tool = await self._context.snapshot.find_tool(name)
        return tool, build_arguments(tool, [one or {} for one in rest], given)

    async def _call_tool(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        async with self._parallel_slots:
            started = time.perf_counter()
            ok = cached = cancelled = False
            try:
                with use_span(self._span):
                    result = await self._calls.call(tool, arguments, self._origin)
                cached = get_cache_age(result) is not None
                for note in get_marks(result).get(REPAIRED, ())[:_MAX_REPAIRS]:
                    self.repairs[f"{tool.address}: {note}"] = None
                if result.get("isError"):
                    raise CallFailed(
                        f"{tool.address} answered with an error: {_get_error_text(result)}"
                    )
                if result.get("resultType", "complete") != "complete":
                    raise CallFailed(
                        f"{tool.address} asks for more input: call it by {CALL_FUNCTION} outside of a script"
                    )
                ok = True
            except InvalidArguments as error:
                raise CallFailed(
                    f"{_format_error(error)} {self._context.describe_tool(tool)}"
                ) from error
            except asyncio.CancelledError:
                cancelled = True
                raise
            finally:
                self.call_records.append(
                    ToolCallRecord(
                        tool.address, time.perf_counter() - started, ok, cached, cancelled
                    )
                )
                await self._report_progress(tool)
        heavy = estimate_size(result, _LARGE_CHARS) >= _LARGE_CHARS
        if heavy:
            value = await asyncio.to_thread(_to_script_value, result)
        else:
            value = _to_script_value(result)
        self.tool_answers[tool.address] = describe_value(value)
        return value

    async def _report_progress(self, tool: Tool) -> None:
        if self._progress_token is not None and self._origin.relay is not None:
            told = {
                "progressToken": self._progress_token,
                "progress": len(self.call_records),
                "message": f"called {tool.address}",
            }
            await self._origin.relay.notify("notifications/progress", told)


def _to_script_value(result: Raw) -> Any:
    """What a result is to a script: its value, or the blocks of one that is neither data nor text."""
    value = extract_value(result)
    if value is not None:
        return value
    return result.get("content") or None


def strip_code_fence(code: str) -> str:
    """A script without the fence that it was written in, every line where it was."""
    found = _CODE_FENCE.fullmatch(code)
    if found:
        return f"\n{found[1]}"
    return code


def describe_value(value: Any) -> str:
    """What a value is, in a few words."""
    if isinstance(value, str):
        return f"text, beginning {value[:_MAX_PREVIEW_CHARS]!r}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(str, list(value)[:_MAX_KEYS])) or 'nothing'}"
    if isinstance(value, list):
        return f"a list of {len(value)}" + (
            f", the first {describe_value(value[0])}" if value else ""
        )
    if value is not None:
        return f"{type(value).__name__} {value}"
    return "nothing"


def _get_error_text(result: Raw) -> str:
    value = extract_value({"content": result.get("content")})
    if isinstance(value, str):
        return value[:_ERROR_CHARS]
    return str(value)[:_ERROR_CHARS]


def _format_error(error: PorticoError) -> str:
    return f"{error.kind}: {error.message}" + (f". {error.advice}" if error.advice else "")
