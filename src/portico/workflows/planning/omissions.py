"""Finds what an intent says and its plan does not cover: unused values and words. Pure.

A plan that omits something may be for something else, so it is shown and not run at once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from portico.catalog import visible_text
from portico.catalog.tool import Tool
from portico.search.lexical.tokens import extract_terms
from portico.search.usage_patterns import extract_query_terms
from portico.workflows.planning.clauses import split_clauses
from portico.workflows.planning.literals import IntentLiteral, find_literals, generalize_clause

_GROUPS = re.compile(
    r"[,;:]\s+(?:(?:and|or|but)\s+)?|\s+(?:and|or|but|und|et|y)\s+|\s+(?=(?:which|that|who|whose|where|except|without)\s)"
    r"|\s+(?=(?:sorted|ordered|grouped)\s+by\s)",
    re.IGNORECASE,
)
_READ = 20_000
"""Characters of one definition."""


def find_omissions(
    intent: str,
    steps: Sequence[Mapping[str, Any]],
    tools: Mapping[str, Tool],
    unserved_clauses: Sequence[str] = (),
) -> tuple[str, ...]:
    """What is said and not done. `tools` has those of the steps; `passed_over` are clauses that
    have no step."""
    said = to_searchable_text([step.get("arguments") for step in steps])
    values = [one for one in find_literals(intent) if not is_mentioned(one.text, one.kind, said)]
    groups = [
        one for one in (*_iter_later_groups(intent), *unserved_clauses) if _get_telling_terms(one)
    ]
    if groups:
        # What search has found a tool for is served, in whatever words; what stands beside it may
        # not be.
        known = frozenset(
            chain(extract_terms(said), *(_get_tool_terms(tools[step["tool"]]) for step in steps))
        )
        groups = [one for one in groups if not _is_covered(one, known)]
    return tuple(
        dict.fromkeys((*(one.text for one in values if not _is_within(one, groups)), *groups))
    )


def to_searchable_text(values: Any) -> str:
    """Values as text that things said can be looked for in."""
    return visible_text.to_literal(values).casefold()


def is_mentioned(text: str, kind: str, said: str) -> bool:
    """Whether something said is among what is written."""
    if kind == "repo":
        parts = text.split("/")
    else:
        parts = (text,)
    return all(visible_text.to_literal(part)[1:-1].casefold() in said for part in parts)


def _iter_later_groups(intent: str) -> Iterator[str]:
    """The groups of words of each clause, but for its first."""
    for clause in split_clauses(intent):
        yield from (group.strip(" ,.;:!?") for group in _GROUPS.split(clause)[1:])


def _get_telling_terms(group: str) -> frozenset[str]:
    """What a group of words is about, without what stands for itself in it."""
    return frozenset(
        term
        for term in extract_query_terms(generalize_clause(group, keep_specifics=False))
        if not term.isdigit()
    )


def _is_covered(group: str, known: frozenset[str]) -> bool:
    telling = _get_telling_terms(group)
    return 2 * len(telling & known) >= len(telling)


def _get_tool_terms(tool: Tool) -> list[str]:
    schemas = visible_text.to_literal([tool.input_schema, tool.definition.get("outputSchema")])[
        :_READ
    ]
    return extract_terms(
        f"{tool.server} {tool.name} {tool.title} {tool.description[:_READ]} {schemas}"
    )


def _is_within(one: IntentLiteral, groups: Sequence[str]) -> bool:
    return any(one.text in group for group in groups)
