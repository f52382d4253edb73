"""Which category each tool is in: what the config says, else what the server's tags say, else what the words say. Pure.

Nothing depends on the order of the tools, nor on anything outside the server.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from portico.catalog.address import fold, nearest
from portico.catalog.classifier import MAX_INTRODUCTION, shipped, sorted_by_words
from portico.catalog.snapshot import ServerEntry, most_common
from portico.catalog.taxonomy import SYNONYMS, TAXONOMY, VERSION, Category
from portico.catalog.visible import quoted, shown
from portico.errors import UnknownName

__all__ = ["TAXONOMY", "VERSION", "Category", "assign", "category_of", "main_category", "resolve", "rules"]

MAX_KEY = 40
_NAMED = 40
"""Categories that are named where none is near."""

_BY_KEY = {category.key: category for category in TAXONOMY}
_BY_NAME = {fold(name): category.key for category in TAXONOMY for name in (category.key, category.title)}
_BY_SYNONYM = {**{fold(name): key for name, key in SYNONYMS.items()}, **_BY_NAME}
_NOT_SLUG = re.compile(r"[^\w]+|_+")


def assign(entry: ServerEntry) -> Mapping[str, str]:
    """The category of each tool of a server."""
    whole = _named(entry.category) or _tagged(entry.tags)
    moved = {name: key for name in entry.tools if (key := _moved(name, entry.categories))}
    if whole or len(moved) == len(entry.tools):
        return {name: moved.get(name, whole) for name in entry.tools}
    names = sorted(entry.tools)
    texts = [(name, entry.tools[name].title, entry.tools[name].description) for name in names]
    kinds = sorted_by_words(shipped(), entry.name, introduction(entry), texts)
    return {**dict(zip(names, kinds, strict=True)), **moved}


def main_category(entry: ServerEntry, assigned: Mapping[str, str]) -> str:
    """The category most of a server's tools are in; empty for a server without tools."""
    return most_common(Counter(assigned[name] for name in entry.tools))


def rules(entry: ServerEntry) -> tuple[str, ...]:
    """Everything but the texts of tools that the categories of a server follow from, for hashes."""
    moves = (part for move in entry.categories.items() for part in move)
    return (VERSION, introduction(entry), entry.category, *moves)


def category_of(key: str) -> Category:
    """One of ours, or the user's own with a title made from its key."""
    return _BY_KEY.get(key) or Category(key, key.replace("-", " ").capitalize(), "")


def resolve(name: str, known: Iterable[str]) -> str:
    """The known category a name means, by key, title or synonym; raises UnknownName with the nearest."""
    keys = list(known)
    if name in keys:
        return name
    folded = fold(name)
    here = {**{fold(category_of(key).title): key for key in keys}, **{fold(key): key for key in keys}}
    if folded and (found := here.get(folded)):
        return found
    if (ours := _BY_SYNONYM.get(folded)) and ours in keys:
        return ours
    near = nearest(name.strip(), keys)
    raise UnknownName(
        f"there is no category {quoted(name)} here",
        nearest=near,
        advice=f"Did you mean {', '.join(near)}?" if near else f"Categories here: {', '.join(sorted(keys)[:_NAMED])}.",
    )


def introduction(entry: ServerEntry) -> str:
    """How a server presents itself, beside its name: what the config says of it, then what it says itself."""
    said = entry.hello
    own = introduction_of({"serverInfo": said.server_info, "instructions": said.instructions}) if said else ""
    return " ".join(filter(None, (entry.title, entry.description, own)))[:MAX_INTRODUCTION]


def introduction_of(hello: Mapping[str, Any]) -> str:
    """How a server presents itself in its answer to `initialize`."""
    info = hello.get("serverInfo")
    parts = [info.get(key) for key in ("name", "title", "description")] if isinstance(info, Mapping) else []
    parts.append(hello.get("instructions"))
    return " ".join(part for part in parts if isinstance(part, str) and part)


def _moved(tool: str, moves: Mapping[str, str]) -> str:
    """What the config says of one tool: its name before any pattern, patterns in their order."""
    if tool in moves:
        return _named(moves[tool])
    return next((_named(name) for pattern, name in moves.items() if fnmatchcase(tool, pattern)), "")


def _named(name: str) -> str:
    """A category from the config: one of ours by key or title, else the user's own."""
    return _BY_NAME.get(fold(name)) or _slug(name)


def _tagged(tags: Sequence[str]) -> str:
    """The first tag that means one of our categories, else the first tag."""
    ours = (_BY_SYNONYM.get(fold(tag)) for tag in tags)
    return next(filter(None, ours), "") or next(filter(None, map(_slug, tags)), "")


def _slug(name: str) -> str:
    return _NOT_SLUG.sub("-", shown(name).strip().casefold()).strip("-")[:MAX_KEY].rstrip("-")
