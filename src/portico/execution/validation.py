"""Do these arguments fit the tool's schema, and does its answer fit what it declares? Compiled once per definition.

A schema that cannot be compiled (a broken `$ref`, an unknown draft), or that a few lines unfold into millions of
checks, checks nothing: the upstream is then the judge, as it would be without a gateway. Remote references are never
fetched.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn, cast

import jsonschema_rs

from portico.catalog.references import resolve
from portico.catalog.tool import Tool
from portico.errors import InvalidArguments
from portico.execution.json_stream import weight
from portico.execution.misnamed import misnamed
from portico.execution.repair import Repair, repaired
from portico.upstream import jsontext
from portico.upstream.backend import Raw

MAX_PROBLEMS = 5
MAX_CHECKS = 10_000
MAX_CHARS = 400
"""Of one problem: a wrong value may be a megabyte."""
MAX_OUTPUT = 128 * 1024
"""Characters of an answer that is checked: a larger one would hold up everybody else for the time that takes."""


def fits(tool: Tool, arguments: Any) -> bool:
    """Whether the arguments fit. This is all that a call with the right ones pays."""
    validator = _validator(tool.hash, tool.blob, "inputSchema")
    try:
        return validator is None or validator.is_valid(arguments)
    except ValueError:  # nested too deeply, or text that is none
        return False


def check(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArguments, naming each problem, when the arguments do not fit."""
    if fits(tool, arguments):
        return
    problems = _problems(_validator(tool.hash, tool.blob, "inputSchema"), arguments)
    problems = (*misnamed(tool.input_schema, arguments), *problems)[:MAX_PROBLEMS]
    raise InvalidArguments(
        f"the arguments do not fit {tool.address}: " + "; ".join(problems),
        problems=problems,
        advice="Correct the arguments and call again.",
    )


def mended(tool: Tool, arguments: Any) -> Repair:
    """What must have been meant by arguments that do not fit; raises InvalidArguments where that is not certain."""
    try:
        repair = repaired(tool.input_schema, arguments)
    except ValueError:
        repair = None
    if repair is not None:
        # What could be repaired will be again: only the rest is its caller's to mend.
        check(tool, repair.arguments)
        return repair
    if not isinstance(arguments, dict):
        raise InvalidArguments(
            f"the arguments of {tool.address} must be an object, not {type(arguments).__name__}",
            advice="Pass the parameters as one JSON object.",
        )
    check(tool, cast("Mapping[str, Any]", arguments))
    return Repair(cast("dict[str, Any]", arguments), ())


def mismatches(tool: Tool, result: Raw) -> tuple[str, ...]:
    """How a result differs from what its tool declares to answer; nothing where that is not known, or too large."""
    validator = _validator(tool.hash, tool.blob, "outputSchema")
    if validator is None or result.get("isError") or result.get("resultType", "complete") != "complete":
        return ()
    structured = result.get("structuredContent")
    if structured is None:
        return ("there is no structured content, though the tool declares some",)
    if weight(structured, MAX_OUTPUT) >= MAX_OUTPUT:
        return ()
    try:
        return () if validator.is_valid(structured) else _problems(validator, structured)
    except ValueError as error:
        return (str(error)[:MAX_CHARS],)


def _problems(validator: Any, value: Any) -> tuple[str, ...]:
    try:
        return tuple(_problem(error) for error in islice(validator.iter_errors(value), MAX_PROBLEMS))
    except ValueError as error:
        return (str(error)[:MAX_CHARS],)


def _problem(error: jsonschema_rs.ValidationError) -> str:
    path = ".".join(str(step) for step in error.instance_path)
    message = error.message
    if len(message) > MAX_CHARS:  # it quotes the value first and says what is wrong with it last
        message = f"{message[: MAX_CHARS // 2]} … {message[-MAX_CHARS // 2 :]}"
    return f"{path}: {message}" if path else message


@lru_cache(maxsize=8_192)
def _validator(key: str, blob: bytes, member: str) -> Any | None:
    try:
        schema = jsontext.loads(blob).get(member)
        if not isinstance(schema, dict) or _unfolded(schema) > MAX_CHECKS:
            return None
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _unfolded(schema: dict[str, Any]) -> int:
    """The most checks any one value could be put through: what applies to the same value, references followed."""
    costs: dict[int, int] = {}

    def cost(node: Any) -> int:
        if not isinstance(node, dict):
            return 1
        known = costs.get(id(node))
        if known is None:
            costs[id(node)] = 0  # a circle ends where it began
            known = costs[id(node)] = min(1 + sum(map(cost, _in_place(node, schema))), MAX_CHECKS + 1)
        return known

    pending: list[Any] = [schema]
    worst = 0
    for node in pending:
        worst = max(worst, cost(node))
        pending.extend(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
    return worst


def _in_place(node: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("allOf", "anyOf", "oneOf"):
        branches = node.get(key)
        yield from branches if isinstance(branches, list) else ()
    yield from (node[key] for key in ("not", "if", "then", "else") if key in node)
    dependent = node.get("dependentSchemas")
    yield from dependent.values() if isinstance(dependent, dict) else ()
    if isinstance(pointer := node.get("$ref"), str):
        yield resolve(pointer, root)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"remote reference {uri} is not fetched")
