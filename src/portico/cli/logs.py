"""Log lines: on stderr, for people or as an object of JSON a line, with nothing secret in them.

Masked is what looks like a secret, and every secret of the configuration by its value, wherever it
stands: in messages, in the texts of exceptions, in tracebacks. Nothing that somebody else said can
begin a line of its own.
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
"""Loggers of libraries, which write whole messages, with what is in them, below these levels."""
_FALLBACK_MESSAGE = "a log line could not be written"


def configure_logging(
    level: str, quiet_loggers: Iterable[str] = (), format: LogFormat = "text", secrets: Secrets = ()
) -> None:
    """Log from this level on, and from the quiet ones errors only; `secrets` are masked by their
    value.

    A function is asked for them when the first line is written. May be called again, with what is
    secret by then.
    """
    handler = _StderrHandler()
    handler.setFormatter(_MaskingFormatter(format, secrets))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in LIBRARY_LOG_LEVELS.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))
    for name in quiet_loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    # Whoever reads JSON cannot read what Python prints by itself.
    logging.captureWarnings(format == "json")


class _StderrHandler(logging.Handler):
    """Writes to whatever stderr is now: a progress bar takes it over while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # nobody reads our stderr, which is no reason to stop


class _MaskingFormatter(logging.Formatter):
    """Formats, then masks. What it takes for that is loaded with the first line: many a gateway
    never writes one."""

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
        except Exception:  # whoever logs must not fail for it: arguments that do not fit, or a value that has no text
            return self._render_fallback(record)

    def _load_renderer(self) -> Callable[[logging.LogRecord], str]:
        from portico.cli.log_renderer import LogRecordRenderer

        given = self._secrets
        cleaning = LogRecordRenderer(given() if callable(given) else given)
        if self._log_format == "json":
            return cleaning.render_json
        return cleaning.render_text

    def _render_fallback(self, record: logging.LogRecord) -> str:
        if self._log_format == "json":
            return f'{{"level":"error","logger":"{__name__}","message":"{_FALLBACK_MESSAGE}","line":{record.lineno}}}'
        return f"ERROR {__name__}: {_FALLBACK_MESSAGE} ({record.module}, line {record.lineno})"
