"""Text encoder: a small network, shipped with the package, that maps similar texts to near vectors.

All files are in `model/`; nothing is downloaded. It runs in onnxruntime where that is installed,
else in numpy, with the same vectors up to rounding. Texts are encoded one at a time, because a
quantised network's result depends on what shares its batch. Thread-safe.
"""

import hashlib
import json
import logging
import os
import threading
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.numpy_network import NumpyNetwork, map_tensors
from portico.search.dense.wordpiece import Vocabulary, WordPieceTokenizer
from portico.search.document import DOCUMENT_TOKENS, QUERY_TOKENS

MODEL_FILE = "encoder.onnx"
OUTLINE_FILE = "outline.onnx"
"""The graph, made by `training.outline`; its large tables are in the complete model beside it."""
TENSORS_FILE = "tensors.json"
"""Where each tensor lies in the complete model, made by `training.outline`."""
READER = "reader"
CHOOSER = "chooser"
"""Two networks for plans, made by `training.arguments.export`: `.bin` has the weights, `.onnx` the
graph, `.json` the table of tensors. Their word pieces are the encoder's."""
IDENTITY_KEY = "weights"
"""Key in outline and table of tensors that identifies the model they were made from."""
_IDENTITY_BYTES = 65_536


def compute_model_identity(model_path: Path) -> str:
    """Identify a model by its size and its last bytes, without reading all of it."""
    with model_path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _IDENTITY_BYTES))
        return f"{size}-{hashlib.blake2b(file.read(), digest_size=8).hexdigest()}"


logger = logging.getLogger(__name__)

ENCODER_NAME = "portico-tools-1"
"""Incremented with the weights: vectors of two models cannot be compared."""
VECTOR_WIDTH = 384
QUANTISATION_PEAK = 0.32
"""The largest component of a unit vector that is not clipped: 127 in 8 bits."""
_QUERY_CACHE_SIZE = 256

Vector = NDArray[np.int8]
"""A unit vector in 8 bits."""


class Network(Protocol):
    """The encoder's network, in one of its run times."""

    def encode(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the unit vector of a text's tokens."""
        ...


class EncoderUnavailable(RuntimeError):
    """Texts cannot be encoded, with the reason; search continues by words alone."""


class Encoder:
    """Encodes texts as vectors. Loaded at the first text, or by `load`."""

    def __init__(self) -> None:
        self._load_lock = threading.Lock()
        self._network: Network | None = None
        self._tokenizer: WordPieceTokenizer | None = None
        self._problem = ""
        self._encode_query_cached = lru_cache(maxsize=_QUERY_CACHE_SIZE)(
            self._encode_query_uncached
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the model has been loaded."""
        return self._network is not None

    @property
    def problem(self) -> str:
        """Why it cannot be used; empty while no failure is known."""
        return self._problem

    def load(self) -> None:
        """Load the model once; raises EncoderUnavailable if that fails or has failed before."""
        with self._load_lock:
            if self._problem:
                raise EncoderUnavailable(self._problem)
            if self._network is None:
                try:
                    # The network is set last, because other threads take it as the sign that both
                    # are ready.
                    network, self._tokenizer = _open_network()
                    self._network = network
                except Exception as error:  # native libraries fail in many ways; words still work
                    raise self._give_up(error) from error

    def encode_query(self, text: str) -> Vector:
        """Return the vector of a query; the latest ones are cached."""
        return self._encode_query_cached(text)

    def _encode_query_uncached(self, text: str) -> Vector:
        return self._encode(text, QUERY_TOKENS)

    def encode_document(self, text: str) -> Vector:
        """Return the vector of a document's text."""
        return self._encode(text, DOCUMENT_TOKENS)

    def encode_documents(self, texts: Iterable[str], threads: int = 2) -> Generator[Vector]:
        """Yield the vectors of documents in order; closing it drops those not yet started."""
        self.load()
        with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
            yield from pool.map(self.encode_document, texts)

    def _encode(self, text: str, limit: int) -> Vector:
        if self._network is None or self._problem:
            self.load()
        assert self._network is not None
        assert self._tokenizer is not None
        ids = np.array(self._tokenizer.encode(text, limit), dtype=np.int64)
        try:
            found = self._network.encode(ids)
        except Exception as error:  # a native library that failed once is not used again
            with self._load_lock:
                raise self._give_up(error) from error
        return quantise(found)

    def _give_up(self, error: Exception) -> EncoderUnavailable:
        """Record the failure, log it once, and return the error to raise."""
        if not self._problem:
            self._problem = f"{type(error).__name__}: {error}"
            logger.warning("search by meaning is off, search by words works: %s", self._problem)
        return EncoderUnavailable(self._problem)


@cache
def get_shipped_encoder() -> Encoder:
    """Return the shared encoder of this process; its weights are loaded once."""
    return Encoder()


def quantise(vector: NDArray[np.float32]) -> Vector:
    """Convert a unit vector to 8 bits."""
    return np.clip(np.rint(vector * (127 / QUANTISATION_PEAK)), -127, 127).astype(np.int8)


def _open_network() -> tuple[Network, WordPieceTokenizer]:
    from importlib.resources import as_file, files

    model = files("portico.search.dense") / "model"
    vocabulary = Vocabulary((model / "vocabulary.txt").read_bytes())
    with as_file(model) as folder:
        network = _open_onnx(folder) or _open_numpy(folder)
    # Detects a vocabulary that does not belong to the weights before any query does.
    sample = network.encode(np.array([len(vocabulary) - 1], dtype=np.int64))
    if sample.shape != (VECTOR_WIDTH,):
        raise ValueError(f"vectors of shape {sample.shape} instead of {(VECTOR_WIDTH,)}")
    return network, WordPieceTokenizer(vocabulary)


class _OnnxNetwork:
    """The network in onnxruntime: three to five times as fast as numpy's."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def encode(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the unit vector of a text's tokens."""
        return self._session.run(None, {"ids": ids[None]})[0][0]


def _open_onnx(folder: Path) -> Network | None:
    """Open the graph where onnxruntime is installed and works; None elsewhere."""
    session = open_session(folder, OUTLINE_FILE, MODEL_FILE)
    if session is None:
        return None
    return _OnnxNetwork(session)


def open_session(folder: Path, outline_file: str, model_file: str) -> Any:
    """Open a graph in onnxruntime where that is installed and works; None elsewhere."""
    # Disables the library's usage reports.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        outline = str(folder / outline_file)
        providers = ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(outline, options, providers=providers)
        _check_identity(session.get_modelmeta().custom_metadata_map, folder / model_file)
        return session
    except Exception as error:  # not installed, or fails in one of a native library's many ways
        logger.debug("the encoder runs in numpy, because onnxruntime cannot be used: %s", error)
        return None


def _open_numpy(folder: Path) -> Network:
    return NumpyNetwork(read_tensors(folder, TENSORS_FILE, MODEL_FILE))


def read_tensors(folder: Path, tensors_file: str, model_file: str) -> dict[str, NDArray[Any]]:
    """Return the tensors of a model, mapped; raises ValueError for the table of another one."""
    table = json.loads((folder / tensors_file).read_bytes())
    _check_identity(table, folder / model_file)
    return map_tensors(folder / model_file, table["tensors"])


def _check_identity(made_for: Mapping[str, str], model_path: Path) -> None:
    """Raise ValueError for an outline or a table of tensors that was made for other weights."""
    if made_for.get(IDENTITY_KEY) != compute_model_identity(model_path):
        raise ValueError("the weights are not those that their description was made for")
