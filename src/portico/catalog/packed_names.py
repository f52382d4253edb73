"""Names without case and punctuation, thousands of them as one text: small, soon made, searched by
line. Pure."""

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
    """A name as it is shown, with case, separators and punctuation taken away."""
    return _NOT_ALNUM.sub("", sanitize_text(name)).lower()


@dataclass(frozen=True, slots=True)
class PackedNames:
    """Texts by position. One string holds them all: a table of a hundred thousand would be thirty
    times as large."""

    text: str
    """Every line begins after a line end and ends before one."""

    @classmethod
    def pack(cls, names: Sequence[str]) -> "PackedNames":
        """These texts; one that is no single line is left blank."""
        return cls("\n".join(["", *("" if "\n" in text else text for text in names), ""]))

    @classmethod
    def pack_folded(cls, names: Sequence[str]) -> "PackedNames":
        """These names, folded."""
        # What begins with an escape may be a sequence that is not shown, letters and all.
        odd = {
            place: fold(name)
            for place, name in enumerate(names)
            if not name.isascii() or "\x1b" in name or "\n" in name
        }
        if odd:
            plain = [name if place not in odd else "" for place, name in enumerate(names)]
        else:
            plain = names
        # Some at a time: while they are translated, no other thread runs.
        pieces = (
            plain[start : start + _FOLD_BATCH]
            for start in range(0, max(1, len(plain)), _FOLD_BATCH)
        )
        lines = [
            line for piece in pieces for line in "\n".join(piece).translate(_ASCII).split("\n")
        ]
        for place, line in odd.items():
            lines[place] = line
        return cls("\n".join(["", *lines, ""]))

    def find_positions(self, line: str) -> Iterator[int]:
        """Where the line stands; a blank one stands nowhere."""
        sought = f"\n{line}\n"
        place = 0
        counted = 0
        if line and "\n" not in line:
            at = self.text.find(sought)
        else:
            at = -1
        while at >= 0:
            place += self.text.count("\n", counted, at)
            counted = at
            yield place
            at = self.text.find(sought, at + 1)

    def unpack(self) -> list[str]:
        """Each line."""
        return self.text[1:-1].split("\n")
