"""Reads what was said: where each thing to do begins, and which words are which argument.

A small network points from each parameter of a tool to its value, another one tells what is to be
done and which tool does it (`search/dense/reader.py`).
Bounded by the limits of `argument_sequence`; runs in a thread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portico.catalog.schema_types import to_one_line
from portico.catalog.tool import Tool, to_literal
from portico.search.dense.reader import ReaderNetwork
from portico.workflows.planning.argument_sequence import (
    MAX_SAID_TOKENS,
    ArgumentSequence,
    ParameterWords,
    SpecialTokens,
    build_sequence,
)
from portico.workflows.planning.parameters import Leaf, list_leaves, split_identifier
from portico.workflows.planning.said_words import SaidWords, encode_pieces, read_said_words

_BEGINS = 0.5
_SHORT_CLAUSE = 8
_MAX_SPANS = 4
_MAX_SPAN_WORDS = 60
_MIN_CLAUSE_WORDS = 2
_DESCRIBED_LEAVES = 8
_MAX_DESCRIPTION = 400


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing to do, as first and last word."""

    first: int
    last: int

    @property
    def is_short(self) -> bool:
        """Whether it may only say where something is to be done."""
        return self.last - self.first < _SHORT_CLAUSE


@dataclass(frozen=True, slots=True)
class LeafReading:
    """How likely each thing that was said is the value of one parameter."""

    leaf: Leaf
    absent: float
    inputs: tuple[float, ...]
    """By input."""
    options: tuple[float, ...]
    """By option of the parameter."""
    spans: tuple[tuple[float, int, int], ...]
    """Likelihood, first and last word; the best first."""
    values: tuple[float, ...] = ()
    """By value that was said in the intent."""


class ArgumentReader:
    """Reads intents with the shipped networks."""

    def __init__(self, network: ReaderNetwork, chooser: ReaderNetwork) -> None:
        self._network = network
        self._chooser = chooser
        self.tokenizer = network.tokenizer
        vocabulary = network.tokenizer.vocabulary
        self._special = SpecialTokens(
            vocabulary["[CLS]"], vocabulary["[SEP]"], vocabulary["[MASK]"]
        )

    def read_words(self, intent: str, inputs: dict[str, object]) -> SaidWords:
        """Split an intent and its inputs into words."""
        return read_said_words(intent, inputs, self.tokenizer)

    def split_clauses(self, said: SaidWords, limit: int) -> list[Clause]:
        """Return the things to do, in order."""
        begins = [0]
        for number, likely in enumerate(self.find_beginnings(said)):
            is_far = number - begins[-1] >= _MIN_CLAUSE_WORDS
            if likely > _BEGINS and is_far and len(begins) < limit:
                begins.append(number)
        ends = [*(number - 1 for number in begins[1:]), len(said.spans) - 1]
        return [Clause(at, end) for at, end in zip(begins, ends, strict=True)]

    def find_beginnings(self, said: SaidWords) -> list[float]:
        """Return by word how likely another thing to do begins there."""
        ids = [self._special.first]
        places: list[int] = []
        for pieces in said.pieces[: len(said.spans)]:
            if len(ids) + len(pieces) > MAX_SAID_TOKENS:
                break
            places.append(len(ids))
            ids.extend(pieces)
        ids.append(self._special.separator)
        states = self._chooser.compute_states(ids, [0] * len(ids))
        likely = self._chooser.find_beginnings(states)
        return [float(likely[place]) for place in places]

    def judge_tool(self, said: SaidWords, clause: tuple[int, int], tool: Tool) -> float:
        """Return how surely a tool does what a clause wants, as a logit."""
        words = encode_pieces(self.tokenizer, describe_choice(tool))
        in_clause = self._mark_clause(said, clause)
        sequence = build_sequence(self._special, said.pieces, in_clause, words, ())
        states = self._chooser.compute_states(sequence.ids, sequence.kinds)
        return self._chooser.judge_tool(states)

    def _mark_clause(self, said: SaidWords, clause: tuple[int, int]) -> list[bool]:
        """Return for each word whether it is in the clause; those of inputs always are."""
        words = len(said.spans)
        return [clause[0] <= at <= clause[1] or at >= words for at in range(len(said.pieces))]

    def read_arguments(
        self, said: SaidWords, clause: tuple[int, int], tool: Tool, leaves: Sequence[Leaf]
    ) -> list[LeafReading]:
        """Read the parameters of one tool, as many passes as they need."""
        in_clause = self._mark_clause(said, clause)
        tool_words = encode_pieces(self.tokenizer, describe_tool_words(tool))
        asked = [self._describe_leaf(leaf) for leaf in leaves]
        found: list[LeafReading] = []
        while len(found) < len(leaves):
            sequence = build_sequence(
                self._special, said.pieces, in_clause, tool_words, asked[len(found) :]
            )
            states = self._network.compute_states(sequence.ids, sequence.kinds)
            first, last = self._network.point(states, sequence.marks)
            start = len(found)
            for place in range(len(sequence.marks)):
                leaf = leaves[start + place]
                found.append(_read_leaf(leaf, place, said, sequence, first[place], last[place]))
        return found

    def _describe_leaf(self, leaf: Leaf) -> ParameterWords:
        options = [encode_pieces(self.tokenizer, write_option(option)) for option in leaf.options]
        text = encode_pieces(self.tokenizer, leaf.describe())
        return ParameterWords(tuple(text), tuple(map(tuple, options)))


def write_option(option: object) -> str:
    """Return an option as it is read."""
    return option if isinstance(option, str) else to_literal(option)


def describe_tool_words(tool: Tool) -> str:
    """Return a tool's name, its server and its first words, as they are read."""
    name = " ".join(split_identifier(f"{tool.name} {tool.server}"))
    return f"{name}: {tool.description[:120]}"


def describe_choice(tool: Tool) -> str:
    """Return what a tool is told by where it is read without its parameters."""
    name = " ".join(split_identifier(f"{tool.name} {tool.server}"))
    leaves = list_leaves(tool)[:_DESCRIBED_LEAVES]
    taken = ", ".join(" ".join(split_identifier(leaf.name)) for leaf in leaves)
    return f"{name} ({taken}): {to_one_line(tool.description[:_MAX_DESCRIPTION])}"


def _read_leaf(
    leaf: Leaf,
    place: int,
    said: SaidWords,
    sequence: ArgumentSequence,
    first_scores: NDArray[np.float32],
    last_scores: NDArray[np.float32],
) -> LeafReading:
    options = sequence.options[place]
    positions = [0, *(at for at in sequence.said if at >= 0)]
    positions += [at for option in options for at in option if at >= 0]
    first = _to_probabilities(first_scores, positions)
    last = _to_probabilities(last_scores, positions)
    inputs = [
        _sum_region(first, last, sequence.said[given.first : given.last + 1])
        for given in said.inputs
    ]
    chosen = [math.sqrt(first[begin] * last[end]) if begin >= 0 else 0.0 for begin, end in options]
    spans = _find_spans(first, last, sequence.said[: len(said.spans)])
    values = [
        _sum_region(first, last, sequence.said[value.first : value.last + 1])
        for value in said.values
    ]
    absent = math.sqrt(first[0] * last[0])
    return LeafReading(leaf, absent, tuple(inputs), tuple(chosen), spans, tuple(values))


def _to_probabilities(scores: NDArray[np.float32], positions: Sequence[int]) -> NDArray[np.float32]:
    found = np.zeros_like(scores)
    chosen = scores[list(positions)]
    raised = np.exp(chosen - chosen.max())
    found[list(positions)] = raised / raised.sum()
    return found


def _sum_region(
    first: NDArray[np.float32], last: NDArray[np.float32], positions: Sequence[int]
) -> float:
    places = [at for at in positions if at >= 0]
    return math.sqrt(first[places].sum() * last[places].sum())


def _find_spans(
    first: NDArray[np.float32], last: NDArray[np.float32], positions: Sequence[int]
) -> tuple[tuple[float, int, int], ...]:
    """Return the most likely spans of words; overlapping ones of lesser likelihood too."""
    places = [(number, at) for number, at in enumerate(positions) if at >= 0]
    begins = sorted(places, key=lambda item: -first[item[1]])[:_MAX_SPANS]
    ends = sorted(places, key=lambda item: -last[item[1]])[:_MAX_SPANS]
    # A long span may run from one likely value to another: it counts for less.
    found = [
        (math.sqrt(first[begin_at] * last[end_at]) * 0.99 ** (end - begin), begin, end)
        for begin, begin_at in begins
        for end, end_at in ends
        if begin <= end < begin + _MAX_SPAN_WORDS
    ]
    return tuple(sorted(found, reverse=True)[:_MAX_SPANS])
