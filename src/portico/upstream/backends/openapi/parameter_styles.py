"""Arguments → the path, query, headers and cookies of a request, in OpenAPI's styles. Pure.

No argument can change what is asked for: everything that separates parts of an address is escaped,
and what would mean something all the same (`..`, an empty segment, a line break) is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote

from portico.json_text import json_codec
from portico.upstream.backends.openapi.request_plans import ParameterPlan, RequestPlan

_RESERVED = ":/?@!$'()*,;"
"""What `allowReserved` leaves alone: not `&`, `=`, `+`, `#` and brackets, which would make other
parameters of it."""
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_NESTING = 10

Pairs = list[tuple[str, str]]


class UnsendableArgument(ValueError):
    """An argument that no request can carry; says which and why."""


def build_path(plan: RequestPlan, arguments: Mapping[str, Any]) -> str:
    """The path of a request."""
    slots = {slot.name: slot for slot in plan.parameters if slot.location == "path"}
    parts: list[str] = []
    for segment in plan.path.split("/"):
        filled = _PLACEHOLDER.sub(
            lambda match: _encode_path_value(slots.get(match[1]), match[0], arguments), segment
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
    """The query of a request, without those parameters that are `fixed`."""
    pairs: Pairs = []
    for slot, value in _iterate_values(plan, arguments, "query"):
        made = _encode_query_value(slot, value)
        for name, _ in made:
            # An object's own keys are parameters here: none may pass for one that is configured.
            if name in configured_names:
                raise UnsendableArgument(
                    f"{slot.argument}: the parameter {name!r} is set by the configuration"
                )
        pairs += [(_percent_encode(name), text) for name, text in made]
    return "&".join(f"{name}={text}" for name, text in pairs)


def build_headers(plan: RequestPlan, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that arguments make."""
    found: dict[str, str] = {}
    for slot, value in _iterate_values(plan, arguments, "header"):
        if slot.is_json:
            text = _to_json(value)
        else:
            text = _join(value, ",", slot, _to_text)
        if _CONTROL.search(text):
            raise UnsendableArgument(
                f"{slot.argument}: a header cannot carry line breaks or control characters"
            )
        found[slot.name] = text.strip()
    cookies = [
        f"{_percent_encode(name)}={text}"
        for slot, value in _iterate_values(plan, arguments, "cookie")
        for name, text in _encode_query_value(slot, value)
    ]
    if cookies:
        found["cookie"] = "; ".join(cookies)
    return found


def encode_with_brackets(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """`name[a]=1`, `name[list][]=2`, `name[list][0][b]=3`: what most frameworks read nested values from."""
    if depth > MAX_NESTING:
        raise UnsendableArgument(f"{name.partition('[')[0]} is nested too deeply")
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from encode_with_brackets(f"{name}[{key}]", item, depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            nested = isinstance(item, dict | list)
            yield from encode_with_brackets(f"{name}[{number if nested else ''}]", item, depth + 1)
    elif value is not None:
        yield name, _to_text(value)


def _iterate_values(
    plan: RequestPlan, arguments: Mapping[str, Any], location: str
) -> Iterable[tuple[ParameterPlan, Any]]:
    for slot in plan.parameters:
        if slot.location == location and (value := arguments.get(slot.argument)) is not None:
            yield slot, value


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
    if parameter.keeps_slashes:
        safe = "/"
    else:
        safe = ""

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
    if parameter.allow_reserved:
        safe = _RESERVED
    else:
        safe = ""

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
        if value:
            text = "true"
        else:
            text = "false"
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
