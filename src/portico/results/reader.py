"""`read_result` and `portico://result/{id}`: a stored result, in parts that fit an answer or as the whole resource."""

import asyncio
import codecs
import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from portico.access import Caller
from portico.catalog.visible_text import quote_text
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
from portico.results.handles import RESULT_TOKENS, CursorCodec, build_cursor_query
from portico.results.path_selection import PathSelection, is_field_path, select_path
from portico.results.shape import infer_shape, render_shape
from portico.results.store import ResultStore, StoredResult
from portico.results.value_sample import ValueSampler
from portico.upstream.backend import Raw

CountTokens = Callable[[str], int]

_FRAME_TOKENS = 110
"""Tokens of what is said around a part."""
_CONTEXT_LINES = 2
_LONG_TEXT_CHARS = 200
_READ_BYTES = 2**20
"""Bytes that are read from the disk at once."""
_READ_PAUSE_S = 0.001


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
        """A part of a result, as text; raises UnknownName, InvalidArguments, StaleCursor."""
        stored = self._store.find(caller, result_id)
        if cursor:
            start = self._cursors.decode(cursor, build_cursor_query(stored, path, grep), "")
        else:
            start = 0
        tokens = max(50, (budget or self._budget) - _FRAME_TOKENS)
        searched = stored.size if path or grep else 0  # a page is read from its place on
        async with self._store.acquire_slot(caller, searched):
            try:
                return await self._store.run_in_thread(
                    caller, self._read_part, stored, path, grep, start, tokens
                )
            except FileNotFoundError:
                self._store.drop(stored)
                raise UnknownName(
                    "there is no such result any more", advice="Call the tool again."
                ) from None

    async def read_resource(self, caller: Caller, result_id: str) -> Raw:
        """The whole, as the answer of `resources/read`; raises UnknownName."""
        stored = self._store.find(caller, result_id)
        async with self._store.acquire_slot(caller, stored.size):
            try:
                body = await self._store.run_in_thread(caller, self._store.files.read, stored.id)
            except FileNotFoundError:
                self._store.drop(stored)
                raise UnknownName(
                    "there is no such result any more", advice="Call the tool again."
                ) from None
        text = await asyncio.to_thread(decode_utf8, body)
        contents: Raw = {"uri": stored.uri, "mimeType": stored.mime or "text/plain"}
        contents["blob" if stored.kind == "blob" else "text"] = text
        return {"contents": [contents]}

    def _read_part(
        self, stored: StoredResult, path: str, grep: str, start: int, tokens: int
    ) -> str:
        member = stored.member
        is_whole = not path or (member is not None and is_field_path(path, member))
        if not path or (is_whole and stored.kind != "json"):
            return self._read_whole(stored, path, grep, start, tokens)
        if stored.kind != "json":
            raise InvalidArguments(
                f"a path needs JSON, and this result is {'text' if stored.kind == 'text' else stored.mime}",
                advice="Use grep to find lines, or read it page by page."
                if stored.kind == "text"
                else "",
            )
        body = decode_utf8(self._store.files.read(stored.id))
        with contextlib.closing(_select(body, path, None if is_whole else member)) as selection:
            if selection.value is not None:
                return self._read_selection(stored, selection.value, path, grep, start, tokens)
        if is_whole:
            return self._read_whole(stored, path, grep, start, tokens)
        return self._render_no_selection(body, path, tokens)

    def _read_whole(
        self, stored: StoredResult, path: str, grep: str, start: int, tokens: int
    ) -> str:
        if grep:
            return self._render_matches(stored, path, grep, None, start, tokens)
        return self._read_page(stored, path, start, tokens)

    def _render_no_selection(self, body: str, path: str, tokens: int) -> str:
        sampler = ValueSampler()
        for _ in sampler.watch(decode_parts(body)):
            pass
        told = render_shape(infer_shape(sampler.value), min(400, tokens), self._count)
        return f"Nothing is at {quote_text(path)}: null. The whole result is {told}"

    def _read_selection(
        self, stored: StoredResult, value: Any, path: str, grep: str, start: int, tokens: int
    ) -> str:
        if isinstance(value, str) and ("\n" in value or len(value) > _LONG_TEXT_CHARS):
            # Text inside JSON: without the escapes that would make one line of it.
            texts: Iterable[str] = _split_lines(value)
        else:
            texts = encode_lines(to_parts(value))
        if grep:
            return self._render_matches(stored, path, grep, texts, start, tokens)
        part = take_page(texts, start, tokens, self._count)
        if not part.text:
            return "There is no more."
        return self._add_continuation(
            "", part.text.rstrip("\n"), stored, path, grep, part.next_offset
        )

    def _read_page(self, stored: StoredResult, path: str, start: int, tokens: int) -> str:
        # As many bytes as characters could be wanted: the last may be half a character, and is then
        # not shown.
        text = self._store.files.read(stored.id, start, tokens * 8).decode(errors="ignore")
        if not text:
            return "There is no more."
        shown = text[: count_fitting_chars(text, tokens, self._count)]
        end = start + len(shown.encode())
        title = f"[bytes {start:,}–{end:,} of {stored.size:,}]\n"
        return self._add_continuation(
            title, shown.rstrip("\n"), stored, path, "", end if end < stored.size else None
        )

    def _render_matches(
        self,
        stored: StoredResult,
        path: str,
        grep: str,
        texts: Iterable[str] | None,
        start: int,
        tokens: int,
    ) -> str:
        looking = compile_matcher(grep)
        if stored.kind == "text":
            context = _CONTEXT_LINES
        else:
            context = 0
        if texts is None:
            rows = self._iter_lines(stored)
        else:
            rows = _join_lines(texts)
        with contextlib.closing(rows):
            found = grep_lines(rows, looking, start, tokens, self._count, context=context)
        if looking.is_plain:
            how = "as plain text"
        else:
            how = "as a regular expression"
        if not found.match_count and found.next_offset is None:
            looked = _format_count(found.end_line - found.first_line, "line")
            return f"No line matches {quote_text(grep)} ({how}, {looked} looked at)."
        title = (
            f"[{_format_match_count(found, quote_text(grep))}, {how}, to line {found.end_line:,}]\n"
        )
        return self._add_continuation(title, found.text, stored, path, grep, found.next_offset)

    def _iter_lines(self, stored: StoredResult) -> Generator[str]:
        """The lines of a stored text, without their ends.

        Read in large pieces: a thread that asks the disk for a little, again and again, lets go of
        the interpreter's lock each time and has it back before anyone who waits for it is awake,
        and the event loop gets no turn. So it also rests between two pieces.
        """
        decoder = codecs.getincrementaldecoder("utf-8")()
        at = 0
        unfinished = list[str]()
        while piece := self._store.files.read(stored.id, at, _READ_BYTES):
            if at:
                time.sleep(_READ_PAUSE_S)
            at += len(piece)
            *whole, last = decoder.decode(piece).split("\n")
            if whole:
                yield "".join((*unfinished, whole[0]))
                yield from whole[1:]
                unfinished.clear()
            unfinished.append(last)
        if last := "".join(unfinished):
            yield last

    def _add_continuation(
        self,
        title: str,
        body: str,
        stored: StoredResult,
        path: str,
        grep: str,
        next_offset: int | None,
    ) -> str:
        if next_offset is None:
            return f"{title}{body}"
        cursor = self._cursors.encode(build_cursor_query(stored, path, grep), "", next_offset)
        same = " and the same path" * bool(path) + " and the same grep" * bool(grep)
        return (
            f'{title}{body}\n[more: read_result(result_id="{stored.id}", cursor="{cursor}"){same}]'
        )


def _select(body: str, path: str, member: str | None) -> PathSelection:
    """What a path selects from the text of a field, with or without the field's name before it."""
    try:
        found = select_path(decode_parts(body), path, owns_stream=True)
    except InvalidArguments:
        # A function refuses the nothing that it finds without the name.
        if (
            member is None
            or (
                found := select_path(decode_parts(body), path, member=member, owns_stream=True)
            ).value
            is None
        ):
            raise
        return found
    if found.value is not None or member is None:
        return found
    found.close()
    return select_path(decode_parts(body), path, member=member, owns_stream=True)


def _split_lines(text: str) -> Iterator[str]:
    """The lines of a text with their ends; the last has one too, as a piece of its own."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at : end + 1]
        at = end + 1
    yield text[at:]
    yield "\n"


def _join_lines(pieces: Iterable[str]) -> Generator[str]:
    """Lines without their ends, of texts that are lines or pieces of them."""
    unfinished: list[str] = []
    for piece in pieces:
        unfinished.append(piece.removesuffix("\n"))
        if piece.endswith("\n"):
            yield "".join(unfinished)
            unfinished.clear()


def _format_match_count(found: GrepResult, grep: str) -> str:
    """How much matches, and how it is shown."""
    if not found.excerpt_count:
        return f"{_format_count(found.line_count, 'line')} {'matches' if found.line_count == 1 else 'match'} {grep}"
    if found.is_count_complete:
        least = ""
    else:
        least = "at least "
    amount = f"{least}{_format_count(found.match_count + found.hidden_count, 'match', 'matches')} in {_format_count(found.line_count, 'line')}"
    if found.hidden_count:
        here = f" from here on, {found.match_count:,} of them shown"
    else:
        here = ""
    return f"{amount}{here}: {grep}, each at line@character"


def _format_count(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"
