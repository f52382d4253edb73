"""What was said, as words with their places: an intent, then each input as `name = value`. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from portico.search.dense.wordpiece import WordPieceTokenizer
from portico.workflows.planning.argument_sequence import Pieces
from portico.workflows.planning.parameters import split_identifier
from portico.workflows.planning.said_values import SaidValue, find_said_values

MAX_INPUTS = 64
_MAX_DEPTH = 8
MAX_VALUE_CHARS = 400
"""Characters of an input's value that are read to see what it is."""


@dataclass(frozen=True, slots=True)
class SaidInput:
    """One value that was passed, and the words of its value."""

    name: str
    value: Any
    first: int
    last: int
    is_part: bool = False
    """One of an object's values: its name is behind the object's."""


@dataclass(frozen=True)
class SaidWords:
    """The words of an intent and of its inputs."""

    intent: str
    spans: tuple[tuple[int, int], ...]
    """Start and end of each word of the intent; those of inputs follow without a span."""
    pieces: tuple[Pieces, ...]
    inputs: tuple[SaidInput, ...]
    values: tuple[SaidValue, ...] = ()
    """What is a value in the intent, whatever tool is meant."""

    def get_text(self, first: int, last: int) -> str:
        """Return the intent from one word to another, both included."""
        return self.intent[self.spans[first][0] : self.spans[last][1]]


def read_said_words(
    intent: str, inputs: Mapping[str, Any], tokenizer: WordPieceTokenizer
) -> SaidWords:
    """Split an intent and its inputs into words."""
    words = tokenizer.encode_words(intent)
    spans = tuple((start, end) for start, end, _ in words)
    pieces = [found for _, _, found in words]
    said: list[SaidInput] = []
    for name, value, is_part in iter_inputs(inputs):
        pieces += encode_pieces(tokenizer, ";" if said else "|")
        pieces += encode_pieces(tokenizer, " ".join(split_identifier(name)))
        pieces += encode_pieces(tokenizer, "=")
        first = len(pieces)
        pieces += encode_pieces(tokenizer, write_value(value)) or [()]
        said.append(SaidInput(name, value, first, len(pieces) - 1, is_part))
    return SaidWords(intent, spans, tuple(pieces), tuple(said), find_said_values(intent, spans))


def iter_inputs(inputs: Mapping[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield inputs by their names, and after an object its values, as parts, behind its name."""
    count = 0
    for name, value in inputs.items():
        count += 1
        if count > MAX_INPUTS:
            return
        yield name, value, False
        if isinstance(value, dict):
            for inner, part in list(cast("dict[str, Any]", value).items())[:MAX_INPUTS]:
                count += 1
                yield f"{name}.{inner}", part, True


def write_value(value: Any, depth: int = 0) -> str:
    """Return a value as it is read, cut."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, str):
        return value[:MAX_VALUE_CHARS]
    if isinstance(value, list):
        items = cast("list[Any]", value)[:20]
        return ", ".join(write_value(item, depth + 1) for item in items)[:MAX_VALUE_CHARS]
    if isinstance(value, dict):
        return ", ".join(list(cast("dict[str, Any]", value))[:20])[:MAX_VALUE_CHARS]
    return json.dumps(value)


def encode_pieces(tokenizer: WordPieceTokenizer, text: str) -> list[Pieces]:
    """Return the words of a text as token numbers."""
    return [pieces for _, _, pieces in tokenizer.encode_words(text)]
