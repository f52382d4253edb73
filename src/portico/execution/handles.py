"""Results that fit their budget: as they are, or as a summary, a preview and a handle to the whole.

The many small ones are only measured. A large one is taken apart, written and summed up in a thread, in parts so small
that the event loop runs between them, and without a second copy of it in memory.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from portico.access import Caller
from portico.catalog.tool import Tool
from portico.execution.bodies import Body, is_light, json_parts, plain_pieces, planned
from portico.execution.cache import age_of
from portico.execution.json_stream import lines, weight
from portico.execution.letting_go import let_go
from portico.execution.reading import fitting
from portico.execution.results import HEAVY, Kind, ResultStore, Stored
from portico.execution.sampling import Sampler
from portico.execution.summary import HEADER_TOKENS, Facts, Way, cached, header, one_line, text_facts
from portico.storage.result_files import TooLarge
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

Count = Callable[[str], int]

RESULT_TOKENS = 8_000
PREVIEW_TOKENS = 1_500
MEDIA_BYTES = 2 * 1024**2
_SURELY_FITS = 2
"""Characters per token of a result that is not even counted."""
_SURELY_NOT = 8
_LINK_TOKENS = 80
_LONG_CHARS = 2_000
_COUNTED = 16_000
_MIMES: dict[Kind, str] = {"json": "application/json", "text": "text/plain"}


class Cursors(Protocol):
    """Signs where a reader goes on, for one question."""

    def encode(self, question: str, version: str, offset: int) -> str:
        """A cursor."""
        ...

    def decode(self, cursor: str, question: str, version: str) -> int:
        """The offset of one; raises StaleCursor."""
        ...


def question(stored: Stored, path: str, grep: str) -> str:
    """What a cursor is signed for."""
    return f"read_result\n{stored.id}\n{stored.owner}\n{path}\n{grep}"


@dataclass
class _Head:
    """The first characters of what passes by."""

    wanted: int
    text: str = ""
    chars: int = 0
    lines: int = 0

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            if self.chars < self.wanted:
                self.text += text[: self.wanted - self.chars]
            self.chars += len(text)
            yield text


class Handles:
    """Makes answers of results."""

    def __init__(
        self,
        store: ResultStore,
        count: Count,
        cursors: Cursors,
        *,
        budget: int = RESULT_TOKENS,
        preview: int = PREVIEW_TOKENS,
        media_bytes: int = MEDIA_BYTES,
    ) -> None:
        """`budget` and `preview` are tokens; pictures and sound of up to `media_bytes` each pass as they are."""
        self._store = store
        self._count = count
        self._cursors = cursors
        self._budget = budget
        self._preview = preview
        self._media_chars = media_bytes * 4 // 3

    async def fit(
        self,
        tool: Tool,
        result: Raw,
        caller: Caller,
        *,
        intent: str = "",
        budget: int | None = None,
        by_tool: bool = True,
    ) -> Raw:
        """A result as a caller is answered.

        `intent` is what the caller is after, if that is known; `by_tool` says whether it has read_result.
        """
        tokens = budget or self._budget
        if not is_light(result, tokens * _SURELY_FITS, self._media_chars):
            try:
                fits, size = await asyncio.to_thread(self._measured, result, tokens)
                if not fits:
                    async with self._store.turn(caller, size), let_go(result):
                        result = await self._shortened(tool, result, caller, intent, tokens, by_tool)
            except (TypeError, ValueError, RecursionError) as error:  # it holds what JSON cannot say
                logger.warning("a result of %s passes unmeasured: %s", tool.address, error)
        return _marked(result)

    def _measured(self, result: Raw, tokens: int) -> tuple[bool, int]:
        """Whether a result that is not light is within its budget after all; else whether it is heavy."""
        if self._fits(result, tokens):
            return True, 0
        return False, 0 if is_light(result, HEAVY, self._media_chars) else HEAVY

    def _fits(self, result: Raw, tokens: int) -> bool:
        """Whether a result that is not light is within its budget after all."""
        if not is_light(result, tokens * _SURELY_NOT, self._media_chars):
            return False
        texts = [block["text"] for block in result.get("content") or () if isinstance(block, dict) and "text" in block]
        cost = sum(map(self._count, texts))
        structured = result.get("structuredContent")
        if structured is not None and cost <= tokens:
            cost = max(cost, self._count("".join(lines([("item", None, structured)]))))
        return cost <= tokens

    async def _shortened(self, tool: Tool, result: Raw, caller: Caller, intent: str, tokens: int, by_tool: bool) -> Raw:
        plan = await self._store.in_thread(caller, planned, result, tokens * _SURELY_FITS, self._media_chars)
        failed = bool(result.get("isError"))
        content: list[Any] = []
        links: list[Raw] = []
        for number, body in enumerate(plan.bodies):
            made = _Making(tool.address, body, failed, self._count, max(self._preview, tokens) * _SURELY_NOT)
            stored = await made.kept(self._store, caller, intent)
            way = self._way(stored, by_tool) if stored else None
            if number == 0:
                content += self._told(made, stored, way, tokens)
            else:
                content.append(block(made.summary(way)))
            if stored is not None:
                links.append(_link(stored))
        answer = {**result, "content": [*content, *plan.stays, *links]}
        answer.pop("structuredContent", None)
        return answer

    def _told(self, made: "_Making", stored: Stored | None, way: Way | None, tokens: int) -> list[Raw]:
        summary = made.summary(way)
        if made.kind == "blob":
            return [block(summary)]
        # What cannot be read later is shown now, as far as it may be.
        room = tokens - HEADER_TOKENS - _LINK_TOKENS
        head = made.head.text
        end = fitting(head, max(1, min(self._preview, room) if stored else room), self._count)
        body = head[:end]
        if stored is None:
            return [block(summary), block(body)]
        offset = len(body.encode(errors="replace"))
        cursor = self._cursors.encode(question(stored, "", ""), "", offset)
        on = f' · read_result(result_id="{stored.id}", cursor="{cursor}") goes on' if way and way.by_tool else ""
        return [block(summary), block(f"{body.rstrip()}\n[{offset:,} of {stored.size:,} bytes shown{on}]")]

    def _way(self, stored: Stored, by_tool: bool) -> Way:
        return Way(stored.id, stored.uri, round(self._store.ttl_s / 60), by_tool)


class _Making:
    """One body on its way to the disk, and what is learnt of it in passing."""

    def __init__(self, tool: str, body: Body, failed: bool, count: Count, head: int) -> None:
        self.kind: Kind = "blob" if body.kind == "blob" else "text"
        self.head = _Head(head)
        self._tool, self._body, self._failed, self._count = tool, body, failed, count
        self._facts: Facts | None = None

    async def kept(self, store: ResultStore, caller: Caller, intent: str) -> Stored | None:
        """Keep it; None where that is not possible."""
        sampler = Sampler()
        stored: Stored | None = None
        try:
            if (stream := await store.in_thread(caller, json_parts, self._body)) is not None:
                self.kind = "json"
                try:
                    stored = await self._put(store, caller, lines(sampler.watch(stream)))
                except ValueError:  # it only began like JSON
                    if self._body.kind == "value":
                        raise
                    self.kind, self.head = "text", _Head(self.head.wanted)
            if self.kind != "json":
                stored = await self._put(store, caller, plain_pieces(self._body))
        except (OSError, TooLarge) as error:
            logger.warning("a result of %s cannot be kept: %s", self._tool, error)
        self._facts = await store.in_thread(caller, self._found, sampler, stored, intent)
        return stored

    def summary(self, way: Way | None) -> str:
        """Its header."""
        assert self._facts is not None
        return header(self._facts, way, self._count)

    async def _put(self, store: ResultStore, caller: Caller, texts: Iterable[str]) -> Stored:
        mime = self._body.mime or _MIMES.get(self.kind, "")
        return await store.keep(caller, self._tool, self.kind, self.head.watch(texts), mime, self._body.member)

    def _found(self, sampler: Sampler, stored: Stored | None, intent: str) -> Facts:
        some = self.head.text[:_COUNTED]
        size = stored.size if stored else max(self.head.chars, self._body.chars)
        if stored is None and self._body.kind == "value":
            size = weight(self._body.value, 2**40)
        tokens = round(self._count(some) * size / max(1, len(some.encode(errors="replace"))))
        if self.kind == "json":
            member = self._body.member
            return Facts(self._tool, "json", size, tokens, sampler.value, failed=self._failed, member=member)
        if self.kind == "blob":
            return Facts(self._tool, "blob", size * 3 // 4, tokens, mime=self._body.mime, failed=self._failed)
        first, last = self._body.texts[0], self._body.texts[-1]
        count, head, tail, matches = text_facts(first, intent)
        for text in self._body.texts[1:]:
            more = text_facts(text, intent)
            count, matches = count + more[0], (*matches, *more[3])
        tail = text_facts(last, "")[2] if last is not first else tail
        facts = Facts(self._tool, "text", size, tokens, None, count, head, tail, matches[:3], failed=self._failed)
        return replace(facts, member=self._body.member)


def block(body: str) -> Raw:
    """Text as a block of content; long ones are material for the assistant."""
    long = len(body) > _LONG_CHARS
    return {
        "type": "text",
        "text": body,
        "annotations": {"audience": ["assistant"], "priority": 0.3} if long else {"priority": 0.7},
    }


def _link(stored: Stored) -> Raw:
    return {
        "type": "resource_link",
        "uri": stored.uri,
        "name": f"result-{stored.id[:8]}",
        "description": f"The whole result of {one_line(stored.tool)}.",
        "mimeType": stored.mime or "application/octet-stream",
        "size": stored.size,
    }


def _marked(result: Raw) -> Raw:
    """A result that was kept from an earlier call says so first."""
    age = age_of(result)
    if age is None:
        return result
    content = result.get("content")
    first: Raw = {"type": "text", "text": cached(age)}
    return {**result, "content": [first, *(content if isinstance(content, list) else ())]}
