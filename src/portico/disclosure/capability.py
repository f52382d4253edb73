"""The capability index: which kinds of servers are behind this one, for the search tool's description. Pure."""

from collections.abc import Iterable, Mapping

from portico.catalog.taxonomy import OTHER
from portico.disclosure.tokens import count

CAPABILITY_INDEX_TOKENS = 150
_INDEX_ESTIMATE = 82
"""The estimate of tokens is low by up to a fifth where names are all there is; and an index this long says enough."""
_UNHEARD = "no tools known yet"
_MAX_EXAMPLES = 3


def capability_index(servers: Mapping[str, str]) -> str:
    """Which kinds of servers are behind this one, in at most 150 tokens; `servers` are names with main categories.

    All servers are named if they fit; else some of each category and the number of the rest; else the categories, with
    examples as far as there is room. A server that nobody has heard yet has no category and comes last.
    """
    if not servers:
        return "No servers are configured."
    shelves = _shelves(servers)
    for most in (len(servers), 40, 25, 16, 12, 8, 5, 3, 2, 1):
        named = [(key, _named(names, most)) for key, names in shelves]
        if not shelves[0][0]:
            line = f"Servers here: {named[0][1]}."
        else:
            line = _line("Servers by category: ", (f"{key or _UNHEARD} ({names})" for key, names in named))
        if count(line) <= _INDEX_ESTIMATE:
            return line
    return _exemplified(len(servers), shelves)


def _shelves(servers: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The categories with their servers, largest first; short plain names first, for they are known best."""
    held: dict[str, list[str]] = {}
    for name in sorted(servers, key=lambda name: (name.count("-") + name.count("_"), len(name), name)):
        held.setdefault(servers[name], []).append(name)
    return sorted(held.items(), key=lambda shelf: (not shelf[0], shelf[0] == OTHER, -len(shelf[1]), shelf[0]))


def _named(names: list[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" +{rest}" if rest > 0 else "")


def _exemplified(total: int, shelves: list[tuple[str, list[str]]]) -> str:
    """As many categories as fit, then an example of each in turn as long as one more fits."""
    head = f"Categories of the {total} servers here, with examples: "
    shown = len(shelves)
    examples = [0] * shown

    def line() -> str:
        parts = [
            f"{key or _UNHEARD} ({', '.join(names[:most])})" if most else key or _UNHEARD
            for (key, names), most in zip(shelves[:shown], examples, strict=False)
        ]
        return _line(head, [*parts, f"{len(shelves) - shown} more"] if shown < len(shelves) else parts)

    while shown > 1 and count(line()) > _INDEX_ESTIMATE:
        shown -= 1
    for place in (place for _ in range(_MAX_EXAMPLES) for place in range(shown)):
        if examples[place] < len(shelves[place][1]):
            examples[place] += 1
            if count(line()) > _INDEX_ESTIMATE:
                examples[place] -= 1
                break
    return line()


def _line(head: str, parts: Iterable[str]) -> str:
    return f"{head}{', '.join(parts)}."
