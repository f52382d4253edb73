"""Selection of the parts of a result that are too large to be sent inline. Pure.

The size of a result is its text or its structured content, whichever is longer, because a client
shows one of them. Images and audio are not read as tokens and have a limit of their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from portico.json_text.part_stream import (
    JsonPart,
    decode_parts,
    encode_lines,
    estimate_size,
    to_parts,
)
from portico.upstream.backend import Raw

_PIECE_CHARS = 256 * 1024
BLOCK_CHARS = 4
"""Characters counted for each text block in addition to its text."""


@dataclass(frozen=True)
class ResultBody:
    """One body to store: a JSON value, text (which may be JSON), or base64."""

    kind: Literal["value", "text", "blob"]
    value: Any = None
    texts: tuple[str, ...] = ()
    mime: str = ""
    member: str | None = None
    """Name of the only field of the structured content, if this is its text."""

    @property
    def chars(self) -> int:
        """Length of the text; 0 for a value."""
        return sum(map(len, self.texts))


@dataclass(frozen=True)
class StoragePlan:
    """Bodies to store, and blocks that stay inline."""

    bodies: tuple[ResultBody, ...] = ()
    inline_blocks: tuple[Any, ...] = ()


def plan_storage(result: Raw, max_chars: int, max_media_chars: int) -> StoragePlan:
    """Select the parts of a result that are stored, the main one first."""
    text_blocks: list[Raw] = []
    inline_blocks: list[Any] = []
    others: list[Any] = []
    blobs: list[ResultBody] = []
    blocks = result.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        data = get_base64(block)
        if isinstance(data, str):
            if len(data) > max_media_chars:
                blobs.append(ResultBody("blob", texts=(data,), mime=_get_mime_type(block)))
            else:
                inline_blocks.append(block)
        elif _is_text(block):
            text_blocks.append(block)
        else:
            others.append(block)
    texts = [block["text"] for block in text_blocks]
    bodies: list[ResultBody] = []
    structured = result.get("structuredContent")
    if structured is not None:
        bodies.append(_unwrap_text(structured, max_chars // 4) or ResultBody("value", structured))
        if texts and not _is_copy_of_structured(texts, structured):
            text = ResultBody("text", texts=tuple(texts))
            if text.chars > max_chars // 4:
                bodies.append(text)
            else:
                inline_blocks[:0] = text_blocks
    elif sum(map(len, texts)) + BLOCK_CHARS * len(texts) > max_chars // 4:
        bodies.append(ResultBody("text", texts=tuple(texts)))
    else:
        inline_blocks[:0] = text_blocks
    if others and estimate_size(others, max_chars) >= max_chars:
        bodies.append(ResultBody("value", others))
    else:
        inline_blocks += others
    return StoragePlan((*bodies, *blobs), tuple(inline_blocks))


def to_json_parts(body: ResultBody) -> Iterator[JsonPart] | None:
    """Return a body as JSON parts if it looks like JSON, else None; iterating may raise
    ValueError."""
    if body.kind == "value":
        return to_parts(body.value)
    if body.kind != "text" or not all(
        text.lstrip()[:1] in ("[", "{") for text in (part[:200] for part in body.texts)
    ):
        return None
    if len(body.texts) == 1:
        return decode_parts(body.texts[0])
    # A server that returns one JSON block for each item means a list.
    items = chain.from_iterable(decode_parts(text) for text in body.texts)
    return chain([("open", None, "[")], items, [("close", None, None)])


def split_text(body: ResultBody) -> Iterator[str]:
    """Yield a body's text in pieces."""
    for number, text in enumerate(body.texts):
        if number and not body.texts[number - 1].endswith("\n"):
            yield "\n"
        for start in range(0, len(text), _PIECE_CHARS):
            yield text[start : start + _PIECE_CHARS]


def _unwrap_text(structured: Any, min_chars: int) -> ResultBody | None:
    """Return the text that is the only field of structured content; as JSON it would be one
    escaped line."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return None
    ((member, text),) = structured.items()
    if isinstance(text, str) and len(text) > min_chars:
        return ResultBody("text", texts=(text,), member=member)
    return None


def _is_copy_of_structured(texts: list[str], structured: Any) -> bool:
    """Return whether the text duplicates the structured content, as the protocol recommends."""
    # Libraries wrap a value that is not an object into one, under a name of their own.
    inner: Any = None
    if isinstance(structured, dict) and len(structured) == 1:
        inner = next(iter(structured.values()))
    if isinstance(inner, str) and inner in ("\n".join(texts), "".join(texts)):
        return True
    if len(texts) == 1:
        return _is_same(texts[0], structured) or (inner is not None and _is_same(texts[0], inner))
    if not isinstance(inner, list) or len(inner) != len(texts):
        return False
    return all(map(_is_same, texts, inner))


def _is_same(text: str, value: Any) -> bool:
    """Return whether a text is this string, or JSON of this value."""
    if isinstance(value, str):
        return text == value
    try:
        lines = zip_longest(encode_lines(decode_parts(text)), encode_lines(to_parts(value)))
        return all(left == right for left, right in lines)
    except (ValueError, TypeError):
        return False


def _is_text(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def get_base64(block: Any) -> Any:
    """Return the base64 of a block, or None."""
    if not isinstance(block, dict):
        return None
    inner = block.get("resource")
    if isinstance(inner, dict):
        return inner.get("blob")
    return block.get("data")


def _get_mime_type(block: Raw) -> str:
    inner = block.get("resource")
    mime_type = (inner if isinstance(inner, dict) else block).get("mimeType")
    return mime_type if isinstance(mime_type, str) else "application/octet-stream"
