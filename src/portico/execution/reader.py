"""`read_result` and `portico://result/{id}`: a stored result, in parts that fit an answer or as the whole resource."""

import asyncio
import codecs
import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from portico.access import Caller
from portico.catalog.visible import quoted
from portico.errors import InvalidArguments, UnknownName
from portico.execution.handles import RESULT_TOKENS, Cursors, question
from portico.execution.json_stream import decoded, lines, parts
from portico.execution.reading import Found, fitting, matcher, page, search
from portico.execution.results import ResultStore, Stored
from portico.execution.sampling import Sampler
from portico.execution.selecting import Selection, is_field, selected
from portico.execution.shape import described, infer
from portico.upstream.backend import Raw
from portico.upstream.json_windows import decode_text

Count = Callable[[str], int]

_FRAME_TOKENS = 110
"""Tokens of what is said around a part."""
_CONTEXT_LINES = 2
_LONG_TEXT = 200
_PIECE = 2**20
"""Bytes that are read from the disk at once."""
_REST_S = 0.001


class Reader:
    """Reads stored results for their callers."""

    def __init__(self, store: ResultStore, count: Count, cursors: Cursors, *, budget: int = RESULT_TOKENS) -> None:
        self._store, self._count, self._cursors, self._budget = store, count, cursors, budget

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
        start = self._cursors.decode(cursor, question(stored, path, grep), "") if cursor else 0
        tokens = max(50, (budget or self._budget) - _FRAME_TOKENS)
        searched = stored.size if path or grep else 0  # a page is read from its place on
        async with self._store.turn(caller, searched):
            try:
                return await self._store.in_thread(caller, self._part, stored, path, grep, start, tokens)
            except FileNotFoundError:
                self._store.drop(stored)
                raise UnknownName("there is no such result any more", advice="Call the tool again.") from None

    async def resource(self, caller: Caller, result_id: str) -> Raw:
        """The whole, as the answer of `resources/read`; raises UnknownName."""
        stored = self._store.find(caller, result_id)
        async with self._store.turn(caller, stored.size):
            try:
                body = await self._store.in_thread(caller, self._store.files.read, stored.id)
            except FileNotFoundError:
                self._store.drop(stored)
                raise UnknownName("there is no such result any more", advice="Call the tool again.") from None
        text = await asyncio.to_thread(decode_text, body)
        contents: Raw = {"uri": stored.uri, "mimeType": stored.mime or "text/plain"}
        contents["blob" if stored.kind == "blob" else "text"] = text
        return {"contents": [contents]}

    def _part(self, stored: Stored, path: str, grep: str, start: int, tokens: int) -> str:
        member = stored.member
        is_whole = not path or (member is not None and is_field(path, member))
        if not path or (is_whole and stored.kind != "json"):
            return self._whole(stored, path, grep, start, tokens)
        if stored.kind != "json":
            raise InvalidArguments(
                f"a path needs JSON, and this result is {'text' if stored.kind == 'text' else stored.mime}",
                advice="Use grep to find lines, or read it page by page." if stored.kind == "text" else "",
            )
        body = decode_text(self._store.files.read(stored.id))
        with contextlib.closing(_selected(body, path, None if is_whole else member)) as selection:
            if selection.value is not None:
                return self._at_path(stored, selection.value, path, grep, start, tokens)
        return self._whole(stored, path, grep, start, tokens) if is_whole else self._nothing(body, path, tokens)

    def _whole(self, stored: Stored, path: str, grep: str, start: int, tokens: int) -> str:
        if grep:
            return self._matches(stored, path, grep, None, start, tokens)
        return self._page(stored, path, start, tokens)

    def _nothing(self, body: str, path: str, tokens: int) -> str:
        sampler = Sampler()
        for _ in sampler.watch(decoded(body)):
            pass
        told = described(infer(sampler.value), min(400, tokens), self._count)
        return f"Nothing is at {quoted(path)}: null. The whole result is {told}"

    def _at_path(self, stored: Stored, found: Any, path: str, grep: str, start: int, tokens: int) -> str:
        if isinstance(found, str) and ("\n" in found or len(found) > _LONG_TEXT):
            # Text inside JSON: without the escapes that would make one line of it.
            texts: Iterable[str] = _text_lines(found)
        else:
            texts = lines(parts(found))
        if grep:
            return self._matches(stored, path, grep, texts, start, tokens)
        part = page(texts, start, tokens, self._count)
        if not part.text:
            return "There is no more."
        return self._framed("", part.text.rstrip("\n"), stored, path, grep, part.next)

    def _page(self, stored: Stored, path: str, start: int, tokens: int) -> str:
        # As many bytes as characters could be wanted: the last may be half a character, and is then not shown.
        text = self._store.files.read(stored.id, start, tokens * 8).decode(errors="ignore")
        if not text:
            return "There is no more."
        shown = text[: fitting(text, tokens, self._count)]
        end = start + len(shown.encode())
        title = f"[bytes {start:,}–{end:,} of {stored.size:,}]\n"
        return self._framed(title, shown.rstrip("\n"), stored, path, "", end if end < stored.size else None)

    def _matches(
        self, stored: Stored, path: str, grep: str, texts: Iterable[str] | None, start: int, tokens: int
    ) -> str:
        looking = matcher(grep)
        context = _CONTEXT_LINES if stored.kind == "text" else 0
        rows = self._rows(stored) if texts is None else _whole_lines(texts)
        with contextlib.closing(rows):
            found = search(rows, looking, start, tokens, self._count, context=context)
        how = "as plain text" if looking.plain else "as a regular expression"
        if not found.matches and found.next is None:
            looked = _counted(found.looked_at - found.since, "line")
            return f"No line matches {quoted(grep)} ({how}, {looked} looked at)."
        title = f"[{_amount(found, quoted(grep))}, {how}, to line {found.looked_at:,}]\n"
        return self._framed(title, found.text, stored, path, grep, found.next)

    def _rows(self, stored: Stored) -> Generator[str]:
        """The lines of a stored text, without their ends.

        Read in large pieces: a thread that asks the disk for a little, again and again, lets go of the interpreter's
        lock each time and has it back before anyone who waits for it is awake, and the event loop gets no turn. So it
        also rests between two pieces.
        """
        decoder, at, unfinished = codecs.getincrementaldecoder("utf-8")(), 0, list[str]()
        while piece := self._store.files.read(stored.id, at, _PIECE):
            if at:
                time.sleep(_REST_S)
            at += len(piece)
            *whole, last = decoder.decode(piece).split("\n")
            if whole:
                yield "".join((*unfinished, whole[0]))
                yield from whole[1:]
                unfinished.clear()
            unfinished.append(last)
        if last := "".join(unfinished):
            yield last

    def _framed(self, title: str, body: str, stored: Stored, path: str, grep: str, following: int | None) -> str:
        if following is None:
            return f"{title}{body}"
        cursor = self._cursors.encode(question(stored, path, grep), "", following)
        same = " and the same path" * bool(path) + " and the same grep" * bool(grep)
        return f'{title}{body}\n[more: read_result(result_id="{stored.id}", cursor="{cursor}"){same}]'


def _selected(body: str, path: str, member: str | None) -> Selection:
    """What a path selects from the text of a field, with or without the field's name before it."""
    try:
        found = selected(decoded(body), path, owned=True)
    except InvalidArguments:
        # A function refuses the nothing that it finds without the name.
        if member is None or (found := selected(decoded(body), path, member=member, owned=True)).value is None:
            raise
        return found
    if found.value is not None or member is None:
        return found
    found.close()
    return selected(decoded(body), path, member=member, owned=True)


def _text_lines(text: str) -> Iterator[str]:
    """The lines of a text with their ends; the last has one too, as a piece of its own."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at : end + 1]
        at = end + 1
    yield text[at:]
    yield "\n"


def _whole_lines(pieces: Iterable[str]) -> Generator[str]:
    """Lines without their ends, of texts that are lines or pieces of them."""
    unfinished: list[str] = []
    for piece in pieces:
        unfinished.append(piece.removesuffix("\n"))
        if piece.endswith("\n"):
            yield "".join(unfinished)
            unfinished.clear()


def _amount(found: Found, grep: str) -> str:
    """How much matches, and how it is shown."""
    if not found.excerpts:
        return f"{_counted(found.lines, 'line')} {'matches' if found.lines == 1 else 'match'} {grep}"
    least = "" if found.all_counted else "at least "
    amount = f"{least}{_counted(found.matches + found.unshown, 'match', 'matches')} in {_counted(found.lines, 'line')}"
    here = f" from here on, {found.matches:,} of them shown" if found.unshown else ""
    return f"{amount}{here}: {grep}, each at line@character"


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
