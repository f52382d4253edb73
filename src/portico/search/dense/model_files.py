"""The encoder's files, opened: by its outline where that is its own, so that the weights are mapped
and not copied."""

import hashlib
import os
from pathlib import Path
from typing import Any

OUTLINE_FILE = "outline.onnx"
"""The graph, made by `training.outline`; its large tables lie in the whole model beside it."""
IDENTITY_KEY = "weights"
"""What an outline says of the model that it was made of, in its metadata."""
_IDENTITY_BYTES = 65_536


def compute_model_identity(model_path: Path) -> str:
    """What tells one model from another without reading all of it: its size and its end."""
    with model_path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _IDENTITY_BYTES))
        return f"{size}-{hashlib.blake2b(file.read(), digest_size=8).hexdigest()}"


def open_model(model_path: Path, options: Any) -> Any:
    """A session over the model: by its outline, else (alone, or beside another's outline) by
    reading all of it."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    beside = model_path.with_name(OUTLINE_FILE)
    if beside.exists():
        session = onnxruntime.InferenceSession(str(beside), options, providers=providers)
        if session.get_modelmeta().custom_metadata_map.get(IDENTITY_KEY) == compute_model_identity(
            model_path
        ):
            return session
    return onnxruntime.InferenceSession(str(model_path), options, providers=providers)
