"""Encodes arguments into the body of a request: JSON, form, multipart or raw. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote_plus

from portico.json_text import json_codec
from portico.upstream.backend import Raw
from portico.upstream.backends.openapi.parameter_styles import (
    UnsendableArgument,
    encode_with_brackets,
)
from portico.upstream.backends.openapi.request_plans import BodyPlan, FieldPlan

FormPart = tuple[str, tuple[str | None, bytes, str | None]]
"""Field name, then file name, content and media type."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w-]+=[\w.+-]+)*")
_TEXT_FIELD = FieldPlan("", "")


@dataclass(frozen=True)
class EncodedBody:
    """An encoded body."""

    content: bytes = b""
    media_type: str = ""
    files: tuple[FormPart, ...] = ()
    """Parts of a multipart body; the HTTP client encodes them."""


def encode_body(body: BodyPlan | None, arguments: Mapping[str, Any]) -> EncodedBody | None:
    """Return the encoded body, or None if there is none."""
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


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif value is None:
        text = ""
    else:
        text = json_codec.dumps(value).decode()
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UnsendableArgument("half a surrogate pair is no text")
    return text
