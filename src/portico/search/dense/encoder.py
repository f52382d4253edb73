"""The encoder: a small network, shipped with the package, that puts texts of one meaning near one
another.

Everything it needs lies in `model/`; nothing is downloaded. Texts are encoded one at a time,
because a quantised network's answer depends on what shares its batch. Any number of threads may ask
at once.
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
"""Counts up with the weights: vectors of two models cannot be compared."""
VECTOR_WIDTH = 384
QUANTISATION_PEAK = 0.32
"""The largest part of a unit vector that is kept apart from larger ones: 127 in 8 bits."""
_QUERY_CACHE_SIZE = 256

Vector = NDArray[np.int8]
"""A unit vector in 8 bits."""


class EncoderUnavailable(RuntimeError):
    """Why texts cannot be encoded here; search goes on by words alone."""


class Encoder:
    """Texts in, vectors out. Loaded at the first text, or by `load`."""

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
        """Whether the model has been read."""
        return self._session is not None

    @property
    def problem(self) -> str:
        """Why it cannot be used, now or ever; empty while it can, as far as is known."""
        return self._problem

    def load(self) -> None:
        """Read the model, if that has not been done; `EncoderUnavailable` if it cannot be, or was
        given up."""
        with self._load_lock:
            if self._problem:
                raise EncoderUnavailable(self._problem)
            if self._session is None:
                try:
                    # The session last: whoever sees it may use both.
                    session, self._tokenizer = _open_session()
                    self._session = session
                except (
                    Exception
                ) as error:  # whatever is wrong with a native library or a file, words still work
                    raise self._give_up(error) from error

    def encode_query(self, text: str) -> Vector:
        """The vector of what somebody asks for; the latest few are remembered."""
        return self._encode_query_cached(text)

    def _encode_query_uncached(self, text: str) -> Vector:
        return self._encode(text, QUERY_TOKENS)

    def encode_document(self, text: str) -> Vector:
        """The vector of a document's text."""
        return self._encode(text, DOCUMENT_TOKENS)

    def encode_documents(self, texts: Iterable[str], threads: int = 2) -> Generator[Vector]:
        """The vectors of many documents, in their order; closing it drops those that were not
        begun."""
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
        except (
            Exception
        ) as error:  # a native library that failed once (of memory, say) is not asked again
            with self._load_lock:
                raise self._give_up(error) from error
        return quantise(found)

    def _give_up(self, error: Exception) -> EncoderUnavailable:
        """What to raise from now on; said once, whichever thread met it first."""
        if not self._problem:
            self._problem = f"{type(error).__name__}: {error}"
            logger.warning("search by meaning is off, search by words works: %s", self._problem)
        return EncoderUnavailable(self._problem)


@cache
def get_shipped_encoder() -> Encoder:
    """The encoder of this process: its weights are read once, whoever asks."""
    return Encoder()


def quantise(vector: NDArray[np.float32]) -> Vector:
    """A unit vector in 8 bits."""
    return np.clip(np.rint(vector * (127 / QUANTISATION_PEAK)), -127, 127).astype(np.int8)


def _open_session() -> tuple[Any, WordPieceTokenizer]:
    # A tenth of a second to import, and not to be had on every platform.
    from importlib.resources import as_file, files

    # It would write down for its maker that it was used here.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model = files("portico.search.dense") / "model"
    pieces = Vocabulary((model / "vocabulary.txt").read_bytes())
    with as_file(model / "encoder.onnx") as whole:
        session = open_model(whole, options)
    # A vocabulary of other weights shows here, not at somebody's query.
    tried = np.asarray(session.run(None, {"ids": np.array([[len(pieces) - 1]], dtype=np.int64)})[0])
    if tried.shape != (1, VECTOR_WIDTH):
        raise ValueError(f"vectors of shape {tried.shape} instead of {(1, VECTOR_WIDTH)}")
    return session, WordPieceTokenizer(pieces)
