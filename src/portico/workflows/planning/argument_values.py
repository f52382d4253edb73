"""Assigns literals of an intent to parameters where the match is certain. Pure.

Everything else is left to the output of an earlier step, or to the reader of the plan.
"""

import re
from dataclasses import dataclass
from typing import Any

from portico.calls.validation import is_valid_for_schema
from portico.catalog.schema_outline import SchemaParameter
from portico.catalog.schema_references import ABSENT
from portico.workflows.planning.literals import (
    IntentLiteral,
    find_literals_of_kind,
    find_search_object,
    find_unique_literal,
)
from portico.workflows.planning.name_parts import ParsedName, parse_name, to_singular
from portico.workflows.planning.vocabulary import FROM, LIMITS, OWNERS, PLACES, STEERS, SYMBOLS, TO

_WORD = re.compile(r"[^\W_]+")
NOTHING = object()
"""No value is certain."""

_TITLED = {
    "title": ("titled", "title", "called", "named", "headed", "name"),
    "name": ("named", "called", "name", "titled", "title"),
    "subject": ("subject", "titled"),
    "text": (
        "saying",
        "message",
        "text",
        "says",
        "body",
        "content",
        "comment",
        "with",
        "writing",
        "reads",
    ),
    "query": ("for", "about", "query", "matching", "containing"),
}
_LANGUAGES = re.compile(
    r"\b(?:sql|jql|cql|soql|cypher|promql|logql|kql|graphql|regex|regular expression|xpath|syntax"
    r"|dsl|expression|sparql|lucene|json)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class StepWording:
    """What the words around a step are."""

    clause: str
    intent: str
    tool_words: frozenset[str]
    """The words of the tool's name and its server's."""
    siblings: tuple[SchemaParameter, ...] = ()
    """All parameters of the tool."""


def find_stated_value(param: SchemaParameter, said: StepWording) -> Any:
    """Return the value certainly meant for a parameter and accepted by it, or NOTHING."""
    value = _match_param(param, said)
    if value is NOTHING or _is_accepted(param, value):
        return value
    return NOTHING


def _is_accepted(param: SchemaParameter, value: Any) -> bool:
    return is_valid_for_schema(param.source, value)


def _match_param(param: SchemaParameter, said: StepWording) -> Any:
    if param.enum:
        return _match_enum(param, said)
    name = parse_name(param.name)
    if param.type in ("integer", "number"):
        return _match_number(param, name, said)
    if param.type == "array" and param.items is not None and param.items.type == "string":
        one = _match_text(param, param.items, name, said)
        if one is NOTHING:
            return NOTHING
        return [one]
    if param.type in ("string", "any", "union"):
        return _match_text(param, param, name, said)
    return NOTHING


def get_defined_value(param: SchemaParameter) -> Any:
    """The value that the definition itself gives a required parameter."""
    if len(param.enum) == 1:
        return param.enum[0]
    if param.default is ABSENT or param.default is None or param.default == "":
        return NOTHING
    return param.default


def _match_enum(param: SchemaParameter, said: StepWording) -> Any:
    name = parse_name(param.name)
    if len(param.enum) == 1:
        if param.required:
            return param.enum[0]
        return NOTHING
    if STEERS & set(name.words) and not STEERS & set(re.findall(r"\w+", said.clause.casefold())):
        return NOTHING
    words = _normalize_words(said.clause)
    named = [
        value
        for value in param.enum
        if isinstance(value, str) and len(value) > 2 and _normalize_words(value) in words
    ]
    # A tool's own words in an enumeration ("issue") are said in every intent that names the tool.
    telling = [value for value in named if value.casefold() not in said.tool_words]
    if len(telling) == 1:
        return telling[0]
    return NOTHING


def _normalize_words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _match_number(param: SchemaParameter, name: ParsedName, said: StepWording) -> Any:
    for one in find_literals_of_kind(said.clause, "number"):
        squashed = "".join(name.words)
        about = {to_singular(word) for word in (*one.before[-2:], one.after)}
        if name.words == one.before[-1:]:
            return _to_number(one, param)
        if (
            name.aspect in ("id", "number")
            and name.about
            and name.about & {to_singular(word) for word in one.before[-2:]}
        ):
            return _to_number(one, param)
        limits = squashed in LIMITS or squashed.removeprefix("max") in LIMITS
        if limits and (
            about & {"first", "top", "last", "latest", "limit", "newest"}
            or one.after in ("result", "results")
        ):
            return _to_number(one, param)
        if name.about and name.about <= set(one.before[-2:]) | {one.after}:
            return _to_number(one, param)
    if said.clause == said.intent:
        one = None
    else:
        one = find_unique_literal("number", said.intent)
    if (
        one
        and name.aspect in ("id", "number")
        and name.about & {to_singular(word) for word in one.before[-2:]}
    ):
        return _to_number(one, param)
    return NOTHING


def _to_number(one: IntentLiteral, param: SchemaParameter) -> Any:
    value = float(one.text)
    if value.is_integer():
        return int(value)
    if param.type == "number":
        return value
    return NOTHING


def _match_text(
    param: SchemaParameter, kind: SchemaParameter, name: ParsedName, said: StepWording
) -> Any:
    """For strings; `kind` is the parameter itself, or what its list holds."""
    if kind.type not in ("string", "any", "union") or kind.enum:
        return NOTHING
    form = kind.source.get("format")
    words = set(name.words)
    if (
        form == "email"
        or name.aspect == "email"
        or (words & {"to", "recipient", "cc", "bcc"} and len(words) == 1)
    ):
        if not words & {"cc", "bcc", "from", "sender", "reply", "subject"}:
            return _to_value(_find_unique(said, "email"))
        return NOTHING
    if form in ("uri", "url") or name.aspect == "url":
        if len(_list_by_aspect(said, "url")) < 2 or param.required:
            return _to_value(_find_unique(said, "url"))
        return NOTHING
    if form in ("date", "date-time") or name.aspect == "date":
        return _match_range_end(param, said, "date")
    if (
        name.aspect == "path"
        and (value := _match_range_end(param, said, "path", "file")) is not NOTHING
    ):
        return value
    if (
        words & (FROM | TO)
        and param.required
        and len(paths := list(find_literals_of_kind(said.clause, "path", "file"))) == 2
    ):
        if words & FROM:
            return paths[0].text
        return paths[1].text
    if words & {"repo", "owner", "org"} or (
        words & {"project", "namespace"} and name.aspect in ("id", "path")
    ):
        return _match_repository(name, said)
    if words & {"channel"} and name.aspect != "id":
        return _to_value(_find_unique(said, "channel"))
    if words & {"ticket", "issue"} or name.words in (("key",), ("id", "or", "key")):
        if (ticket := _find_unique(said, "ticket")) is not None:
            return ticket.text
        return _match_numeral(name, said)
    if words & SYMBOLS:
        return _to_value(_find_in_clause(said, "symbol"))
    if words & PLACES and param.required:
        return _to_value(_find_in_clause(said, "place"))
    if name.aspect in ("id", "number"):
        return _match_numeral(name, said)
    return _match_quoted(param, name, said)


def _match_numeral(name: ParsedName, said: StepWording) -> Any:
    """A number for a parameter that takes it as text."""
    if not name.about:
        return NOTHING
    for one in find_literals_of_kind(said.clause, "number"):
        if name.about & {to_singular(word) for word in one.before[-2:]}:
            return one.text
    return NOTHING


def _match_repository(name: ParsedName, said: StepWording) -> Any:
    one = _find_unique(said, "repo")
    if one is not None:
        owner, _, repo = one.text.partition("/")
    elif (page := _find_unique(said, "url")) is not None and (found := _HOSTED.match(page.text)):
        owner = found["owner"]
        repo = found["repo"].removesuffix(".git")
    else:
        return NOTHING
    names = [parse_name(param.name) for param in said.siblings]
    apart = any(OWNERS & set(other.words) for other in names)
    if OWNERS & set(name.words):
        if any("repo" in other.words for other in names):
            return owner
        return NOTHING
    if "repo" in name.words and name.aspect == "url":
        return NOTHING
    if apart:
        return repo
    return f"{owner}/{repo}"


_HOSTED = re.compile(
    r"https?://(?:www\.)?(?:github|gitlab|bitbucket|codeberg)\.\w+/(?P<owner>[\w.-]+)/(?P<repo>[\w.-]+)"
)


def _match_range_end(param: SchemaParameter, said: StepWording, *kinds: str) -> Any:
    """Of a path or a date: the first where it is for a beginning, the second where it is for an
    end."""
    found = list(find_literals_of_kind(said.clause, *kinds))
    aspect = parse_name(param.name).aspect
    rivals = [
        other for other in _list_by_aspect(said, aspect) if other.required
    ] or _list_by_aspect(said, aspect)
    words = set(parse_name(param.name).words)
    if len(found) == 2 and len(rivals) >= 2:
        if words & FROM:
            return found[0].text
        if words & TO:
            return found[1].text
        return NOTHING
    if len(found) != 1:
        return NOTHING
    if rivals == [param] or (param.required and len(rivals) == 1):
        return found[0].text
    # Of several, the one that says so: "since 2025-01-01".
    if words & set(found[0].before[-1:]):
        return found[0].text
    return NOTHING


def _match_quoted(param: SchemaParameter, name: ParsedName, said: StepWording) -> Any:
    quoted = list(find_literals_of_kind(said.clause, "quoted"))
    for one in quoted:
        if name.words and name.words[-1] in _TITLED:
            role = name.words[-1]
        else:
            role = name.aspect
        told = one.before[-1:]
        if told and (told[0] in _TITLED.get(role, ()) or to_singular(told[0]) in name.words):
            return one.text
    free = [other for other in said.siblings if other.required and _is_free(other)]
    if len(quoted) == 1 and free == [param]:
        return quoted[0].text
    if (
        name.aspect == "query"
        and param.required
        and not quoted
        and not _LANGUAGES.search(f"{param.name} {param.description}")
    ):
        return find_search_object(said.clause, said.tool_words) or NOTHING
    return NOTHING


def _is_free(param: SchemaParameter) -> bool:
    """Whether any words will do for it."""
    name = parse_name(param.name)
    return (
        param.type == "string" and not param.enum and name.aspect in ("", "name", "text", "query")
    )


def _list_by_aspect(said: StepWording, aspect: str) -> list[SchemaParameter]:
    return [param for param in said.siblings if parse_name(param.name).aspect == aspect]


def _find_in_clause(said: StepWording, kind: str) -> IntentLiteral | None:
    return find_unique_literal(kind, said.clause)


def _find_unique(said: StepWording, kind: str) -> IntentLiteral | None:
    """The one in the clause, else the one in the whole intent."""
    if any(True for _ in find_literals_of_kind(said.clause, kind)):
        return find_unique_literal(kind, said.clause)
    return find_unique_literal(kind, said.intent)


def _to_value(one: IntentLiteral | None) -> Any:
    if one is None:
        return NOTHING
    return one.text
