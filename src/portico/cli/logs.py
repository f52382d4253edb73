"""Log lines: on stderr, with everything that looks like a secret masked."""

import logging
import sys
from collections.abc import Iterable, Mapping

OTHERS: Mapping[str, int] = {
    **dict.fromkeys(("asyncio", "httpcore", "httpx", "httpx2", "mcp", "uvicorn"), logging.INFO),
    "sse_starlette": logging.WARNING,
}
"""Loggers of libraries, which write whole messages, with what is in them, below these levels."""


def set_up(level: str, quiet: Iterable[str] = ()) -> None:
    """Log from this level on; from the quiet ones, errors only."""
    handler = _Stderr()
    handler.setFormatter(_Masking("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, least in OTHERS.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))
    for name in quiet:
        logging.getLogger(name).setLevel(logging.ERROR)


class _Stderr(logging.Handler):
    """Writes to whatever stderr is now: a progress bar takes it over while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except OSError:
            return  # nobody reads our stderr, which is no reason to stop


class _Masking(logging.Formatter):
    """Formats, then masks."""

    def format(self, record: logging.LogRecord) -> str:
        from portico.config_file.masking import masked_text  # its patterns cost start-up, and log lines are rare

        return masked_text(super().format(record))
