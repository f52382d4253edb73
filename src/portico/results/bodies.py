"""What of a tool's result is too large for an answer, and what stays as it is. Pure.

A result is measured as its reader sees it: its text, or its structured content, whichever is
longer, because a client shows one of them. Pictures and sound are not read as tokens and have a
limit of their own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
_BLOCK_CHARS = 4
"""Characters that a block of text counts for beside its text: many empty ones are no light answer.
"""


@dataclass(frozen=True)
class ResultBody:
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
class StoragePlan:
    """What is kept elsewhere, and the blocks that stay."""

    bodies: tuple[ResultBody, ...] = ()
    inline_blocks: tuple[Any, ...] = field(default=())


def is_small(result: Raw, max_chars: int, max_media_chars: int) -> bool:
    """Whether a result plainly fits: asked of every result, so it stops at the first sign of a
    large one."""
    text = 0
    for block in _get_blocks(result):
        if isinstance(block, dict):
            body = block.get("text")
        else:
            body = None
        if isinstance(body, str):
            text += len(body) + _BLOCK_CHARS
        elif isinstance(data := _get_base64(block), str):
            if len(data) > max_media_chars:
                return False
        else:
            text += estimate_size(block, max_chars)
        if text > max_chars:
            return False
    structured = result.get("structuredContent")
    return structured is None or estimate_size(structured, max_chars + 1) <= max_chars


def plan_storage(result: Raw, max_chars: int, max_media_chars: int) -> StoragePlan:
    """Which parts of a result that is not light are to be kept, the main one first."""
    written: list[Raw] = []
    stays: list[Any] = []
    others: list[Any] = []
    blobs: list[ResultBody] = []
    for block in _get_blocks(result):
        data = _get_base64(block)
        if isinstance(data, str):
            if len(data) > max_media_chars:
                blobs.append(ResultBody("blob", texts=(data,), mime=_get_mime_type(block)))
            else:
                stays.append(block)
        elif (
            isinstance(block, dict)
            and block.get("type") == "text"
            and isinstance(block.get("text"), str)
        ):
            written.append(block)
        else:
            others.append(block)
    texts = [block["text"] for block in written]
    bodies: list[ResultBody] = []
    structured = result.get("structuredContent")
    if structured is not None:
        bodies.append(_unwrap_text(structured, max_chars // 4) or ResultBody("value", structured))
        if texts and not _is_copy_of_structured(texts, structured):
            text = ResultBody("text", texts=tuple(texts))
            if text.chars > max_chars // 4:
                bodies.append(text)
            else:
                stays[:0] = written
    elif sum(map(len, texts)) + _BLOCK_CHARS * len(texts) > max_chars // 4:
        bodies.append(ResultBody("text", texts=tuple(texts)))
    else:
        stays[:0] = written
    if others and estimate_size(others, max_chars) >= max_chars:
        bodies.append(ResultBody("value", others))
    else:
        stays += others
    return StoragePlan((*bodies, *blobs), tuple(stays))


def to_json_parts(body: ResultBody) -> Iterator[JsonPart] | None:
    """A body as the parts of JSON, if it looks like some; raises ValueError later where it turns
    out not to be."""
    if body.kind == "value":
        return to_parts(body.value)
    if body.kind != "text" or not all(
        text.lstrip()[:1] in ("[", "{") for text in (part[:200] for part in body.texts)
    ):
        return None
    if len(body.texts) == 1:
        return decode_parts(body.texts[0])
    # A server that gives a list as one block for each item means a list.
    items = chain.from_iterable(decode_parts(text) for text in body.texts)
    return chain([("open", None, "[")], items, [("close", None, None)])


def split_text(body: ResultBody) -> Iterator[str]:
    """A body's text, in pieces."""
    for number, text in enumerate(body.texts):
        if number and not body.texts[number - 1].endswith("\n"):
            yield "\n"
        for at in range(0, len(text), _PIECE_CHARS):
            yield text[at : at + _PIECE_CHARS]


def _unwrap_text(structured: Any, min_chars: int) -> ResultBody | None:
    """The text that is all there is in structured content; as JSON it would be one line, full of
    escapes."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return None
    ((member, text),) = structured.items()
    if isinstance(text, str) and len(text) > min_chars:
        return ResultBody("text", texts=(text,), member=member)
    return None


def _is_copy_of_structured(texts: list[str], structured: Any) -> bool:
    """Whether the text says the same as the structured content, as the protocol asks servers to do."""
    # A value that is no object is wrapped into one, by whatever name the server's library has for
    # that.
    if isinstance(structured, dict) and len(structured) == 1:
        inner = next(iter(structured.values()))
    else:
        inner = None
    if isinstance(inner, str) and inner in ("\n".join(texts), "".join(texts)):
        return True
    if len(texts) == 1:
        return _is_same_json(texts[0], structured) or (
            inner is not None and _is_same_value(texts[0], inner)
        )
    return _is_same_list(texts, inner)


def _is_same_value(text: str, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    return _is_same_json(text, value)


def _is_same_list(texts: list[str], values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) == len(texts)
        and all(map(_is_same_value, texts, values))
    )


def _is_same_json(text: str, value: Any) -> bool:
    try:
        return _is_equal_stream(encode_lines(decode_parts(text)), encode_lines(to_parts(value)))
    except (ValueError, TypeError):
        return False


def _is_equal_stream(first: Iterable[str], second: Iterable[str]) -> bool:
    return all(one == other for one, other in zip_longest(first, second))


def _get_blocks(result: Raw) -> list[Any]:
    content = result.get("content")
    if isinstance(content, list):
        return content
    return []


def _get_base64(block: Any) -> Any:
    """The base64 of a block that has some."""
    if not isinstance(block, dict):
        return None
    inner = block.get("resource")
    if isinstance(inner, dict):
        return inner.get("blob")
    return block.get("data")


def _get_mime_type(block: Raw) -> str:
    inner = block.get("resource")
    found = (inner if isinstance(inner, dict) else block).get("mimeType")
    if isinstance(found, str):
        return found
    return "application/octet-stream"
