"""Trained weights to the file that ships: an ONNX graph with 8-bit weights.

    python -m training.export WEIGHTS.npz OUT.onnx

Every matrix is quantised per output channel, every embedding per row; activations are quantised as
they come. The graph takes token numbers of texts of one length and gives unit vectors: no mask,
because texts are encoded one at a time (a quantised activation depends on whatever shares its
batch). Built node by node, so that neither PyTorch nor an exporter is needed, and each matrix
product is one fused operator of the runtime.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]
Weights = Mapping[str, Floats]

MATRIX_LEVELS = 63
"""Processors without VNNI add two 8-bit products in 16 bits: twice 255 x 63 still fits, twice 255 x
127 does not."""
EMBEDDING_LEVELS = 127
"""Embeddings are looked up, not multiplied: they may use all of the 8 bits."""
HEADS = 12
EPSILON = 1e-12
OPSET = 20
_FUSED = "com.microsoft"


class Graph:
    """A graph in the making: nodes and constants, each under a name of its own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """A constant by name; the same name twice is the same constant."""
        if all(known.name != name for known in self.constants):
            self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator; its output's name."""
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, list(inputs), [output], domain=domain, **attributes)
        )
        return output

    def numbers(self, name: str, *values: int) -> str:
        return self.constant(name, np.array(values, dtype=np.int64))


def quantise(matrix: Floats, axis: int, levels: int) -> tuple[NDArray[np.int8], Floats]:
    """Values up to ±levels and one scale per slice along `axis`, so that values * scale is the
    matrix again."""
    other = tuple(place for place in range(matrix.ndim) if place != axis)
    peak = np.abs(matrix).max(axis=other, keepdims=True)
    scale = np.where(peak > 0, peak, 1) / levels
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32).reshape(-1)


def build(weights: Weights) -> onnx.ModelProto:
    """The encoder's graph: `ids` [texts, tokens] → `vectors` [texts, width]."""
    graph = Graph()
    width = weights["tokens"].shape[1]
    layers = sum(name.endswith(".up.weight") for name in weights)
    stream = add_norm(graph, _embed(graph, weights), weights, "norm")
    for number in range(layers):
        stream = add_layer(graph, stream, weights, f"layers.{number}", width)
    pooled = graph.node("ReduceMean", stream, graph.numbers("along_tokens", 1), keepdims=0)
    vectors = graph.node("LpNormalization", pooled, axis=-1, p=2)
    graph.nodes.append(helper.make_node("Identity", [vectors], ["vectors"]))
    body = helper.make_graph(
        graph.nodes,
        "encoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "tokens"])],
        [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", width])],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_FUSED, 1)]
    model = helper.make_model(body, opset_imports=opsets, producer_name="portico", ir_version=10)
    onnx.checker.check_model(model)
    return model


def _embed(graph: Graph, weights: Weights) -> str:
    values, scales = quantise(weights["tokens"], axis=0, levels=EMBEDDING_LEVELS)
    rows = graph.node(
        "Cast", graph.node("Gather", graph.constant("tokens", values), "ids"), to=TensorProto.FLOAT
    )
    scale = graph.node("Gather", graph.constant("token_scales", scales[:, None]), "ids")
    length = graph.node("Shape", "ids", start=1, end=2)
    table, start = graph.constant("places", weights["places"]), graph.numbers("zero", 0)
    places = graph.node("Slice", table, start, length, graph.numbers("first", 0))
    return graph.node("Add", graph.node("Mul", rows, scale), places)


def add_layer(graph: Graph, stream: str, weights: Weights, name: str, width: int) -> str:
    """Add one transformer layer; its output's name."""
    head = width // HEADS
    joined = [
        np.concatenate([weights[f"{name}.{part}.{kind}"] for part in "qkv"])
        for kind in ("weight", "bias")
    ]
    together = _product(graph, stream, f"{name}.qkv", *joined)
    split = graph.node("Reshape", together, graph.numbers("heads", 0, 0, 3, HEADS, head))
    parts = graph.node("Transpose", split, perm=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.node("Gather", parts, graph.constant(part, np.array(at)), axis=0) for at, part in _QKV
    )
    likeness = graph.node("MatMul", query, graph.node("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = graph.node(
        "Mul", likeness, graph.constant("per_head", np.array(head**-0.5, dtype=np.float32))
    )
    mixed = graph.node("MatMul", graph.node("Softmax", scaled, axis=-1), value)
    merged = graph.node(
        "Reshape",
        graph.node("Transpose", mixed, perm=[0, 2, 1, 3]),
        graph.numbers("merged", 0, 0, width),
    )
    attended = _linear(graph, merged, weights, f"{name}.o")
    stream = add_norm(graph, graph.node("Add", attended, stream), weights, f"{name}.norm1")
    raised = graph.node("Gelu", _linear(graph, stream, weights, f"{name}.up"))
    return add_norm(
        graph,
        graph.node("Add", _linear(graph, raised, weights, f"{name}.down"), stream),
        weights,
        f"{name}.norm2",
    )


_QKV = ((0, "query"), (1, "key"), (2, "value"))


def _linear(graph: Graph, stream: str, weights: Weights, name: str) -> str:
    return _product(graph, stream, name, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _product(graph: Graph, stream: str, name: str, matrix: Floats, bias: Floats) -> str:
    values, scales = quantise(matrix.T, axis=1, levels=MATRIX_LEVELS)
    return graph.node(
        "DynamicQuantizeMatMul",
        stream,
        graph.constant(f"{name}.weight", values),
        graph.constant(f"{name}.scale", scales),
        "",
        graph.constant(f"{name}.bias", bias),
        domain=_FUSED,
    )


def add_norm(graph: Graph, stream: str, weights: Weights, name: str) -> str:
    """Add a layer normalisation; its output's name."""
    return graph.node(
        "LayerNormalization",
        stream,
        graph.constant(f"{name}.weight", weights[f"{name}.weight"]),
        graph.constant(f"{name}.bias", weights[f"{name}.bias"]),
        axis=-1,
        epsilon=EPSILON,
    )


def main() -> None:
    """Read the weights, write the graph."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with np.load(options.weights) as stored:
        weights = {name: stored[name].astype(np.float32) for name in stored.files}
    options.out.write_bytes(build(weights).SerializeToString())


if __name__ == "__main__":
    main()
