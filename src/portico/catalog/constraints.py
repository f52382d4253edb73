"""What a schema demands of a value, each demand in a few characters. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from portico.catalog.visible_text import sanitize_text, to_literal

_SAFE_INTEGER = 2**53 - 1
"""The bound that schema generators write for "any integer"; it tells a caller nothing."""

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
    """Formats, ranges, patterns and rules of a schema of this kind."""
    for key in ("format", "contentEncoding", "contentMediaType"):
        if isinstance(schema.get(key), str):
            yield sanitize_text(schema[key])
    for kinds, low_key, high_key, unit in _RANGES:
        low = schema.get(low_key)
        high = schema.get(high_key)
        if low == -_SAFE_INTEGER:
            low = None
        else:
            low = low
        if high == _SAFE_INTEGER:
            high = None
        else:
            high = high
        if kind in kinds and (low is not None or high is not None):
            if low is None or high is None:
                yield f"≥{to_literal(low)}{unit}" if high is None else f"≤{to_literal(high)}{unit}"
            else:
                yield (
                    f"{to_literal(low)}..{to_literal(high)}{unit}"
                    if low != high
                    else f"{to_literal(low)}{unit}"
                )
    for key, form in _LABELLED.items():
        # Draft 4 wrote a bound's exclusiveness as a flag beside it.
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
