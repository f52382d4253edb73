"""Output of a command: answers on stdout as text or JSON, progress on stderr if it is a
terminal.
"""

import io
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from portico.cli.exit import print_note
from portico.cli.streams import ProcessStreams, get_streams
from portico.json_text import json_codec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_SPINNER_WIDTH = 12
"""Columns of the spinner and the time."""
_FORCE_TERMINAL_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables that make rich treat any stream as a terminal."""


class Screen:
    """The two output streams of one command. rich is imported only if something is formatted."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._streams = get_streams()
        stdout = self._streams.stdout
        if isinstance(stdout, io.TextIOWrapper):
            # A character that the terminal cannot show becomes a question mark instead of an error.
            stdout.reconfigure(errors="replace")

    @cached_property
    def out(self) -> "Console":
        """The console of stdout."""
        return _make_console(self._streams, stderr=False)

    @cached_property
    def err(self) -> "Console":
        """The console of stderr."""
        return _make_console(self._streams, stderr=True)

    @property
    def is_stdout_terminal(self) -> bool:
        """Whether stdout is a terminal; then output is formatted."""
        return self._may_be_terminal(self._streams.stdout) and self.out.is_terminal

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether stderr is a terminal; then progress is shown."""
        return self._may_be_terminal(self._streams.stderr) and self.err.is_terminal

    def write_json(self, value: Any) -> None:
        """Write JSON: indented on a terminal, else on one line."""
        self._streams.write_later(lambda: self._write_json(value))

    def write_text(self, *parts: "RenderableType") -> None:
        """Write text: formatted on a terminal, else plain."""
        self._streams.write_later(lambda: self._write_text(parts))

    def _write_json(self, value: Any) -> None:
        stdout = self._streams.stdout
        stdout.flush()
        if self.is_stdout_terminal:
            stdout.buffer.write(json.dumps(value, indent=2).encode() + b"\n")
        else:
            stdout.buffer.write(json_codec.dumps(value) + b"\n")
        stdout.buffer.flush()

    def _write_text(self, parts: "Sequence[RenderableType]") -> None:
        for part in parts:
            plain = None if self.is_stdout_terminal else _to_plain_text(part)
            if plain is None:
                self.out.print(part)
            else:
                self._streams.stdout.write(f"{plain}\n")

    def _may_be_terminal(self, stream: TextIO) -> bool:
        """Return False if the stream is certainly no terminal, without importing rich."""
        return (
            any(self._streams.environ.get(name) for name in _FORCE_TERMINAL_VARIABLES)
            or stream.closed
            or stream.isatty()
        )

    @contextmanager
    def show_start_progress(self, names: Sequence[str]) -> Generator[Callable[[str], None]]:
        """Show progress while servers start; the yielded function marks one as done."""
        if not self.is_stderr_terminal:
            yield lambda name: None
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(20),
            MofNCompleteColumn(),
        )
        with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True) as progress:
            pending = list(dict.fromkeys(names))
            task = progress.add_task(_render_start_progress(pending), total=len(pending))

            def mark_started(name: str) -> None:
                if name in pending:
                    pending.remove(name)
                    progress.update(task, advance=1, description=_render_start_progress(pending))

            yield mark_started

    @contextmanager
    def show_spinner(self, text: str) -> Generator[Callable[[str], None]]:
        """Show a spinner with the time that has passed; the yielded function changes the text.

        That function writes to the terminal: call it in a thread where others are served too.
        """
        if not self.is_stderr_terminal:
            yield lambda text: None
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        width = max(20, self.err.width - _SPINNER_WIDTH)
        column = Column(no_wrap=True, overflow="ellipsis", max_width=width)
        # Without markup: a tool's name may contain brackets.
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=column),
        )
        with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True) as progress:
            task = progress.add_task(text, total=None)
            yield lambda text: progress.update(task, description=text, refresh=True)

    @contextmanager
    def show_spinner_or_note(self, text: str) -> Generator[None]:
        """Show a spinner; without a terminal, print the text as a note."""
        if not self.is_stderr_terminal:
            print_note(text)
        with self.show_spinner(text):
            yield


def _make_console(streams: ProcessStreams, *, stderr: bool) -> "Console":
    from rich.console import Console

    if streams.is_process:
        return Console(highlight=False, emoji=False, markup=False, stderr=stderr)
    return Console(
        highlight=False,
        emoji=False,
        markup=False,
        file=streams.stderr if stderr else streams.stdout,
        _environ=streams.environ,
    )


def _to_plain_text(part: "RenderableType") -> str | None:
    """Return the plain text of a string or `Text`, None for other renderables."""
    if isinstance(part, str):
        return part
    from rich.text import Text

    if isinstance(part, Text):
        return part.plain
    return None


def _render_start_progress(names: Sequence[str]) -> str:
    if not names:
        return "Ready"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Starting {', '.join(names[:3])}{more}"
