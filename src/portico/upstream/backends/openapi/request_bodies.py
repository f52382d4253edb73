"""Arguments → the body of a request: JSON, a form, parts, or raw. Pure."""

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
"""A field, its file name, content and media type."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w-]+=[\w.+-]+)*")
_TEXT_FIELD = FieldPlan("", "")


@dataclass(frozen=True)
class EncodedBody:
    """A body that is ready."""

    content: bytes = b""
    media_type: str = ""
    files: tuple[FormPart, ...] = ()
    """The parts, where it is made of parts: their frame is the client's to draw."""


def encode_body(body: BodyPlan | None, arguments: Mapping[str, Any]) -> EncodedBody | None:
    """The body that arguments make; None where there is none."""
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
            content, _, kind = _decode_file(value)
            return EncodedBody(content, kind or body.media_type)


def _collect_value(body: BodyPlan, arguments: Mapping[str, Any]) -> Any:
    if body.argument:
        return arguments.get(body.argument)
    found = {
        part.name: arguments[part.argument] for part in body.fields if part.argument in arguments
    }
    if found or body.required:
        return found
    return None


def _encode_form_fields(body: BodyPlan, value: Any) -> Iterable[tuple[str, str]]:
    known = {part.name: part for part in body.fields}
    for name, item in _require_object(value).items():
        part = known.get(name, _TEXT_FIELD)
        if isinstance(item, dict) or part.uses_brackets:
            yield from encode_with_brackets(name, item)
        elif isinstance(item, list):
            texts = [_to_text(one) for one in cast("list[Any]", item)]
            if part.separator:
                yield name, part.separator.join(texts)
            elif any(isinstance(one, dict | list) for one in cast("list[Any]", item)):
                yield from encode_with_brackets(name, item)
            else:
                yield from ((name, text) for text in texts)
        elif item is not None:
            yield name, _to_text(item)


def _encode_form_parts(body: BodyPlan, value: Any) -> Iterable[FormPart]:
    known = {part.name: part for part in body.fields}
    for name, item in _require_object(value).items():
        part = known.get(name, _TEXT_FIELD)
        if part.is_file:
            for one in cast("list[Any]", item) if isinstance(item, list) else [item]:
                content, filename, kind = _decode_file(one)
                yield (
                    name,
                    (
                        filename or name,
                        content,
                        kind or part.media_type or "application/octet-stream",
                    ),
                )
        elif part.separator and isinstance(item, list):
            yield (
                name,
                (
                    None,
                    part.separator.join(_to_text(one) for one in cast("list[Any]", item)).encode(),
                    None,
                ),
            )
        elif isinstance(item, list) and not any(
            isinstance(one, dict | list) for one in cast("list[Any]", item)
        ):
            yield from (
                (name, (None, _to_text(one).encode(), None)) for one in cast("list[Any]", item)
            )
        elif isinstance(item, dict | list):
            yield name, (None, json_codec.dumps(item), part.media_type or "application/json")
        elif item is not None:
            yield name, (None, _to_text(item).encode(), part.media_type or None)


def _decode_file(value: Any) -> tuple[bytes, str, str]:
    """Content, file name and media type of what is uploaded."""
    if isinstance(value, str):
        return _to_text(value).encode(), "", ""
    given = _require_object(value)
    kind = str(given.get("media_type") or "")
    filename = str(given.get("filename") or "")
    if kind and not _MEDIA_TYPE.fullmatch(kind):
        raise UnsendableArgument(f"{kind!r} is no media type")
    encoded = given.get("base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode("".join(encoded.split()), validate=True), filename, kind
        except (binascii.Error, ValueError):
            raise UnsendableArgument("`base64` is not base64") from None
    return _to_text(given.get("text") or "").encode(), filename, kind


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
