"""Output of a command: answers on stdout as text or JSON, progress on stderr if it is a
terminal.
"""

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from portico.cli.exit import print_note
from portico.json_text import json_codec

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_FORCE_TERMINAL_VARIABLES = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Environment variables that make rich treat any stream as a terminal."""


class Screen:
    """The two output streams of one command. rich is imported only if something is formatted."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        if hasattr(sys.stdout, "reconfigure"):
            # A character that the terminal cannot show becomes a question mark instead of an error.
            sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]

    @cached_property
    def out(self) -> "Console":
        """The console of stdout."""
        return _make_console(stderr=False)

    @cached_property
    def err(self) -> "Console":
        """The console of stderr."""
        return _make_console(stderr=True)

    @property
    def is_stdout_terminal(self) -> bool:
        """Whether stdout is a terminal; then output is formatted."""
        return _may_be_terminal(sys.stdout) and self.out.is_terminal

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether stderr is a terminal; then progress is shown."""
        return _may_be_terminal(sys.stderr) and self.err.is_terminal

    def write_json(self, value: Any) -> None:
        """Write JSON: indented on a terminal, else on one line."""
        sys.stdout.flush()
        if self.is_stdout_terminal:
            sys.stdout.buffer.write(json.dumps(value, indent=2).encode() + b"\n")
        else:
            sys.stdout.buffer.write(json_codec.dumps(value) + b"\n")
        sys.stdout.buffer.flush()

    def write_text(self, *parts: "RenderableType") -> None:
        """Write text: formatted on a terminal, else plain."""
        for part in parts:
            if self.is_stdout_terminal:
                plain = None
            else:
                plain = _to_plain_text(part)
            if plain is None:
                self.out.print(part)
            else:
                sys.stdout.write(f"{plain}\n")

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
    def show_spinner(self, text: str) -> Generator[None]:
        """Show a spinner."""
        if not self.is_stderr_terminal:
            yield
            return
        from rich.text import Text

        with self.err.status(Text(text)):
            yield

    @contextmanager
    def show_spinner_or_note(self, text: str) -> Generator[None]:
        """Show a spinner; without a terminal, print the text as a note."""
        if not self.is_stderr_terminal:
            print_note(text)
        with self.show_spinner(text):
            yield


def _make_console(*, stderr: bool) -> "Console":
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False, stderr=stderr)


def _may_be_terminal(stream: TextIO) -> bool:
    """Return False if the stream is certainly no terminal, without importing rich."""
    return (
        any(os.environ.get(name) for name in _FORCE_TERMINAL_VARIABLES)
        or stream.closed
        or stream.isatty()
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
