"""Log lines on stderr, as text or JSON, with secrets masked.

Masked are texts that look like a secret, and every secret of the configuration by its value: in
messages, exceptions and tracebacks. Text from other programs cannot start a line of its own.
"""

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

LogFormat = Literal["text", "json"]
Secrets = Iterable[str] | Callable[[], Iterable[str]]

LIBRARY_LOG_LEVELS: Mapping[str, int] = {
    **dict.fromkeys(("asyncio", "httpcore", "httpx", "httpx2", "mcp", "uvicorn"), logging.INFO),
    "sse_starlette": logging.WARNING,
}
"""Minimum levels for libraries, which log whole messages with their content below these."""
_FALLBACK_MESSAGE = "a log line could not be written"


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
