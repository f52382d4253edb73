"""The text of a description → plain values: JSON or YAML, whichever it is."""

from typing import Any, cast

from portico.upstream import jsontext
from portico.upstream.backend import Raw

MOST_VALUES = 20_000
MOST_CHARACTERS = 1_000_000


def parsed(data: bytes) -> Raw:
    """The object in a document; ValueError, in words, where there is none."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return _object(jsontext.loads(data))
        except ValueError as error:
            if data.lstrip()[:1] == b"[":
                raise ValueError(f"it is no JSON: {error}") from None
            try:
                return _object(_yaml(data))
            except ValueError:
                raise ValueError(f"it is no JSON: {error}") from None
    return _object(_yaml(data))


def _object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise ValueError("it is no object, but a description of an API is one")
    return cast(Raw, value)


def _yaml(data: bytes) -> Any:
    from portico.upstream.openapi.yaml_reading import NotYaml, read_yaml

    try:
        return read_yaml(data)
    except NotYaml as error:
        raise ValueError(f"it is neither JSON nor YAML: {error}") from None


def plain(value: Any) -> Any:
    """A value as JSON has it; ValueError where it has none such (structures with a loop), or it is enormous."""
    if not _is_small(value):
        raise ValueError("it is too large to be shown")
    try:
        return jsontext.loads(jsontext.dumps(value))
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
        if count + len(waiting) > MOST_VALUES or characters > MOST_CHARACTERS:
            return False
    return True
