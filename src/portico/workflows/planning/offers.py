"""Values that may go to parameters, and those that are chosen. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from portico.catalog.schema_validator import is_valid_for_schema
from portico.workflows.planning.argument_reader import LeafReading
from portico.workflows.planning.parameters import Leaf
from portico.workflows.planning.tool_choice import ChosenTool
from portico.workflows.planning.values import NOTHING, Each, convert_input, fit_objects

LEAST = 0.5
"""Score from which a value is taken."""

Source = tuple[str, int, int]
"""An input by its number, words from one to another, or an option by its number."""


@dataclass(frozen=True, slots=True)
class StepReading:
    """A chosen tool, and what was said for each of its parameters."""

    choice: ChosenTool
    leaves: Sequence[LeafReading]


@dataclass(frozen=True, slots=True)
class Offer:
    """A value that may go to a parameter."""

    score: float
    step: int
    leaf: int
    source: Source
    value: Any


Place = tuple[int, int]
"""A step and a parameter of it, by their numbers."""
Assignment = dict[Place, Offer]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the caller passed for a parameter by its address, `step.parameter`."""

    places: frozenset[Place] = frozenset()
    inputs: frozenset[tuple[int, int]] = frozenset()
    """By step, the inputs of the same value: the step has them."""

    def is_open(self, offer: Offer) -> bool:
        """Return whether an offer is for something that was not answered."""
        if offer.source[0] == "input" and (offer.step, offer.source[1]) in self.inputs:
            return False
        return (offer.step, offer.leaf) not in self.places


def fit_value(value: Any, leaf: Leaf, leaves: Sequence[Leaf]) -> Any:
    """Convert an input to what a parameter takes; NOTHING if it takes no such value."""
    converted = fit_objects(convert_input(value, leaf), leaf, leaves)
    items = converted.values if isinstance(converted, Each) else [converted]
    if all(is_fit(item, leaf) for item in items):
        return converted
    return NOTHING


def is_fit(value: Any, leaf: Leaf) -> bool:
    """Return whether there is a value, and the schema of the parameter takes it."""
    return value is not NOTHING and is_valid_for_schema(leaf.schema.source, value)


def overlaps(one: Source, other: Source) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]
