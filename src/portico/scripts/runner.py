"""Runs one script from its text to its outcome; its calls go through the call pipeline.

Tools return whole results to a script, which may be larger than an answer to a client.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

from portico.calls.call import make_call_id
from portico.calls.pipeline import CallContext, CallPipeline
from portico.catalog.snapshot import Snapshot
from portico.catalog.tool import Tool
from portico.config import CodeConfig
from portico.errors import InvalidArguments, PorticoError
from portico.json_text.json_codec import MAX_MEASURED_VALUES, measure_value
from portico.json_text.part_stream import estimate_size
from portico.observability.tracing import get_current_span, use_span
from portico.results.learned_shapes import extract_value
from portico.results.result_meta import REPAIRED, get_cache_age, get_gateway_meta
from portico.scripts.engines import EngineRegistry
from portico.scripts.hints import build_hint
from portico.scripts.sandbox.clock import PausableClock
from portico.scripts.sandbox.script import CallFailed, Language, Script, ScriptLimits, ScriptOutcome
from portico.scripts.script_context import (
    ScriptStateStore,
    ToolBindings,
    bind_tools_off_loop,
    build_arguments,
)
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

MAX_CODE_CHARS = 256 * 1024
MAX_ARGUMENT_CHARS = 2 * 1024**2
"""Maximum size of the arguments of a call, because they are validated on the event loop."""
CALL_FUNCTION = "call_tool"
MAX_BUILTIN_CHARS = 8_192
"""Maximum size of the arguments of a built-in function, which runs on the event loop."""
_LARGE_CHARS = 256 * 1024
"""Size from which a result is processed in a thread."""
_ERROR_CHARS = 2_000
_MIN_WAIT_S = 0.1
_MAX_REPAIRS = 5
_MAX_PREVIEW_CHARS = 60
_MAX_KEYS = 12
_LOAD_CALL = re.compile(r"\bload\s*\(")
_NOTHING_STORED_HINT = (
    "Nothing is stored here for load: pass the session that the answer of the storing script named."
)
_CODE_FENCE = re.compile(r"\s*```[\w+-]*[ \t]*\n(.*?)\n?```\s*", re.DOTALL)

BuiltinFunction = Callable[..., Awaitable[Any]]
"""A function of the gateway that scripts may call; raises PorticoError."""


@dataclass(frozen=True)
class ToolCallRecord:
    tool: str
    seconds: float
    ok: bool
    cached: bool = False
    cancelled: bool = False
    """The script did not wait for it."""


@dataclass(frozen=True)
class ScriptResult:
    outcome: ScriptOutcome
    calls: tuple[ToolCallRecord, ...] = ()
    hint: str = ""
    """Advice about its fault, or about a missing state handle."""
    seconds: float = 0.0
    repairs: tuple[str, ...] = ()
    """Repairs of the arguments of its calls."""


@dataclass(frozen=True)
class ScriptContext:
    snapshot: Snapshot
    """The tools visible to its caller."""
    functions: Mapping[str, BuiltinFunction] = field(default_factory=dict)
    """Built-in functions by name."""
    describe_tool: Callable[[Tool], str] = lambda tool: tool.address
    """Renders a tool for an error about its arguments."""


class ScriptRunner:
    def __init__(
        self,
        calls: CallPipeline,
        engines: EngineRegistry | None = None,
        state_store: ScriptStateStore | None = None,
        limits: ScriptLimits | None = None,
    ) -> None:
        self._calls = calls
        self._engines = engines or EngineRegistry()
        # Compared with None, because an empty store is false.
        self.state_store = ScriptStateStore() if state_store is None else state_store
        self._limits = limits or ScriptLimits()

    @classmethod
    def from_config(cls, calls: CallPipeline, config: CodeConfig) -> "ScriptRunner":
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
        state_store = ScriptStateStore(ttl_s=config.state_s, max_bytes=int(config.state_bytes))
        return cls(calls, EngineRegistry(config.workers, config.waiting), state_store, limits)

    async def run(
        self,
        code: str,
        language: Language,
        context: ScriptContext,
        origin: CallContext,
        timeout_s: float | None = None,
    ) -> ScriptResult:
        """Run a script; `timeout_s` can only lower the configured limit.

        Raises InvalidArguments for a script that is too long, and Overloaded.
        """
        if len(code) > MAX_CODE_CHARS:
            raise InvalidArguments(
                f"a script may have {MAX_CODE_CHARS:,} characters", advice="Pass data as arguments."
            )
        code = strip_code_fence(code)
        limits = replace(
            self._limits, wall_s=min(timeout_s or self._limits.wall_s, self._limits.wall_s)
        )
        code, bindings = await bind_tools_off_loop(code, context.snapshot)
        clock = PausableClock()
        host = _ScriptHost(self._calls, bindings, context, origin, limits, clock)
        namespaces = bindings.list_namespaces(identifiers_only=language == "python")
        namespaces[""] = (*context.functions, CALL_FUNCTION)
        state = self.state_store.load(origin.caller) if "load" in code else {}
        script = Script(code, language, namespaces, state, limits, clock)
        # A client without a session may have left out the state handle.
        is_handle_missing = (
            not origin.caller.session
            and not self.state_store.has_state(origin.caller)
            and "load" in code
            and bool(_LOAD_CALL.search(code))
        )
        started = time.perf_counter()
        async with self._engines.acquire_worker(language, origin.caller.owner, limits.wall_s):
            outcome = await self._engines.get_engine(language).run(
                _deduct_wait(script, time.perf_counter() - started), host.handle_call
            )
        storage_message = self.state_store.store(origin.caller, outcome.stored)
        hint = await context.snapshot.run_scan(
            build_hint, script, outcome, context.snapshot, host.tool_answers
        )
        hints = (hint, storage_message, _NOTHING_STORED_HINT if is_handle_missing else "")
        advice = " ".join(filter(None, hints))
        return ScriptResult(
            outcome,
            tuple(host.call_records),
            advice,
            time.perf_counter() - started,
            tuple(host.repairs),
        )

    @property
    def worker_counts(self) -> dict[str, tuple[int, int | None]]:
        return self._engines.worker_counts

    async def close(self) -> None:
        await self._engines.close()


def _deduct_wait(script: Script, waited_s: float) -> Script:
    """Return the script with its queueing time deducted from the time limit."""
    if waited_s < _MIN_WAIT_S:
        return script
    wall_s = max(_MIN_WAIT_S, round(script.limits.wall_s - waited_s, 1))
    return replace(script, limits=replace(script.limits, wall_s=wall_s))


class _ScriptHost:
    def __init__(
        self,
        calls: CallPipeline,
        bindings: ToolBindings,
        context: ScriptContext,
        origin: CallContext,
        limits: ScriptLimits,
        clock: PausableClock,
    ) -> None:
        self.call_records: list[ToolCallRecord] = []
        self.repairs: dict[str, None] = {}
        self.tool_answers: dict[str, str] = {}
        """Short descriptions of the last results, for hints about unexpected shapes."""
        self._calls = calls
        self._bindings = bindings
        self._context = context
        # The client's other parameters (progress token, responses) are for the script alone.
        self._origin = CallContext(
            origin.caller,
            origin.relay,
            via="script",
            run_id=make_call_id(),
            pause_clock=clock.pause,
        )
        # Calls run in the engine's tasks, which do not inherit the span of the request.
        self._span = get_current_span()
        self._limits = limits
        self._parallel_slots = asyncio.Semaphore(limits.parallel)
        self._call_count = 0
        meta = origin.extra.get("_meta")
        self._progress_token = meta.get("progressToken") if isinstance(meta, dict) else None

    async def handle_call(
        self, namespace: str, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Handle a call of the script; raises CallFailed."""
        self._call_count += 1
        if self._call_count > self._limits.calls:
            raise CallFailed(f"a script may make {self._limits.calls} calls", fatal=True)
        if measure_value([args, kwargs]).values > MAX_MEASURED_VALUES:
            raise CallFailed(f"the arguments of a call may have {MAX_MEASURED_VALUES:,} values")
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
        except CallFailed:
            raise
        except PorticoError as error:
            raise CallFailed(_format_error(error)) from error
        except Exception as error:
            # The script gets an error without the gateway's internals.
            logger.exception(
                "a script's call of %s failed in the gateway", f"{namespace}.{name}".lstrip(".")
            )
            raise CallFailed(f"{name} failed in the gateway, whose log says more") from error

    async def _call_builtin(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = self._context.functions.get(name)
        if function is None:
            raise CallFailed(f"there is no function {name} here")
        try:
            bound = signature(function).bind(*args, **kwargs)
        except TypeError as error:  # its text names only what was passed
            raise CallFailed(f"{name}: {error}") from error
        return await function(*bound.args, **bound.kwargs)

    async def _resolve_named_call(
        self, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[Tool, dict[str, Any]]:
        """Return the tool named by the first argument or `name`, and the arguments for it."""
        named = dict(kwargs)
        name, *rest = args if args else [named.pop("name", None)]
        if not rest and named.keys() == {"arguments"}:
            rest = [named["arguments"] or {}]
            named = {}
        if (
            not isinstance(name, str)
            or len(name) > MAX_BUILTIN_CHARS
            or not all(isinstance(argument, dict | None) for argument in rest)
        ):
            raise CallFailed(f"{CALL_FUNCTION} takes a tool's name and an object of arguments")
        tool = await self._context.snapshot.find_tool(name)
        return tool, build_arguments(tool, [argument or {} for argument in rest], named)

    async def _call_tool(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        async with self._parallel_slots:
            started = time.perf_counter()
            ok = cached = cancelled = False
            try:
                with use_span(self._span):
                    result = await self._calls.call(tool, arguments, self._origin)
                cached = get_cache_age(result) is not None
                for note in get_gateway_meta(result).get(REPAIRED, ())[:_MAX_REPAIRS]:
                    self.repairs[f"{tool.address}: {note}"] = None
                if result.get("isError"):
                    raise CallFailed(
                        f"{tool.address} answered with an error: {_get_error_text(result)}"
                    )
                if result.get("resultType", "complete") != "complete":
                    raise CallFailed(
                        f"{tool.address} asks for more input: "
                        f"call it by {CALL_FUNCTION} outside of a script"
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
        if estimate_size(result, _LARGE_CHARS) < _LARGE_CHARS:
            value = _to_script_value(result)
        else:
            value = await asyncio.to_thread(_to_script_value, result)
        self.tool_answers[tool.address] = describe_value(value)
        return value

    async def _report_progress(self, tool: Tool) -> None:
        if self._progress_token is not None and self._origin.relay is not None:
            params = {
                "progressToken": self._progress_token,
                "progress": len(self.call_records),
                "message": f"called {tool.address}",
            }
            await self._origin.relay.notify("notifications/progress", params)


def _to_script_value(result: Raw) -> Any:
    """Return the value of a result, or its blocks if it is neither data nor text."""
    value = extract_value(result)
    return value if value is not None else result.get("content") or None


def strip_code_fence(code: str) -> str:
    """Remove a Markdown code fence; line numbers stay the same."""
    found = _CODE_FENCE.fullmatch(code)
    return f"\n{found[1]}" if found else code


def describe_value(value: Any) -> str:
    if isinstance(value, str):
        return f"text, beginning {value[:_MAX_PREVIEW_CHARS]!r}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(str, list(value)[:_MAX_KEYS])) or 'nothing'}"
    if isinstance(value, list):
        first = f", the first {describe_value(value[0])}" if value else ""
        return f"a list of {len(value)}{first}"
    if value is not None:
        return f"{type(value).__name__} {value}"
    return "nothing"


def _get_error_text(result: Raw) -> str:
    return str(extract_value({"content": result.get("content")}))[:_ERROR_CHARS]


def _format_error(error: PorticoError) -> str:
    return f"{error.kind}: {error.message}" + (f". {error.advice}" if error.advice else "")
