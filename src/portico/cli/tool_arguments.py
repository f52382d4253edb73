"""Parses the words after a tool's name into arguments, using the types of its schema. Pure.

`{"a": 1}` is used as it is. `a=1 name=x tags=red,blue filter.year=2024` is read key by key: a
number where the schema wants one, a list from commas or a repeated key, an object from dotted
keys; `key:=JSON` gives an exact value.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from portico.errors import InvalidArguments
from portico.json_text import json_codec

Schema = Mapping[str, Any]

_TYPES: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}
_UNION_KEYS = ("anyOf", "oneOf", "allOf")
_MAX_DEPTH = 8


def parse_arguments(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Parse words into arguments; raises InvalidArguments."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return parse_object(words[0])
    pairs: dict[str, list[str]] = {}
    exact: dict[str, Any] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise InvalidArguments(
                f"{word!r} is no argument",
                advice=(
                    "Write key=value, key:=JSON, one JSON object in quotes, or - to read JSON "
                    "from stdin."
                ),
            )
        if key.endswith(":"):
            exact[key[:-1]] = _parse_json(value, key[:-1])
        else:
            pairs.setdefault(key, []).append(value)
    arguments: dict[str, Any] = {}
    for key, values in pairs.items():
        path, inner = _locate_key(key, schema)
        _set_at_path(arguments, path, _parse_values(values, inner, schema))
    for key, value in exact.items():
        _set_at_path(arguments, _locate_key(key, schema)[0], value)
    return arguments


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object of arguments; raises InvalidArguments."""
    try:
        value = json_codec.loads(text.encode() if isinstance(text, str) else text)
    except ValueError as error:
        raise InvalidArguments(
            f"the arguments are not JSON: {error}", advice='Write them like {"key": "value"}.'
        ) from None
    if not isinstance(value, dict):
        raise InvalidArguments(
            "the arguments must be one JSON object", advice='Write them like {"key": "value"}.'
        )
    return cast("dict[str, Any]", value)


def _parse_json(text: str, key: str) -> Any:
    try:
        return json_codec.loads(text.encode())
    except ValueError as error:
        raise InvalidArguments(
            f"{key}:= is not followed by JSON: {error}", advice=f'For text write {key}="…".'
        ) from None


def _locate_key(key: str, schema: Schema) -> tuple[list[str], Schema]:
    """Return the path of a key and its schema, splitting at dots where the schema has objects."""
    properties = _collect_properties(schema, schema)
    if key in properties:
        return [key], properties[key]
    head, dot, rest = key.partition(".")
    if dot and rest and head in properties:
        path, inner = _locate_key(rest, _SubSchema(properties[head], schema))
        return [head, *path], inner
    return [key], {}


class _SubSchema(dict[str, Any]):
    """A part of a schema with a reference to its root."""

    def __init__(self, part: Schema, root: Schema) -> None:
        super().__init__(part)
        if isinstance(root, _SubSchema):
            self.root = root.root
        else:
            self.root = root


def _collect_properties(part: Schema, root: Schema) -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for variant in _iterate_variants(part, root):
        properties = variant.get("properties")
        if isinstance(properties, dict):
            for name, inner in cast("dict[str, Any]", properties).items():
                found.setdefault(name, inner if isinstance(inner, dict) else {})
    return found


def _iterate_variants(part: Schema, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """Yield a schema, the target of its reference, and each of its branches, recursively."""
    yield part
    if depth >= _MAX_DEPTH:
        return
    target = _resolve_reference(part.get("$ref"), root)
    if target is not None:
        yield from _iterate_variants(target, root, depth + 1)
    for key in _UNION_KEYS:
        branches = part.get(key)
        for branch in cast("list[Any]", branches) if isinstance(branches, list) else ():
            if isinstance(branch, dict):
                yield from _iterate_variants(cast(Schema, branch), root, depth + 1)


def _resolve_reference(reference: Any, root: Schema) -> Schema | None:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    if isinstance(root, _SubSchema):
        found: Any = root.root
    else:
        found = root
    for step in reference[2:].split("/"):
        if isinstance(found, dict):
            found = found.get(step.replace("~1", "/").replace("~0", "~"))
        else:
            found = None
    if isinstance(found, dict):
        return cast(Schema, found)
    return None


def _collect_types(part: Schema, root: Schema) -> set[str]:
    """Return the types a schema allows; empty if it does not say."""
    types: set[str] = set()
    for variant in _iterate_variants(part, root):
        declared = variant.get("type")
        if isinstance(declared, str):
            types.add(declared)
        elif isinstance(declared, list):
            types.update(cast("list[str]", declared))
        for value in [
            *_to_list(variant.get("enum")),
            *([variant["const"]] if "const" in variant else []),
        ]:
            types.update(_TYPES.get(type(value), ()))
    return types


def _to_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def _parse_values(values: list[str], part: Schema, root: Schema) -> Any:
    types = _collect_types(part, root)
    if "array" in types and not (len(values) == 1 and values[0].lstrip().startswith("[")):
        if len(values) == 1 and types & {"string", "object"}:
            return _parse_scalar(values[0], types)
        items = next(
            (
                variant["items"]
                for variant in _iterate_variants(part, root)
                if isinstance(variant.get("items"), dict)
            ),
            {},
        )
        if len(values) == 1:
            texts = [item.strip() for item in values[0].split(",") if item.strip()]
        else:
            texts = values
        return [_parse_scalar(item, _collect_types(items, root)) for item in texts]
    return _parse_scalar(values[-1], types)


def _parse_scalar(text: str, types: set[str]) -> Any:
    """Parse text as one of the types; text that fits none stays text, for validation to reject."""
    if types == {"string"}:
        return text
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json_codec.loads(text.encode())
    except ValueError:
        return text
    if not types:
        return value
    # A string type takes text literally, unless a more specific type fits.
    if types & {*_TYPES.get(type(value), ())} and not isinstance(value, str):
        return value
    return text


def _set_at_path(into: dict[str, Any], path: list[str], value: Any) -> None:
    *sections, last = path
    for section in sections:
        inner = into.setdefault(section, {})
        if not isinstance(inner, dict):
            raise InvalidArguments(
                f"{section} is given both whole and in parts", advice="Keep one of them."
            )
        into = cast("dict[str, Any]", inner)
    into[last] = value
