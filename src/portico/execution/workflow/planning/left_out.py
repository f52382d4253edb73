"""What an intent says and its plan does not do: values that no step takes, and words that none of its tools speaks of.

A plan that leaves something out may be for something else: it is shown and not run at once. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from portico.catalog import visible
from portico.catalog.tool import Tool
from portico.execution.workflow.planning.clauses import clauses
from portico.execution.workflow.planning.literals import Literal, in_general, literals
from portico.search.habits import query_terms
from portico.search.lexical.tokens import terms

_GROUPS = re.compile(
    r"[,;:]\s+(?:(?:and|or|but)\s+)?|\s+(?:and|or|but|und|et|y)\s+|\s+(?=(?:which|that|who|whose|where|except|without)\s)"
    r"|\s+(?=(?:sorted|ordered|grouped)\s+by\s)",
    re.IGNORECASE,
)
_READ = 20_000
"""Characters of one definition."""


def left_out(
    intent: str,
    steps: Sequence[Mapping[str, Any]],
    tools: Mapping[str, Tool],
    passed_over: Sequence[str] = (),
) -> tuple[str, ...]:
    """What is said and not done. `tools` has those of the steps; `passed_over` are clauses that have no step."""
    said = written([step.get("arguments") for step in steps])
    values = [one for one in literals(intent) if not is_there(one.text, one.kind, said)]
    groups = [one for one in (*_further(intent), *passed_over) if _telling(one)]
    if groups:
        # What search has found a tool for is served, in whatever words; what stands beside it may not be.
        known = frozenset(chain(terms(said), *(_words(tools[step["tool"]]) for step in steps)))
        groups = [one for one in groups if not _spoken_of(one, known)]
    return tuple(dict.fromkeys((*(one.text for one in values if not _within(one, groups)), *groups)))


def written(values: Any) -> str:
    """Values as text that things said can be looked for in."""
    return visible.literal(values).casefold()


def is_there(text: str, kind: str, said: str) -> bool:
    """Whether something said is among what is written."""
    parts = text.split("/") if kind == "repo" else (text,)
    return all(visible.literal(part)[1:-1].casefold() in said for part in parts)


def _further(intent: str) -> Iterator[str]:
    """The groups of words of each clause, but for its first."""
    for clause in clauses(intent):
        yield from (group.strip(" ,.;:!?") for group in _GROUPS.split(clause)[1:])


def _telling(group: str) -> frozenset[str]:
    """What a group of words is about, without what stands for itself in it."""
    return frozenset(term for term in query_terms(in_general(group, which=False)) if not term.isdigit())


def _spoken_of(group: str, known: frozenset[str]) -> bool:
    telling = _telling(group)
    return 2 * len(telling & known) >= len(telling)


def _words(tool: Tool) -> list[str]:
    schemas = visible.literal([tool.input_schema, tool.definition.get("outputSchema")])[:_READ]
    return terms(f"{tool.server} {tool.name} {tool.title} {tool.description[:_READ]} {schemas}")


def _within(one: Literal, groups: Sequence[str]) -> bool:
    return any(one.text in group for group in groups)
