"""Arguments and results against a tool's schemas (`catalog/schema_validator.py`).

Arguments that do not fit are repaired where only one reading is possible. An unknown name never is:
`tz` may well mean `timezone`, but only the caller knows. It is suggested.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, cast

from portico.calls.call import Call, Handler
from portico.calls.repair import Repair, repair_arguments
from portico.calls.schema_rules import suggest_names
from portico.catalog.schema_validator import MAX_PROBLEMS, find_validator
from portico.catalog.tool import Tool, sanitize_text
from portico.errors import InvalidArguments
from portico.results.result_meta import REPAIRED
from portico.upstream.backend import Raw

_LARGE_DEFINITION_BYTES = 16 * 1024
"""Size of a definition whose schema is compiled in a thread."""


def find_mismatches(tool: Tool, result: Raw) -> tuple[str, ...]:
    """Return how a result differs from the output schema; empty if that is unknown or too
    large."""
    validator = find_validator(tool.hash, tool.blob, "outputSchema")
    if validator is None or result.get("isError"):
        return ()
    if result.get("resultType", "complete") != "complete":
        return ()
    structured = result.get("structuredContent")
    if structured is None:
        return ("there is no structured content, though the tool declares some",)
    return validator.find_problems(structured)


def prepare_arguments(call: Call, call_next: Handler[Call]) -> Coroutine[Any, Any, Raw]:
    """Middleware: make the arguments fit the tool; raises InvalidArguments."""
    if max(len(call.tool.blob), len(call.tool.own_blob)) > _LARGE_DEFINITION_BYTES:
        return _compile_and_prepare(call, call_next)
    validate_arguments(call)
    call.is_validated = True
    return call_next(call)


async def _compile_and_prepare(call: Call, call_next: Handler[Call]) -> Raw:
    # The first call compiles the schema, for up to 60 ms; it is cached then.
    await asyncio.to_thread(find_validator, call.tool.hash, call.tool.blob, "inputSchema")
    if call.tool.translation is not None:
        await asyncio.to_thread(find_validator, call.tool.hash, call.tool.own_blob, "inputSchema")
    validate_arguments(call)
    call.is_validated = True
    return await call_next(call)


def validate_arguments(call: Call) -> None:
    """Check a call's arguments, and repair them if necessary; raises InvalidArguments."""
    tool = call.tool
    _check_names(tool, call.arguments)
    validator = None
    if isinstance(call.arguments, dict):
        validator = find_validator(tool.hash, tool.blob, "inputSchema")
    if not isinstance(call.arguments, dict) or not (
        validator is None or validator.is_valid(call.arguments)
    ):
        repair = repair_or_raise(tool, call.arguments)
        call.arguments = repair.arguments
        if repair.notes:
            call.marks[REPAIRED] = [*call.marks.get(REPAIRED, ()), *repair.notes]
    if tool.translation is not None and tool.translation.defaults:
        call.arguments = tool.translation.fill_defaults(call.arguments)


def _check_names(tool: Tool, arguments: Any) -> None:
    """Raise InvalidArguments for names that callers do not use, as the configuration says."""
    if tool.translation is None or not isinstance(arguments, dict):
        return
    problems = tool.translation.find_refused(cast("Mapping[str, Any]", arguments))[:MAX_PROBLEMS]
    if problems:
        raise InvalidArguments(
            f"the arguments do not fit {tool.address}: " + "; ".join(map(sanitize_text, problems)),
            problems=problems,
            advice="Call again as describe_tools shows it.",
        )


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments, naming each problem, when the arguments do not fit."""
    validator = find_validator(tool.hash, tool.blob, "inputSchema")
    found = validator.find_problems(arguments) if validator is not None else ()
    if not found:
        return
    problems = (*suggest_names(tool.input_schema, arguments), *found)[:MAX_PROBLEMS]
    raise InvalidArguments(
        f"the arguments do not fit {tool.address}: " + "; ".join(problems),
        problems=problems,
        advice="Correct the arguments and call again.",
    )


def repair_or_raise(tool: Tool, arguments: Any) -> Repair:
    """Repair arguments that do not fit; raises InvalidArguments if they still do not."""
    _check_names(tool, arguments)
    try:
        repair = repair_arguments(tool.input_schema, arguments)
    except ValueError:
        repair = None
    if repair is not None:
        _check_names(tool, repair.arguments)
        # Report only what could not be repaired; the next call is repaired again.
        check_arguments(tool, repair.arguments)
        return repair
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the arguments of {tool.address} must be an object, not {type(arguments).__name__}",
            advice="Pass the parameters as one JSON object.",
        )
    check_arguments(tool, cast("Mapping[str, Any]", arguments))
    return Repair(cast("dict[str, Any]", arguments), ())
