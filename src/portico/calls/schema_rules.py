"""Rules of a JSON Schema for one value, and suggestions for misspelt names. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from portico.catalog.tool import quote_text

JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_NULL_ONLY = frozenset({"null"})

Schema = Mapping[str, Any]


MAX_SUGGESTIONS = 3
MAX_NAME_CHARS = 60
_MAX_PARAMETERS = 200
_MIN_SIMILARITY = 0.6
"""Least ratio at which two names are alike: `tittle` and `title` are, `city` and `zip` are not."""


@dataclass(frozen=True)
class ValueRules:
    types: frozenset[str] | None = None
    """Allowed types; None for any."""
    allowed_values: tuple[Any, ...] | None = None
    """Allowed values; None for any."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    is_closed: bool = False
    additional: Any = None
    items: Any = None
    choices: tuple["ValueRules", ...] = ()
    """Branches of `anyOf` or `oneOf`, one of which applies too."""

    def merge(self, other: "ValueRules") -> "ValueRules":
        """Return the rules of both; where they contradict each other, the own ones."""
        types = self.types or other.types
        if self.types is not None and other.types is not None:
            types = self.types & other.types
        choices = self.choices or other.choices
        if self.choices and other.choices:
            choices = (ValueRules(),)
        return ValueRules(
            types,
            other.allowed_values if self.allowed_values is None else self.allowed_values,
            {**other.properties, **self.properties},
            self.required | other.required,
            self.is_closed or other.is_closed,
            other.additional if self.additional is None else self.additional,
            other.items if self.items is None else self.items,
            choices,
        )

    def choose_branch(self, json_type: str) -> "ValueRules":
        """Merge the only choice that allows this type; drop the choices if several do."""
        possible = [
            choice
            for choice in self.choices
            if (types := choice.get_allowed()[0]) is None or json_type in types
        ]
        own = replace(self, choices=())
        if len(possible) == 1 and not possible[0].choices:
            return own.merge(possible[0])
        return own

    def get_allowed(self) -> tuple[frozenset[str] | None, tuple[Any, ...] | None]:
        """Return the types and values that any of the choices allows; None for any."""
        types = self.types
        values = self.allowed_values
        if self.choices:
            allowed = [choice.get_allowed() for choice in self.choices]
            if all(one[0] is not None for one in allowed):
                choice_types = frozenset[str]().union(*(one[0] or () for one in allowed))
                types = choice_types if types is None else types & choice_types
            if values is None and all(
                one[1] is not None or one[0] == _NULL_ONLY for one in allowed
            ):
                listed = [(None,) if one[1] is None else one[1] for one in allowed]
                values = tuple(value for part in listed for value in part)
        if types is None and values:
            types = frozenset(map(get_json_type, values))
        return types, values

    def forbids_null(self) -> bool:
        types, values = self.get_allowed()
        if types is not None and "null" not in types:
            return True
        return values is not None and not is_among(None, values)


def read_own_rules(schema: Schema) -> ValueRules:
    """Return the rules of a schema itself, without references and subschemas."""
    named = schema.get("type")
    if isinstance(named, str):
        named = [named]
    types = frozenset[str]()
    if isinstance(named, list):
        types = frozenset(name for name in named if isinstance(name, str))
    allowed_values = None
    if isinstance(values := schema.get("enum"), list):
        allowed_values = tuple(values)
    elif "const" in schema:
        allowed_values = (schema["const"],)
    properties = schema.get("properties")
    required = schema.get("required")
    others = schema.get("additionalProperties")
    return ValueRules(
        types if types and types <= JSON_TYPES else None,
        allowed_values,
        properties if isinstance(properties, dict) else {},
        frozenset(filter(_is_text, required)) if isinstance(required, list) else frozenset(),
        others is False and "patternProperties" not in schema,
        others if isinstance(others, dict) else None,
        schema.get("items"),
    )


def get_json_type(value: Any) -> str:
    """Return the name of a value's type in JSON Schema."""
    if value is None:
        return "null"
    for python_type, name in (
        (bool, "boolean"),  # before int, which it is a kind of
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, python_type):
            return name
    return "object"


def is_among(value: Any, allowed_values: tuple[Any, ...]) -> bool:
    """Return whether a value is one of these as in JSON, where 1 and 1.0 are equal, 1 and true are
    not."""
    return any(
        value == word and isinstance(value, bool) == isinstance(word, bool)
        for word in allowed_values
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def suggest_names(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Suggest a parameter for each unknown argument; empty if none is similar or missing."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return ()
    required_names: list[str] = []
    if isinstance(required, list):
        required_names = [name for name in required if isinstance(name, str)]
    unused = [
        name for name in dict.fromkeys([*required_names, *properties]) if name not in arguments
    ][:_MAX_PARAMETERS]
    missing = [name for name in required_names if name not in arguments]
    if not missing and schema.get("additionalProperties") is not False:
        return ()
    unknown = [name for name in arguments if name not in properties and len(name) <= MAX_NAME_CHARS]
    suggestions: list[str] = []
    for name in unknown[:MAX_SUGGESTIONS]:
        # One missing and one unknown name belong together, however they are spelt.
        only_missing = missing[0] if len(missing) == len(unknown) == 1 else None
        if (suggestion := find_nearest(name, unused) or only_missing) is not None:
            suggestions.append(
                f"unknown argument {quote_text(name)}: "
                f"did you mean {quote_text(suggestion, MAX_NAME_CHARS)}?"
            )
    return tuple(suggestions)


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, or the one that `name` abbreviates; None if none is close."""
    scored = [
        (_score_similarity(name.casefold(), candidate.casefold()), candidate)
        for candidate in names
        if len(candidate) <= MAX_NAME_CHARS
    ]
    best = max(scored, default=(0.0, ""), key=lambda pair: pair[0])
    if best[0] >= _MIN_SIMILARITY:
        return best[1]
    return None


def _score_similarity(one: str, other: str) -> float:
    from rapidfuzz import fuzz  # imported here because only wrong names need it

    short, long = sorted((one, other), key=len)
    if not short:
        return 0.0
    ratio = fuzz.ratio(one, other) / 100
    if len(short) == 1:
        return ratio
    if long.startswith(short) or short in long.replace("-", "_").split("_"):
        return max(ratio, 0.9)
    letters = iter(long)
    if short[0] == long[0] and all(letter in letters for letter in short):
        return max(ratio, 0.7)
    return ratio
