"""The text of a description → plain values: JSON, or YAML by the rules of 1.2 that OpenAPI asks for.

YAML 1.1, which PyYAML speaks by default, would read the enum `[on, off]` as booleans and `2024-01-01` as a date.
"""

import re
from functools import cache
from typing import Any, cast

from portico.upstream import jsontext
from portico.upstream.backend import Raw

_BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


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
    import yaml

    try:
        return yaml.load(data, Loader=_loader())  # noqa: S506 - a safe loader with fewer types still
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ValueError(f"it is neither JSON nor YAML: {getattr(error, 'problem', None) or error}{where}") from None


@cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # pyright: ignore[reportUntypedBaseClass]
        """The types that JSON has, and merge keys, which descriptions use although 1.2 has none."""

        yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - the library's own name

    for kind, pattern, first in (
        ("bool", _BOOLEAN, "tTfF"),
        ("null", _NULL, ["~", "n", "N", ""]),
        ("int", _INTEGER, "-+0123456789"),
        ("float", _FLOAT, "-+0123456789."),
        ("merge", re.compile("<<"), "<"),
    ):
        whole = re.compile(f"(?:{pattern.pattern})$")
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", whole, list(first))
    return Loader


def plain(value: Any) -> Any:
    """A value as JSON has it; ValueError where it has none such (YAML's bytes and sets, structures with a loop)."""
    try:
        return jsontext.loads(jsontext.dumps(value))
    except (TypeError, ValueError, RecursionError):
        raise ValueError("it cannot be said in JSON") from None
