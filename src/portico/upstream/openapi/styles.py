"""Arguments → the path, query, headers and cookies of a request, in OpenAPI's styles. Pure.

No argument can change what is asked for: everything that separates parts of an address is escaped, and what would mean
something all the same (`..`, an empty segment, a line break) is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast
from urllib.parse import quote

from portico.upstream import jsontext
from portico.upstream.openapi.plans import Plan, Slot

_RESERVED = ":/?@!$'()*,;"
"""What `allowReserved` leaves alone: not `&`, `=`, `+`, `#` and brackets, which would make other parameters of it."""
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_NESTING = 10

Pairs = list[tuple[str, str]]


class Unsendable(ValueError):
    """An argument that no request can carry; says which and why."""


def path(plan: Plan, arguments: Mapping[str, Any]) -> str:
    """The path of a request."""
    slots = {slot.name: slot for slot in plan.slots if slot.place == "path"}
    parts: list[str] = []
    for segment in plan.path.split("/"):
        filled = _PLACEHOLDER.sub(lambda match: _in_path(slots.get(match[1]), match[0], arguments), segment)
        if filled in (".", "..") and filled != segment:
            raise Unsendable(f"the path would have {filled!r} as a part, which means another place")
        parts.append(filled)
    return "/".join(parts)


def query(plan: Plan, arguments: Mapping[str, Any], fixed: Collection[str] = ()) -> str:
    """The query of a request, without those parameters that are `fixed`."""
    pairs: Pairs = []
    for slot, value in _given(plan, arguments, "query"):
        made = _in_query(slot, value)
        for name, _ in made:
            # An object's own keys are parameters here: none may pass for one that is configured.
            if name in fixed:
                raise Unsendable(f"{slot.argument}: the parameter {name!r} is set by the configuration")
        pairs += [(_encoded(name), text) for name, text in made]
    return "&".join(f"{name}={text}" for name, text in pairs)


def headers(plan: Plan, arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that arguments make."""
    found: dict[str, str] = {}
    for slot, value in _given(plan, arguments, "header"):
        text = _json(value) if slot.as_json else _joined(value, ",", slot, _text)
        if _CONTROL.search(text):
            raise Unsendable(f"{slot.argument}: a header cannot carry line breaks or control characters")
        found[slot.name] = text.strip()
    cookies = [
        f"{_encoded(name)}={text}"
        for slot, value in _given(plan, arguments, "cookie")
        for name, text in _in_query(slot, value)
    ]
    if cookies:
        found["cookie"] = "; ".join(cookies)
    return found


def bracketed(name: str, value: Any, depth: int = 0) -> Iterable[tuple[str, str]]:
    """`name[a]=1`, `name[list][]=2`, `name[list][0][b]=3`: what most frameworks read nested values from."""
    if depth > MAX_NESTING:
        raise Unsendable(f"{name.partition('[')[0]} is nested too deeply")
    if isinstance(value, dict):
        for key, item in cast("dict[Any, Any]", value).items():
            yield from bracketed(f"{name}[{key}]", item, depth + 1)
    elif isinstance(value, list):
        for number, item in enumerate(cast("list[Any]", value)):
            nested = isinstance(item, dict | list)
            yield from bracketed(f"{name}[{number if nested else ''}]", item, depth + 1)
    elif value is not None:
        yield name, _text(value)


def _given(plan: Plan, arguments: Mapping[str, Any], place: str) -> Iterable[tuple[Slot, Any]]:
    for slot in plan.slots:
        if slot.place == place and (value := arguments.get(slot.argument)) is not None:
            yield slot, value


def _in_path(slot: Slot | None, placeholder: str, arguments: Mapping[str, Any]) -> str:
    if slot is None:
        raise Unsendable(f"the description does not say what {placeholder} in the path is")
    value = arguments.get(slot.argument)
    texts = _texts(value)
    if value is None or not any(texts):
        raise Unsendable(f"{slot.argument} is part of the path and may not be empty")
    for text in texts:
        if any(part in (".", "..") for part in re.split(r"[/\\]", text)):
            raise Unsendable(f"{slot.argument}: {text!r} would lead to another path")
    safe = "/" if slot.segments else ""

    def encode(item: Any) -> str:
        return quote(_text(item), safe=safe)

    if slot.as_json:
        return quote(_json(value), safe="")
    match slot.style:
        case "label":
            return "." + _joined(value, "." if slot.explode else ",", slot, encode)
        case "matrix":
            name = quote(slot.name, safe="")
            if not slot.explode or not isinstance(value, list | dict):
                return f";{name}={_joined(value, ',', slot, encode)}"
            if isinstance(value, dict):
                return "".join(f";{encode(key)}={encode(item)}" for key, item in cast("dict[Any, Any]", value).items())
            return "".join(f";{name}={encode(item)}" for item in cast("list[Any]", value))
        case _:
            return _joined(value, ",", slot, encode)


def _in_query(slot: Slot, value: Any) -> Pairs:
    safe = _RESERVED if slot.reserved else ""

    def encode(item: Any) -> str:
        return _encoded(_text(item), safe)

    if slot.as_json:
        return [(slot.name, _encoded(_json(value)))]
    if slot.style == "deepObject":
        return [(name, encode(text)) for name, text in bracketed(slot.name, value)]
    if isinstance(value, list):
        items = [encode(item) for item in cast("list[Any]", value) if item is not None]
        if slot.explode:
            return [(slot.name, item) for item in items]
        return [(slot.name, _SEPARATORS.get(slot.style, ",").join(items))] if items else []
    if isinstance(value, dict):
        entries = [(str(key), item) for key, item in cast("dict[Any, Any]", value).items() if item is not None]
        if slot.explode:
            return [(key, encode(item)) for key, item in entries]
        flat = [encode(part) for entry in entries for part in entry]
        return [(slot.name, _SEPARATORS.get(slot.style, ",").join(flat))] if flat else []
    return [(slot.name, encode(value))]


def _joined(value: Any, separator: str, slot: Slot, encode: Any) -> str:
    if isinstance(value, list):
        return separator.join(encode(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value).items()
        if slot.explode:
            return separator.join(f"{encode(key)}={encode(item)}" for key, item in entries)
        return separator.join(encode(part) for entry in entries for part in entry)
    return encode(value)


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_text(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return [_text(part) for entry in cast("dict[Any, Any]", value).items() for part in entry]
    return [] if value is None else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif value is None:
        text = ""
    else:
        text = _json(value)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Unsendable("half a surrogate pair is no text")
    return text


def _json(value: Any) -> str:
    return jsontext.dumps(value).decode()


def _encoded(text: str, safe: str = "") -> str:
    return quote(text, safe=safe)
