"""The capability index: which kinds of servers are behind this one, for the search tool's
description. Pure."""

from collections.abc import Iterable, Mapping

from portico.catalog.taxonomy import OTHER
from portico.rendering.token_count import count_tokens

CAPABILITY_INDEX_TOKENS = 150
_MAX_ESTIMATED_TOKENS = 82
"""The estimate of tokens is low by up to a fifth where names are all there is; and an index this
long says enough."""
_NO_TOOLS_KNOWN = "no tools known yet"
_MAX_EXAMPLES = 3


def build_capability_index(servers: Mapping[str, str]) -> str:
    """Which kinds of servers are behind this one, in at most 150 tokens; `servers` are names with
    main categories.

    All servers are named if they fit; else some of each category and the number of the rest; else
    the categories, with examples as far as there is room. A server that nobody has heard yet has no
    category and comes last.
    """
    if not servers:
        return "No servers are configured."
    shelves = _group_by_category(servers)
    for most in (len(servers), 40, 25, 16, 12, 8, 5, 3, 2, 1):
        named = [(key, _list_names(names, most)) for key, names in shelves]
        if not shelves[0][0]:
            line = f"Servers here: {named[0][1]}."
        else:
            line = _join_line(
                "Servers by category: ",
                (f"{key or _NO_TOOLS_KNOWN} ({names})" for key, names in named),
            )
        if count_tokens(line) <= _MAX_ESTIMATED_TOKENS:
            return line
    return _render_with_examples(len(servers), shelves)


def _group_by_category(servers: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The categories with their servers, largest first; short plain names first, for they are known
    best."""
    held: dict[str, list[str]] = {}
    for name in sorted(
        servers, key=lambda name: (name.count("-") + name.count("_"), len(name), name)
    ):
        held.setdefault(servers[name], []).append(name)
    return sorted(
        held.items(), key=lambda shelf: (not shelf[0], shelf[0] == OTHER, -len(shelf[1]), shelf[0])
    )


def _list_names(names: list[str], limit: int) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" +{rest}" if rest > 0 else "")


def _render_with_examples(total: int, categories: list[tuple[str, list[str]]]) -> str:
    """As many categories as fit, then an example of each in turn as long as one more fits."""
    head = f"Categories of the {total} servers here, with examples: "
    shown = len(categories)
    examples = [0] * shown

    def render_line() -> str:
        parts = [
            f"{key or _NO_TOOLS_KNOWN} ({', '.join(names[:most])})"
            if most
            else key or _NO_TOOLS_KNOWN
            for (key, names), most in zip(categories[:shown], examples, strict=False)
        ]
        return _join_line(
            head, [*parts, f"{len(categories) - shown} more"] if shown < len(categories) else parts
        )

    while shown > 1 and count_tokens(render_line()) > _MAX_ESTIMATED_TOKENS:
        shown -= 1
    for place in (place for _ in range(_MAX_EXAMPLES) for place in range(shown)):
        if examples[place] < len(categories[place][1]):
            examples[place] += 1
            if count_tokens(render_line()) > _MAX_ESTIMATED_TOKENS:
                examples[place] -= 1
                break
    return render_line()


def _join_line(head: str, parts: Iterable[str]) -> str:
    return f"{head}{', '.join(parts)}."
