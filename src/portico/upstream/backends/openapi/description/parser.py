"""Parses the text of a description, JSON or YAML, to plain values."""

from typing import Any, cast

from portico.json_text import json_codec
from portico.upstream.backend import Raw

MAX_VALUES = 20_000
"""Values of a converted default, enum or example."""
MAX_CHARACTERS = 1_000_000
"""Characters of a converted default, enum or example."""


def parse_document(data: bytes) -> Raw:
    """Return the object in a document; raise ValueError with a reason if there is none."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return _require_object(json_codec.loads(data))
        except ValueError as error:
            if data.lstrip()[:1] == b"[":
                raise ValueError(f"it is no JSON: {error}") from None
            try:
                return _require_object(_parse_yaml_or_raise(data))
            except ValueError:
                raise ValueError(f"it is no JSON: {error}") from None
    return _require_object(_parse_yaml_or_raise(data))


def _require_object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise ValueError("it is no object, but a description of an API is one")
    return cast(Raw, value)


def _parse_yaml_or_raise(data: bytes) -> Any:
    from portico.upstream.backends.openapi.description.yaml_parser import (
        YamlSyntaxError,
        parse_yaml,
    )

    try:
        return parse_yaml(data)
    except YamlSyntaxError as error:
        raise ValueError(f"it is neither JSON nor YAML: {error}") from None


def to_json_value(value: Any) -> Any:
    """Return a value as JSON; raise ValueError if it is circular, unsupported or too large."""
    if not _is_small(value):
        raise ValueError("it is too large to be shown")
    try:
        return json_codec.loads(json_codec.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it cannot be said in JSON") from None


def _is_small(value: Any) -> bool:
    """Return whether a value stays small when written out, unlike nested YAML aliases."""
    count = characters = 0
    stack = [value]
    while stack:
        node: Any = stack.pop()
        count += 1
        if isinstance(node, str):
            characters += len(node)
        elif isinstance(node, dict):
            characters += sum(len(str(key)) for key in cast(Raw, node))
            stack.extend(cast(Raw, node).values())
        elif isinstance(node, list):
            stack.extend(cast("list[Any]", node))
        if count + len(stack) > MAX_VALUES or characters > MAX_CHARACTERS:
            return False
    return True
