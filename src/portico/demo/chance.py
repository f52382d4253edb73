"""Chance: dice, choices and identifiers, reproducible with a seed, else from the system's
entropy.
"""

import random
import re
import secrets
import string
import time
import uuid
from typing import Annotated, Any, Literal

from pydantic import Field

from portico.demo.tool_factory import make_random_tool

LOOKALIKES = "Il1O0o"
SYMBOLS = "!#$%&*+-.:;=?@_~"

Seed = Annotated[int | None, Field(description="The same seed gives the same answer.")]

_DICE = re.compile(r"(\d{0,3})d(\d{1,4})([+-]\d{1,5})?", re.IGNORECASE)


def _make_generator(seed: int | None) -> random.Random:
    return random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - a seed asks for repetition


def roll_dice(
    dice: Annotated[
        str, Field(max_length=20, description="Such as d20, 2d6 or 3d8+2.", examples=["2d6"])
    ] = "1d6",
    seed: Seed = None,
) -> dict[str, Any]:
    """Roll dice in the usual notation and return every die and the total."""
    found = _DICE.fullmatch(dice.replace(" ", ""))
    number, sides = (int(found[1] or 1), int(found[2])) if found else (0, 0)
    if found is None or not 1 <= number <= 100 or sides < 2:
        raise ValueError(
            f"{dice!r} is not 1 to 100 dice of at least two sides; write it like 2d6 or 3d8+2"
        )
    source = _make_generator(seed)
    rolls = [source.randint(1, sides) for _ in range(number)]
    return {"rolls": rolls, "total": sum(rolls) + int(found[3] or 0)}


def random_numbers(
    minimum: Annotated[float, Field(description="Smallest possible.")] = 1,
    maximum: Annotated[float, Field(description="Largest possible.")] = 100,
    count: Annotated[int, Field(ge=1, le=1_000, description="How many.")] = 1,
    whole: Annotated[bool, Field(description="Only whole numbers.")] = True,
    seed: Seed = None,
) -> list[float]:
    """Draw random numbers from a range, both ends included."""
    low, high = (int(minimum), int(maximum)) if whole else (minimum, maximum)
    if low > high or (whole and (low != minimum or high != maximum)):
        raise ValueError(
            "minimum must not be above maximum, and both must be whole where whole numbers "
            "are wanted"
        )
    source = _make_generator(seed)
    return [
        source.randint(int(low), int(high)) if whole else source.uniform(low, high)
        for _ in range(count)
    ]


def pick_items(
    items: Annotated[
        list[str], Field(min_length=1, max_length=1_000, description="What to choose from.")
    ],
    count: Annotated[int, Field(ge=1, le=1_000, description="How many to pick.")] = 1,
    weights: Annotated[
        list[float] | None, Field(description="One weight per item; default: all alike.")
    ] = None,
    repeat: Annotated[bool, Field(description="An item may be picked more than once.")] = False,
    seed: Seed = None,
) -> list[str]:
    """Pick random items from a list, a lottery or a raffle, optionally with weights."""
    if weights is not None and (
        len(weights) != len(items) or min(weights) < 0 or sum(weights) <= 0
    ):
        raise ValueError("give one weight per item, none below zero and not all zero")
    source = _make_generator(seed)
    if repeat:
        return source.choices(items, weights, k=count)
    remaining = [
        (item, 1.0 if weights is None else weights[index]) for index, item in enumerate(items)
    ]
    remaining = [(item, weight) for item, weight in remaining if weight > 0]
    if count > len(remaining):
        raise ValueError(f"only {len(remaining)} items can be picked without repeating")
    picked: list[str] = []
    for _ in range(count):
        index = source.choices(range(len(remaining)), [weight for _, weight in remaining])[0]
        picked.append(remaining.pop(index)[0])
    return picked


def shuffle_items(
    items: Annotated[list[str], Field(max_length=10_000, description="What to shuffle.")],
    teams: Annotated[int, Field(ge=1, le=100, description="Deal them into this many groups.")] = 1,
    seed: Seed = None,
) -> list[list[str]]:
    """Shuffle a list, or divide people into random teams of equal size."""
    mixed = list(items)
    _make_generator(seed).shuffle(mixed)
    return [mixed[start::teams] for start in range(teams)]


def make_password(
    length: Annotated[int, Field(ge=8, le=128, description="Number of characters.")] = 20,
    symbols: Annotated[bool, Field(description="Use punctuation too.")] = True,
    readable: Annotated[
        bool, Field(description="Leave out characters that look alike (I l 1 O 0 o).")
    ] = True,
) -> str:
    """Make a strong random password with lower case, upper case, digits and symbols."""
    kinds = [
        string.ascii_lowercase,
        string.ascii_uppercase,
        string.digits,
        *([SYMBOLS] if symbols else []),
    ]
    if readable:
        kinds = ["".join(char for char in kind if char not in LOOKALIKES) for kind in kinds]
    everything = "".join(kinds)
    while True:
        password = "".join(secrets.choice(everything) for _ in range(length))
        if all(any(char in kind for char in password) for kind in kinds):
            return password


def make_uuids(
    version: Annotated[
        Literal["4", "7"], Field(description="4: random; 7: begins with the time, so it sorts.")
    ] = "4",
    count: Annotated[int, Field(ge=1, le=100, description="How many.")] = 1,
) -> list[str]:
    """Make unique identifiers (UUID or GUID), version 4 or 7."""
    return [str(uuid.uuid4() if version == "4" else _make_uuid7()) for _ in range(count)]


def _make_uuid7() -> uuid.UUID:
    stamp = time.time_ns() // 1_000_000
    value = stamp << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    return uuid.UUID(int=value)


TOOLS = (
    make_random_tool("Roll dice", roll_dice),
    make_random_tool("Random numbers", random_numbers),
    make_random_tool("Pick at random", pick_items),
    make_random_tool("Shuffle or make teams", shuffle_items),
    make_random_tool("Make a password", make_password),
    make_random_tool("Make UUIDs", make_uuids),
)
