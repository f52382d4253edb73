"""Results fitted to their token budget: unchanged, or as summary, preview and result handle.

Small results are only measured. A large one is split, written and summarised in a thread, in parts
so small that the event loop runs between them, and without a second copy in memory.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from portico.callers import Caller
from portico.catalog.tool import Tool
from portico.json_text.part_stream import encode_lines, estimate_size, release_later
from portico.results.bodies import (
    BLOCK_CHARS,
    ResultBody,
    get_base64,
    plan_storage,
    split_text,
    to_json_parts,
)
from portico.results.grep import count_fitting_chars
from portico.results.result_meta import CACHED
from portico.results.shape import ValueSampler
from portico.results.store import HEAVY_CHARS, ResultKind, ResultStore, StoredResult
from portico.results.summary import (
    SUMMARY_TOKENS,
    ResultAccess,
    ResultFacts,
    collect_text_facts,
    render_cache_note,
    render_summary,
    to_one_line,
)
from portico.storage.data_files import ResultBodyTooLarge
from portico.upstream.backend import Raw

logger = logging.getLogger(__name__)

CountTokens = Callable[[str], int]

RESULT_TOKENS = 8_000
PREVIEW_TOKENS = 1_500
_MIN_CHARS_PER_TOKEN = 2
"""Lower bound of characters per token; a result that fits by it is not counted."""
_MAX_CHARS_PER_TOKEN = 8
_LINK_TOKENS = 80
_LONG_TEXT_CHARS = 2_000
_SAMPLE_CHARS = 16_000
_MIME_TYPES: dict[ResultKind, str] = {"json": "application/json", "text": "text/plain"}


class CursorCodec(Protocol):
    """Encodes and verifies the offset at which a query continues."""

    def encode(self, listing: str, version: str, offset: int) -> str: ...

    def decode(self, cursor: str, listing: str, version: str) -> int:
        """Return the offset of a cursor; raises StaleCursor."""
        ...


def build_cursor_query(stored: StoredResult, path: str, grep: str) -> str:
    return f"read_result\n{stored.id}\n{stored.owner}\n{path}\n{grep}"


@dataclass
class _TextHead:
    """Keeps the first characters of a stream of texts."""

    max_chars: int
    text: str = ""
    chars: int = 0
    lines: int = 0

    def watch(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            if self.chars < self.max_chars:
                self.text += text[: self.max_chars - self.chars]
            self.chars += len(text)
            yield text


class ResultHandles:
    """Fits results to a token budget."""

    def __init__(
        self,
        store: ResultStore,
        count: CountTokens,
        cursors: CursorCodec,
        *,
        budget: int = RESULT_TOKENS,
        preview: int = PREVIEW_TOKENS,
    ) -> None:
        """Create with token budgets of a result and of the preview of a larger one."""
        self._store = store
        self._count = count
        self._cursors = cursors
        self._budget = budget
        self._preview = preview
        self._media_chars = store.settings.media_bytes * 4 // 3

    async def fit_to_budget(
        self,
        tool: Tool,
        result: Raw,
        caller: Caller,
        *,
        intent: str = "",
        budget: int | None = None,
        has_read_result: bool = True,
    ) -> Raw:
        """Return the result as it is sent to the caller.

        `intent` is the caller's aim, if known; `has_read_result` says whether the caller has that
        meta-tool.
        """
        tokens = budget or self._budget
        if not _is_small(result, tokens * _MIN_CHARS_PER_TOKEN, self._media_chars):
            try:
                fits, size = await asyncio.to_thread(self._measure, result, tokens)
                if not fits:
                    async with self._store.acquire_slot(caller, size), release_later(result):
                        result = await self._shorten(
                            tool, result, caller, intent, tokens, has_read_result
                        )
            # The result contains values that JSON cannot encode.
            except (TypeError, ValueError, RecursionError) as error:
                logger.warning("a result of %s passes unmeasured: %s", tool.address, error)
        meta = result.get("_meta")
        if isinstance(meta, dict) and CACHED in meta:
            return _add_cache_note(result, meta[CACHED]["age_s"])
        return result

    def _measure(self, result: Raw, tokens: int) -> tuple[bool, int]:
        """Return whether a result fits, and if not, the size to acquire a slot for."""
        if self._is_within_budget(result, tokens):
            return True, 0
        if _is_small(result, HEAVY_CHARS, self._media_chars):
            return False, 0
        return False, HEAVY_CHARS

    def _is_within_budget(self, result: Raw, tokens: int) -> bool:
        """Return whether a result that is not small fits its budget by token count."""
        if not _is_small(result, tokens * _MAX_CHARS_PER_TOKEN, self._media_chars):
            return False
        texts = [
            block["text"]
            for block in result.get("content") or ()
            if isinstance(block, dict) and "text" in block
        ]
        cost = sum(map(self._count, texts))
        structured = result.get("structuredContent")
        if structured is not None and cost <= tokens:
            cost = max(cost, self._count("".join(encode_lines([("item", None, structured)]))))
        return cost <= tokens

    async def _shorten(
        self,
        tool: Tool,
        result: Raw,
        caller: Caller,
        intent: str,
        tokens: int,
        has_read_result: bool,
    ) -> Raw:
        plan = await self._store.run_in_thread(
            caller, plan_storage, result, tokens * _MIN_CHARS_PER_TOKEN, self._media_chars
        )
        failed = bool(result.get("isError"))
        content: list[Any] = []
        links: list[Raw] = []
        for number, body in enumerate(plan.bodies):
            head_chars = max(self._preview, tokens) * _MAX_CHARS_PER_TOKEN
            writer = _BodyWriter(tool.address, body, failed, self._count, head_chars)
            stored = await writer.write_to(self._store, caller, intent)
            access = None
            if stored is not None:
                minutes = self._store.ttl_minutes
                access = ResultAccess(stored.id, stored.uri, minutes, has_read_result)
            if number == 0:
                content += await asyncio.to_thread(
                    self._render_main_body, writer, stored, access, tokens
                )
            else:
                content.append(build_text_block(writer.render_summary(access)))
            if stored is not None:
                links.append(_build_resource_link(stored))
        answer = {**result, "content": [*content, *plan.inline_blocks, *links]}
        answer.pop("structuredContent", None)
        return answer

    def _render_main_body(
        self,
        writer: "_BodyWriter",
        stored: StoredResult | None,
        access: ResultAccess | None,
        tokens: int,
    ) -> list[Raw]:
        summary = writer.render_summary(access)
        if writer.kind == "blob":
            return [build_text_block(summary)]
        # A result that cannot be stored is shown as far as the budget allows.
        available_tokens = tokens - SUMMARY_TOKENS - _LINK_TOKENS
        head = writer.head.text
        if stored:
            available_tokens = min(self._preview, available_tokens)
        end = count_fitting_chars(head, max(1, available_tokens), self._count)
        body = head[:end]
        if stored is None:
            return [build_text_block(summary), build_text_block(body)]
        offset = len(body.encode(errors="replace"))
        cursor = self._cursors.encode(build_cursor_query(stored, "", ""), "", offset)
        shown = f"{offset:,} of {stored.size:,} bytes shown"
        if access and access.has_read_result:
            shown += f' · read_result(result_id="{stored.id}", cursor="{cursor}") goes on'
        return [build_text_block(summary), build_text_block(f"{body.rstrip()}\n[{shown}]")]


def _is_small(result: Raw, max_chars: int, max_media_chars: int) -> bool:
    """Return whether a result certainly fits. Runs for every result and stops early."""
    text = 0
    blocks = result.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(body := block.get("text"), str):
            text += len(body) + BLOCK_CHARS
        elif isinstance(data := get_base64(block), str):
            if len(data) > max_media_chars:
                return False
        else:
            text += estimate_size(block, max_chars)
        if text > max_chars:
            return False
    structured = result.get("structuredContent")
    return structured is None or estimate_size(structured, max_chars + 1) <= max_chars


class _BodyWriter:
    """Writes one body to the store and collects facts for its summary on the way."""

    def __init__(
        self, tool: str, body: ResultBody, is_error: bool, count: CountTokens, head_chars: int
    ) -> None:
        self.kind: ResultKind = "blob" if body.kind == "blob" else "text"
        self.head = _TextHead(head_chars)
        self._tool = tool
        self._body = body
        self._is_error = is_error
        self._count = count
        self._facts: ResultFacts | None = None

    async def write_to(
        self, store: ResultStore, caller: Caller, intent: str
    ) -> StoredResult | None:
        """Store the body; returns None if that is not possible."""
        sampler = ValueSampler()
        stored: StoredResult | None = None
        try:
            if (stream := await store.run_in_thread(caller, to_json_parts, self._body)) is not None:
                self.kind = "json"
                try:
                    stored = await self._write(store, caller, encode_lines(sampler.watch(stream)))
                except ValueError:  # it is not JSON after all
                    if self._body.kind == "value":
                        raise
                    self.kind = "text"
                    self.head = _TextHead(self.head.max_chars)
            if self.kind != "json":
                stored = await self._write(store, caller, split_text(self._body))
        except (OSError, ResultBodyTooLarge) as error:
            logger.warning("a result of %s cannot be kept: %s", self._tool, error)
        self._facts = await store.run_in_thread(
            caller, self._collect_facts, sampler, stored, intent
        )
        return stored

    def render_summary(self, access: ResultAccess | None) -> str:
        """Return the summary; call after `write_to`."""
        assert self._facts is not None
        return render_summary(self._facts, access, self._count)

    async def _write(
        self, store: ResultStore, caller: Caller, texts: Iterable[str]
    ) -> StoredResult:
        mime = self._body.mime or _MIME_TYPES.get(self.kind, "")
        return await store.save(
            caller, self._tool, self.kind, self.head.watch(texts), mime, self._body.member
        )

    def _collect_facts(
        self, sampler: ValueSampler, stored: StoredResult | None, intent: str
    ) -> ResultFacts:
        body = self._body
        sample = self.head.text[:_SAMPLE_CHARS]
        if stored is not None:
            size = stored.size
        elif body.kind == "value":
            size = estimate_size(body.value, 2**40)
        else:
            size = max(self.head.chars, body.chars)
        tokens = round(self._count(sample) * size / max(1, len(sample.encode(errors="replace"))))
        facts = ResultFacts(
            self._tool, self.kind, size, tokens, is_error=self._is_error, member=body.member
        )
        if self.kind == "json":
            return replace(facts, sample=sampler.value)
        if self.kind == "blob":
            return replace(facts, size=size * 3 // 4, mime=body.mime)
        parts = [collect_text_facts(text, intent) for text in body.texts]
        matches = tuple(line for part in parts for line in part[3])
        return replace(
            facts,
            line_count=sum(part[0] for part in parts),
            head=parts[0][1],
            tail=parts[-1][2],
            matches=matches[:3],
        )


def build_text_block(text: str) -> Raw:
    """Return a text content block; long text is annotated for the assistant only."""
    annotations: Raw = {"priority": 0.7}
    if len(text) > _LONG_TEXT_CHARS:
        annotations = {"audience": ["assistant"], "priority": 0.3}
    return {"type": "text", "text": text, "annotations": annotations}


def _build_resource_link(stored: StoredResult) -> Raw:
    return {
        "type": "resource_link",
        "uri": stored.uri,
        "name": f"result-{stored.id[:8]}",
        "description": f"The whole result of {to_one_line(stored.tool)}.",
        "mimeType": stored.mime or "application/octet-stream",
        "size": stored.size,
    }


def _add_cache_note(result: Raw, age: float) -> Raw:
    """Put a note before the content of a cached result."""
    content = result.get("content")
    first: Raw = {"type": "text", "text": render_cache_note(age)}
    return {**result, "content": [first, *(content if isinstance(content, list) else ())]}
