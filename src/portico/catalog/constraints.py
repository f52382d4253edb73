"""Describes the constraints of a schema, each in a few characters. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from portico.catalog.visible_text import sanitize_text, to_literal

_SAFE_INTEGER = 2**53 - 1
"""The bound that schema generators write for any integer; it carries no information."""

_RANGES = (
    (("integer", "number", "any"), "minimum", "maximum", ""),
    (("string", "any"), "minLength", "maxLength", " chars"),
    (("array", "any"), "minItems", "maxItems", " items"),
    (("object", "any"), "minProperties", "maxProperties", " keys"),
)
_LABELLED = {"exclusiveMinimum": ">{}", "exclusiveMaximum": "<{}", "multipleOf": "multiple of {}"}
_FLAGS = {"uniqueItems": "unique", "deprecated": "deprecated"}
_RAW = ("not", "contains", "dependentRequired", "dependentSchemas", "dependencies")


def describe_constraints(schema: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield formats, ranges, patterns and rules of a schema of this kind."""
    for key in ("format", "contentEncoding", "contentMediaType"):
        if isinstance(schema.get(key), str):
            yield sanitize_text(schema[key])
    for kinds, low_key, high_key, unit in _RANGES:
        low = schema.get(low_key)
        high = schema.get(high_key)
        if low == -_SAFE_INTEGER:
            low = None
        if high == _SAFE_INTEGER:
            high = None
        if kind not in kinds or (low is None and high is None):
            continue
        if high is None:
            yield f"≥{to_literal(low)}{unit}"
        elif low is None:
            yield f"≤{to_literal(high)}{unit}"
        elif low == high:
            yield f"{to_literal(low)}{unit}"
        else:
            yield f"{to_literal(low)}..{to_literal(high)}{unit}"
    for key, form in _LABELLED.items():
        # In draft 4 exclusiveness is a flag beside the bound.
        if schema.get(key) is True:
            value = schema.get(key[9:].lower())
        else:
            value = schema.get(key)
        if value is not None and value is not False:
            yield form.format(to_literal(value))
    if isinstance(schema.get("pattern"), str):
        yield f"/{sanitize_text(schema['pattern'])}/"
    yield from (word for key, word in _FLAGS.items() if schema.get(key) is True)
    if schema.get("enum") == []:
        yield "enum []"
    yield from (f"{key} {to_literal(schema[key])}" for key in _RAW if key in schema)
    all_of = schema.get("allOf")
    if isinstance(all_of, list):
        rules = cast("list[Any]", all_of)
    else:
        rules = []
    for rule in (schema, *rules):
        if isinstance(rule, dict) and "if" in rule:
            yield " ".join(
                f"{key} {to_literal(rule[key])}" for key in ("if", "then", "else") if key in rule
            )
