"""Trained weights of the argument reader to the files that ship.

    python -m training.arguments.export WEIGHTS.npz src/portico/search/dense/model [--name chooser]

All tensors go into one file; a small graph and a table say where each stands. The table of word
pieces is the encoder's own, in its file.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from portico.search.dense.encoder import (
    CHOOSER,
    IDENTITY_KEY,
    MODEL_FILE,
    READER,
    TENSORS_FILE,
    compute_model_identity,
)
from training.export import OPSET, Graph, add_layer, add_norm

HEADS = ("pointers", "begins", "serves")
_STORED = (TensorProto.INT8, TensorProto.FLOAT)
_ALIGNMENT = 64
_SHARED = ("tokens", "token_scales")
_HEADS = tuple(f"{head}.{part}" for head in HEADS for part in ("weight", "bias"))


def build(weights: dict[str, Any], encoder: dict[str, Any]) -> onnx.ModelProto:
    """The graph: `ids` and `kinds` of one text's tokens → `states`."""
    graph = Graph()
    width = weights["places"].shape[1]
    layers = sum(name.endswith(".up.weight") for name in weights)
    rows = graph.node("Gather", graph.constant("tokens", encoder["tokens"]), "ids")
    floats = graph.node("Cast", rows, to=TensorProto.FLOAT)
    scale = graph.node("Gather", graph.constant("token_scales", encoder["token_scales"]), "ids")
    length = graph.node("Shape", "ids", start=1, end=2)
    table = graph.constant("places", weights["places"])
    places = graph.node("Slice", table, graph.numbers("zero", 0), length, graph.numbers("first", 0))
    kinds = graph.node("Gather", graph.constant("kinds_table", weights["kinds"]), "kinds")
    stream = graph.node("Add", graph.node("Mul", floats, scale), places)
    stream = add_norm(graph, graph.node("Add", stream, kinds), weights, "norm")
    for number in range(layers):
        stream = add_layer(graph, stream, weights, f"layers.{number}", width)
    graph.nodes.append(helper.make_node("Identity", [stream], ["states"]))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["texts", "tokens"])
        for name in ("ids", "kinds")
    ]
    output = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["texts", "tokens", width])
    body = helper.make_graph(graph.nodes, "reader", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=opsets, producer_name="portico", ir_version=10)


def write(weights: dict[str, Any], folder: Path, name: str) -> None:
    """Write the tensors, the graph that finds them, and the table for a run time without ONNX."""
    encoder_table = json.loads((folder / TENSORS_FILE).read_bytes())["tensors"]
    encoder = {
        table.name: numpy_helper.to_array(table)
        for table in onnx.load(str(folder / MODEL_FILE)).graph.initializer
        if table.name in _SHARED
    }
    model = build(weights, encoder)
    tensors: dict[str, Any] = {}
    body = bytearray()

    def store(tensor: str, raw: bytes, kind: str, shape: list[int]) -> int:
        body.extend(bytes(-len(body) % _ALIGNMENT))
        tensors[tensor] = [kind, shape, len(body)]
        body.extend(raw)
        return tensors[tensor][2]

    for table in model.graph.initializer:
        if table.name == "tokens":
            place = (MODEL_FILE, encoder_table["tokens"][2], len(table.raw_data))
        elif table.name in _SHARED or not table.dims or table.data_type not in _STORED:
            continue
        else:
            kind = "int8" if table.data_type == TensorProto.INT8 else "float32"
            offset = store(table.name, table.raw_data, kind, list(table.dims))
            place = (f"{name}.bin", offset, len(table.raw_data))
        table.ClearField("raw_data")
        table.data_location = TensorProto.EXTERNAL
        for key, value in zip(("location", "offset", "length"), place, strict=True):
            table.external_data.add(key=key, value=str(value))
    for head in filter(weights.__contains__, _HEADS):
        value = np.ascontiguousarray(weights[head], dtype=np.float32)
        store(head, value.tobytes(), "float32", list(value.shape))
    (folder / f"{name}.bin").write_bytes(bytes(body))
    identity = compute_model_identity(folder / f"{name}.bin")
    model.metadata_props.add(key=IDENTITY_KEY, value=identity)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    table = {IDENTITY_KEY: identity, "tensors": tensors}
    (folder / f"{name}.json").write_text(json.dumps(table) + "\n")


def main() -> None:
    """Read the weights, write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", choices=(READER, CHOOSER), default=READER)
    options = parser.parse_args()
    with np.load(options.weights) as stored:
        weights = {name: stored[name].astype(np.float32) for name in stored.files}
    write(weights, options.folder, options.name)


if __name__ == "__main__":
    main()
