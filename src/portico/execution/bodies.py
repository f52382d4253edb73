"""What of a tool's result is too large for an answer, and what stays as it is. Pure.

A result is measured as its reader sees it: its text, or its structured content, whichever is longer, because a client
shows one of them. Pictures and sound are not read as tokens and have a limit of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Literal

from portico.execution.json_stream import Part, decoded, lines, parts, weight
from portico.upstream.backend import Raw

_PIECE = 256 * 1024
_BLOCK = 4
"""Characters that a block of text counts for beside its text: many empty ones are no light answer."""


@dataclass(frozen=True)
class Body:
    """One thing to be kept: a JSON value, text (which may be JSON), or base64."""

    kind: Literal["value", "text", "blob"]
    value: Any = None
    texts: tuple[str, ...] = ()
    mime: str = ""
    member: str | None = None
    """The one field of the structured content that the text was found in."""

    @property
    def chars(self) -> int:
        """How long its text is; 0 for a value."""
        return sum(map(len, self.texts))


@dataclass(frozen=True)
class Plan:
    """What is kept elsewhere, and the blocks that stay."""

    bodies: tuple[Body, ...] = ()
    stays: tuple[Any, ...] = field(default=())


def is_light(result: Raw, chars: int, media_chars: int) -> bool:
    """Whether a result plainly fits: asked of every result, so it stops at the first sign of a large one."""
    text = 0
    for block in _blocks(result):
        body = block.get("text") if isinstance(block, dict) else None
        if isinstance(body, str):
            text += len(body) + _BLOCK
        elif isinstance(data := _data(block), str):
            if len(data) > media_chars:
                return False
        else:
            text += weight(block, chars)
        if text > chars:
            return False
    structured = result.get("structuredContent")
    return structured is None or weight(structured, chars + 1) <= chars


def planned(result: Raw, chars: int, media_chars: int) -> Plan:
    """Which parts of a result that is not light are to be kept, the main one first."""
    written: list[Raw] = []
    stays: list[Any] = []
    others: list[Any] = []
    blobs: list[Body] = []
    for block in _blocks(result):
        data = _data(block)
        if isinstance(data, str):
            if len(data) > media_chars:
                blobs.append(Body("blob", texts=(data,), mime=_mime(block)))
            else:
                stays.append(block)
        elif isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            written.append(block)
        else:
            others.append(block)
    texts = [block["text"] for block in written]
    bodies: list[Body] = []
    structured = result.get("structuredContent")
    if structured is not None:
        bodies.append(_unwrapped(structured, chars // 4) or Body("value", structured))
        if texts and not _is_twin(texts, structured):
            text = Body("text", texts=tuple(texts))
            if text.chars > chars // 4:
                bodies.append(text)
            else:
                stays[:0] = written
    elif sum(map(len, texts)) + _BLOCK * len(texts) > chars // 4:
        bodies.append(Body("text", texts=tuple(texts)))
    else:
        stays[:0] = written
    if others and weight(others, chars) >= chars:
        bodies.append(Body("value", others))
    else:
        stays += others
    return Plan((*bodies, *blobs), tuple(stays))


def json_parts(body: Body) -> Iterator[Part] | None:
    """A body as the parts of JSON, if it looks like some; raises ValueError later where it turns out not to be."""
    if body.kind == "value":
        return parts(body.value)
    if body.kind != "text" or not all(text.lstrip()[:1] in ("[", "{") for text in (part[:200] for part in body.texts)):
        return None
    if len(body.texts) == 1:
        return decoded(body.texts[0])
    # A server that gives a list as one block for each item means a list.
    items = chain.from_iterable(decoded(text) for text in body.texts)
    return chain([("open", None, "[")], items, [("close", None, None)])


def plain_pieces(body: Body) -> Iterator[str]:
    """A body's text, in pieces."""
    for number, text in enumerate(body.texts):
        if number and not body.texts[number - 1].endswith("\n"):
            yield "\n"
        for at in range(0, len(text), _PIECE):
            yield text[at : at + _PIECE]


def _unwrapped(structured: Any, chars: int) -> Body | None:
    """The text that is all there is in structured content; as JSON it would be one line, full of escapes."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return None
    ((member, text),) = structured.items()
    return Body("text", texts=(text,), member=member) if isinstance(text, str) and len(text) > chars else None


def _is_twin(texts: list[str], structured: Any) -> bool:
    """Whether the text says the same as the structured content, as the protocol asks servers to do."""
    # A value that is no object is wrapped into one, by whatever name the server's library has for that.
    inner = next(iter(structured.values())) if isinstance(structured, dict) and len(structured) == 1 else None
    if isinstance(inner, str) and inner in ("\n".join(texts), "".join(texts)):
        return True
    if len(texts) == 1:
        return _same(texts[0], structured) or (inner is not None and _says(texts[0], inner))
    return _same_items(texts, inner)


def _says(text: str, value: Any) -> bool:
    return text == value if isinstance(value, str) else _same(text, value)


def _same_items(texts: list[str], values: Any) -> bool:
    return isinstance(values, list) and len(values) == len(texts) and all(map(_says, texts, values))


def _same(text: str, value: Any) -> bool:
    try:
        return _equal(lines(decoded(text)), lines(parts(value)))
    except (ValueError, TypeError):
        return False


def _equal(some: Iterable[str], others: Iterable[str]) -> bool:
    return all(one == other for one, other in zip_longest(some, others))


def _blocks(result: Raw) -> list[Any]:
    content = result.get("content")
    return content if isinstance(content, list) else []


def _data(block: Any) -> Any:
    """The base64 of a block that has some."""
    if not isinstance(block, dict):
        return None
    inner = block.get("resource")
    return inner.get("blob") if isinstance(inner, dict) else block.get("data")


def _mime(block: Raw) -> str:
    inner = block.get("resource")
    found = (inner if isinstance(inner, dict) else block).get("mimeType")
    return found if isinstance(found, str) else "application/octet-stream"
