"""Grow the base model's vocabulary: pieces of other languages, learnt from what is written in them
here."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from portico.search.dense.wordpiece import WordPieceTokenizer, split_words

_PER_LANGUAGE = 400_000
"""Words of a language that are counted: more of one does not make its pieces more useful."""
_MIN_COUNT = 3


def grow(base: Sequence[str], texts: Iterable[tuple[str, str]], size: int) -> list[str]:
    """Up to `size` new pieces for texts given with their language."""
    known = set(base)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size * 2, min_frequency=_MIN_COUNT, show_progress=False, limit_alphabet=6_000
    )
    tokenizer.train_from_iterator(_even_counts(_count_words(texts)), trainer)
    learnt = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    return [piece for piece, _ in learnt if piece not in known and piece != "[UNK]"][:size]


def _count_words(texts: Iterable[tuple[str, str]]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    totals: Counter[str] = Counter()
    for language, text in texts:
        if totals[language] < _PER_LANGUAGE:
            words = [word for word in split_words(text) if not word.isascii() or word.isalpha()]
            counts.setdefault(language, Counter()).update(words)
            totals[language] += len(words)
    return counts


def _even_counts(counts: Mapping[str, Counter[str]]) -> Iterator[str]:
    """Every word as often as it is to be counted: no language speaks louder than another."""
    for counted in counts.values():
        total = max(counted.total(), _PER_LANGUAGE // 8)
        for word, count in counted.items():
            for _ in range(max(1, round(count * _PER_LANGUAGE / total / 8))):
                yield word


def parts_of(base: Sequence[str], pieces: Iterable[str]) -> list[list[int]]:
    """Return how the base's vocabulary would cut each new piece: its vector starts as the mean of
    theirs."""
    numbers = {piece: number for number, piece in enumerate(base)}
    reader, unknown = WordPieceTokenizer(numbers), numbers["[UNK]"]
    cut = (reader.encode(piece.removeprefix("##"), 32)[1:-1] for piece in pieces)
    return [[number for number in found if number != unknown] for found in cut]
