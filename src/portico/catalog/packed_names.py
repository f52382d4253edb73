"""Packs thousands of folded names into one string that is searched by line. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from portico.catalog.visible_text import sanitize_text

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
        """Pack names after folding them."""
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
        """Return every line."""
        return self.text[1:-1].split("\n")
