"""Scores which field of one tool's result fits a parameter of another. Pure.

By names (`channels[*].id` is a `channel_id`), types, and the subjects of both tools. 1 is certain;
from `GOOD` on a plan may rely on it.
"""

import re
from dataclasses import dataclass

from portico.catalog.schema_outline import SchemaParameter
from portico.workflows.planning.name_parts import (
    VAGUE,
    ParsedName,
    is_control,
    parse_name,
    score_aspects,
)
from portico.workflows.planning.output_fields import OutputField, ToolOutput

_AN_ID = re.compile(r"\b(?:id|gid|uuid|guid|key|identifier)s?\b", re.IGNORECASE)
GOOD = 0.7
_NUMBERS = frozenset(("integer", "number"))
_NOT_JOINED = frozenset(("text", "query", "name", "date", ""))
"""Aspects that many fields have: alone, with nothing said of what, they join nothing."""


@dataclass(frozen=True, slots=True)
class FieldJoin:
    """An offer that is taken for a parameter."""

    offer: OutputField
    sureness: float
    many: bool = False
    """The parameter takes all of them, as a list."""


def find_best_join(
    param: SchemaParameter,
    tool_nouns: frozenset[str],
    answer: ToolOutput,
    *,
    cross_server: bool = False,
    lookup: bool = False,
) -> FieldJoin | None:
    """The offer that serves a parameter best, if any does at all; of equals the one that stands
    higher.

    `abroad`: the two are of different servers, where one's ids mean nothing to the other.
    `lookup`: both only look something up, so that a name found by the first may be what the second
    goes by.
    """
    best: FieldJoin | None = None
    if cross_server and parse_name(param.name).aspect in ("id", "number"):
        return None
    for offer in answer.fields:
        sureness = score_join(param, tool_nouns, offer, lookup=lookup)
        if sureness and (best is None or sureness > best.sureness + 0.001):
            best = FieldJoin(offer, sureness, param.type == "array")
    return best


def score_join(
    param: SchemaParameter, tool_nouns: frozenset[str], offer: OutputField, *, lookup: bool = False
) -> float:
    """How sure it is that this offer is meant for this parameter."""
    wanted = parse_name(param.name)
    if is_control(wanted) or param.enum or not offer.name.words:
        return 0.0
    fits = _score_types(param, offer)
    if not fits:
        return 0.0
    if lookup and wanted.aspect == "name" and wanted.words == offer.name.words and offer.is_in_list:
        return fits * 0.8 * _score_depth(offer)
    return fits * _score_names(wanted, param.description, tool_nouns, offer) * _score_depth(offer)


def _score_names(
    wanted: ParsedName, description: str, tool_nouns: frozenset[str], offer: OutputField
) -> float:
    words = wanted.words
    about = wanted.about
    aspect = wanted.aspect
    name = offer.name
    # Whatever has an id is a thing, however vague its name: `record_id`.
    if aspect in ("id", "number"):
        telling = about
    else:
        telling = about - VAGUE
    own = name.about - VAGUE
    if telling and own and not telling & own:
        return 0.0  # `orgId`, though it stands among projects
    if words == name.words:
        if telling:
            return 1.0
        # `id` for `id`: only where both tools are about the same thing.
        shared = tool_nouns & (offer.about | name.about)
        if aspect in ("id", "number", "path") and shared:
            return 0.85
        if aspect == "url":
            return 0.8
        if shared:
            return 0.3
        return 0.0
    alike = score_aspects(aspect, name.aspect)
    if aspect == "url" and name.aspect == "url":
        # An address of a thing is as good as another, unless it is said to be of something else
        # (`avatar_url`).
        if not telling:
            return 0.75
        if telling <= name.about | offer.about:
            return 0.9
        return 0.0
    if telling and aspect and alike and telling <= name.about | offer.about:
        return (0.95 if telling & name.about else 0.9) * (1.0 if alike == 1.0 else 0.75)
    if (
        not aspect
        and telling
        and telling <= name.about | offer.about
        and name.aspect in ("id", "number", "name")
    ):
        # `workspace` may be a workspace's name, or its id: the description says.
        if name.aspect == "id" and _AN_ID.search(description):
            return 0.85
        return 0.55
    if (
        aspect not in _NOT_JOINED
        and not telling
        and alike == 1.0
        and tool_nouns & (name.about | offer.about)
    ):
        return 0.75
    return 0.0


def _score_types(param: SchemaParameter, offer: OutputField) -> float:
    wanted = _get_wanted_types(param)
    offered = offer.types - {"null"}
    if "any" in wanted or "union" in wanted or not offered or "any" in offered:
        return 0.95
    if wanted & offered or (wanted & _NUMBERS and offered & _NUMBERS):
        return 1.0
    # The pipeline makes a number of a number in a string; the other way round it is only written
    # down.
    if (wanted & _NUMBERS and "string" in offered) or ("string" in wanted and offered & _NUMBERS):
        return 0.85
    return 0.0


def _get_wanted_types(param: SchemaParameter) -> frozenset[str]:
    if param.type == "array":
        return frozenset({param.items.type if param.items is not None else "any"})
    if param.variants:
        return frozenset(variant.type for variant in param.variants)
    return frozenset({param.type})


def _score_depth(offer: OutputField) -> float:
    """What lies deep, or in a list of lists, is more often of something else."""
    fields = sum(part not in ("[*]", "result") for part in offer.path)
    lists = len(offer.path) - fields
    return 1.0 - 0.06 * max(0, fields - 2) - 0.2 * max(0, lists - 2)
