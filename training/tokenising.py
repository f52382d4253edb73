"""Many texts to token numbers, on every core."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import Pool

from portico.search.dense.wordpiece import WordPieceTokenizer
from training.texts import Ragged

_CHUNK = 20_000
_of_this_process: dict[str, WordPieceTokenizer] = {}


class Tokeniser:
    """A vocabulary in every process of a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def ragged(self, texts: Iterable[str], limit: int) -> Ragged:
        """The texts in order, none longer than `limit` tokens."""
        kept = list(texts)
        chunks = [kept[at : at + _CHUNK] for at in range(0, len(kept), _CHUNK)]
        return Ragged.joined(self._pool.imap(partial(_encode, limit=limit), chunks))


@contextmanager
def tokeniser(vocabulary: Sequence[str]) -> Generator[Tokeniser]:
    """A tokeniser, while in use."""
    with Pool(initializer=_start, initargs=(vocabulary,)) as pool:
        yield Tokeniser(pool)


def _start(vocabulary: Sequence[str]) -> None:
    _of_this_process["reader"] = WordPieceTokenizer(
        {piece: number for number, piece in enumerate(vocabulary)}
    )


def _encode(texts: list[str], limit: int) -> Ragged:
    reader = _of_this_process["reader"]
    return Ragged.of(reader.encode(text, limit) for text in texts)
