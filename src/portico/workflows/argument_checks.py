"""Checks a step's arguments against its tool, as far as possible before it runs. Pure.

Literal values are checked against the schema, allowing what argument repair will fix. References
are only reported if their value certainly does not fit.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from portico.calls.validation import repair_or_raise
from portico.catalog.address import find_nearest_names
from portico.catalog.tool import Tool, make_tool
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.errors import InvalidArguments
from portico.workflows.expected_values import ExpectedValue, get_json_types
from portico.workflows.references import TextTemplate, iter_references

_KEPT_KEYWORDS = ("$schema", "$defs", "definitions", "properties")


def find_problems(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield certain problems as (argument, reason)."""
    schema = tool.input_schema
    required = schema.get("required")
    for name in cast("list[Any]", required) if isinstance(required, list) else ():
        if isinstance(name, str) and name not in arguments:
            yield name, f"{tool.address} requires it"
    known = _get_properties(schema)
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in arguments.keys() - known.keys():
            near = find_nearest_names(name, known, 3)
            if near:
                hint = f"did you mean {', '.join(map(sanitize_text, near))}?"
            else:
                hint = f"it takes {_list_names(known)}"
            yield name, f"{tool.address} has no such parameter; {hint}"
    literals = {
        name: value
        for name, value in arguments.items()
        if name in known and next(iter_references(value), None) is None
    }
    yield from _find_misfits(tool, literals)


def find_type_mismatch(
    tool: Tool, name: str, value: TextTemplate, expected: ExpectedValue | None
) -> str:
    """Return why an argument with references certainly does not fit, or an empty string.

    `expected` is the expected value of its only reference.
    """
    schema = tool.input_schema
    wanted = get_json_types(_get_properties(schema).get(name), schema)
    if not value.sole_reference:
        kinds = frozenset({"string"})
    elif expected:
        kinds = expected.json_types
    else:
        kinds = frozenset()
    if (
        not wanted
        or not kinds
        or any(_can_become(kind, wanted) for kind in kinds - {"null"} or kinds)
    ):
        return ""
    return f"it is {'|'.join(sorted(kinds))}, and {tool.address} takes {'|'.join(sorted(wanted))}"


def _can_become(kind: str, wanted: frozenset[str]) -> bool:
    # Argument repair: text may be a number or JSON, a list may take one value, 5.0 is an integer.
    return (
        kind in wanted
        or kind == "string"
        or "array" in wanted
        or (kind in _NUMBERS and bool(wanted & _NUMBERS))
    )


_NUMBERS = frozenset(("integer", "number"))


def _find_misfits(tool: Tool, literals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    relaxed = _drop_joint_constraints(tool) if literals else tool
    for name, value in literals.items():
        try:
            repair_or_raise(relaxed, {name: value})
        except InvalidArguments as error:
            reason = error.problems[0] if error.problems else error.message
            yield name, reason.removeprefix(f"{name}: ")


@lru_cache(maxsize=1_024)
def _drop_joint_constraints(tool: Tool) -> Tool:
    """Return the tool without constraints that span several arguments; the call checks those."""
    schema = {name: tool.input_schema[name] for name in _KEPT_KEYWORDS if name in tool.input_schema}
    return make_tool(
        tool.server, {"name": tool.upstream_name, "inputSchema": schema}, name=tool.name
    )


def _get_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {}


def _list_names(names: Mapping[str, Any]) -> str:
    shown_names = [quote_text(name, 40) for name in list(names)[:8]]
    if names:
        return ", ".join(shown_names) + (" …" if len(names) > 8 else "")
    return "none"
