"""Encodes arguments into path, query, headers and cookies, in OpenAPI's styles. Pure.

No argument can change the target of a request: everything that separates parts of a URL is escaped,
and what would still have a meaning (`..`, an empty segment, a line break) is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote

from portico.json_text import json_codec
from portico.upstream.backends.openapi.request_plans import ParameterPlan, RequestPlan

_RESERVED = ":/?@!$'()*,;"
"""Characters that `allowReserved` keeps: not `&=+#[]`, which would make other parameters."""
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_NESTING = 10

Pairs = list[tuple[str, str]]


class UnsendableArgument(ValueError):
    """An argument that no request can carry; the message says which and why."""


def build_path(plan: RequestPlan, arguments: Mapping[str, Any]) -> str:
    """Return the path of a request."""
    parameters = {slot.name: slot for slot in plan.parameters if slot.location == "path"}
    parts: list[str] = []
    for segment in plan.path.split("/"):
        filled = _PLACEHOLDER.sub(
            lambda match: _encode_path_value(parameters.get(match[1]), match[0], arguments), segment
        )
        if filled in (".", "..") and filled != segment:
            raise UnsendableArgument(
                f"the path would have {filled!r} as a part, which means another place"
            )
        parts.append(filled)
    return "/".join(parts)


def build_query(
    plan: RequestPlan, arguments: Mapping[str, Any], configured_names: Collection[str] = ()
) -> str:
    """Return the query of a request; an argument may not set one of `configured_names`."""
    pairs: Pairs = []
    for parameter, value in _iterate_values(plan, arguments, "query"):
        encoded = _encode_query_value(parameter, value)
        for name, _ in encoded:
            # An object's keys become parameters: none may replace a configured one.
            if name in configured_names:
                raise UnsendableArgument(
                    f"{parameter.argument}: the parameter {name!r} is set by the configuration"
                )
        pairs += [(_percent_encode(name), text) for name, text in encoded]
    return "&".join(f"{name}={text}" for name, text in pairs)


def build_headers(plan: RequestPlan, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers and cookies of the arguments."""
    headers: dict[str, str] = {}
    for parameter, value in _iterate_values(plan, arguments, "header"):
        if parameter.is_json:
            text = _to_json(value)
        else:
            text = _join(value, ",", parameter, _to_text)
        if _CONTROL.search(text):
            raise UnsendableArgument(
                f"{parameter.argument}: a header cannot carry line breaks or control characters"
            )
        headers[parameter.name] = text.strip()
    cookies = [
        f"{_percent_encode(name)}={text}"
        for parameter, value in _iterate_values(plan, arguments, "cookie")
        for name, text in _encode_query_value(parameter, value)
    ]
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    return headers


def encode_with_brackets(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """Yield nested values as most frameworks read them: `a[b]=1`, `a[c][]=2`, `a[c][0][d]=3`."""
    if depth > MAX_NESTING:
        raise UnsendableArgument(f"{name.partition('[')[0]} is nested too deeply")
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from encode_with_brackets(f"{name}[{key}]", item, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            nested = isinstance(item, dict | list)
            yield from encode_with_brackets(f"{name}[{index if nested else ''}]", item, depth + 1)
    elif value is not None:
        yield name, _to_text(value)


def _iterate_values(
    plan: RequestPlan, arguments: Mapping[str, Any], location: str
) -> Iterable[tuple[ParameterPlan, Any]]:
    for parameter in plan.parameters:
        if (
            parameter.location == location
            and (value := arguments.get(parameter.argument)) is not None
        ):
            yield parameter, value


def _encode_path_value(
    parameter: ParameterPlan | None, placeholder: str, arguments: Mapping[str, Any]
) -> str:
    if parameter is None:
        raise UnsendableArgument(f"the description does not say what {placeholder} in the path is")
    value = arguments.get(parameter.argument)
    texts = _to_texts(value)
    if value is None or not any(texts):
        raise UnsendableArgument(f"{parameter.argument} is part of the path and may not be empty")
    for text in texts:
        if any(part in (".", "..") for part in re.split(r"[/\\]", text)):
            raise UnsendableArgument(f"{parameter.argument}: {text!r} would lead to another path")
    safe = "/" if parameter.keeps_slashes else ""

    def encode(item: Any) -> str:
        return quote(_to_text(item), safe=safe)

    if parameter.is_json:
        return quote(_to_json(value), safe="")
    match parameter.style:
        case "label":
            return "." + _join(value, "." if parameter.explode else ",", parameter, encode)
        case "matrix":
            name = quote(parameter.name, safe="")
            if not parameter.explode or not isinstance(value, list | dict):
                return f";{name}={_join(value, ',', parameter, encode)}"
            if isinstance(value, dict):
                return "".join(
                    f";{encode(key)}={encode(item)}"
                    for key, item in cast("dict[Any, Any]", value).items()
                )
            return "".join(f";{name}={encode(item)}" for item in cast("list[Any]", value))
        case _:
            return _join(value, ",", parameter, encode)


def _encode_query_value(parameter: ParameterPlan, value: Any) -> Pairs:
    safe = _RESERVED if parameter.allow_reserved else ""

    def encode(item: Any) -> str:
        return _percent_encode(_to_text(item), safe)

    if parameter.is_json:
        return [(parameter.name, _percent_encode(_to_json(value)))]
    if parameter.style == "deepObject":
        return [(name, encode(text)) for name, text in encode_with_brackets(parameter.name, value)]
    if isinstance(value, list):
        items = [encode(item) for item in cast("list[Any]", value) if item is not None]
        if parameter.explode:
            return [(parameter.name, item) for item in items]
        if items:
            return [(parameter.name, _SEPARATORS.get(parameter.style, ",").join(items))]
        return []
    if isinstance(value, dict):
        entries = [
            (str(key), item)
            for key, item in cast("dict[Any, Any]", value).items()
            if item is not None
        ]
        if parameter.explode:
            return [(key, encode(item)) for key, item in entries]
        flat = [encode(part) for entry in entries for part in entry]
        if flat:
            return [(parameter.name, _SEPARATORS.get(parameter.style, ",").join(flat))]
        return []
    return [(parameter.name, encode(value))]


def _join(value: Any, separator: str, parameter: ParameterPlan, encode: Any) -> str:
    if isinstance(value, list):
        return separator.join(encode(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        if parameter.explode:
            return separator.join(f"{encode(key)}={encode(item)}" for key, item in entries)
        return separator.join(encode(part) for entry in entries for part in entry)
    return encode(value)


def _to_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_to_text(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return [_to_text(part) for entry in cast("dict[Any, Any]", value).items() for part in entry]
    if value is None:
        return []
    return [_to_text(value)]


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = ""
    else:
        text = _to_json(value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UnsendableArgument("half a surrogate pair is no text")
    return text


def _to_json(value: Any) -> str:
    return json_codec.dumps(value).decode()


def _percent_encode(text: str, safe: str = "") -> str:
    return quote(text, safe=safe)
