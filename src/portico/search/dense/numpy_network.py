"""The encoder's network in numpy: computes what the ONNX graph says, from the same file of weights.

Matrices stay in 8 bits and mapped from the file; a block of one at a time is widened for a product.
Activations are rounded to 8 bits as they come, as the network was trained to be run. numpy releases
the interpreter's lock in every product. Thread-safe.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

HEADS = 12
_EPSILON = 1e-12
_BLOCK_ROWS = 384
"""Rows of a matrix widened at a time; sums of so many 8-bit products are exact in 32-bit floats."""
_HALF_ROOT = np.float32(math.sqrt(0.5))
_ERF_SCALE = np.float32(0.3275911)
_ERF_TERMS = tuple(
    np.float32(term) for term in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
)
"""Abramowitz and Stegun 7.1.26: the error function to 1.5e-7."""


def map_tensors(
    path: Path, places: Mapping[str, tuple[str, list[int], int]]
) -> dict[str, NDArray[Any]]:
    """Return a file's tensors. `places` has the type, shape and first byte of each."""
    body = np.memmap(path, dtype=np.uint8, mode="r")
    tensors: dict[str, NDArray[Any]] = {}
    for name, (kind, shape, offset) in places.items():
        size = math.prod(shape) * np.dtype(kind).itemsize
        tensor = body[offset : offset + size].view(kind).reshape(shape)
        if kind != "int8":
            tensor = np.array(tensor)  # small, and aligned only as a copy
        tensors[name] = tensor
    return tensors


class NumpyNetwork:
    """A transformer over mapped 8-bit weights."""

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """See `map_tensors`."""
        self._tensors = tensors
        self._layer_count = sum(name.endswith(".up.weight") for name in tensors)

    def encode(self, ids: NDArray[np.int64]) -> Floats:
        """Return the unit vector of a text's tokens."""
        mean = self.compute_states(ids).mean(axis=0)
        return mean / np.linalg.norm(mean)

    def compute_states(
        self, ids: NDArray[np.int64], kinds: NDArray[np.int64] | None = None
    ) -> Floats:
        """Return the state of each token after the last layer."""
        tensors = self._tensors
        stream = tensors["tokens"][ids].astype(np.float32) * tensors["token_scales"][ids]
        stream += tensors["places"][: len(ids)]
        if kinds is not None:
            stream += tensors["kinds_table"][kinds]
        stream = self._normalise(stream, "norm")
        for number in range(self._layer_count):
            layer = f"layers.{number}"
            attended = self._multiply(self._attend(stream, layer), f"{layer}.o")
            attended += stream
            stream = self._normalise(attended, f"{layer}.norm1")
            raised = _compute_gelu(self._multiply(stream, f"{layer}.up"))
            lowered = self._multiply(raised, f"{layer}.down")
            lowered += stream
            stream = self._normalise(lowered, f"{layer}.norm2")
        return stream

    def _attend(self, stream: Floats, layer: str) -> Floats:
        joined = self._multiply(stream, f"{layer}.qkv")
        query, key, value = joined.reshape(len(stream), 3, HEADS, -1).transpose(1, 2, 0, 3)
        shares = query @ key.transpose(0, 2, 1)
        shares *= np.float32(query.shape[-1] ** -0.5)
        shares -= shares.max(axis=-1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=-1, keepdims=True)
        return (shares @ value).transpose(1, 0, 2).reshape(len(stream), -1)

    def _multiply(self, stream: Floats, name: str) -> Floats:
        """Return the product with a matrix, of activations rounded to 8 bits of their range."""
        low = min(float(stream.min()), 0.0)
        high = max(float(stream.max()), 0.0)
        scale = np.float32((high - low) / 255 or 1.0)
        zero = np.rint(-low / scale)
        rounded = stream / scale
        np.rint(rounded, out=rounded)
        np.clip(rounded, -zero, 255 - zero, out=rounded)
        matrix = self._tensors[f"{name}.weight"]
        product = np.zeros((len(stream), matrix.shape[1]), dtype=np.float32)
        for start in range(0, len(matrix), _BLOCK_ROWS):
            block = matrix[start : start + _BLOCK_ROWS].astype(np.float32)
            product += rounded[:, start : start + _BLOCK_ROWS] @ block
        product *= self._tensors[f"{name}.scale"] * scale
        product += self._tensors[f"{name}.bias"]
        return product

    def _normalise(self, stream: Floats, name: str) -> Floats:
        centred = stream - stream.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        centred /= np.sqrt(variance + np.float32(_EPSILON))
        centred *= self._tensors[f"{name}.weight"]
        centred += self._tensors[f"{name}.bias"]
        return centred


def _compute_gelu(values: Floats) -> Floats:
    """Return x/2 * (1 + erf(x/√2)) of each value."""
    size = np.abs(values)
    size *= _HALF_ROOT
    share = 1 / (1 + _ERF_SCALE * size)
    rest = np.zeros_like(share)
    for term in _ERF_TERMS:
        rest += term
        rest *= share
    rest *= np.exp(-np.square(size))
    result = np.copysign(1 - rest, values)
    result += 1
    result *= values
    result *= np.float32(0.5)
    return result
