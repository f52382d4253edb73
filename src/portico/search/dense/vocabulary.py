"""Looks up the encoder's vocabulary in its text; a dict would take ten times the memory."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from io import BytesIO

import numpy as np


class Vocabulary(Mapping[str, int]):
    """Word pieces mapped to their number: the line in the text, from 0."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._starts = array("I", [0])
        hashes = array("q")
        # Line by line: all lines at once would take as much memory as a dict.
        for line in BytesIO(text):
            self._starts.append(self._starts[-1] + len(line))
            hashes.append(hash(_decode_line(line)))
        order = np.argsort(np.frombuffer(hashes, np.int64), kind="stable")
        self._hashes = array("q", np.frombuffer(hashes, np.int64)[order].tobytes())
        self._numbers = array("I", order.astype(np.uint32).tobytes())

    def __getitem__(self, piece: str) -> int:
        if (number := self._find(piece)) is None:
            raise KeyError(piece)
        return number

    def __contains__(self, piece: object) -> bool:
        return isinstance(piece, str) and self._find(piece) is not None

    def __iter__(self) -> Iterator[str]:
        return map(self._get_piece, range(len(self)))

    def __len__(self) -> int:
        return len(self._numbers)

    def _find(self, piece: str) -> int | None:
        hashed = hash(piece)
        at = bisect_left(self._hashes, hashed)
        while at < len(self._hashes) and self._hashes[at] == hashed:
            # Two texts may have the same hash.
            if self._get_piece(number := self._numbers[at]) == piece:
                return number
            at += 1
        return None

    def _get_piece(self, number: int) -> str:
        return _decode_line(self._text[self._starts[number] : self._starts[number + 1]])


def _decode_line(line: bytes) -> str:
    return line.decode().rstrip("\r\n")
