"""The text of a description → plain values: JSON or YAML, whichever it is."""

from typing import Any, cast

from portico.json_text import json_codec
from portico.upstream.backend import Raw

MAX_VALUES = 20_000
MAX_CHARACTERS = 1_000_000


def parse_document(data: bytes) -> Raw:
    """The object in a document; ValueError, in words, where there is none."""
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
    """A value as JSON has it; ValueError where it has none such (structures with a loop), or it is
    enormous."""
    if not _is_small(value):
        raise ValueError("it is too large to be shown")
    try:
        return json_codec.loads(json_codec.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it cannot be said in JSON") from None


def _is_small(value: Any) -> bool:
    """Whether it stays small when it is written out: YAML's aliases of aliases do not."""
    count = characters = 0
    waiting = [value]
    while waiting:
        one: Any = waiting.pop()
        count += 1
        if isinstance(one, str):
            characters += len(one)
        elif isinstance(one, dict):
            characters += sum(len(str(key)) for key in cast(Raw, one))
            waiting.extend(cast(Raw, one).values())
        elif isinstance(one, list):
            waiting.extend(cast("list[Any]", one))
        if count + len(waiting) > MAX_VALUES or characters > MAX_CHARACTERS:
            return False
    return True
