"""Names: `server.tool`, identifiers for scripts, flat names for the full exposure, and a forgiving resolver. Pure.

The server is the key in the config and has no dot, so the first dot splits. Every place that takes a name also takes
the identifier form, `::`, `:`, `/` and `__` as separators, a client's `mcp__` prefix, another case, and a bare tool
name while it is unique.
"""

import hashlib
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from portico.errors import UnknownName

FLAT_NAME_CHARS = 64

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")
_NOT_FLAT = re.compile(r"[^A-Za-z0-9_-]")
_NOT_ALNUM = re.compile(r"[\W_]+")
_LUA = "and break do else elseif end false for function goto if in local nil not or repeat return then true until while"
_JAVASCRIPT = (
    "await break case catch class const continue debugger default delete do else enum export extends false finally for"
    " function if implements import in instanceof interface let new null package private protected public return static"
    " super switch this throw true try typeof undefined var void while with yield"
)
RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, *_LUA.split(), *_JAVASCRIPT.split()})


def identifier(name: str) -> str:
    """A name as a legal identifier in every script language: `data-server` → `data_server`, `while` → `_while`."""
    word = _NOT_WORD.sub("_", name)
    return f"_{word}" if not word or word[0].isdigit() or word in RESERVED else word


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """Identifier → name, collision-free and independent of the order given."""
    taken: dict[str, str] = {}
    for name in sorted(set(names), key=lambda name: (identifier(name) != name, name)):
        word = identifier(name)
        taken[word if word not in taken else f"{word}_{_digest(name)}"] = name
    return taken


def flat_name(server: str, tool: str) -> str:
    """`server__tool` in at most 64 characters of `[A-Za-z0-9_-]`; what does not fit ends in a hash."""
    name = f"{server}__{tool}"
    legal = _NOT_FLAT.sub("_", name)
    if legal == name and len(name) <= FLAT_NAME_CHARS:
        return name
    suffix = f"_{_digest(name)}"
    return legal[: FLAT_NAME_CHARS - len(suffix)] + suffix


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()


def fold(name: str) -> str:
    """A name with case, separators and punctuation taken away."""
    return _NOT_ALNUM.sub("", name).lower()


@dataclass(frozen=True)
class Resolver:
    """Finds the address a name means."""

    addresses: Mapping[str, object]
    """Every `server.tool` there is."""

    def resolve(self, name: str) -> str:
        """The one address `name` means; raises UnknownName with the nearest."""
        if name in self.addresses:
            return name
        for candidate in _spellings(name.strip()):
            if candidate in self.addresses:
                return candidate
        folded = fold(name.removeprefix("mcp__").removeprefix("portico__"))
        whole = self._folded.get(folded, ())
        if len(whole) == 1:
            return whole[0]
        bare = self._exact_bare.get(name) or self._bare.get(folded, ())
        if len(bare) == 1:
            return bare[0]
        if several := whole or bare:
            raise UnknownName(
                f"{name!r} is offered by {len(several)} servers",
                nearest=tuple(several[:8]),
                advice="Say which one: " + ", ".join(several[:8]) + (" …" if len(several) > 8 else ""),
            )
        nearest = self.nearest(name)
        raise UnknownName(
            f"there is no tool {name!r} here",
            nearest=nearest,
            advice=f"Did you mean {', '.join(nearest)}?" if nearest else "Use search_tools to find one.",
        )

    def nearest(self, name: str, limit: int = 5) -> tuple[str, ...]:
        """The addresses most like a name."""
        from rapidfuzz import fuzz, process, utils  # only a wrong name needs it

        wanted = name if _splits(name) else f".{name}"
        found = process.extract(
            wanted,
            list(self.addresses),
            scorer=fuzz.WRatio,
            processor=utils.default_process,
            limit=limit,
            score_cutoff=60,
        )
        return tuple(address for address, _, _ in found)

    @cached_property
    def _folded(self) -> dict[str, tuple[str, ...]]:
        return _grouped((fold(address), address) for address in self.addresses)

    @cached_property
    def _bare(self) -> dict[str, tuple[str, ...]]:
        return _grouped((fold(address.partition(".")[2]), address) for address in self.addresses)

    @cached_property
    def _exact_bare(self) -> dict[str, tuple[str, ...]]:
        return _grouped((address.partition(".")[2], address) for address in self.addresses)


def _splits(name: str) -> bool:
    return any(separator in name for separator in ("::", ":", "/", "__", "."))


def _spellings(name: str) -> Iterable[str]:
    for separator in ("::", ":", "/", "__"):
        server, found, tool = name.partition(separator)
        if found:
            yield f"{server}.{tool}"


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return {key: tuple(sorted(values)) for key, values in grouped.items()}
