"""The streams of the command that runs: those of this process, or of the command that asked.

A running gateway runs commands for others (`local_gateway.command_runner`): each in a context with
streams of its own. Everything that a command writes or asks about its terminal goes through
`get_streams`.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TextIO


class ProcessStreams:
    """stdin, stdout and stderr of this process, as they are at the moment."""

    is_process = True

    def __init__(self) -> None:
        self.shown_warnings: set[str] = set()

    @property
    def stdout(self) -> TextIO:
        return sys.stdout

    @property
    def stderr(self) -> TextIO:
        return sys.stderr

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables that say what the terminal can show."""
        return os.environ

    def read_stdin(self) -> bytes:
        return sys.stdin.buffer.read()

    def write_later(self, write: Callable[[], None]) -> None:
        """Write an answer; here at once, elsewhere where it holds up nobody."""
        write()


_PROCESS = ProcessStreams()
_current: ContextVar[ProcessStreams] = ContextVar("streams", default=_PROCESS)


def get_streams() -> ProcessStreams:
    """Return the streams of the command that runs here."""
    return _current.get()


def use_streams(streams: ProcessStreams) -> None:
    """Give everything that runs in this context other streams."""
    _current.set(streams)
