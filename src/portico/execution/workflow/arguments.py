"""Do a step's arguments fit its tool, as far as that can be known before it runs? Pure.

What is written out is held against the schema, and forgiven what the pipeline will mend. What a reference will find
is only doubted when it surely does not fit.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from portico.catalog.address import nearest
from portico.catalog.tool import Tool, make_tool
from portico.catalog.visible import quoted, shown
from portico.errors import InvalidArguments
from portico.execution.validation import mended
from portico.execution.workflow.offered import Offered, kinds_of
from portico.execution.workflow.references import Template, references

_KEPT = ("$schema", "$defs", "definitions", "properties")


def problems(tool: Tool, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong for sure: the argument, and why."""
    schema = tool.input_schema
    required = schema.get("required")
    for name in cast("list[Any]", required) if isinstance(required, list) else ():
        if isinstance(name, str) and name not in arguments:
            yield name, f"{tool.address} requires it"
    known = _properties(schema)
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in arguments.keys() - known.keys():
            near = nearest(name, known, 3)
            taken = f"did you mean {', '.join(map(shown, near))}?" if near else f"it takes {_listed(known)}"
            yield name, f"{tool.address} has no such parameter; {taken}"
    literals = {
        name: value for name, value in arguments.items() if name in known and next(references(value), None) is None
    }
    yield from _misfits(tool, literals)


def doubts(tool: Tool, name: str, value: Template, found: Offered | None) -> str:
    """Why what an argument's text becomes surely does not fit; empty where it may. `found` is of its only reference."""
    schema = tool.input_schema
    wanted = kinds_of(_properties(schema).get(name), schema)
    kinds = (found.kinds if found else frozenset()) if value.sole else frozenset({"string"})
    if not wanted or not kinds or any(_may_become(kind, wanted) for kind in kinds - {"null"} or kinds):
        return ""
    return f"it is {'|'.join(sorted(kinds))}, and {tool.address} takes {'|'.join(sorted(wanted))}"


def _may_become(kind: str, wanted: frozenset[str]) -> bool:
    # A text may be a number or JSON, a list may take one value, and 5.0 is an integer.
    return kind in wanted or kind == "string" or "array" in wanted or (kind in _NUMBERS and bool(wanted & _NUMBERS))


_NUMBERS = frozenset(("integer", "number"))


def _misfits(tool: Tool, literals: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    alone = _one_by_one(tool) if literals else tool
    for name, value in literals.items():
        try:
            mended(alone, {name: value})
        except InvalidArguments as error:
            said = error.problems[0] if error.problems else error.message
            yield name, said.removeprefix(f"{name}: ")


@lru_cache(maxsize=1_024)
def _one_by_one(tool: Tool) -> Tool:
    """A tool whose arguments may come alone: what is said of all of them together waits for the call."""
    schema = {name: tool.input_schema[name] for name in _KEPT if name in tool.input_schema}
    return make_tool(tool.server, {"name": tool.upstream_name, "inputSchema": schema}, name=tool.name)


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _listed(names: Mapping[str, Any]) -> str:
    shown_names = [quoted(name, 40) for name in list(names)[:8]]
    return ", ".join(shown_names) + (" …" if len(names) > 8 else "") if names else "none"
