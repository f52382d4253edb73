"""The networks for plans: one points from parameters to their values, the other tells where another
thing to do begins, and whether a tool does it.

Opened at its first use; onnxruntime or numpy runs it, as they run the encoder. Thread-safe.
"""

import threading
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.encoder import (
    CHOOSER,
    MODEL_FILE,
    READER,
    TENSORS_FILE,
    open_session,
    read_tensors,
)
from portico.search.dense.numpy_network import NumpyNetwork
from portico.search.dense.wordpiece import Vocabulary, WordPieceTokenizer

Floats = NDArray[np.float32]

_POINTER_PARTS = 4
"""First of a value: asked and offered; last of a value: asked and offered."""


class ReaderNetwork:
    """Reads token numbers with their kinds. `name` is READER or CHOOSER; each has its own heads."""

    def __init__(self, folder: Path, name: str = READER) -> None:
        self.tokenizer = WordPieceTokenizer(Vocabulary((folder / "vocabulary.txt").read_bytes()))
        self._tensors = read_tensors(folder, f"{name}.json", f"{name}.bin")
        self._session = open_session(folder, f"{name}.onnx", f"{name}.bin")
        if self._session is None:
            encoder = read_tensors(folder, TENSORS_FILE, MODEL_FILE)
            shared = {name: encoder[name] for name in ("tokens", "token_scales")}
            self._network = NumpyNetwork({**self._tensors, **shared})

    def compute_states(self, ids: list[int], kinds: list[int]) -> Floats:
        """Return the state of each token."""
        numbers = np.array(ids, dtype=np.int64)
        types = np.array(kinds, dtype=np.int64)
        if self._session is None:
            return self._network.compute_states(numbers, types)
        return self._session.run(None, {"ids": numbers[None], "kinds": types[None]})[0][0]

    def point(self, states: Floats, marks: list[int]) -> tuple[Floats, Floats]:
        """Return for each mark how well each token is the first, and the last, of its value."""
        parts = states @ self._tensors["pointers.weight"].T + self._tensors["pointers.bias"]
        asked_first, first, asked_last, last = np.split(parts, _POINTER_PARTS, axis=1)
        scale = np.float32(first.shape[1] ** -0.5)
        return asked_first[marks] @ first.T * scale, asked_last[marks] @ last.T * scale

    def judge_tool(self, states: Floats) -> float:
        """Return how surely a tool that was read without parameters does what is wanted, as a
        logit."""
        score = states[0] @ self._tensors["serves.weight"][0] + self._tensors["serves.bias"][0]
        return float(score)

    def find_beginnings(self, states: Floats) -> Floats:
        """Return for each token how likely another thing to do begins there."""
        scores = states @ self._tensors["begins.weight"][0] + self._tensors["begins.bias"]
        return 1 / (1 + np.exp(-scores))


_lock = threading.Lock()


@cache
def _open_network(name: str) -> ReaderNetwork:
    from importlib.resources import as_file, files

    with as_file(files("portico.search.dense") / "model") as folder:
        return ReaderNetwork(folder, name)


def get_reader_network() -> ReaderNetwork:
    """Return the shared network of this process; raises OSError or ValueError if it is broken."""
    with _lock:
        return _open_network(READER)


def get_chooser_network() -> ReaderNetwork:
    """Return the shared network that tells what is to be done, and by which tool."""
    with _lock:
        return _open_network(CHOOSER)
