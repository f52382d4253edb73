"""Conditions on arguments: the JSON Schema that a rule's `when` stands for. Pure."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

_TYPES_BY_KEYWORD = {
    **dict.fromkeys(("pattern", "minLength", "maxLength", "format"), "string"),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"
    ),
    **dict.fromkeys(("items", "prefixItems", "contains", "minItems", "maxItems"), "array"),
    **dict.fromkeys(("properties", "required", "additionalProperties"), "object"),
}
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties")
_SCHEMAS = ("items", "contains", "additionalProperties")


class Condition(Protocol):
    """A compiled condition."""

    def check(self, value: Any) -> bool | None:
        """Return whether arguments fit; None where that cannot be found out within the limits."""
        ...


def build_schema(when: Mapping[str, Any], *, is_strict: bool) -> dict[str, Any]:
    """Return the JSON Schema of the arguments that a `when` stands for.

    With `is_strict`, for rules that allow, a keyword such as `pattern` holds only for values of its
    type. By itself JSON Schema lets any value of another type pass, which is right for rules that
    deny.
    """
    properties: dict[str, Any] = {}
    for name, wanted in when.items():
        if isinstance(wanted, Mapping):
            properties[name] = _add_types(wanted) if is_strict else dict(wanted)
        elif isinstance(wanted, list):
            properties[name] = {"enum": wanted}
        else:
            properties[name] = {"const": wanted}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _add_types(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    typed = dict(cast("Mapping[str, Any]", schema))
    kinds = dict.fromkeys(_TYPES_BY_KEYWORD[key] for key in typed if key in _TYPES_BY_KEYWORD)
    for key in _LISTS_OF_SCHEMAS:
        if isinstance(typed.get(key), list):
            typed[key] = [_add_types(one) for one in typed[key]]
    for key in _MAPS_OF_SCHEMAS:
        if isinstance(typed.get(key), Mapping):
            typed[key] = {name: _add_types(one) for name, one in typed[key].items()}
    for key in _SCHEMAS:
        if key in typed:
            typed[key] = _add_types(typed[key])
    if kinds and "type" not in typed:
        typed["type"] = [*kinds]
    return typed
