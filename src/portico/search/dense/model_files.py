"""Opens the encoder's files, if possible so that the weights are memory-mapped."""

import hashlib
import os
from pathlib import Path
from typing import Any

OUTLINE_FILE = "outline.onnx"
"""The graph, made by `training.outline`; its large tables are in the complete model beside it."""
IDENTITY_KEY = "weights"
"""Metadata key of the outline that identifies the model it was made from."""
_IDENTITY_BYTES = 65_536


def compute_model_identity(model_path: Path) -> str:
    """Identify a model by its size and its last bytes, without reading all of it."""
    with model_path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _IDENTITY_BYTES))
        return f"{size}-{hashlib.blake2b(file.read(), digest_size=8).hexdigest()}"


def open_model(model_path: Path, options: Any) -> Any:
    """Open a session by a matching outline, else by the complete model."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    outline = model_path.with_name(OUTLINE_FILE)
    if outline.exists():
        session = onnxruntime.InferenceSession(str(outline), options, providers=providers)
        metadata = session.get_modelmeta().custom_metadata_map
        if metadata.get(IDENTITY_KEY) == compute_model_identity(model_path):
            return session
    return onnxruntime.InferenceSession(str(model_path), options, providers=providers)
