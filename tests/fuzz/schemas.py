"""Random schemas, and values that nearly fit them: what makes a validator, its explanations and
repairs work hard.

Everything comes from a `random.Random`: a seed and a size are a case, and the same one again.
"""

import random
from collections.abc import Callable
from typing import Any

from portico.upstream.backend import Raw

PATTERNS = (
    "^((?=a)a+)+$",
    "^(a|(?=a)aa)+$",
    "^(?!.*(a+)+b)",
    "(a*)*\\1b",
    "(?<=a)(a|aa)+$",
    "(?<!b)(ab|a|b)+c$",
    "^((a{1,40}){1,40}){1,20}$",
    "^(a|b|ab)*c$",
    "(.*)(.*)(.*)\\1\\2x$",
    "^[a-z]{3}$",
)
FORMATS = (
    "email",
    "uri",
    "date-time",
    "regex",
    "ipv6",
    "uuid",
    "idn-hostname",
    "json-pointer",
    "uri-template",
)
DEFS = 4
NAMES = ("a", "b", "c", "items", "next", "name0", "name1")
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")

Make = Callable[[random.Random, int], Any]


def make_schema(dice: random.Random) -> Raw:
    """An object schema with recursive definitions."""
    schema: Raw = {
        "type": "object",
        "properties": {name: _node(dice, 3) for name in dice.sample(NAMES, 3)},
        "$defs": {f"d{n}": _node(dice, 3) for n in range(DEFS)},
    }
    if dice.random() < 0.3:
        schema["$defs"]["d0"] = {"$dynamicAnchor": "T", **_combine(dice, 2)}
    if dice.random() < 0.4:
        schema |= _of_object(dice, 2)
    if dice.random() < 0.2:
        schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    return schema


def _node(dice: random.Random, depth: int) -> Any:
    if depth <= 0:
        return dice.choice([{"type": dice.choice(TYPES)}, _reference(dice), True])
    return dice.choice(_NODES)(dice, depth)


def _reference(dice: random.Random, _: int = 0) -> Raw:
    if dice.random() < 0.1:
        return {"$dynamicRef": "#T"}
    return {"$ref": dice.choice(["#", *(f"#/$defs/d{n}" for n in range(DEFS))])}


def _of_text(dice: random.Random, _: int) -> Raw:
    if dice.random() < 0.2:
        return {"enum": [f"word {n}" for n in range(dice.choice([3, 300, 5_000]))]}
    if dice.random() < 0.7:
        return {"type": "string", "pattern": dice.choice(PATTERNS)}
    return {"type": "string", "format": dice.choice(FORMATS)}


def _of_array(dice: random.Random, depth: int) -> Raw:
    schema: Raw = {"type": "array", "items": _node(dice, depth - 1)}
    if dice.random() < 0.3:
        schema["uniqueItems"] = True
    if dice.random() < 0.2:
        schema |= {"contains": _node(dice, depth - 1), "minContains": 3}
    if dice.random() < 0.2:
        schema["prefixItems"] = [_node(dice, depth - 1) for _ in range(3)]
    return schema


def _of_object(dice: random.Random, depth: int) -> Raw:
    schema: Raw = {"type": "object"}
    for keyword, make in (
        ("properties", lambda: {name: _node(dice, depth - 1) for name in dice.sample(NAMES, 2)}),
        ("additionalProperties", lambda: _node(dice, depth - 1)),
        (
            "patternProperties",
            lambda: {pattern: _node(dice, depth - 1) for pattern in dice.sample(PATTERNS, 2)},
        ),
        ("propertyNames", lambda: {"pattern": dice.choice(PATTERNS)}),
        ("dependentSchemas", lambda: {name: _node(dice, depth - 1) for name in NAMES}),
        ("unevaluatedProperties", lambda: dice.choice([False, _node(dice, depth - 1)])),
        ("required", lambda: [f"r{n}" for n in range(dice.choice([1, 50, 2_000]))]),
        ("minProperties", lambda: 10),
    ):
        if dice.random() < 0.35:
            schema[keyword] = make()
    return schema


def _combine(dice: random.Random, depth: int) -> Raw:
    count = dice.choice([2, 2, 3, 30])
    return {
        dice.choice(["anyOf", "oneOf", "allOf"]): [_node(dice, depth - 1) for _ in range(count)]
    }


def _lists_of_itself(dice: random.Random, _: int) -> Raw:
    """The worst there is: each level of the value is tried in several ways."""
    again = {"type": "array", "items": _reference(dice)}
    return {dice.choice(["anyOf", "oneOf"]): [again] * dice.choice([2, 3, 10])}


def _conditional(dice: random.Random, depth: int) -> Raw:
    keywords = dice.sample(["not", "if", "then", "else"], 3)
    return {keyword: _node(dice, depth - 1) for keyword in keywords}


_NODES: tuple[Make, ...] = (
    *(_of_text, _of_array, _of_array, _of_object, _of_object),
    *(_combine, _combine, _lists_of_itself, _conditional, _reference),
)


# --- values


def make_value(dice: random.Random, schema: Raw, size: int) -> Raw:
    """Arguments of about so many characters: some of what the schema names, each of one shape or
    another."""
    names = [*schema.get("properties", {})]
    chosen = dice.sample(names, dice.randint(1, len(names))) if names else ["a"]
    value: Raw = {name: dice.choice(_VALUES)(dice, size // len(chosen)) for name in chosen}
    if dice.random() < 0.2:
        value |= {f"name{n}": 1 for n in range(size // 10)}
    return value


def _deep(dice: random.Random, size: int) -> Any:
    value: Any = dice.choice([1, "a", [], {}, None])
    for _ in range(min(200, size // 2)):
        value = [value] if dice.random() < 0.8 else {"items": value}
    return value


def _wide(dice: random.Random, size: int) -> Any:
    item = dice.choice([[], {}, 1, "a", None, {"a": 1}, [[1]], [[], []], {"next": {"next": []}}])
    return [item] * (size // (len(repr(item)) + 1))


def _distinct(dice: random.Random, size: int) -> Any:
    return [n if dice.random() < 0.9 else {"a": n} for n in range(size // 8)]


def _bushy(dice: random.Random, size: int) -> Any:
    value: Any = dice.choice([1, "a", []])
    across = dice.choice([2, 3, 10])
    weight = 2
    while weight * across < size:
        value = (
            [value] * across if dice.random() < 0.7 else {f"name{n}": value for n in range(across)}
        )
        weight *= across
    return value


def _names(dice: random.Random, size: int) -> Any:
    return {f"name{n}": dice.choice([1, "a", []]) for n in range(size // 12)}


def _text(dice: random.Random, size: int) -> Any:
    return dice.choice(["a", "ab", "a@b.", "(a|b)*", "[1,", "1"]) * (size // 4) + dice.choice(
        ["", "!", "b"]
    )


def _json_text(dice: random.Random, size: int) -> Any:
    return "[" + dice.choice(["[],", "1,", '"a",', "{},"]) * (size // 4) + "1]"


_VALUES: tuple[Make, ...] = (
    _deep,
    _wide,
    _wide,
    _distinct,
    _bushy,
    _bushy,
    _names,
    _text,
    _json_text,
)
