"""Extracts literals of an intent: URLs, numbers, dates, paths, quoted words and context. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from portico.workflows.planning.vocabulary import NOT_FILES, NOT_REPOS, SITES

_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "quoted",
        re.compile(
            r"\"(?P<it>[^\"\n]+)\"|“(?P<a>[^”\n]+)”|`(?P<b>[^`\n]+)`|(?<!\w)'(?P<c>[^'\n]+)'(?!\w)"
        ),
    ),
    ("url", re.compile(r"(?P<it>https?://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]])")),
    ("email", re.compile(r"(?<![\w.+-])(?P<it>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)")),
    (
        "date",
        re.compile(
            r"(?<![\w/-])(?P<it>\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:?\d{2})?)?)"
        ),
    ),
    (
        "path",
        re.compile(
            r"(?<![\w/:.~])(?P<it>(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]*)*|[A-Za-z]:\\[^\s\"']+)"
        ),
    ),
    (
        "repo",
        re.compile(
            r"(?<![\w/.@-])(?P<it>[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w.-]*[\w-]|[A-Za-z]/[A-Za-z])(?![\w/])"
        ),
    ),
    ("channel", re.compile(r"(?<![\w#])#(?P<it>[a-z][\w-]*)")),
    ("person", re.compile(r"(?<![\w@.])@(?P<it>[A-Za-z][\w.-]*\w)")),
    ("ticket", re.compile(r"(?<![\w-])(?P<it>[A-Z][A-Z0-9]{1,9}-\d{1,6})(?![\w-])")),
    (
        "file",
        re.compile(
            r"(?<![\w/.@-])(?P<it>[\w-]+(?:\.[\w-]+)*\.(?:[a-z]{2,4}[0-9]?|[a-z]|json5?|parquet))(?![\w/])"
        ),
    ),
    (
        "quoted",
        re.compile(
            r"(?:(?<=\bcalled )|(?<=\bnamed )|(?<=\btitled ))"
            r"(?!(?:a|an|the|it|after|as|by|for|with)\b)"
            r"(?P<it>[^\W_][\w-]*(?:\s+[A-ZÀ-Þ][\w'’-]*)*)"
        ),
    ),
    ("number", re.compile(r"(?<![\w.#-])#?(?P<it>-?\d+(?:\.\d+)?)(?![\w%]|\.\d|-\d|/)")),
    ("symbol", re.compile(r"(?<![\w-])(?P<it>[A-Z]{2,5})(?![\w-])")),
    (
        "place",
        re.compile(
            r"\b(?:in|at|near|around|for|of|to|from)\s+(?P<it>[A-ZÀ-Þ][\w'’.-]*(?:\s+(?:de|of|la|da|von)?\s?[A-ZÀ-Þ][\w'’-]*)*"
            r"(?:,\s+[A-ZÀ-Þ][\w'’-]*)?)"
        ),
    ),
)
_WORDS = re.compile(r"[^\W\d_][\w'’-]*")
_BEFORE = 40
MAX_LITERALS = 40


@dataclass(frozen=True, slots=True)
class IntentLiteral:
    """One thing that is plainly there."""

    kind: str
    """`quoted`, `url`, `email`, `date`, `path`, `repo`, `channel`, `person`, `ticket`, `file`,
    `number`, `symbol`, `place`."""
    text: str
    before: tuple[str, ...]
    """The words before it, the nearest last."""
    after: str
    """The word after it."""
    start: int


@lru_cache(maxsize=128)
def find_literals(text: str) -> tuple[IntentLiteral, ...]:
    """All of them, in the order in which they stand; a part of the text is one thing only."""
    taken: list[tuple[int, int]] = []
    found: list[IntentLiteral] = []
    for kind, form in _FORMS:
        for match in form.finditer(text):
            name = next(name for name, value in match.groupdict().items() if value is not None)
            start, end = match.span() if kind == "quoted" else match.span(name)
            value = match[name].strip()
            if len(found) == MAX_LITERALS:
                break
            if (
                not value
                or _is_false_match(kind, value)
                or any(start < last and first < end for first, last in taken)
            ):
                continue
            taken.append((start, end))
            found.append(
                IntentLiteral(
                    kind, value, _get_words_before(text, start), _get_word_after(text, end), start
                )
            )
    return tuple(sorted(found, key=lambda one: one.start))


def _is_false_match(kind: str, value: str) -> bool:
    folded = value.casefold()
    if kind == "repo":
        return folded in NOT_REPOS or value.replace("/", "").isdigit()
    if kind == "file":
        return folded in NOT_FILES or folded.rpartition(".")[2] in SITES
    return False


def _get_words_before(text: str, at: int) -> tuple[str, ...]:
    return tuple(word.casefold() for word in _WORDS.findall(text[max(0, at - _BEFORE) : at])[-4:])


def _get_word_after(text: str, at: int) -> str:
    found = _WORDS.search(text[at : at + _BEFORE])
    if found:
        return found[0].casefold()
    return ""


_OBJECT = re.compile(
    r"\b(?:for|about|regarding|on|concerning|über|nach|sur|sobre)\s+(?P<it>\S.*)$", re.IGNORECASE
)
_NAMED = re.compile(r"\s(?:the\s+)?(?P<it>[A-ZÀ-Þ][\w'’-]+(?:\s+[A-ZÀ-Þ][\w'’-]+)*)$")
_WHERE_IT_ENDS = re.compile(
    r"\s+(?:on|in|at|from|using|via|with|through)\s+(?:the\s+)?[\w.-]+$", re.IGNORECASE
)
_AGAIN = re.compile(
    r"^(?:it|them|that|this|these|those|each|all|the (?:results?|same))\b", re.IGNORECASE
)


def find_search_object(clause: str, tool_words: frozenset[str]) -> str:
    """What a search is for: "search the web for cheap flights" → "cheap flights"; empty where
    nothing plainly is."""
    found = _OBJECT.search(clause) or _NAMED.search(clause)
    if found is None:
        return ""
    text = found["it"].strip(" .,;")
    # "… on wikipedia" says where, not what.
    if (tail := _WHERE_IT_ENDS.search(text)) and text[tail.start() :].split()[
        -1
    ].casefold() in tool_words:
        text = text[: tail.start()]
    words = text.split()
    if (
        _AGAIN.match(text)
        or not words
        or len(words) > 12
        or all(word.casefold() in tool_words for word in words)
    ):
        return ""
    return text.strip(" \"'“”`")


def refers_back(clause: str) -> bool:
    """Whether a clause speaks of what was found before."""
    return bool(_BACK.search(_TARGET.sub(" ", clause)))


_TARGET = re.compile(
    r"\b(?:to|on|for|from|in|at|of|with)\s+(?:one of\s+)?"
    r"(?:it|them|one|each|that|this|these|those)\b"
    r"|\b(?:its|their|each|every)\b",
    re.IGNORECASE,
)
"""Whatever is done *to it* does not consist of it."""


def acts_on_it(clause: str) -> bool:
    """Whether a clause does something to what was found before, which is then where it was."""
    return bool(_TARGET.search(clause))


_BACK = re.compile(
    r"\b(?:it|them|that|this|these|those|its|their|result|results|summary|report|findings|answer|output|list|overview"
    r"|digest|contents?|article|page|text|transcript|es|sie|ergebnis\w*|résultats?|resultados?)\b",
    re.IGNORECASE,
)


def find_unique_literal(kind: str, *texts: str) -> IntentLiteral | None:
    """The one literal of a kind in these texts; None where there is none, or another one too."""
    found = {
        one.text: one for one in chain.from_iterable(map(find_literals, texts)) if one.kind == kind
    }
    if len(found) == 1:
        return next(iter(found.values()))
    return None


def find_literals_of_kind(text: str, *kinds: str) -> Iterator[IntentLiteral]:
    """The literals of these kinds."""
    return (one for one in find_literals(text) if one.kind in kinds)


_STANDS_FOR = {
    "url": "url",
    "email": "email address",
    "path": "file",
    "file": "file",
    "repo": "repository",
}
_SAYS_WHICH = frozenset(
    ("quoted", "channel", "person", "ticket", "number", "date", "symbol", "place")
)


def generalize_clause(clause: str, *, keep_specifics: bool = True) -> str:
    """A clause as words to search with: "save it to /tmp/a.md" is about a file, whatever its name.

    Without `which`, names, numbers and places are left out too.
    """
    text = clause
    for one in reversed(find_literals(clause)):
        if one.kind in _STANDS_FOR and clause.startswith(one.text, one.start):
            text = f"{text[: one.start]}{_STANDS_FOR[one.kind]}{text[one.start + len(one.text) :]}"
        elif (
            not keep_specifics
            and one.kind in _SAYS_WHICH
            and (at := text.find(one.text, one.start)) >= 0
        ):
            text = f"{text[:at]}{text[at + len(one.text) :]}"
    return text
