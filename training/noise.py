"""Misspelt copies of a text, as fingers misspell: letters swapped, lost, doubled, or taken from the
key next endpoint."""

import random

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_BESIDE = {
    letter: [row[at + step] for step in (-1, 1) if 0 <= at + step < len(row)]
    for row in _ROWS
    for at, letter in enumerate(row)
}
_MIN_WORD = 4


def misspelt(text: str, chance: random.Random, share: float = 0.35) -> str:
    """The text with about `share` of its longer words misspelt once, at least one of them."""
    words = text.split(" ")
    open_to = [
        at
        for at, word in enumerate(words)
        if len(word) >= _MIN_WORD and word.isascii() and word.isalpha()
    ]
    chosen = [at for at in open_to if chance.random() < share] or (
        [chance.choice(open_to)] if open_to else []
    )
    for at in chosen:
        words[at] = _slip(words[at], chance)
    return " ".join(words)


def _slip(word: str, chance: random.Random) -> str:
    at = chance.randrange(1, len(word) - 1)
    kind = chance.random()
    if kind < 0.4:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind < 0.65:
        return word[:at] + word[at + 1 :]
    if kind < 0.8:
        return word[:at] + word[at] + word[at:]
    beside = _BESIDE.get(word[at].lower())
    return (
        word[:at] + chance.choice(beside) + word[at + 1 :] if beside else word[:at] + word[at + 1 :]
    )
