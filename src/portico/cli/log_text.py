"""One log record → the text of its line, with nothing secret in it and nothing that could pass for another line."""

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from portico.config_file.masking import masked_text
from portico.config_file.secret_values import Mask

LONGEST = 16_384
"""Characters of one text in a line; a server may say anything of any length."""
_READ = 4 * LONGEST
"""Characters that are masked before a text is cut: a secret must not be cut in half first."""
_MOST_FRAMES, _MOST_CAUSES = 50, 10
_BAR = "  | "
"""Before each line of a traceback: none of them can be taken for the beginning of another entry."""
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Cleaning:
    """Writes records without these secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._mask = Mask(secrets)

    def as_text(self, record: logging.LogRecord) -> str:
        """For people: a line, and a traceback under it where there is one."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        head = f"{moment} {record.levelname} {visible(record.name)}: {self._clean(record.getMessage())}"
        parts = [head, *self._under(record)]
        return "\n".join(parts)

    def as_json(self, record: logging.LogRecord) -> str:
        """For programs: an object in one line."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
            **_trace(),
        }
        if (error := _error(record)) is not None:
            said["exception"] = [self._told(one) for one in _chain(error)]
        if record.stack_info:
            said["stack"] = [self._clean(line) for line in record.stack_info.splitlines()[:_MOST_FRAMES]]
        # ASCII, so that no reader's idea of a line or a letter matters.
        return json.dumps(said, separators=(",", ":"))

    def _under(self, record: logging.LogRecord) -> Iterator[str]:
        # Not as Python writes it: that sets in and breaks up what errors say, and a secret in it is no longer found.
        for place, one in enumerate(_chain(error) if (error := _error(record)) is not None else ()):
            yield f"{_BAR}{'Beneath it:' if place else 'Traceback (most recent call last):'}"
            for text in traceback.format_list(_walked(one.__traceback__)):
                yield from (_BAR + self._clean(line) for line in text.splitlines())
            yield f"{_BAR}{type(one).__qualname__}: {self._clean(_words(one))}"
            yield from (_BAR + note for note in self._notes(one))
        for line in (record.stack_info or "").splitlines()[:_MOST_FRAMES]:
            yield _BAR + self._clean(line)

    def _told(self, error: BaseException) -> dict[str, Any]:
        notes = self._notes(error)
        frames = _walked(error.__traceback__)
        return {
            "type": type(error).__qualname__,
            "message": self._clean(_words(error)),
            **({"notes": notes} if notes else {}),
            "frames": [{"file": one.filename, "line": one.lineno, "function": one.name} for one in frames],
        }

    def _notes(self, error: BaseException) -> list[str]:
        return [self._clean(str(note)) for note in getattr(error, "__notes__", ())[:_MOST_CAUSES]]

    def _clean(self, text: str) -> str:
        return visible(self._masked(text))

    def _masked(self, text: str) -> str:
        told = masked_text(self._mask.over(text[:_READ]))
        if len(text) > _READ:
            told = told[: -self._mask.longest]  # where it was cut, half a secret may be left
        return told if len(told) <= LONGEST else f"{told[:LONGEST]}… ({len(text):,} characters)"


def visible(text: str) -> str:
    """Text of one line, in which everything that cannot be seen, or would end the line, is written out."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: _SHORT.get(found[0]) or _escaped(found[0]), text)


def _escaped(character: str) -> str:
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def _error(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # whatever somebody's exception does when it is read
        return "(it cannot be told)"


def _chain(error: BaseException) -> list[BaseException]:
    """An error, what it came from, and what is grouped in it; each once, and not for ever."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left and len(found) < _MOST_CAUSES:
        one = left.pop(0)
        if one is None or any(one is known for known in found):
            continue
        found.append(one)
        left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions  # pyright: ignore[reportUnknownMemberType]
    return found


def _walked(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Where it happened, innermost last; without the values of variables."""
    return traceback.StackSummary.extract(traceback.walk_tb(trace), limit=-_MOST_FRAMES, lookup_lines=False)


def _trace() -> dict[str, str]:
    """The trace that this belongs to, while somebody records one."""
    tracing: Any = sys.modules.get("opentelemetry.trace")  # a log line is no reason to load it
    if tracing is None:
        return {}
    span = tracing.get_current_span()
    if not span.is_recording():
        return {}
    context = span.get_span_context()
    return {"trace_id": format(context.trace_id, "032x"), "span_id": format(context.span_id, "016x")}
