"""One log record → the text of its line, with nothing secret in it and nothing that could pass for
another line."""

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

from portico.config_file.mask import mask_text
from portico.config_file.secret_values import SecretMask

MAX_TEXT_CHARS = 16_384
"""Characters of one text in a line; a server may say anything of any length."""
_MAX_MASKED_CHARS = 4 * MAX_TEXT_CHARS
"""Characters that are masked before a text is cut: a secret must not be cut in half first."""
_MAX_FRAMES = 50
_MAX_CAUSES = 10
_TRACEBACK_PREFIX = "  | "
"""Before each line of a traceback: none of them can be taken for the beginning of another entry."""
_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e0fff]"
)
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class LogRecordRenderer:
    """Writes records without these secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._mask = SecretMask(secrets)

    def render_text(self, record: logging.LogRecord) -> str:
        """For people: a line, and a traceback under it where there is one."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        head = f"{moment} {record.levelname} {escape_invisible(record.name)}: {self._clean(record.getMessage())}"
        parts = [head, *self._render_traceback(record)]
        return "\n".join(parts)

    def render_json(self, record: logging.LogRecord) -> str:
        """For programs: an object in one line."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
            **_get_trace_ids(),
        }
        if (error := _get_exception(record)) is not None:
            said["exception"] = [self._to_exception_data(one) for one in _collect_chain(error)]
        if record.stack_info:
            said["stack"] = [
                self._clean(line) for line in record.stack_info.splitlines()[:_MAX_FRAMES]
            ]
        # ASCII, so that no reader's idea of a line or a letter matters.
        return json.dumps(said, separators=(",", ":"))

    def _render_traceback(self, record: logging.LogRecord) -> Iterator[str]:
        # Not as Python writes it: that sets in and breaks up what errors say, and a secret in it is
        # no longer found.
        for place, one in enumerate(
            _collect_chain(error) if (error := _get_exception(record)) is not None else ()
        ):
            yield f"{_TRACEBACK_PREFIX}{'Beneath it:' if place else 'Traceback (most recent call last):'}"
            for text in traceback.format_list(_extract_frames(one.__traceback__)):
                yield from (_TRACEBACK_PREFIX + self._clean(line) for line in text.splitlines())
            yield f"{_TRACEBACK_PREFIX}{type(one).__qualname__}: {self._clean(_get_message(one))}"
            yield from (_TRACEBACK_PREFIX + note for note in self._clean_notes(one))
        for line in (record.stack_info or "").splitlines()[:_MAX_FRAMES]:
            yield _TRACEBACK_PREFIX + self._clean(line)

    def _to_exception_data(self, error: BaseException) -> dict[str, Any]:
        notes = self._clean_notes(error)
        frames = _extract_frames(error.__traceback__)
        return {
            "type": type(error).__qualname__,
            "message": self._clean(_get_message(error)),
            **({"notes": notes} if notes else {}),
            "frames": [
                {"file": one.filename, "line": one.lineno, "function": one.name} for one in frames
            ],
        }

    def _clean_notes(self, error: BaseException) -> list[str]:
        return [self._clean(str(note)) for note in getattr(error, "__notes__", ())[:_MAX_CAUSES]]

    def _clean(self, text: str) -> str:
        return escape_invisible(self._mask_and_cut(text))

    def _mask_and_cut(self, text: str) -> str:
        told = mask_text(self._mask.apply(text[:_MAX_MASKED_CHARS]))
        if len(text) > _MAX_MASKED_CHARS:
            told = told[: -self._mask.longest_form]  # where it was cut, half a secret may be left
        if len(told) <= MAX_TEXT_CHARS:
            return told
        return f"{told[:MAX_TEXT_CHARS]}… ({len(text):,} characters)"


def escape_invisible(text: str) -> str:
    """Text of one line, in which everything that cannot be seen, or would end the line, is written
    out."""
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE.sub(
        lambda found: _SHORT_ESCAPES.get(found[0]) or _escape_character(found[0]), text
    )


def _escape_character(character: str) -> str:
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    if point < 0x10000:
        return f"\\u{point:04x}"
    return f"\\U{point:08x}"


def _get_exception(record: logging.LogRecord) -> BaseException | None:
    if record.exc_info:
        return record.exc_info[1]
    return None


def _get_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # whatever somebody's exception does when it is read
        return "(it cannot be told)"


def _collect_chain(error: BaseException) -> list[BaseException]:
    """An error, what it came from, and what is grouped in it; each once, and not for ever."""
    found: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left and len(found) < _MAX_CAUSES:
        one = left.pop(0)
        if one is None or any(one is known for known in found):
            continue
        found.append(one)
        left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions  # pyright: ignore[reportUnknownMemberType]
    return found


def _extract_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Where it happened, innermost last; without the values of variables."""
    return traceback.StackSummary.extract(
        traceback.walk_tb(trace), limit=-_MAX_FRAMES, lookup_lines=False
    )


def _get_trace_ids() -> dict[str, str]:
    """The trace that this belongs to, while somebody records one."""
    tracing: Any = sys.modules.get("opentelemetry.trace")  # a log line is no reason to load it
    if tracing is None:
        return {}
    span = tracing.get_current_span()
    if not span.is_recording():
        return {}
    context = span.get_span_context()
    return {
        "trace_id": format(context.trace_id, "032x"),
        "span_id": format(context.span_id, "016x"),
    }
