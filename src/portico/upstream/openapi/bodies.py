"""Arguments → the body of a request: JSON, a form, parts, or raw. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote_plus

from portico.upstream import jsontext
from portico.upstream.backend import Raw
from portico.upstream.openapi.plans import Body, Part
from portico.upstream.openapi.styles import Unsendable, bracketed

File = tuple[str, tuple[str | None, bytes, str | None]]
"""A field, its file name, content and media type."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:; ?[\w-]+=[\w.+-]+)*")
_JUST_TEXT = Part("", "")


@dataclass(frozen=True)
class Sent:
    """A body that is ready."""

    content: bytes = b""
    media_type: str = ""
    files: tuple[File, ...] = ()
    """The parts, where it is made of parts: their frame is the client's to draw."""


def made(body: Body | None, arguments: Mapping[str, Any]) -> Sent | None:
    """The body that arguments make; None where there is none."""
    if body is None:
        return None
    value = _value(body, arguments)
    if value is None:
        return None
    match body.shape:
        case "json":
            return Sent(jsontext.dumps(value), body.media_type)
        case "form":
            pairs = "&".join(f"{quote_plus(name)}={quote_plus(text)}" for name, text in _fields(body, value))
            return Sent(pairs.encode(), body.media_type)
        case "multipart":
            return Sent(files=tuple(_files(body, value)))
        case "raw":
            content, _, kind = _file(value)
            return Sent(content, kind or body.media_type)


def _value(body: Body, arguments: Mapping[str, Any]) -> Any:
    if body.argument:
        return arguments.get(body.argument)
    found = {part.name: arguments[part.argument] for part in body.parts if part.argument in arguments}
    return found if found or body.required else None


def _fields(body: Body, value: Any) -> Iterable[tuple[str, str]]:
    known = {part.name: part for part in body.parts}
    for name, item in _object(value).items():
        part = known.get(name, _JUST_TEXT)
        if isinstance(item, dict) or part.brackets:
            yield from bracketed(name, item)
        elif isinstance(item, list):
            texts = [_text(one) for one in cast("list[Any]", item)]
            if part.joined:
                yield name, part.joined.join(texts)
            elif any(isinstance(one, dict | list) for one in cast("list[Any]", item)):
                yield from bracketed(name, item)
            else:
                yield from ((name, text) for text in texts)
        elif item is not None:
            yield name, _text(item)


def _files(body: Body, value: Any) -> Iterable[File]:
    known = {part.name: part for part in body.parts}
    for name, item in _object(value).items():
        part = known.get(name, _JUST_TEXT)
        if part.file:
            for one in cast("list[Any]", item) if isinstance(item, list) else [item]:
                content, filename, kind = _file(one)
                yield name, (filename or name, content, kind or part.media_type or "application/octet-stream")
        elif part.joined and isinstance(item, list):
            yield name, (None, part.joined.join(_text(one) for one in cast("list[Any]", item)).encode(), None)
        elif isinstance(item, list) and not any(isinstance(one, dict | list) for one in cast("list[Any]", item)):
            yield from ((name, (None, _text(one).encode(), None)) for one in cast("list[Any]", item))
        elif isinstance(item, dict | list):
            yield name, (None, jsontext.dumps(item), part.media_type or "application/json")
        elif item is not None:
            yield name, (None, _text(item).encode(), part.media_type or None)


def _file(value: Any) -> tuple[bytes, str, str]:
    """Content, file name and media type of what is uploaded."""
    if isinstance(value, str):
        return _text(value).encode(), "", ""
    given = _object(value)
    kind, filename = str(given.get("media_type") or ""), str(given.get("filename") or "")
    if kind and not _MEDIA_TYPE.fullmatch(kind):
        raise Unsendable(f"{kind!r} is no media type")
    encoded = given.get("base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode("".join(encoded.split()), validate=True), filename, kind
        except (binascii.Error, ValueError):
            raise Unsendable("`base64` is not base64") from None
    return _text(given.get("text") or "").encode(), filename, kind


def _object(value: Any) -> Raw:
    if not isinstance(value, dict):
        raise Unsendable("the body has to be an object")
    return cast(Raw, value)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else jsontext.dumps(value).decode()
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Unsendable("half a surrogate pair is no text")
    return text
