"""`read_result` and `portico://result/{id}`: a stored result in parts, or whole as a resource."""

import asyncio
import codecs
import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from portico.callers import Caller
from portico.catalog.tool import quote_text
from portico.config import ResultsConfig
from portico.errors import InvalidArguments, UnknownName
from portico.json_text.chunked_decoder import decode_utf8
from portico.json_text.part_stream import decode_parts, encode_lines, to_parts
from portico.results.grep import (
    GrepResult,
    compile_matcher,
    count_fitting_chars,
    grep_lines,
    take_page,
)
from portico.results.handles import RESULT_TOKENS, CursorCodec, ResultHandles, build_cursor_query
from portico.results.path_selection import PathSelection, is_field_path, select_path
from portico.results.shape import infer_shape, render_shape, sample_value
from portico.results.store import ResultStore, StoredResult
from portico.storage.data_files import ResultFiles
from portico.upstream.backend import Raw

CountTokens = Callable[[str], int]
T = TypeVar("T")

_FRAME_TOKENS = 110
"""Tokens of the text around a part."""
_CONTEXT_LINES = 2
_LONG_TEXT_CHARS = 200
_READ_BYTES = 2**20
"""Bytes that are read from disk at once."""
_READ_PAUSE_S = 0.001


@dataclass(frozen=True)
class _ReadRequest:
    """A part of a result that was asked for."""

    stored: StoredResult
    path: str
    grep: str
    start: int
    tokens: int


class ResultReader:
    """Reads stored results for their callers."""

    def __init__(
        self,
        store: ResultStore,
        count: CountTokens,
        cursors: CursorCodec,
        *,
        budget: int = RESULT_TOKENS,
    ) -> None:
        self._store = store
        self._count = count
        self._cursors = cursors
        self._budget = budget

    async def read(
        self,
        caller: Caller,
        result_id: str,
        path: str = "",
        grep: str = "",
        cursor: str = "",
        *,
        budget: int | None = None,
    ) -> str:
        """Return a part of a result as text; raises UnknownName, InvalidArguments, StaleCursor."""
        stored = self._store.find(caller, result_id)
        start = 0
        if cursor:
            start = self._cursors.decode(cursor, build_cursor_query(stored, path, grep), "")
        tokens = max(50, (budget or self._budget) - _FRAME_TOKENS)
        # A page is read from its offset on; path and grep read the whole result.
        heavy_size = stored.size if path or grep else 0
        request = _ReadRequest(stored, path, grep, start, tokens)
        return await self._run(caller, stored, heavy_size, self._read_part, request)

    async def read_resource(self, caller: Caller, result_id: str) -> Raw:
        """Return the whole result as the answer of `resources/read`; raises UnknownName."""
        stored = self._store.find(caller, result_id)
        body = await self._run(caller, stored, stored.size, self._store.files.read, stored.id)
        text = await asyncio.to_thread(decode_utf8, body)
        contents: Raw = {"uri": stored.uri, "mimeType": stored.mime or "text/plain"}
        contents["blob" if stored.kind == "blob" else "text"] = text
        return {"contents": [contents]}

    async def _run(
        self, caller: Caller, stored: StoredResult, size: int, work: Callable[..., T], *args: Any
    ) -> T:
        """Run work on a result in a thread; raises UnknownName if its file is gone."""
        async with self._store.acquire_slot(caller, size):
            try:
                return await self._store.run_in_thread(caller, work, *args)
            except FileNotFoundError:
                self._store.drop(stored)
                raise UnknownName(
                    "there is no such result any more", advice="Call the tool again."
                ) from None

    def _read_part(self, request: _ReadRequest) -> str:
        stored = request.stored
        path = request.path
        member = stored.member
        is_whole = not path or (member is not None and is_field_path(path, member))
        if not path or (is_whole and stored.kind != "json"):
            return self._read_whole(request)
        if stored.kind == "text":
            raise InvalidArguments(
                "a path needs JSON, and this result is text",
                advice="Use grep to find lines, or read it page by page.",
            )
        if stored.kind != "json":
            raise InvalidArguments(f"a path needs JSON, and this result is {stored.mime}")
        body = decode_utf8(self._store.files.read(stored.id))
        with contextlib.closing(_select(body, path, None if is_whole else member)) as selection:
            if selection.value is not None:
                return self._read_selection(request, selection.value)
        if is_whole:
            return self._read_whole(request)
        sample = infer_shape(sample_value(decode_parts(body)))
        shape = render_shape(sample, min(400, request.tokens), self._count)
        return f"Nothing is at {quote_text(path)}: null. The whole result is {shape}"

    def _read_whole(self, request: _ReadRequest) -> str:
        stored = request.stored
        if request.grep:
            return self._render_matches(request, self._iter_lines(stored))
        # Enough bytes for all characters; a character cut at the end is ignored.
        body = self._store.files.read(stored.id, request.start, request.tokens * 8)
        text = body.decode(errors="ignore")
        if not text:
            return "There is no more."
        shown = text[: count_fitting_chars(text, request.tokens, self._count)]
        end = request.start + len(shown.encode())
        title = f"[bytes {request.start:,}–{end:,} of {stored.size:,}]\n"
        next_offset = end if end < stored.size else None
        return self._add_continuation(request, title, shown.rstrip("\n"), next_offset)

    def _read_selection(self, request: _ReadRequest, value: Any) -> str:
        if isinstance(value, str) and ("\n" in value or len(value) > _LONG_TEXT_CHARS):
            # Text inside JSON, decoded: encoded it would be a single line.
            texts: Iterable[str] = _split_lines(value)
        else:
            texts = encode_lines(to_parts(value))
        if request.grep:
            return self._render_matches(request, _join_lines(texts))
        part = take_page(texts, request.start, request.tokens, self._count)
        if not part.text:
            return "There is no more."
        return self._add_continuation(request, "", part.text.rstrip("\n"), part.next_offset)

    def _render_matches(self, request: _ReadRequest, lines: Generator[str]) -> str:
        matcher = compile_matcher(request.grep)
        context = _CONTEXT_LINES if request.stored.kind == "text" else 0
        with contextlib.closing(lines):
            found = grep_lines(
                lines, matcher, request.start, request.tokens, self._count, context=context
            )
        mode = "as plain text" if matcher.is_plain else "as a regular expression"
        pattern = quote_text(request.grep)
        if not found.match_count and found.next_offset is None:
            searched = _format_count(found.end_line - found.first_line, "line")
            return f"No line matches {pattern} ({mode}, {searched} looked at)."
        counted = _format_match_count(found, pattern)
        title = f"[{counted}, {mode}, to line {found.end_line:,}]\n"
        return self._add_continuation(request, title, found.text, found.next_offset)

    def _iter_lines(self, stored: StoredResult) -> Generator[str]:
        """Yield the lines of a stored text without their line breaks.

        Reads large pieces with a pause between them: with many small reads this thread would
        release the interpreter's lock and take it back before a waiting thread wakes up, and block
        the event loop.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        position = 0
        unfinished = list[str]()
        while piece := self._store.files.read(stored.id, position, _READ_BYTES):
            if position:
                time.sleep(_READ_PAUSE_S)
            position += len(piece)
            *complete, last = decoder.decode(piece).split("\n")
            if complete:
                yield "".join((*unfinished, complete[0]))
                yield from complete[1:]
                unfinished.clear()
            unfinished.append(last)
        if last := "".join(unfinished):
            yield last

    def _add_continuation(
        self, request: _ReadRequest, title: str, body: str, next_offset: int | None
    ) -> str:
        if next_offset is None:
            return f"{title}{body}"
        query = build_cursor_query(request.stored, request.path, request.grep)
        cursor = self._cursors.encode(query, "", next_offset)
        same = " and the same path" * bool(request.path) + " and the same grep" * bool(request.grep)
        call = f'read_result(result_id="{request.stored.id}", cursor="{cursor}")'
        return f"{title}{body}\n[more: {call}{same}]"


def _select(body: str, path: str, member: str | None) -> PathSelection:
    """Select from the text of a field, with or without the field's name at the path's start."""
    try:
        found = select_path(decode_parts(body), path, owns_stream=True)
    except InvalidArguments:
        # Without the name a function may get null, and refuse it.
        if member is None:
            raise
        found = select_path(decode_parts(body), path, member=member, owns_stream=True)
        if found.value is None:
            raise
        return found
    if found.value is not None or member is None:
        return found
    found.close()
    return select_path(decode_parts(body), path, member=member, owns_stream=True)


def _split_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text; the last is followed by a line break of its own."""
    position = 0
    while (end := text.find("\n", position)) >= 0:
        yield text[position : end + 1]
        position = end + 1
    yield text[position:]
    yield "\n"


def _join_lines(pieces: Iterable[str]) -> Generator[str]:
    """Yield lines without line breaks from texts that are lines or pieces of them."""
    unfinished: list[str] = []
    for piece in pieces:
        unfinished.append(piece.removesuffix("\n"))
        if piece.endswith("\n"):
            yield "".join(unfinished)
            unfinished.clear()


def _format_match_count(found: GrepResult, grep: str) -> str:
    """Return the number of matches and how they are shown."""
    if not found.excerpt_count:
        verb = "matches" if found.line_count == 1 else "match"
        return f"{_format_count(found.line_count, 'line')} {verb} {grep}"
    matches = _format_count(found.match_count + found.hidden_count, "match", "matches")
    amount = f"{matches} in {_format_count(found.line_count, 'line')}"
    if not found.is_count_complete:
        amount = f"at least {amount}"
    if found.hidden_count:
        amount += f" from here on, {found.match_count:,} of them shown"
    return f"{amount}: {grep}, each at line@character"


def _format_count(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


@dataclass(frozen=True)
class ResultServices:
    """Result handles, their reader and their store."""

    handles: ResultHandles
    reader: ResultReader
    store: ResultStore

    @classmethod
    def create(
        cls,
        folder: Path | None,
        settings: ResultsConfig,
        count: Callable[[str], int],
        cursors: CursorCodec,
    ) -> "ResultServices":
        """Build the services; results are stored in `folder`, or in memory without one."""
        store = ResultStore(ResultFiles(folder), settings)
        handles = ResultHandles(store, count, cursors)
        return cls(handles, ResultReader(store, count, cursors), store)
