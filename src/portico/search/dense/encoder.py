"""The encoder: a small network, shipped with the package, that puts texts of one meaning near one another.

Everything it needs lies in `model/`; nothing is downloaded. Texts are encoded one at a time, because a quantised
network's answer depends on what shares its batch. Any number of threads may ask at once.
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

from portico.search.dense.model_files import open_model
from portico.search.dense.text import LIMIT, QUERY_LIMIT
from portico.search.dense.vocabulary import Vocabulary
from portico.search.dense.wordpiece import WordPiece

logger = logging.getLogger(__name__)

NAME = "portico-tools-1"
"""Counts up with the weights: vectors of two models cannot be compared."""
WIDTH = 384
PEAK = 0.32
"""The largest part of a unit vector that is kept apart from larger ones: 127 in 8 bits."""
_REMEMBERED = 256

Vector = NDArray[np.int8]
"""A unit vector in 8 bits."""


class EncoderUnavailable(RuntimeError):
    """Why texts cannot be encoded here; search goes on by words alone."""


class Encoder:
    """Texts in, vectors out. Loaded at the first text, or by `load`."""

    def __init__(self) -> None:
        self._loading = threading.Lock()
        self._session: Any = None
        self._reader: WordPiece | None = None
        self._problem = ""
        self._asked = lru_cache(maxsize=_REMEMBERED)(self._query)

    @property
    def loaded(self) -> bool:
        """Whether the model has been read."""
        return self._session is not None

    @property
    def problem(self) -> str:
        """Why it cannot be used, now or ever; empty while it can, as far as is known."""
        return self._problem

    def load(self) -> None:
        """Read the model, if that has not been done; `EncoderUnavailable` if it cannot be, or was given up."""
        with self._loading:
            if self._problem:
                raise EncoderUnavailable(self._problem)
            if self._session is None:
                try:
                    # The session last: whoever sees it may use both.
                    session, self._reader = _open()
                    self._session = session
                except Exception as error:  # whatever is wrong with a native library or a file, words still work
                    raise self._given_up(error) from error

    def query(self, text: str) -> Vector:
        """The vector of what somebody asks for; the latest few are remembered."""
        return self._asked(text)

    def _query(self, text: str) -> Vector:
        return self._run(text, QUERY_LIMIT)

    def document(self, text: str) -> Vector:
        """The vector of a document's text."""
        return self._run(text, LIMIT)

    def documents(self, texts: Iterable[str], threads: int = 2) -> Generator[Vector]:
        """The vectors of many documents, in their order; closing it drops those that were not begun."""
        self.load()
        with ThreadPoolExecutor(threads, thread_name_prefix="encode") as pool:
            yield from pool.map(self.document, texts)

    def _run(self, text: str, limit: int) -> Vector:
        if self._session is None or self._problem:
            self.load()
        assert self._session is not None
        assert self._reader is not None
        ids = np.array([self._reader.encode(text, limit)], dtype=np.int64)
        try:
            found = self._session.run(None, {"ids": ids})[0][0]
        except Exception as error:  # a native library that failed once (of memory, say) is not asked again
            with self._loading:
                raise self._given_up(error) from error
        return quantised(found)

    def _given_up(self, error: Exception) -> EncoderUnavailable:
        """What to raise from now on; said once, whichever thread met it first."""
        if not self._problem:
            self._problem = f"{type(error).__name__}: {error}"
            logger.warning("search by meaning is off, search by words works: %s", self._problem)
        return EncoderUnavailable(self._problem)


@cache
def shipped() -> Encoder:
    """The encoder of this process: its weights are read once, whoever asks."""
    return Encoder()


def quantised(vector: NDArray[np.float32]) -> Vector:
    """A unit vector in 8 bits."""
    return np.clip(np.rint(vector * (127 / PEAK)), -127, 127).astype(np.int8)


def _open() -> tuple[Any, WordPiece]:
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
    if tried.shape != (1, WIDTH):
        raise ValueError(f"vectors of shape {tried.shape} instead of {(1, WIDTH)}")
    return session, WordPiece(pieces)
