"""Where a command writes: answers to stdout, as text or with --json as JSON; progress to stderr, on
a terminal only."""

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
"""What makes a terminal of what is none, where the environment has it."""


class Screen:
    """The two streams of one command. What lays text out is loaded when somebody looks: a service
    is no such."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        if hasattr(sys.stdout, "reconfigure"):
            # A terminal that cannot show a character shows a question mark, not a failure.
            sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]

    @cached_property
    def out(self) -> "Console":
        """Where answers go."""
        return _make_console(stderr=False)

    @cached_property
    def err(self) -> "Console":
        """Where everything else goes."""
        return _make_console(stderr=True)

    @property
    def is_stdout_terminal(self) -> bool:
        """Whether stdout is a terminal: then answers are laid out, else they are one line a thing."""
        return _may_be_terminal(sys.stdout) and self.out.is_terminal

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether stderr is a terminal: then progress is shown."""
        return _may_be_terminal(sys.stderr) and self.err.is_terminal

    def write_json(self, value: Any) -> None:
        """The answer as JSON: indented for people, one line for programs."""
        sys.stdout.flush()
        if self.is_stdout_terminal:
            sys.stdout.buffer.write(json.dumps(value, indent=2).encode() + b"\n")
        else:
            sys.stdout.buffer.write(json_codec.dumps(value) + b"\n")
        sys.stdout.buffer.flush()

    def write_text(self, *parts: "RenderableType") -> None:
        """The answer as text: laid out for people, to a program as it is."""
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
        """Progress while servers start; the function given is told each one that is done."""
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
            left = list(dict.fromkeys(names))
            task = progress.add_task(_render_start_progress(left), total=len(left))

            def mark_started(name: str) -> None:
                if name in left:
                    left.remove(name)
                    progress.update(task, advance=1, description=_render_start_progress(left))

            yield mark_started

    @contextmanager
    def show_spinner(self, text: str) -> Generator[None]:
        """A spinner while one thing is waited for."""
        if not self.is_stderr_terminal:
            yield
            return
        from rich.text import Text

        with self.err.status(Text(text)):
            yield

    @contextmanager
    def show_spinner_or_note(self, text: str) -> Generator[None]:
        """The same for what takes so long that a program's log should say it, too."""
        if not self.is_stderr_terminal:
            print_note(text)
        with self.show_spinner(text):
            yield


def _make_console(*, stderr: bool) -> "Console":
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False, stderr=stderr)


def _may_be_terminal(stream: TextIO) -> bool:
    """A cheap look: what says no is right."""
    return (
        any(os.environ.get(name) for name in _FORCE_TERMINAL_VARIABLES)
        or stream.closed
        or stream.isatty()
    )


def _to_plain_text(part: "RenderableType") -> str | None:
    """What a text says, without how it looks; None for what is no text."""
    if isinstance(part, str):
        return part
    from rich.text import Text

    if isinstance(part, Text):
        return part.plain
    return None


def _render_start_progress(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    if names:
        return f"Starting {shown}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
    return "Ready"
