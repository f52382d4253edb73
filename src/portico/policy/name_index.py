"""An index of rules by how names begin or end, so that most rules need not be compared with a name.

Pure. A glob with literal text before its first wildcard, or after its last, is found by that text.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from portico.policy.patterns import WILDCARDS, AddressPattern, NamePattern


@dataclass(frozen=True)
class NameHints:
    """Texts one of which a name has to begin or end with; folded."""

    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


def find_hints(patterns: Sequence[AddressPattern | NamePattern]) -> NameHints | None:
    """Return the hints of alternative globs over names; None where some have none."""
    prefixes: list[str] = []
    suffixes: list[str] = []
    for pattern in patterns:
        glob = pattern.name_glob.lower()
        if not glob.isascii():
            return None
        wildcard = WILDCARDS.search(glob)
        prefix = glob if wildcard is None else glob[: wildcard.start()]
        suffix = glob.rpartition("*")[2]
        if prefix:
            prefixes.append(prefix)
        elif suffix and WILDCARDS.search(suffix) is None and "]" not in suffix:
            suffixes.append(suffix)
        else:
            return None
    return NameHints(tuple(prefixes), tuple(suffixes))


class NameIndex:
    """Which names may be concerned by any of the rules that have hints."""

    def __init__(self, hints: Iterable[NameHints]) -> None:
        prefixes: defaultdict[str, set[str]] = defaultdict(set)
        suffixes: defaultdict[str, set[str]] = defaultdict(set)
        for hint in hints:
            for prefix in hint.prefixes:
                prefixes[prefix[0]].add(prefix)
            for suffix in hint.suffixes:
                suffixes[suffix[-1]].add(suffix)
        self._prefixes = {letter: tuple(texts) for letter, texts in prefixes.items()}
        """By their first letter."""
        self._suffixes = {letter: tuple(texts) for letter, texts in suffixes.items()}
        """By their last letter."""

    def may_match(self, name: str) -> bool:
        """Return whether a name may be concerned; never False where a glob matches it."""
        # In a name with a dot a wildcard for the server may match more than the server. Other
        # letters than ASCII are equal in more ways than folding shows.
        if not name or "." in name or not name.isascii():
            return True
        folded = name.lower()
        prefixes = self._prefixes.get(folded[0])
        if prefixes is not None and folded.startswith(prefixes):
            return True
        suffixes = self._suffixes.get(folded[-1])
        return suffixes is not None and folded.endswith(suffixes)
