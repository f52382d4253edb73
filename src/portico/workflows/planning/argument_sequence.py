"""The tokens that the argument reader reads: what was said, and parameters of one tool. Pure.

    [CLS] said [SEP] tool ([MASK] parameter [SEP] options [SEP])*

All parameters of a tool are read together, so that two do not take one value. A parameter is
answered by a pointer from its [MASK] to words that were said, to one of its options, or to [CLS]:
not said. Without parameters, the state of [CLS] says whether the tool does what the clause wants.
Training builds its sequences here too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Pieces = tuple[int, ...]
"""The token numbers of one word."""

MAX_TOKENS = 384
MAX_SAID_TOKENS = 208
MAX_TOOL_TOKENS = 24
MAX_CHOICE_TOKENS = 72
"""Of a tool where it is read without its parameters."""
MAX_PARAMETER_TOKENS = 28
MAX_OPTION_TOKENS = 48
CLAUSE, ELSEWHERE, QUESTION = 0, 1, 2
"""Kinds of tokens: in the clause of the step, said elsewhere, tool and parameters."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Token numbers with a meaning of their own."""

    first: int
    separator: int
    mask: int


@dataclass(frozen=True, slots=True)
class ParameterWords:
    """One parameter: its name, type and description, and each of its options."""

    text: tuple[Pieces, ...]
    options: tuple[tuple[Pieces, ...], ...] = ()


@dataclass(slots=True)
class ArgumentSequence:
    """Tokens, and where everything stands in them."""

    ids: list[int] = field(default_factory=list[int])
    kinds: list[int] = field(default_factory=list[int])
    said: list[int] = field(default_factory=list[int])
    """Position of each said word's first token; -1 for a word that did not fit."""
    marks: list[int] = field(default_factory=list[int])
    """Position of each parameter's [MASK]; fewer than there are parameters if not all fit."""
    options: list[list[tuple[int, int]]] = field(default_factory=list[list[tuple[int, int]]])
    """First and last position of each option of each parameter that fits."""

    def add(self, pieces: Sequence[int], kind: int) -> int:
        """Append tokens; return the position of the first."""
        start = len(self.ids)
        self.ids.extend(pieces)
        self.kinds.extend([kind] * len(pieces))
        return start


def build_sequence(
    tokens: SpecialTokens,
    said: Sequence[Pieces],
    in_clause: Sequence[bool],
    tool: Sequence[Pieces],
    parameters: Sequence[ParameterWords],
) -> ArgumentSequence:
    """Build the sequence of one tool with as many of these parameters as fit; at least one, if
    there are any."""
    sequence = ArgumentSequence()
    sequence.add((tokens.first,), QUESTION)
    fitting = _choose_said_words(said, in_clause)
    for number, pieces in enumerate(said):
        if number not in fitting:
            sequence.said.append(-1)
            continue
        kind = CLAUSE if in_clause[number] else ELSEWHERE
        sequence.said.append(sequence.add(pieces, kind))
    sequence.add((tokens.separator,), QUESTION)
    _add_words(sequence, tool, MAX_TOOL_TOKENS if parameters else MAX_CHOICE_TOKENS)
    for parameter in parameters:
        size = _measure_parameter(parameter)
        if sequence.marks and len(sequence.ids) + size > MAX_TOKENS:
            break
        sequence.marks.append(sequence.add((tokens.mask,), QUESTION))
        _add_words(sequence, parameter.text, MAX_PARAMETER_TOKENS)
        sequence.add((tokens.separator,), QUESTION)
        sequence.options.append(_add_options(sequence, parameter.options, tokens.separator))
    return sequence


def _choose_said_words(said: Sequence[Pieces], in_clause: Sequence[bool]) -> set[int]:
    """Choose the words that fit: those of the clause first, then the nearest to the end."""
    order = sorted(range(len(said)), key=lambda number: (not in_clause[number], -number))
    chosen: set[int] = set()
    room = MAX_SAID_TOKENS
    for number in order:
        room -= len(said[number])
        if room < 0:
            break
        chosen.add(number)
    return chosen


def _add_words(sequence: ArgumentSequence, words: Sequence[Pieces], limit: int) -> None:
    tokens = [piece for word in words for piece in word]
    sequence.add(tokens[:limit], QUESTION)


def _add_options(
    sequence: ArgumentSequence, options: Sequence[Sequence[Pieces]], separator: int
) -> list[tuple[int, int]]:
    """Append the options that fit; an option without tokens keeps its place."""
    found: list[tuple[int, int]] = []
    room = MAX_OPTION_TOKENS
    for option in options:
        tokens = [piece for word in option for piece in word][:12]
        room -= len(tokens) + 1
        if room < 0 or not tokens:
            found.append((-1, -1))
            continue
        start = sequence.add(tokens, QUESTION)
        found.append((start, len(sequence.ids) - 1))
        sequence.add((separator,), QUESTION)
    return found


def _measure_parameter(parameter: ParameterWords) -> int:
    text = min(MAX_PARAMETER_TOKENS, sum(map(len, parameter.text)))
    options = sum(sum(map(len, option)) + 1 for option in parameter.options)
    return text + 2 + min(MAX_OPTION_TOKENS, options)
