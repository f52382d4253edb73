"""Log lines on stderr, as text or JSON, with secrets masked.

Masked are texts that look like a secret, and every secret of the configuration by its value: in
messages, exceptions and tracebacks. Text from other programs cannot start a line of its own.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

LogFormat = Literal["text", "json"]
Secrets = Iterable[str] | Callable[[], Iterable[str]]

LIBRARY_LOG_LEVELS: Mapping[str, int] = {
    **dict.fromkeys(("asyncio", "httpcore", "httpx", "httpx2", "mcp", "uvicorn"), logging.INFO),
    "sse_starlette": logging.WARNING,
}
"""Minimum levels for libraries, which log whole messages with their content below these."""
SERVER_LOGGERS = ("portico.upstream", "portico.catalog")
"""Loggers about single servers, which commands keep quiet because they report on servers."""
_FALLBACK_MESSAGE = "a log line could not be written"


MAX_BYTES = 5 * 2**20
KEPT_FILES = 3
CHECK_INTERVAL_S = 10.0


def configure_logging(
    level: str, quiet_loggers: Iterable[str] = (), format: LogFormat = "text", secrets: Secrets = ()
) -> None:
    """Log from this level on, and only errors from the quiet loggers; mask `secrets` by value.

    A function for `secrets` is called when the first line is written. May be called again when the
    secrets change.
    """
    handler = _StderrHandler()
    handler.setFormatter(_MaskingFormatter(format, secrets))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in LIBRARY_LOG_LEVELS.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))
    for name in quiet_loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    # Warnings that Python prints itself are not JSON.
    logging.captureWarnings(format == "json")


class _StderrHandler(logging.Handler):
    """Writes to the current stderr, which a progress bar replaces while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # A closed stderr is no reason to stop.


class _MaskingFormatter(logging.Formatter):
    """Formats and masks records. The renderer is loaded with the first record, often never."""

    def __init__(self, log_format: LogFormat, secrets: Secrets) -> None:
        super().__init__()
        self._log_format: LogFormat = log_format
        self._secrets = secrets
        self._render: Callable[[logging.LogRecord], str] | None = None

    def format(self, record: logging.LogRecord) -> str:
        try:
            if self._render is None:
                self._render = self._load_renderer()
            return self._render(record)
        except Exception:  # logging must not fail, whatever the arguments are
            return self._render_fallback(record)

    def _load_renderer(self) -> Callable[[logging.LogRecord], str]:
        from portico.cli.log_renderer import LogRecordRenderer

        secrets = self._secrets
        renderer = LogRecordRenderer(secrets() if callable(secrets) else secrets)
        if self._log_format == "json":
            return renderer.render_json
        return renderer.render_text

    def _render_fallback(self, record: logging.LogRecord) -> str:
        if self._log_format == "json":
            return (
                f'{{"level":"error","logger":"{__name__}",'
                f'"message":"{_FALLBACK_MESSAGE}","line":{record.lineno}}}'
            )
        return f"ERROR {__name__}: {_FALLBACK_MESSAGE} ({record.module}, line {record.lineno})"


class LogFile:
    """A file of at most `max_bytes`, and the few that were full before it (`.1` is the newest)."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def open(self) -> None:
        """Send stdout and stderr of this process there."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.is_full():
            self._rotate()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)

    def is_full(self) -> bool:
        """Return whether the file has reached its size."""
        try:
            return self._path.stat().st_size >= self._max_bytes
        except OSError:
            return False

    def _rotate(self) -> None:
        for number in range(KEPT_FILES - 1, 0, -1):
            with contextlib.suppress(OSError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        with contextlib.suppress(OSError):
            os.replace(self._path, f"{self._path}.1")

    async def rotate_when_full(self) -> None:
        """Begin a new file whenever this one is full, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self.is_full():
                self.open()
