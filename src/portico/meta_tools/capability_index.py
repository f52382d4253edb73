"""The capability index: one line in the description of `search_tools` that names the servers."""

from collections.abc import Mapping

from portico.catalog.categories import OTHER
from portico.rendering.token_budget import count_tokens

CAPABILITY_INDEX_TOKENS = 150
_MAX_ESTIMATED_TOKENS = 82
_MAX_ESTIMATED_TOKENS_WITH_EXAMPLES = 90
"""Limits of the token estimate, which is low by up to a fifth for text made only of names. Two
dozen categories take the first one up, so servers beside them need the second."""
_NO_TOOLS_KNOWN = "no tools known yet"
_MAX_EXAMPLES = 3


def build_capability_index(servers: Mapping[str, str]) -> str:
    """Render the servers by category in at most 150 tokens; `servers` maps names to categories.

    All servers are named if they fit; else some of each category and the number of the rest; else
    the categories, with examples as far as they fit. A server that was never listed has no category
    and comes last.
    """
    if not servers:
        return "No servers are configured."
    categories = _group_by_category(servers)
    for limit in (len(servers), 40, 25, 16, 12, 8, 5, 3, 2, 1):
        named = [(key, _list_names(names, limit)) for key, names in categories]
        line = f"Servers here: {named[0][1]}."
        if categories[0][0]:
            parts = (f"{key or _NO_TOOLS_KNOWN} ({names})" for key, names in named)
            line = f"Servers by category: {', '.join(parts)}."
        if count_tokens(line) <= _MAX_ESTIMATED_TOKENS:
            return line
    return _render_with_examples(len(servers), categories)


def _group_by_category(servers: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """Return categories with their servers, largest first; short plain names come first."""
    groups: dict[str, list[str]] = {}
    for name in sorted(
        servers, key=lambda name: (name.count("-") + name.count("_"), len(name), name)
    ):
        groups.setdefault(servers[name], []).append(name)
    return sorted(
        groups.items(),
        key=lambda group: (not group[0], group[0] == OTHER, -len(group[1]), group[0]),
    )


def _list_names(names: list[str], limit: int) -> str:
    rest = len(names) - limit
    return ", ".join(names[:limit]) + (f" +{rest}" if rest > 0 else "")


def _render_with_examples(total: int, categories: list[tuple[str, list[str]]]) -> str:
    """Render as many categories as fit, then add one example to each in turn where it fits."""
    shown = len(categories)
    examples = [0] * shown

    def render_line() -> str:
        parts: list[str] = []
        for (key, names), limit in zip(categories[:shown], examples, strict=False):
            part = key or _NO_TOOLS_KNOWN
            if limit:
                part += f" ({', '.join(names[:limit])})"
            parts.append(part)
        if shown < len(categories):
            parts.append(f"{len(categories) - shown} more")
        with_examples = ", with examples" if any(examples) else ""
        return f"Categories of the {total} servers here{with_examples}: {', '.join(parts)}."

    while shown > 1 and count_tokens(render_line()) > _MAX_ESTIMATED_TOKENS:
        shown -= 1
    for position in (position for _ in range(_MAX_EXAMPLES) for position in range(shown)):
        if examples[position] < len(categories[position][1]):
            examples[position] += 1
            if count_tokens(render_line()) > _MAX_ESTIMATED_TOKENS_WITH_EXAMPLES:
                examples[position] -= 1
    return render_line()
