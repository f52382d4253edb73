"""The base model's weights under our own names."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

LAYERS = 6
_PARTS = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "o",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "up",
    "output.dense": "down",
    "output.LayerNorm": "norm2",
}


def read_base(path: Path) -> Mapping[str, NDArray[np.float32]]:
    """all-MiniLM-L6-v2 from its safetensors file; the one token type it uses is folded into the
    places."""
    stored = load_file(path)
    words, places, kinds = (
        stored[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    weights = {"tokens": words, "places": places + kinds[0]}
    for kind in ("weight", "bias"):
        weights[f"norm.{kind}"] = stored[f"embeddings.LayerNorm.{kind}"]
        for layer in range(LAYERS):
            for theirs, ours in _PARTS.items():
                weights[f"layers.{layer}.{ours}.{kind}"] = stored[
                    f"encoder.layer.{layer}.{theirs}.{kind}"
                ]
    return {name: value.astype(np.float32) for name, value in weights.items()}
