"""Which category each tool is in: what the config says, else what the server's tags say, else what
the words say. Pure.

Nothing depends on the order of the tools, nor on anything outside the server.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.classifier import MAX_INTRODUCTION, classify_tools, load_shipped_weights
from portico.catalog.snapshot import ServerEntry, find_most_common
from portico.catalog.taxonomy import SYNONYMS, TAXONOMY, VERSION, Category
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.errors import UnknownName

__all__ = [
    "TAXONOMY",
    "VERSION",
    "Category",
    "assign_categories",
    "collect_classification_inputs",
    "find_main_category",
    "resolve_category",
    "to_category",
]

MAX_KEY = 40
_MAX_SUGGESTED = 40
"""Categories that are named where none is near."""

_BY_KEY = {category.key: category for category in TAXONOMY}
_BY_NAME = {
    fold(name): category.key for category in TAXONOMY for name in (category.key, category.title)
}
_BY_SYNONYM = {**{fold(name): key for name, key in SYNONYMS.items()}, **_BY_NAME}
_NOT_SLUG = re.compile(r"[^\w]+|_+")


def assign_categories(entry: ServerEntry) -> Mapping[str, str]:
    """The category of each tool of a server."""
    whole = _normalize_category(entry.category) or _get_tag_category(entry.tags)
    moved = {
        name: key
        for name in entry.tools
        if (key := _get_configured_category(name, entry.categories))
    }
    if whole or len(moved) == len(entry.tools):
        return {name: moved.get(name, whole) for name in entry.tools}
    names = sorted(entry.tools)
    texts = [(name, entry.tools[name].title, entry.tools[name].description) for name in names]
    kinds = classify_tools(load_shipped_weights(), entry.name, compose_introduction(entry), texts)
    return {**dict(zip(names, kinds, strict=True)), **moved}


def find_main_category(entry: ServerEntry, assigned: Mapping[str, str]) -> str:
    """The category most of a server's tools are in; empty for a server without tools."""
    return find_most_common(Counter(assigned[name] for name in entry.tools))


def collect_classification_inputs(entry: ServerEntry) -> tuple[str, ...]:
    """Everything but the texts of tools that the categories of a server follow from, for hashes."""
    moves = (part for move in entry.categories.items() for part in move)
    return (VERSION, compose_introduction(entry), entry.category, *moves)


def to_category(key: str) -> Category:
    """One of ours, or the user's own with a title made from its key."""
    return _BY_KEY.get(key) or Category(key, key.replace("-", " ").capitalize(), "")


def resolve_category(name: str, known_keys: Iterable[str]) -> str:
    """The known category a name means, by key, title or synonym; raises UnknownName with the
    nearest."""
    keys = list(known_keys)
    if name in keys:
        return name
    folded = fold(name)
    here = {
        **{fold(to_category(key).title): key for key in keys},
        **{fold(key): key for key in keys},
    }
    if folded and (found := here.get(folded)):
        return found
    if (ours := _BY_SYNONYM.get(folded)) and ours in keys:
        return ours
    near = find_nearest_names(name.strip(), keys)
    raise UnknownName(
        f"there is no category {quote_text(name)} here",
        nearest=near,
        advice=f"Did you mean {', '.join(near)}?"
        if near
        else f"Categories here: {', '.join(sorted(keys)[:_MAX_SUGGESTED])}.",
    )


def compose_introduction(entry: ServerEntry) -> str:
    """How a server presents itself, beside its name: what the config says of it, then what it says
    itself."""
    said = entry.initialize_info
    if said:
        own = extract_introduction(
            {"serverInfo": said.server_info, "instructions": said.instructions}
        )
    else:
        own = ""
    return " ".join(filter(None, (entry.title, entry.description, own)))[:MAX_INTRODUCTION]


def extract_introduction(initialize_result: Mapping[str, Any]) -> str:
    """How a server presents itself in its answer to `initialize`."""
    info = initialize_result.get("serverInfo")
    if isinstance(info, Mapping):
        parts = [info.get(key) for key in ("name", "title", "description")]
    else:
        parts = []
    parts.append(initialize_result.get("instructions"))
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _get_configured_category(tool: str, moves: Mapping[str, str]) -> str:
    """What the config says of one tool: its name before any pattern, patterns in their order."""
    if tool in moves:
        return _normalize_category(moves[tool])
    return next(
        (
            _normalize_category(name)
            for pattern, name in moves.items()
            if fnmatchcase(tool, pattern)
        ),
        "",
    )


def _normalize_category(name: str) -> str:
    """A category from the config: one of ours by key or title, else the user's own."""
    return _BY_NAME.get(fold(name)) or _to_slug(name)


def _get_tag_category(tags: Sequence[str]) -> str:
    """The first tag that means one of our categories, else the first tag."""
    ours = (_BY_SYNONYM.get(fold(tag)) for tag in tags)
    return next(filter(None, ours), "") or next(filter(None, map(_to_slug, tags)), "")


def _to_slug(name: str) -> str:
    return (
        _NOT_SLUG.sub("-", sanitize_text(name).strip().casefold()).strip("-")[:MAX_KEY].rstrip("-")
    )
