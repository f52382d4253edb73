"""The outline of the encoder: its graph without the large tables, which it finds in the whole model
beside it; and the table of all its tensors, for a run time without ONNX.

    python -m training.outline src/portico/search/dense/model/encoder.onnx

A runtime that reads the whole model keeps a copy of every table in memory. One that reads the
outline maps the tables from the file: only the rows in use are in memory, once for all gateways of
a machine, and opening takes half the time.
"""

import argparse
import json
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from portico.search.dense.encoder import (
    IDENTITY_KEY,
    OUTLINE_FILE,
    TENSORS_FILE,
    compute_model_identity,
)

_LARGE = 65_536


def outline(whole: Path) -> ModelProto:
    """The model of a file, with its large tables of bytes left where they are."""
    body = whole.read_bytes()
    model = onnx.load_model_from_string(body)
    for table in model.graph.initializer:
        # Numbers of more than a byte may not lie at any address.
        if (
            table.data_type in (TensorProto.INT8, TensorProto.UINT8)
            and len(table.raw_data) >= _LARGE
        ):
            place = {
                "location": whole.name,
                "offset": body.index(table.raw_data),
                "length": len(table.raw_data),
            }
            table.ClearField("raw_data")
            table.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                table.external_data.add(key=key, value=str(value))
    model.metadata_props.add(key=IDENTITY_KEY, value=compute_model_identity(whole))
    return model


def locate_tensors(whole: Path) -> dict[str, object]:
    """Where each tensor lies in the model's file: its type, shape and first byte."""
    body = whole.read_bytes()
    tensors: dict[str, object] = {}
    for table in onnx.load_model_from_string(body).graph.initializer:
        # The shapes and places of the graph are numbers of its own.
        if table.data_type in (TensorProto.INT8, TensorProto.FLOAT) and table.dims:
            kind = "int8" if table.data_type == TensorProto.INT8 else "float32"
            tensors[table.name] = [kind, list(table.dims), body.index(table.raw_data)]
    return {IDENTITY_KEY: compute_model_identity(whole), "tensors": tensors}


def main() -> None:
    """Write the outline and the table of tensors beside the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    whole: Path = parser.parse_args().model
    whole.with_name(OUTLINE_FILE).write_bytes(outline(whole).SerializeToString())
    whole.with_name(TENSORS_FILE).write_text(json.dumps(locate_tensors(whole)) + "\n")


if __name__ == "__main__":
    main()
