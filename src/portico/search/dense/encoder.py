"""Text encoder: a small network, shipped with the package, that maps similar texts to near vectors.

All files are in `model/`; nothing is downloaded. Texts are encoded one at a time, because a
quantised network's result depends on what shares its batch. Thread-safe.
"""

import logging
import os
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.search.dense.document_text import DOCUMENT_TOKENS, QUERY_TOKENS
from portico.search.dense.model_files import open_model
from portico.search.dense.vocabulary import Vocabulary
from portico.search.dense.wordpiece import WordPieceTokenizer

logger = logging.getLogger(__name__)

ENCODER_NAME = "portico-tools-1"
"""Incremented with the weights: vectors of two models cannot be compared."""
VECTOR_WIDTH = 384
QUANTISATION_PEAK = 0.32
"""The largest component of a unit vector that is not clipped: 127 in 8 bits."""
_QUERY_CACHE_SIZE = 256

Vector = NDArray[np.int8]
"""A unit vector in 8 bits."""


class EncoderUnavailable(RuntimeError):
    """Texts cannot be encoded, with the reason; search continues by words alone."""


class Encoder:
    """Encodes texts as vectors. Loaded at the first text, or by `load`."""

    def __init__(self) -> None:
        self._load_lock = threading.Lock()
        self._session: Any = None
        self._tokenizer: WordPieceTokenizer | None = None
        self._problem = ""
        self._encode_query_cached = lru_cache(maxsize=_QUERY_CACHE_SIZE)(
            self._encode_query_uncached
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the model has been loaded."""
        return self._session is not None

    @property
    def problem(self) -> str:
        """Why it cannot be used; empty while no failure is known."""
        return self._problem

    def load(self) -> None:
        """Load the model once; raises EncoderUnavailable if that fails or has failed before."""
        with self._load_lock:
            if self._problem:
                raise EncoderUnavailable(self._problem)
            if self._session is None:
                try:
                    # The session is set last, because other threads take it as the sign that both
                    # are ready.
                    session, self._tokenizer = _open_session()
                    self._session = session
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
        if self._session is None or self._problem:
            self.load()
        assert self._session is not None
        assert self._tokenizer is not None
        ids = np.array([self._tokenizer.encode(text, limit)], dtype=np.int64)
        try:
            found = self._session.run(None, {"ids": ids})[0][0]
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


def _open_session() -> tuple[Any, WordPieceTokenizer]:
    # Takes 0.1 s to import and is not available on every platform.
    from importlib.resources import as_file, files

    # Disables the library's usage reports.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model = files("portico.search.dense") / "model"
    vocabulary = Vocabulary((model / "vocabulary.txt").read_bytes())
    with as_file(model / "encoder.onnx") as model_path:
        session = open_model(model_path, options)
    # Detects a vocabulary that does not belong to the weights before any query does.
    sample = np.asarray(
        session.run(None, {"ids": np.array([[len(vocabulary) - 1]], dtype=np.int64)})[0]
    )
    if sample.shape != (1, VECTOR_WIDTH):
        raise ValueError(f"vectors of shape {sample.shape} instead of {(1, VECTOR_WIDTH)}")
    return session, WordPieceTokenizer(vocabulary)
