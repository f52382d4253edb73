"""Splits the name of a parameter, field or tool into its subject and aspect. Pure.

`channel_id` is the id of a channel, `list_channels` is about channels, `html_url` is an address of
the enclosing object. Different spellings with the same meaning give the same parts.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from portico.workflows.planning.vocabulary import CHANGES, CONTROLS, DOES, READS, VAGUE

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+|(?<=[A-Za-z])(?=\d)")

_ASPECTS = {
    "id": "id ids uuid guid gid iid sid arn urn key keys identifier slug handle code",
    "number": "number num no",
    "name": "name names title login username label",
    "url": "url urls uri uris link links href website webpage",
    "path": "path paths file files filename filepath directory dir folder",
    "text": (
        "text content contents body message markdown html summary caption transcript prompt input"
        " comment note"
    ),
    "email": "email emails recipient recipients mail",
    "date": "date datetime time timestamp since until day",
    "query": "query q search keyword keywords term terms question",
}
ASPECTS = {word: aspect for aspect, words in _ASPECTS.items() for word in words.split()}

_IDS = frozenset(["id", "number"])


@dataclass(frozen=True, slots=True)
class ParsedName:
    """One name, taken apart."""

    words: tuple[str, ...]
    """Lower case, singular."""
    about: frozenset[str]
    """The words that say of what: those without an aspect."""
    aspect: str
    """What of it: `id`, `number`, `name`, `url`, `path`, `text`, `email`, `date`, `query`; empty
    for none of these."""

    @property
    def is_specific(self) -> bool:
        """Whether the name alone says enough to know the same thing by it."""
        return bool(self.about if self.aspect in ("id", "number") else self.about - VAGUE)


@lru_cache(maxsize=16_384)
def parse_name(name: str) -> ParsedName:
    """Take a name apart."""
    words = tuple(to_singular(word) for word in split_name(name))
    aspects = [ASPECTS[word] for word in words if word in ASPECTS]
    # `msg_type` is no message.
    if aspects and words[-1] not in VAGUE:
        aspect = aspects[-1]
    else:
        aspect = ""
    about = frozenset(word for word in words if word not in ASPECTS)
    if not about and len(words) > 1:
        about = frozenset(words[:-1])
    return ParsedName(words, about, aspect)


def split_name(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [part.lower() for part in _HUMPS.split(name[:120]) if part]


@lru_cache(maxsize=16_384)
def to_singular(word: str) -> str:
    """`channels` → `channel`, `repositories` → `repo`; words that only look plural stay."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return _SAME.get(word, word)


_SAME = {
    "repository": "repo",
    "pr": "pull",
    "organisation": "org",
    "organization": "org",
    "msg": "message",
}


@lru_cache(maxsize=16_384)
def get_tool_nouns(tool: str, server: str) -> frozenset[str]:
    """What a tool is about, by its name: no verbs, and not the name of its server."""
    of_server = {to_singular(word) for word in split_name(server)}
    # Before they are made singular: `get_lists` tells of lists.
    nouns = [
        to_singular(word) for word in split_name(tool) if word not in READS and word not in DOES
    ]
    return frozenset(word for word in nouns if word not in of_server) or frozenset(nouns)


@lru_cache(maxsize=16_384)
def is_read_verb_name(tool: str) -> bool:
    """Whether a tool's name says that it looks something up."""
    words = split_name(tool)
    return any(word in READS for word in words[:3]) and not any(word in CHANGES for word in words)


def is_control(name: ParsedName) -> bool:
    """Whether a parameter steers the answer rather than asks for something."""
    return any(word in CONTROLS for word in name.words) and name.aspect not in (
        "id",
        "url",
        "path",
        "email",
    )


def score_aspects(one: str, other: str) -> float:
    """How far one aspect stands for another."""
    if one == other:
        return 1.0
    if one in _IDS and other in _IDS:
        return 0.6
    return 0.0
