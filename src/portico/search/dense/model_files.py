"""The encoder's files, opened: by its outline where that is its own, so that the weights are mapped and not copied."""

import hashlib
import os
from pathlib import Path
from typing import Any

OUTLINE = "outline.onnx"
"""The graph, made by `training.outline`; its large tables lie in the whole model beside it."""
IDENTITY = "weights"
"""What an outline says of the model that it was made of, in its metadata."""
_END = 65_536


def identity(whole: Path) -> str:
    """What tells one model from another without reading all of it: its size and its end."""
    with whole.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END))
        return f"{size}-{hashlib.blake2b(file.read(), digest_size=8).hexdigest()}"


def open_model(whole: Path, options: Any) -> Any:
    """A session over the model: by its outline, else (alone, or beside another's outline) by reading all of it."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    beside = whole.with_name(OUTLINE)
    if beside.exists():
        session = onnxruntime.InferenceSession(str(beside), options, providers=providers)
        if session.get_modelmeta().custom_metadata_map.get(IDENTITY) == identity(whole):
            return session
    return onnxruntime.InferenceSession(str(whole), options, providers=providers)
