"""Encodes arguments into path, query, headers and cookies, in OpenAPI's styles. Pure.

No argument can change the target of a request: everything that separates parts of a URL is escaped,
and what would still have a meaning (`..`, an empty segment, a line break) is refused.
"""

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote, quote_plus

from portico.json_text import json_codec
from portico.upstream.backend import Raw

ParameterLocation = Literal["path", "query", "header", "cookie"]
BodyFormat = Literal["json", "form", "multipart", "raw"]


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """An argument in the path, query, headers or cookies of a request."""

    argument: str
    name: str
    location: ParameterLocation
    style: str
    explode: bool
    required: bool = False
    allow_reserved: bool = False
    """Send reserved characters unencoded, where that cannot change the meaning of the URL."""
    is_json: bool = False
    keeps_slashes: bool = False
    """The value is a path: slashes stay unencoded."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """An argument that becomes a field of the body."""

    argument: str
    name: str
    is_file: bool = False
    media_type: str = ""
    uses_brackets: bool = False
    """A list is written `name[]=1`, as with `deepObject`."""
    separator: str = ""
    """Separator of list items, unless the field is repeated."""


@dataclass(frozen=True, slots=True)
class BodyPlan:
    media_type: str
    format: BodyFormat
    required: bool
    argument: str = ""
    """The argument that is the whole body; empty if its fields are arguments."""
    fields: tuple[FieldPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Method, URL, parameters and body of an operation."""

    name: str
    method: str
    path: str
    server: str
    """Base URL without a trailing slash."""
    parameters: tuple[ParameterPlan, ...] = ()
    body: BodyPlan | None = None
    required_credentials: tuple[str, ...] = ()
    """Descriptions of the credentials that it requires: a header or parameter to configure."""


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


FormPart = tuple[str, tuple[str | None, bytes, str | None]]
"""Field name, then file name, content and media type."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w-]+=[\w.+-]+)*")
_TEXT_FIELD = FieldPlan("", "")


@dataclass(frozen=True)
class EncodedBody:
    content: bytes = b""
    media_type: str = ""
    files: tuple[FormPart, ...] = ()
    """Parts of a multipart body; the HTTP client encodes them."""


def encode_body(body: BodyPlan | None, arguments: Mapping[str, Any]) -> EncodedBody | None:
    if body is None:
        return None
    value = _collect_value(body, arguments)
    if value is None:
        return None
    match body.format:
        case "json":
            return EncodedBody(json_codec.dumps(value), body.media_type)
        case "form":
            pairs = "&".join(
                f"{quote_plus(name)}={quote_plus(text)}"
                for name, text in _encode_form_fields(body, value)
            )
            return EncodedBody(pairs.encode(), body.media_type)
        case "multipart":
            return EncodedBody(files=tuple(_encode_form_parts(body, value)))
        case "raw":
            content, _, media_type = _decode_file(value)
            return EncodedBody(content, media_type or body.media_type)


def _collect_value(body: BodyPlan, arguments: Mapping[str, Any]) -> Any:
    if body.argument:
        return arguments.get(body.argument)
    fields = {
        part.name: arguments[part.argument] for part in body.fields if part.argument in arguments
    }
    if fields or body.required:
        return fields
    return None


def _encode_form_fields(body: BodyPlan, value: Any) -> Iterable[tuple[str, str]]:
    known = {part.name: part for part in body.fields}
    for name, item in _require_object(value).items():
        part = known.get(name, _TEXT_FIELD)
        if isinstance(item, dict) or part.uses_brackets:
            yield from encode_with_brackets(name, item)
        elif isinstance(item, list):
            items = cast("list[Any]", item)
            texts = [_to_text(element) for element in items]
            if part.separator:
                yield name, part.separator.join(texts)
            elif _has_nested(items):
                yield from encode_with_brackets(name, item)
            else:
                yield from ((name, text) for text in texts)
        elif item is not None:
            yield name, _to_text(item)


def _has_nested(items: list[Any]) -> bool:
    return any(isinstance(item, dict | list) for item in items)


def _encode_form_parts(body: BodyPlan, value: Any) -> Iterable[FormPart]:
    known = {part.name: part for part in body.fields}
    for name, item in _require_object(value).items():
        part = known.get(name, _TEXT_FIELD)
        items = cast("list[Any]", item) if isinstance(item, list) else [item]
        if part.is_file:
            for element in items:
                content, filename, media_type = _decode_file(element)
                media_type = media_type or part.media_type or "application/octet-stream"
                yield name, (filename or name, content, media_type)
        elif part.separator and isinstance(item, list):
            text = part.separator.join(_to_text(element) for element in items)
            yield name, (None, text.encode(), None)
        elif isinstance(item, list) and not _has_nested(items):
            for element in items:
                yield name, (None, _to_text(element).encode(), None)
        elif isinstance(item, dict | list):
            yield name, (None, json_codec.dumps(item), part.media_type or "application/json")
        elif item is not None:
            yield name, (None, _to_text(item).encode(), part.media_type or None)


def _decode_file(value: Any) -> tuple[bytes, str, str]:
    """Return content, file name and media type of an uploaded file."""
    if isinstance(value, str):
        return _to_text(value).encode(), "", ""
    file = _require_object(value)
    media_type = str(file.get("media_type") or "")
    filename = str(file.get("filename") or "")
    if media_type and not _MEDIA_TYPE.fullmatch(media_type):
        raise UnsendableArgument(f"{media_type!r} is no media type")
    encoded = file.get("base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode("".join(encoded.split()), validate=True), filename, media_type
        except (binascii.Error, ValueError):
            raise UnsendableArgument("`base64` is not base64") from None
    return _to_text(file.get("text") or "").encode(), filename, media_type


def _require_object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise UnsendableArgument("the body has to be an object")
    return cast(Raw, value)
