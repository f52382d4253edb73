"""The shipped encoder's weights as floats again, to start from.

python -m training.arguments.base src/portico/search/dense/model/encoder.onnx OUT.npz
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper


def read_shipped(path: Path) -> dict[str, Any]:
    """The weights of an exported graph, under the names that training uses."""
    stored = {
        table.name: numpy_helper.to_array(table) for table in onnx.load(str(path)).graph.initializer
    }
    weights: dict[str, Any] = {
        "tokens": stored["tokens"] * stored["token_scales"],
        "places": stored["places"],
    }
    for name, value in stored.items():
        if name.endswith((".bias", "norm.weight", "norm1.weight", "norm2.weight")):
            weights[name] = value
        elif name.endswith(".weight"):
            scale = stored[name.removesuffix("weight") + "scale"]
            weights[name] = (value * scale).T
    for name in [name for name in weights if ".qkv." in name]:
        for part, value in zip("qkv", np.split(weights.pop(name), 3), strict=True):
            weights[name.replace("qkv", part)] = value
    return {name: np.asarray(value, dtype=np.float16) for name, value in weights.items()}


def main() -> None:
    """Read the graph, write the weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    np.savez(options.out, **read_shipped(options.model))


if __name__ == "__main__":
    main()
