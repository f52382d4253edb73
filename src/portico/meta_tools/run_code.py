"""The meta-tool `run_code`, and the functions of the gateway that its scripts may call.

Search and tool descriptions return data to a script, not text."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from portico.callers import Caller
from portico.calls.pipeline import CallContext
from portico.catalog.tool import make_tool, sanitize_text
from portico.errors import InvalidArguments
from portico.json_text import json_codec
from portico.meta_tools import tool_definitions
from portico.meta_tools.runtimes import Runtimes
from portico.meta_tools.search_request import SearchRequest
from portico.meta_tools.search_tools import SearchService, run_search
from portico.rendering.examples import to_function_name
from portico.rendering.one_line_tool import render_signature
from portico.rendering.prose import extract_first_sentence
from portico.rendering.token_budget import count_tokens, truncate
from portico.rendering.tool import render_schema
from portico.rendering.tool_result import make_text_block
from portico.scripts.runner import ScriptContext, ScriptResult, ToolCallRecord
from portico.scripts.sandbox.script import Fault
from portico.upstream.backend import Raw

if TYPE_CHECKING:
    from portico.profiles.profile_state import ProfileState

_MAX_SHAPE_TOKENS = 400
_SEARCH_FIELDS = ("query", "limit", "server", "category")
_MAX_NAMED = 5
_TOOL = make_tool("portico", {"name": tool_definitions.RUN_CODE})


async def run_code(
    profile_state: "ProfileState",
    search_service: SearchService,
    runtimes: Runtimes | None,
    arguments: Raw,
    context: CallContext,
) -> Raw:
    """Run a script; raises InvalidArguments for a language that is not enabled."""
    languages = profile_state.settings.languages
    code = arguments["code"]
    language: Any = arguments.get("language", languages[0])
    if runtimes is None or language not in languages:
        raise InvalidArguments(
            f"{language} is not run here", advice=f"Languages: {', '.join(languages)}."
        )
    builtins = ScriptBuiltins(profile_state, search_service, context.caller)
    script_context = ScriptContext(
        profile_state.snapshot,
        builtins.list_functions(),
        lambda tool: f"It takes: {render_schema(tool)}",
    )
    script_result = await runtimes.run_script(
        code, language, script_context, context, arguments.get("timeout_s")
    )
    result = make_script_result(script_result, code)
    fitted = await profile_state.fit_result(_TOOL, result, context.caller)
    printed = script_result.outcome.printed
    if len(printed) > MAX_INLINE_CHARS:
        output: Raw = {"content": [make_text_block(printed)]}
        kept = await profile_state.fit_result(
            _TOOL, output, context.caller, budget=MAX_PRINTED_TOKENS
        )
        fitted["content"] = [*fitted["content"], make_text_block("printed:"), *kept["content"]]
    return fitted


class ScriptBuiltins:
    """The gateway functions that one caller's scripts may call."""

    def __init__(
        self, profile_state: "ProfileState", search_service: SearchService, caller: Caller
    ) -> None:
        self._profile_state = profile_state
        self._search_service = search_service
        self._caller = caller

    def list_functions(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return the functions by name, limited to the caller's enabled meta-tools."""
        functions = {
            tool_definitions.SEARCH_TOOLS: self.search_tools,
            tool_definitions.DESCRIBE_TOOLS: self.describe_tools,
        }
        return {
            name: function
            for name, function in functions.items()
            if name in self._profile_state.settings.enabled_meta_tools
        }

    async def search_tools(
        self, query: Any, limit: Any = 8, server: Any = None, category: Any = None
    ) -> list[Any]:
        """Return the best matching tools, best first."""
        if isinstance(query, dict):
            options = cast("dict[str, Any]", query)
            if unknown := options.keys() - set(_SEARCH_FIELDS):
                named = ", ".join(sorted(unknown)[:_MAX_NAMED])
                raise InvalidArguments(
                    f"search_tools takes {', '.join(_SEARCH_FIELDS)}, not {named}"
                )
            query = options.get("query")
            limit = options.get("limit", limit)
            server = options.get("server", server)
            category = options.get("category", category)
        if (
            not isinstance(query, str)
            or not isinstance(limit, int)
            or not 1 <= limit <= tool_definitions.MAX_RESULTS
        ):
            raise InvalidArguments(
                f"search_tools takes a text and a limit of 1 to {tool_definitions.MAX_RESULTS}"
            )
        if not isinstance(server, str | None) or not isinstance(category, str | None):
            raise InvalidArguments("the server and the category of search_tools are names")
        snapshot = self._profile_state.snapshot
        request = SearchRequest(query, server=server, category=category, limit=limit)
        _, search = await self._search_service.prepare_search(snapshot, request, self._caller)
        ranking = await run_search(search, search.rank, limit)
        found = [snapshot.tools[hit.id] for hit in ranking.hits]
        return [
            {
                "name": tool.address,
                "function": to_function_name(tool, snapshot),
                "parameters": render_signature(tool),
                "summary": extract_first_sentence(tool.description)
                or extract_first_sentence(tool.title),
            }
            for tool in found
        ]

    async def describe_tools(self, names: Any) -> list[Any]:
        """Return each tool's typed parameters, and the shape of its results if known."""
        if isinstance(names, dict):
            names = names.get("names")
        wanted: list[Any] = [names] if isinstance(names, str) else names
        if not isinstance(names, str | list):
            wanted = []
        if not 1 <= len(wanted) <= tool_definitions.MAX_NAMES or not all(
            isinstance(name, str) for name in wanted
        ):
            raise InvalidArguments(f"describe_tools takes 1 to {tool_definitions.MAX_NAMES} names")
        snapshot = self._profile_state.snapshot
        usage_data = self._profile_state.usage_data
        tools = [await snapshot.find_tool(name) for name in wanted]
        return [
            {
                "name": tool.address,
                "function": to_function_name(tool, snapshot),
                "schema": render_schema(tool),
                "returns": usage_data.shapes.render_line(tool, _MAX_SHAPE_TOKENS, count_tokens)
                if usage_data
                else "",
            }
            for tool in tools
        ]


# --- the report of a script


MAX_PRINTED_TOKENS = 2_000
"""Maximum tokens of printed output that are shown; the rest is read by its result handle."""
MAX_INLINE_CHARS = 2 * MAX_PRINTED_TOKENS
"""Characters of printed output that certainly fit."""
_MAX_TOOLS = 12
_MAX_REPAIRS = 3


def make_script_result(script_result: ScriptResult, code: str) -> Raw:
    """Return a script's outcome as a tool result; an object is also its structured content.

    Printed output of more than `MAX_INLINE_CHARS` is left out.
    """
    outcome = script_result.outcome
    head = "" if outcome.value is None and outcome.printed else _render_value(outcome.value)
    if outcome.fault:
        head = _render_fault(outcome.fault, code)
    notes = (
        *_render_repairs(script_result.repairs),
        _render_printed(outcome.printed, outcome.dropped_chars),
        _render_calls(script_result.calls, script_result.seconds),
    )
    second = "\n".join(filter(None, (script_result.hint, *notes)))
    result: Raw = {"content": [make_text_block(text) for text in (head, second) if text]}
    if outcome.fault:
        result["isError"] = True
    elif isinstance(outcome.value, dict):
        result["structuredContent"] = outcome.value
    return result


def _render_repairs(notes: tuple[str, ...]) -> list[str]:
    shown = [truncate(sanitize_text(note).replace("\n", " "), 40) for note in notes[:_MAX_REPAIRS]]
    if shown:
        return [f"repaired: {'; '.join(shown)}" + (" …" if len(notes) > _MAX_REPAIRS else "")]
    return []


def _render_value(value: object) -> str:
    if value is None:
        return "The script returned nothing: end it with a value, or call result(value)."
    if isinstance(value, str):
        return value
    return json_codec.dumps(value).decode()


def _render_fault(fault: Fault, code: str) -> str:
    """Render what went wrong and where, with the source line."""
    message = f"script {fault.kind}: {sanitize_text(fault.message)}".replace("\n", "\n  ")
    lines = code.splitlines()
    if fault.line is None or not 1 <= fault.line <= len(lines):
        return message
    line = truncate(sanitize_text(lines[fault.line - 1].strip()), 60)
    return f"{message}\n  at line {fault.line}: {line}"


def _render_printed(text: str, dropped: int) -> str:
    more = f"[{dropped:,} more characters were printed and dropped]" if dropped else ""
    if not text or len(text) > MAX_INLINE_CHARS:
        return more
    return f"printed:\n{text.rstrip()}\n{more}".rstrip()


def _render_calls(calls: tuple[ToolCallRecord, ...], seconds: float) -> str:
    if not calls:
        return ""
    times = Counter(call.tool for call in calls)
    ended = {
        "failed": Counter(call.tool for call in calls if not call.ok and not call.cancelled),
        "cancelled": Counter(call.tool for call in calls if call.cancelled),
    }

    def render_tool(tool: str, call_count: int) -> str:
        problems = ", ".join(
            f"{number[tool]} {outcome}" for outcome, number in ended.items() if number[tool]
        )
        return (
            sanitize_text(tool)
            + (f" ×{call_count}" if call_count > 1 else "")
            + (f" ({problems})" if problems else "")
        )

    named = [render_tool(tool, count) for tool, count in times.most_common(_MAX_TOOLS)]
    named += [f"{len(times) - _MAX_TOOLS} more"] if len(times) > _MAX_TOOLS else []
    cached = sum(call.cached for call in calls)
    return f"called: {', '.join(named)} in {seconds:.2f} s" + (
        f", {cached} [cached]" if cached else ""
    )
