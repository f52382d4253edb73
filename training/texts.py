"""Ragged arrays of token numbers: how tokenised texts travel from preparation to training."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ragged:
    """Texts as token numbers, one after the other; text `n` ends before `ends[n]`."""

    tokens: NDArray[np.uint16]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[list[int]]) -> "Ragged":
        """Join the texts."""
        kept = list(texts)
        tokens = np.fromiter((token for text in kept for token in text), dtype=np.uint16)
        return cls(tokens, np.cumsum([len(text) for text in kept], dtype=np.int64))

    @classmethod
    def joined(cls, parts: Iterable["Ragged"]) -> "Ragged":
        """The texts of all parts, in order."""
        kept = [part for part in parts if len(part)] or [cls.of([])]
        before = np.cumsum([0, *(len(part.tokens) for part in kept[:-1])], dtype=np.int64)
        ends = [part.ends + start for part, start in zip(kept, before, strict=True)]
        return cls(np.concatenate([part.tokens for part in kept]), np.concatenate(ends))

    @classmethod
    def read(cls, stored: Mapping[str, NDArray[np.generic]], name: str) -> "Ragged":
        """The texts stored under a name."""
        return cls(
            np.asarray(stored[f"{name}.tokens"], dtype=np.uint16),
            np.asarray(stored[f"{name}.ends"], dtype=np.int64),
        )

    def columns(self, name: str) -> dict[str, NDArray[np.generic]]:
        """Return what `read` reads."""
        return {f"{name}.tokens": self.tokens, f"{name}.ends": self.ends}

    def __len__(self) -> int:
        return len(self.ends)
