"""Names: `server.tool`, identifiers for scripts, flat names for the full exposure, and a forgiving
resolver. Pure.

The server is the key in the config and has no dot, so the first dot splits. Every place that takes
a name also takes the identifier form, `::`, `:`, `/` and `__` as separators, a client's `mcp__`
prefix, another case, and a bare tool name while it is unique.
"""

import hashlib
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from portico.catalog.packed_names import PackedNames, fold
from portico.catalog.visible_text import quote_text, sanitize_text
from portico.errors import UnknownName
from portico.lazy import lazy_property

FLAT_NAME_CHARS = 64
MAX_NAME_CHARS = 512
"""Longer text is no name, and nothing is guessed about it."""
MAX_GUESSES = 3
MAX_COMPARED = 20_000
"""Names that a wrong one is compared with: some 10 ms."""
_COMPARE_BATCH = 1_000
_SEPARATORS = (".", "::", ":", "/", "__")
_CLIENT_PREFIXES = tuple(
    re.compile(prefix, re.IGNORECASE)
    for prefix in (r"mcp__?portico__?", r"portico(?:__|::|[:/.])", r"mcp__", r"mcp__.+?__")
)

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")
_NOT_FLAT = re.compile(r"[^A-Za-z0-9_-]")
_LUA = "and break do else elseif end false for function goto if in local nil not or repeat return then true until while"
_JAVASCRIPT = (
    "await break case catch class const continue debugger default delete do else enum export extends false finally for"
    " function if implements import in instanceof interface let new null package private protected public return static"
    " super switch this throw true try typeof undefined var void while with yield"
)
SCRIPT_BUILTINS = frozenset(
    {"result", "store", "load", "print", "search_tools", "describe_tools", "call_tool"}
)
"""What scripts find of ours: no server goes by these names there."""
RESERVED_WORDS = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, *_LUA.split(), *_JAVASCRIPT.split()}
)


def to_identifier(name: str) -> str:
    """A name as a legal identifier in every script language: `data-server` → `data_server`, `while`
    → `_while`."""
    word = _NOT_WORD.sub("_", name) or "_"
    if word[0].isdigit() or word in RESERVED_WORDS:
        return f"_{word}"
    return word


def is_identifier(name: str) -> bool:
    """Whether a name is one already."""
    return name.isascii() and name.isidentifier() and name not in RESERVED_WORDS


def assign_identifiers(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Identifier → name, collision-free and independent of the order given; `ours` are words that
    are taken."""
    every = set(names)
    words = sorted(name for name in every if is_identifier(name))
    taken = {word: word for word in words if word not in reserved}
    for name in (*(word for word in words if word in reserved), *sorted(every.difference(words))):
        word = to_identifier(name)
        if word in reserved:
            word = f"_{word}"
        else:
            word = word
        while word in taken:
            word = f"{word}_{_hash_name(name)}"
        taken[word] = name
    return taken


def make_flat_name(server: str, tool: str) -> str:
    """`server__tool` in at most 64 characters of `[A-Za-z0-9_-]`; what does not fit ends in a hash."""
    name = f"{server}__{tool}"
    legal = _NOT_FLAT.sub("_", name)
    if legal == name and len(name) <= FLAT_NAME_CHARS:
        return name
    return _append_hash(legal, name)


def assign_flat_names(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Flat name → server and name, collision-free: `a` with `b__c` and `a__b` with `c` are two
    tools."""
    taken: dict[str, tuple[str, str]] = {}
    for server, name in pairs:
        flat = make_flat_name(server, name)
        salt = f"{server}.{name}"
        while flat in taken:
            flat = _append_hash(flat, salt)
            salt += "."
        taken[flat] = (server, name)
    return taken


def _append_hash(legal: str, name: str) -> str:
    suffix = f"_{_hash_name(name)}"
    return legal[: FLAT_NAME_CHARS - len(suffix)] + suffix


def _hash_name(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=4).hexdigest()


def find_nearest_names(name: str, names: Iterable[str], limit: int = 5) -> tuple[str, ...]:
    """The names most like a wrong one."""
    known = list(islice(names, MAX_COMPARED))
    if known:
        folded = PackedNames.pack_folded([each[:MAX_NAME_CHARS] for each in known]).unpack()
    else:
        folded = []
    return _rank_nearest([(name, folded, 1.0)], known, limit)


def _rank_nearest(
    guesses: Iterable[tuple[str, Sequence[str], float]], names: Sequence[str], limit: int
) -> tuple[str, ...]:
    """The best over several guesses: what was written, every name folded for comparison, and how
    much that counts."""
    from rapidfuzz import fuzz, process  # only a wrong name needs it

    likeness: dict[str, float] = {}
    for written, folded, weight in guesses:
        wrong = fold(written[:MAX_NAME_CHARS])
        found: list[tuple[float, int]] = []
        # Some at a time: while they are compared, no other thread runs.
        for start in range(0, len(folded) if wrong else 0, _COMPARE_BATCH):
            some = folded[start : start + _COMPARE_BATCH]
            best = process.extract(wrong, some, scorer=fuzz.ratio, limit=4 * limit, score_cutoff=60)
            found += ((-points, start + place) for _, points, place in best)
        for points, place in sorted(found)[: 4 * limit]:
            known = names[place]
            likeness[known] = max(likeness.get(known, 0.0), -points * weight)
    return tuple(sorted(likeness, key=lambda known: (-likeness[known], known))[:limit])


@dataclass(frozen=True)
class AddressResolver:
    """Finds the address a name means."""

    addresses: Mapping[str, object]
    """Every `server.tool` there is."""

    def resolve(self, name: str) -> str:
        """The one address `name` means; raises UnknownName with the nearest."""
        several = self.find(name)
        if len(several) == 1:
            return several[0]
        if several:
            raise UnknownName(
                f"{quote_text(name)} can mean {len(several)} tools",
                nearest=several[:8],
                advice="Say which one: "
                + ", ".join(map(sanitize_text, several[:8]))
                + (" …" if len(several) > 8 else ""),
            )
        if len(name) <= MAX_NAME_CHARS:
            near = self._find_nearest(name)
        else:
            near = ()
        raise UnknownName(
            f"there is no tool {quote_text(name)} here",
            nearest=near,
            advice=f"Did you mean {', '.join(map(sanitize_text, near))}?"
            if near
            else "Use search_tools to find one.",
        )

    def find(self, name: str) -> tuple[str, ...]:
        """Every address that `name` can mean."""
        if name in self.addresses:
            return (name,)
        if len(name) <= MAX_NAME_CHARS:
            return self._interpret(name.strip())
        return ()

    def _find_nearest(self, name: str) -> tuple[str, ...]:
        wholes = self._folded_addresses.unpack()
        tools = self._folded_tool_names.unpack()
        # The right tool of a wrong server is worth less than a tool that is nearly spelt so.
        parts = [(tool, tools, 0.9) for _, tool in split_name(name)][:MAX_GUESSES]
        return _rank_nearest(
            [(name, wholes, 1.0), *(parts or [(name, tools, 1.0)])], self._names, 5
        )

    def _interpret(self, name: str) -> tuple[str, ...]:
        """What a name can mean: the first reading that finds anything, the most literal first."""
        spellings = tuple(_strip_client_prefixes(name))
        pairs = [pair for spelling in spellings for pair in split_name(spelling)]
        literal = (f"{server}.{tool}" for server, tool in pairs)
        identified = (self._find_by_identifiers(server, tool) for server, tool in pairs)
        for address in chain(literal, identified):
            if address in self.addresses:
                return (address,)
        readings = chain(
            (self._find_in_server(fold(server), fold(tool)) for server, tool in pairs),
            (self._find_line(self._folded_addresses, fold(spelling)) for spelling in spellings),
            (self._find_line(self._tool_names, spelling) for spelling in spellings),
            (self._find_line(self._folded_tool_names, fold(spelling)) for spelling in spellings),
        )
        return next((tuple(sorted(meant)) for reading in readings if (meant := list(reading))), ())

    def _find_line(self, packed: PackedNames, line: str) -> Iterator[str]:
        """The addresses in whose places the line stands."""
        found = (self._names[place] for place in packed.find_positions(line))
        # A tool whose name has no letter is found by that name only, not by its server's.
        return (
            address
            for address in found
            if packed is not self._folded_addresses or fold(address.partition(".")[2])
        )

    def _find_in_server(self, server: str, tool: str) -> Iterator[str]:
        """The addresses of a tool in the servers of a name, both folded."""
        if tool:
            named = self._folded_servers.get(server, ())
        else:
            named = ()
        if named:
            places = self._folded_tool_names.find_positions(tool)
        else:
            places = ()
        found = (self._names[place] for place in places)
        return (address for address in found if address.partition(".")[0] in named)

    def _find_by_identifiers(self, server: str, tool: str) -> str:
        """The address that scripts know by these identifiers; empty if there is none."""
        name = self._server_identifiers.get(server)
        if name is None:
            return ""
        if name not in self._tool_identifiers:
            self._tool_identifiers[name] = assign_identifiers(self._list_tools(name))
        found = self._tool_identifiers[name].get(tool)
        if found is not None:
            return f"{name}.{found}"
        return ""

    def _list_tools(self, server: str) -> list[str]:
        start = f"{server}."
        return [address[len(start) :] for address in self._names if address.startswith(start)]

    @lazy_property
    def _tool_identifiers(self) -> dict[str, dict[str, str]]:
        """The tools of a server by their identifiers, for servers that were asked for by these."""
        return {}

    @lazy_property
    def _names(self) -> list[str]:
        return list(self.addresses)

    @lazy_property
    def _server_identifiers(self) -> dict[str, str]:
        return assign_identifiers(address.partition(".")[0] for address in self._names)

    @lazy_property
    def _folded_servers(self) -> dict[str, list[str]]:
        """The servers by their folded names."""
        found: dict[str, list[str]] = {}
        for server in self._server_identifiers.values():
            found.setdefault(fold(server), []).append(server)
        return found

    @lazy_property
    def _folded_addresses(self) -> PackedNames:
        return PackedNames.pack_folded(self._names)

    @lazy_property
    def _tool_names(self) -> PackedNames:
        return PackedNames.pack([address.partition(".")[2] for address in self._names])

    @lazy_property
    def _folded_tool_names(self) -> PackedNames:
        return PackedNames.pack_folded([address.partition(".")[2] for address in self._names])


def split_name(name: str) -> Iterator[tuple[str, str]]:
    """Every way to read a name as server and tool."""
    for separator in _SEPARATORS if len(name) <= MAX_NAME_CHARS else ():
        at = name.find(separator)
        while at >= 0:
            server = name[:at]
            tool = name[at + len(separator) :]
            if server and tool:
                yield server, tool
            at = name.find(separator, at + 1)


def _strip_client_prefixes(name: str) -> Iterator[str]:
    """A name, and what is left of it without what clients put in front of a gateway's tools."""
    yield name
    for prefix in _CLIENT_PREFIXES:
        if found := prefix.match(name):
            yield name[found.end() :]
