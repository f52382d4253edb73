"""Ragged arrays, and the pool that fills them."""

from training.texts import Ragged
from training.tokenising import tokeniser

TEXTS = [[101, 7, 102], [], [101, 65_535, 102], [5]]


def _lists(ragged: Ragged) -> list[list[int]]:
    starts = [0, *ragged.ends[:-1].tolist()]
    return [
        ragged.tokens[start:end].tolist()
        for start, end in zip(starts, ragged.ends.tolist(), strict=True)
    ]


def test_texts_come_back_as_they_were_stored() -> None:
    stored = {**Ragged.of(TEXTS).columns("queries"), **Ragged.of([[1]]).columns("documents")}
    assert _lists(Ragged.read(stored, "queries")) == TEXTS
    assert len(Ragged.read(stored, "queries")) == 4


def test_parts_join_to_what_they_would_be_together() -> None:
    joined = Ragged.joined([Ragged.of(TEXTS[:1]), Ragged.of([]), Ragged.of(TEXTS[1:])])
    assert _lists(joined) == TEXTS
    assert len(Ragged.joined([])) == 0


def test_a_pool_keeps_the_order_and_the_limit() -> None:
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "send", "mail", "##s"]
    with tokeniser(vocabulary) as tokens:
        found = tokens.ragged(["Send mails", "mail", "send send send send"] * 10_000, 4)
    assert _lists(found)[:3] == [[1, 3, 4, 2], [1, 4, 2], [1, 3, 3, 2]]
    assert _lists(found)[-3:] == _lists(found)[:3]
