"""Random JMESPath, results to select from, and texts of workflows that refer to them."""

import random
from typing import Any

LONGEST = 1_000
_STEPS = (
    "rows",
    "[*]",
    "[]",
    ".*",
    "[0]",
    "[-1]",
    "[::2]",
    "[::-1]",
    "[?a]",
    "[?a>`1`]",
    "[?contains(@.tags,'a')]",
    ".[@,@]",
    ".{a:@,b:@}",
    ".tags",
    ".a",
    ".[a,a,a]",
)
_PIPED = (
    "[@,@]",
    "[@,@]",
    "[@,@,@,@]",
    "[@,@][]",
    "{a:@,b:@}",
    "[]",
    "[*]",
    "@",
    "to_string(@)",
    "to_array(@)",
    "length(@)",
    "keys(@)",
    "values(@)",
    "reverse(@)",
    "sort(@)",
    "map(&[@,@],@)",
    "map(&to_string(@),@)",
    "sort_by(@,&a)",
    "max_by(@,&a)",
    "join(',',@)",
    "join(to_string(@[0]),@)",
    "merge(@,@)",
    "not_null(@,@)",
    "contains(@,'a')",
    "to_string([@,@])",
    "[to_string(@),to_string(@)]",
    "type(@)",
    "[?@==@]",
    "[?to_string(@)]",
)


def make_path(dice: random.Random) -> str:
    """A path of up to a thousand characters; most of them are valid."""
    path = (
        "rows" + "".join(dice.choices(_STEPS[1:], k=dice.choice([0, 1, 3])))
        if dice.random() < 0.7
        else "@"
    )
    kind = dice.random()
    if kind < 0.4:  # one step again and again
        path += f"|{dice.choice(_PIPED)}" * dice.choice([5, 15, 22, 27, 40, 90])
    elif kind < 0.5:
        path = "(" * 200 + path + ")" * 200
    path += "".join(f"|{step}" for step in dice.choices(_PIPED, k=dice.choice([1, 2, 4, 12])))
    return path[:LONGEST]


def make_result(dice: random.Random, size: int) -> dict[str, Any]:
    """A result of about so many characters, over rows of one shape."""
    row: Any = dice.choice(
        [
            {"a": 1, "name": "row", "tags": ["a", "b"]},
            [1, 2, 3],
            "text " * 4,
            {"a": {"a": {"a": [{"a": 1}]}}},
            [],
            {f"k{n}": n for n in range(20)},
        ]
    )
    return {"rows": [row] * max(1, size // len(repr(row)))}


def make_text(dice: random.Random) -> str:
    """A text of a workflow with a few references."""
    name = dice.choice(["inputs", "inputs.rows", "s0", "s0.structuredContent"])
    reference = f"${{{name}|{make_path(dice).replace('rows', '@', 1)}}}"[:LONGEST]
    return dice.choice(["{}", "x {}", "{0} {0} {0}"]).format(reference)
