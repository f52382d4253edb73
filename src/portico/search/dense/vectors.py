"""One 8-bit vector per slot and its cosine similarity to a query.

A slot without a vector (not encoded yet) has a row of zeros. Immutable: `splice` returns a new one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.lazy_attribute import lazy_property
from portico.search.dense.encoder import QUANTISATION_PEAK, VECTOR_WIDTH, Vector
from portico.search.document_table import Mask

_UNIT = (127 / QUANTISATION_PEAK) ** 2
"""Dot product of two equal unit vectors in 8 bits."""
_BLOCK = 8_192


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors by slot."""

    rows: NDArray[np.int8]

    @classmethod
    def empty(cls) -> "Vectors":
        """Return vectors for no slots."""
        return cls(np.zeros((0, VECTOR_WIDTH), dtype=np.int8))

    @lazy_property
    def encoded_slots(self) -> Mask:
        """Mask of the slots that have a vector."""
        return np.asarray(self.rows.any(axis=1))

    def splice(
        self, size: int, removed_slots: NDArray[np.integer], added: Mapping[int, Vector]
    ) -> "Vectors":
        """Return vectors for `size` slots, without `removed_slots` and with `added`."""
        if size == len(self.rows) and not len(removed_slots) and not added:
            return self
        rows = np.zeros((size, VECTOR_WIDTH), dtype=np.int8)
        rows[: len(self.rows)] = self.rows
        rows[removed_slots] = 0
        for slot, vector in added.items():
            rows[slot] = vector
        return Vectors(rows)

    def compute_similarity(self, query: Vector) -> NDArray[np.float32]:
        """Return the cosine of each slot's vector and the query's; 0 where there is none."""
        if not len(self.rows):
            return np.zeros(0, dtype=np.float32)
        return _to_cosine(_multiply(query[None], self.rows)[0])

    def compute_pairwise_similarity(self, slots: Sequence[int]) -> NDArray[np.float32]:
        """Return the cosine of each pair of these slots."""
        rows = self.rows[list(slots)]
        if not len(rows):
            return np.zeros((0, 0), dtype=np.float32)
        return _to_cosine(_multiply(rows, rows))


def _to_cosine(products: NDArray[Any]) -> NDArray[np.float32]:
    return (products / np.float32(_UNIT)).astype(np.float32, copy=False)


def _multiply(some: NDArray[np.int8], others: NDArray[np.int8]) -> NDArray[Any]:
    """Return all dot products; integers, so every implementation gives the same result."""
    return (_load_simsimd() or _multiply_with_numpy)(some, others)


def _multiply_with_numpy(some: NDArray[np.int8], others: NDArray[np.int8]) -> NDArray[np.float32]:
    """Multiply with numpy in cache-sized blocks; `@` would start BLAS threads."""
    wide = some.astype(np.float32)
    starts = range(0, len(others), _BLOCK)
    blocks = [
        np.einsum("ik,jk->ij", wide, others[at : at + _BLOCK].astype(np.float32)) for at in starts
    ]
    return np.concatenate(blocks, axis=1)


@cache
def _load_simsimd() -> Callable[[NDArray[np.int8], NDArray[np.int8]], NDArray[Any]] | None:
    """Return simsimd's implementation, ten times as fast, or None where it is not available."""
    try:
        import simsimd
    except (ImportError, OSError):  # not installed, or not for this processor
        return None
    return lambda some, others: np.asarray(simsimd.cdist(some, others, metric="dot"))
