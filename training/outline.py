"""The outline of the encoder: its graph without the large tables, which it finds in the whole model
beside it.

    python -m training.outline src/portico/search/dense/model/encoder.onnx

A runtime that reads the whole model keeps a copy of every table in memory. One that reads the
outline maps the tables from the file: only the rows in use are in memory, once for all gateways of
a machine, and opening takes half the time.
"""

import argparse
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from portico.search.dense.model_files import IDENTITY_KEY, OUTLINE_FILE, compute_model_identity

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


def main() -> None:
    """Write the outline beside the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    whole: Path = parser.parse_args().model
    whole.with_name(OUTLINE_FILE).write_bytes(outline(whole).SerializeToString())


if __name__ == "__main__":
    main()
