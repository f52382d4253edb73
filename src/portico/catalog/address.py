"""Tool addresses (`server.tool`), script identifiers, flat names and lenient name resolution. Pure.

A server name is a config key without a dot, so the first dot splits an address. Every place that
takes a name also accepts the identifier form, `::`, `:`, `/` and `__` as separators, a client's
`mcp__` prefix, different case, and a bare tool name while it is unique.
"""

import hashlib
import keyword
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from portico.catalog.tool import quote_text, sanitize_text
from portico.errors import UnknownName
from portico.lazy_attribute import lazy_property

_FOLD_BATCH = 1_000
_NOT_ALNUM = re.compile(r"[\W_]+")
_ASCII = {
    code: chr(code).lower() if chr(code).isalnum() or chr(code) == "\n" else None
    for code in range(128)
}


def fold(name: str) -> str:
    """Return a name as shown, lower-cased and without separators and punctuation."""
    return _NOT_ALNUM.sub("", sanitize_text(name)).lower()


@dataclass(frozen=True, slots=True)
class PackedNames:
    """Texts by position in one string; a large dict would take thirty times the memory."""

    text: str
    """Every line follows a line break and is followed by one."""

    @classmethod
    def pack(cls, names: Sequence[str]) -> "PackedNames":
        """Pack texts; one with a line break is left blank."""
        return cls("\n".join(["", *("" if "\n" in text else text for text in names), ""]))

    @classmethod
    def pack_folded(cls, names: Sequence[str]) -> "PackedNames":
        # Escape sequences are not shown, including their letters, so these need the full `fold`.
        special = {
            position: fold(name)
            for position, name in enumerate(names)
            if not name.isascii() or "\x1b" in name or "\n" in name
        }
        plain = names
        if special:
            plain = ["" if position in special else name for position, name in enumerate(names)]
        # In batches, because translation holds the GIL.
        batches = (
            plain[start : start + _FOLD_BATCH]
            for start in range(0, max(1, len(plain)), _FOLD_BATCH)
        )
        lines = [
            line for batch in batches for line in "\n".join(batch).translate(_ASCII).split("\n")
        ]
        for position, line in special.items():
            lines[position] = line
        return cls("\n".join(["", *lines, ""]))

    def find_positions(self, line: str) -> Iterator[int]:
        """Yield the positions of a line; a blank line has none."""
        needle = f"\n{line}\n"
        position = 0
        counted = 0
        at = self.text.find(needle) if line and "\n" not in line else -1
        while at >= 0:
            position += self.text.count("\n", counted, at)
            counted = at
            yield position
            at = self.text.find(needle, at + 1)

    def unpack(self) -> list[str]:
        return self.text[1:-1].split("\n")


FLAT_NAME_CHARS = 64
MAX_NAME_CHARS = 512
"""Longer text is not a name, and no suggestions are made for it."""
MAX_GUESSES = 3
MAX_COMPARED = 20_000
"""Maximum number of names compared with an unknown one; takes about 10 ms."""
_COMPARE_BATCH = 1_000
_SEPARATORS = (".", "::", ":", "/", "__")
_CLIENT_PREFIXES = tuple(
    re.compile(prefix, re.IGNORECASE)
    for prefix in (r"mcp__?portico__?", r"portico(?:__|::|[:/.])", r"mcp__", r"mcp__.+?__")
)

_NOT_WORD = re.compile(r"[^A-Za-z0-9_]")
_NOT_FLAT = re.compile(r"[^A-Za-z0-9_-]")
_LUA = (
    "and break do else elseif end false for function goto if in local nil not or repeat return"
    " then true until while"
)
_JAVASCRIPT = (
    "await break case catch class const continue debugger default delete do else enum export"
    " extends false finally for function if implements import in instanceof interface let new null"
    " package private protected public return static super switch this throw true try typeof"
    " undefined var void while with yield"
)
SCRIPT_BUILTINS = frozenset(
    {"result", "store", "load", "print", "search_tools", "describe_tools", "call_tool"}
)
"""Built-in functions of scripts; a server must not shadow them."""
RESERVED_WORDS = frozenset(
    {*keyword.kwlist, *keyword.softkwlist, *_LUA.split(), *_JAVASCRIPT.split()}
)


def to_identifier(name: str) -> str:
    """Convert a name to an identifier that is legal in every script language.

    `data-server` becomes `data_server`, `while` becomes `_while`.
    """
    word = _NOT_WORD.sub("_", name) or "_"
    return f"_{word}" if word[0].isdigit() or word in RESERVED_WORDS else word


def is_identifier(name: str) -> bool:
    """Return whether a name already is a legal identifier in every script language."""
    return name.isascii() and name.isidentifier() and name not in RESERVED_WORDS


def assign_identifiers(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Map collision-free identifiers to names, independent of input order.

    `reserved` are words that must not be used.
    """
    unique_names = set(names)
    words = sorted(name for name in unique_names if is_identifier(name))
    taken = {word: word for word in words if word not in reserved}
    for name in (
        *(word for word in words if word in reserved),
        *sorted(unique_names.difference(words)),
    ):
        word = to_identifier(name)
        if word in reserved:
            word = f"_{word}"
        while word in taken:
            word = f"{word}_{_hash_name(name)}"
        taken[word] = name
    return taken


def find_identifier(name: str, identifiers: Mapping[str, str]) -> str:
    """Return the identifier of a name, as `assign_identifiers` assigned it."""
    identifier = to_identifier(name)
    if identifiers.get(identifier) == name:
        return identifier
    return next(identifier for identifier, owner in identifiers.items() if owner == name)


def make_flat_name(server: str, tool: str) -> str:
    """Return `server__tool` in up to 64 characters of `[A-Za-z0-9_-]`, hashed if changed."""
    name = f"{server}__{tool}"
    legal = _NOT_FLAT.sub("_", name)
    if legal == name and len(name) <= FLAT_NAME_CHARS:
        return name
    return _append_hash(legal, name)


def assign_flat_names(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Map collision-free flat names to (server, name) pairs.

    `a` with `b__c` and `a__b` with `c` are two different tools.
    """
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
    """Return up to `limit` known names most similar to an unknown one."""
    known = list(islice(names, MAX_COMPARED))
    if not known:
        return ()
    folded = PackedNames.pack_folded([candidate[:MAX_NAME_CHARS] for candidate in known])
    return _rank_nearest([(name, folded.unpack(), 1.0)], known, limit)


def _rank_nearest(
    guesses: Iterable[tuple[str, Sequence[str], float]], names: Sequence[str], limit: int
) -> tuple[str, ...]:
    """Return the most similar names over several guesses.

    A guess is the text as written, every name folded for comparison, and a weight.
    """
    from rapidfuzz import fuzz, process  # imported late: only an unknown name needs it

    likeness: dict[str, float] = {}
    for text, folded, weight in guesses:
        folded_text = fold(text[:MAX_NAME_CHARS])
        found: list[tuple[float, int]] = []
        # In batches, because the comparison holds the GIL.
        for start in range(0, len(folded) if folded_text else 0, _COMPARE_BATCH):
            batch = folded[start : start + _COMPARE_BATCH]
            best = process.extract(
                folded_text, batch, scorer=fuzz.ratio, limit=4 * limit, score_cutoff=60
            )
            found += ((-points, start + position) for _, points, position in best)
        for points, position in sorted(found)[: 4 * limit]:
            known = names[position]
            likeness[known] = max(likeness.get(known, 0.0), -points * weight)
    return tuple(sorted(likeness, key=lambda known: (-likeness[known], known))[:limit])


@dataclass(frozen=True)
class AddressResolver:
    addresses: Mapping[str, object]
    """Every known `server.tool`."""

    def resolve(self, name: str) -> str:
        """Return the only address that `name` can mean.

        Raises UnknownName with the nearest names if there is none or more than one.
        """
        candidates = self.find(name)
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            shown = candidates[:8]
            ellipsis = " …" if len(candidates) > 8 else ""
            raise UnknownName(
                f"{quote_text(name)} can mean {len(candidates)} tools",
                nearest=shown,
                advice=f"Say which one: {', '.join(map(sanitize_text, shown))}{ellipsis}",
            )
        near = self._find_nearest(name) if len(name) <= MAX_NAME_CHARS else ()
        advice = "Use search_tools to find one."
        if near:
            advice = f"Did you mean {', '.join(map(sanitize_text, near))}?"
        raise UnknownName(f"there is no tool {quote_text(name)} here", nearest=near, advice=advice)

    def find(self, name: str) -> tuple[str, ...]:
        """Return every address that `name` can mean."""
        if name in self.addresses:
            return (name,)
        return self._interpret(name.strip()) if len(name) <= MAX_NAME_CHARS else ()

    def _find_nearest(self, name: str) -> tuple[str, ...]:
        addresses = self._folded_addresses.unpack()
        tools = self._folded_tool_names.unpack()
        # The right tool name under a wrong server ranks below a nearly correct spelling.
        parts = [(tool, tools, 0.9) for _, tool in split_name(name)][:MAX_GUESSES]
        return _rank_nearest(
            [(name, addresses, 1.0), *(parts or [(name, tools, 1.0)])], self._names, 5
        )

    def _interpret(self, name: str) -> tuple[str, ...]:
        """Return the addresses of the first interpretation with a match, the most literal first."""
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
        found = (self._names[position] for position in packed.find_positions(line))
        # A tool name without letters or digits folds to nothing and must match literally.
        return (
            address
            for address in found
            if packed is not self._folded_addresses or fold(address.partition(".")[2])
        )

    def _find_in_server(self, server: str, tool: str) -> Iterator[str]:
        """Return the addresses of a tool name within the servers of a name, both folded."""
        named = self._folded_servers.get(server, ()) if tool else ()
        places = self._folded_tool_names.find_positions(tool) if named else ()
        found = (self._names[position] for position in places)
        return (address for address in found if address.partition(".")[0] in named)

    def _find_by_identifiers(self, server: str, tool: str) -> str:
        """Return the address with these script identifiers, or an empty string."""
        name = self._server_identifiers.get(server)
        if name is None:
            return ""
        if name not in self._tool_identifiers:
            self._tool_identifiers[name] = assign_identifiers(self._list_tools(name))
        found = self._tool_identifiers[name].get(tool)
        return "" if found is None else f"{name}.{found}"

    def _list_tools(self, server: str) -> list[str]:
        prefix = f"{server}."
        return [address[len(prefix) :] for address in self._names if address.startswith(prefix)]

    @lazy_property
    def _tool_identifiers(self) -> dict[str, dict[str, str]]:
        """Tools by identifier, per server; filled when a server is first looked up."""
        return {}

    @lazy_property
    def _names(self) -> list[str]:
        return list(self.addresses)

    @lazy_property
    def _server_identifiers(self) -> dict[str, str]:
        return assign_identifiers(address.partition(".")[0] for address in self._names)

    @lazy_property
    def _folded_servers(self) -> dict[str, list[str]]:
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
    """Yield every way to split a name into server and tool."""
    for separator in _SEPARATORS if len(name) <= MAX_NAME_CHARS else ():
        at = name.find(separator)
        while at >= 0:
            server = name[:at]
            tool = name[at + len(separator) :]
            if server and tool:
                yield server, tool
            at = name.find(separator, at + 1)


def _strip_client_prefixes(name: str) -> Iterator[str]:
    """Yield the name, then the name without each prefix that clients put before tools."""
    yield name
    for prefix in _CLIENT_PREFIXES:
        if found := prefix.match(name):
            yield name[found.end() :]
