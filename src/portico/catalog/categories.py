"""Assigns a category to each tool: from the config, else from server tags, else by its words. Pure.

Depends neither on the order of tools nor on anything outside the server.
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
"""Maximum number of categories named in an error without a near match."""

_BY_KEY = {category.key: category for category in TAXONOMY}
_BY_NAME = {
    fold(name): category.key for category in TAXONOMY for name in (category.key, category.title)
}
_BY_SYNONYM = {**{fold(name): key for name, key in SYNONYMS.items()}, **_BY_NAME}
_NOT_SLUG = re.compile(r"[^\w]+|_+")


def assign_categories(entry: ServerEntry) -> Mapping[str, str]:
    """Return the category of each tool of a server."""
    server_category = _normalize_category(entry.category) or _get_tag_category(entry.tags)
    configured = {
        name: key
        for name in entry.tools
        if (key := _get_configured_category(name, entry.categories))
    }
    if server_category or len(configured) == len(entry.tools):
        return {name: configured.get(name, server_category) for name in entry.tools}
    names = sorted(entry.tools)
    texts = [(name, entry.tools[name].title, entry.tools[name].description) for name in names]
    classified = classify_tools(
        load_shipped_weights(), entry.name, compose_introduction(entry), texts
    )
    return {**dict(zip(names, classified, strict=True)), **configured}


def find_main_category(entry: ServerEntry, assigned: Mapping[str, str]) -> str:
    """Return the category of most tools of a server; empty for a server without tools."""
    return find_most_common(Counter(assigned[name] for name in entry.tools))


def collect_classification_inputs(entry: ServerEntry) -> tuple[str, ...]:
    """Return every input to classification except tool texts, for hashes."""
    overrides = (part for override in entry.categories.items() for part in override)
    return (VERSION, compose_introduction(entry), entry.category, *overrides)


def to_category(key: str) -> Category:
    """Return a built-in category, or a custom one with a title derived from its key."""
    return _BY_KEY.get(key) or Category(key, key.replace("-", " ").capitalize(), "")


def resolve_category(name: str, known_keys: Iterable[str]) -> str:
    """Return the known category that a name means, by key, title or synonym.

    Raises UnknownName with the nearest.
    """
    keys = list(known_keys)
    if name in keys:
        return name
    folded = fold(name)
    by_name = {
        **{fold(to_category(key).title): key for key in keys},
        **{fold(key): key for key in keys},
    }
    if folded and (found := by_name.get(folded)):
        return found
    if (synonym := _BY_SYNONYM.get(folded)) and synonym in keys:
        return synonym
    near = find_nearest_names(name.strip(), keys)
    if near:
        advice = f"Did you mean {', '.join(near)}?"
    else:
        advice = f"Categories here: {', '.join(sorted(keys)[:_MAX_SUGGESTED])}."
    raise UnknownName(f"there is no category {quote_text(name)} here", nearest=near, advice=advice)


def compose_introduction(entry: ServerEntry) -> str:
    """Return the config's title and description of a server, then the server's own introduction."""
    own = ""
    if info := entry.initialize_info:
        own = extract_introduction(
            {"serverInfo": info.server_info, "instructions": info.instructions}
        )
    return " ".join(filter(None, (entry.title, entry.description, own)))[:MAX_INTRODUCTION]


def extract_introduction(initialize_result: Mapping[str, Any]) -> str:
    """Return the names, description and instructions from an `initialize` result."""
    info = initialize_result.get("serverInfo")
    if isinstance(info, Mapping):
        parts = [info.get(key) for key in ("name", "title", "description")]
    else:
        parts = []
    parts.append(initialize_result.get("instructions"))
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _get_configured_category(tool: str, moves: Mapping[str, str]) -> str:
    """Return a tool's configured category: exact name first, then patterns in order."""
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
    """Normalize a configured category: a built-in one by key or title, else a slug."""
    return _BY_NAME.get(fold(name)) or _to_slug(name)


def _get_tag_category(tags: Sequence[str]) -> str:
    """Return the first tag that names a built-in category, else the first tag."""
    built_in = (_BY_SYNONYM.get(fold(tag)) for tag in tags)
    return next(filter(None, built_in), "") or next(filter(None, map(_to_slug, tags)), "")


def _to_slug(name: str) -> str:
    return (
        _NOT_SLUG.sub("-", sanitize_text(name).strip().casefold()).strip("-")[:MAX_KEY].rstrip("-")
    )
