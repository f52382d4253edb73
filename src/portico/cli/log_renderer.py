"""Renders a log record as one entry, without secrets and without forgeable lines."""

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
from portico.config_file.secret_references import known_secrets
from portico.config_file.secret_values import SecretMask

MAX_TEXT_CHARS = 16_384
"""Maximum characters of one text in an entry; servers may log text of any length."""
_MAX_MASKED_CHARS = 4 * MAX_TEXT_CHARS
"""Characters that are masked before a text is cut, so that no secret is cut in half first."""
_MAX_FRAMES = 50
_MAX_CAUSES = 10
_TRACEBACK_PREFIX = "  | "
"""Prefix of traceback lines, so that none can be taken for the start of another entry."""
_INVISIBLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class LogRecordRenderer:
    """Renders records with these secrets masked, and those that are read meanwhile."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets)
        self._version = known_secrets.version
        self._known_mask = SecretMask(self._secrets | known_secrets.list_values())

    @property
    def _mask(self) -> SecretMask:
        if self._version != known_secrets.version:
            self._version = known_secrets.version
            self._known_mask = SecretMask(self._secrets | known_secrets.list_values())
        return self._known_mask

    def render_text(self, record: logging.LogRecord) -> str:
        """Render a record for people: a line, and a traceback below it if there is one."""
        time_text = time.strftime("%H:%M:%S", time.localtime(record.created))
        name = escape_invisible(record.name)
        head = f"{time_text} {record.levelname} {name}: {self._clean(record.getMessage())}"
        return "\n".join([head, *self._render_traceback(record)])

    def render_json(self, record: logging.LogRecord) -> str:
        """Render a record for programs: a JSON object on one line."""
        data: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._clean(record.getMessage()),
            **_get_trace_ids(),
        }
        if (error := _get_exception(record)) is not None:
            data["exception"] = [self._to_exception_data(cause) for cause in _collect_chain(error)]
        if record.stack_info:
            data["stack"] = [
                self._clean(line) for line in record.stack_info.splitlines()[:_MAX_FRAMES]
            ]
        # ASCII, so that readers agree on line ends and encoding.
        return json.dumps(data, separators=(",", ":"))

    def _render_traceback(self, record: logging.LogRecord) -> Iterator[str]:
        # Not Python's own format: it indents and splits messages, so that secrets are not found.
        error = _get_exception(record)
        for index, cause in enumerate(_collect_chain(error) if error is not None else ()):
            heading = "Caused by:" if index else "Traceback (most recent call last):"
            yield f"{_TRACEBACK_PREFIX}{heading}"
            for text in traceback.format_list(_extract_frames(cause.__traceback__)):
                yield from (_TRACEBACK_PREFIX + self._clean(line) for line in text.splitlines())
            yield (
                f"{_TRACEBACK_PREFIX}{type(cause).__qualname__}: {self._clean(_get_message(cause))}"
            )
            yield from (_TRACEBACK_PREFIX + note for note in self._clean_notes(cause))
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
                {"file": frame.filename, "line": frame.lineno, "function": frame.name}
                for frame in frames
            ],
        }

    def _clean_notes(self, error: BaseException) -> list[str]:
        return [self._clean(str(note)) for note in getattr(error, "__notes__", ())[:_MAX_CAUSES]]

    def _clean(self, text: str) -> str:
        masked = mask_text(self._mask.apply(text[:_MAX_MASKED_CHARS]))
        if len(text) > _MAX_MASKED_CHARS:
            # The cut may have left a part of a secret at the end.
            masked = masked[: -self._mask.longest_form]
        if len(masked) > MAX_TEXT_CHARS:
            masked = f"{masked[:MAX_TEXT_CHARS]}… ({len(text):,} characters)"
        return escape_invisible(masked)


def escape_invisible(text: str) -> str:
    """Escape invisible characters and line ends."""
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _get_exception(record: logging.LogRecord) -> BaseException | None:
    if record.exc_info:
        return record.exc_info[1]
    return None


def _get_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # User-defined exceptions may raise anything here.
        return "(it has no text)"


def _collect_chain(error: BaseException) -> list[BaseException]:
    """Return an error, its causes and its group members, each once and at most ten."""
    found: list[BaseException] = []
    remaining: list[BaseException | None] = [error]
    while remaining and len(found) < _MAX_CAUSES:
        current = remaining.pop(0)
        if current is None or any(current is known for known in found):
            continue
        found.append(current)
        remaining.append(
            current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        )
        if isinstance(current, BaseExceptionGroup):
            remaining += current.exceptions  # pyright: ignore[reportUnknownMemberType]
    return found


def _extract_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """Return the frames, innermost last, without values of variables."""
    return traceback.StackSummary.extract(
        traceback.walk_tb(trace), limit=-_MAX_FRAMES, lookup_lines=False
    )


def _get_trace_ids() -> dict[str, str]:
    """Return the ids of the current span, if one is recorded."""
    tracing: Any = sys.modules.get("opentelemetry.trace")  # Not imported only for a log line.
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
