"""Where a command writes: answers to stdout, as text or with --json as JSON; progress to stderr, on a terminal only."""

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from portico.cli.ending import note
from portico.upstream import jsontext

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""What makes a terminal of what is none, where the environment has it."""


class Screen:
    """The two streams of one command. What lays text out is loaded when somebody looks: a service is no such."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        if hasattr(sys.stdout, "reconfigure"):
            # A terminal that cannot show a character shows a question mark, not a failure.
            sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]

    @cached_property
    def out(self) -> "Console":
        """Where answers go."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> "Console":
        """Where everything else goes."""
        return _console(stderr=True)

    @property
    def for_people(self) -> bool:
        """Whether stdout is a terminal: then answers are laid out, else they are one line a thing."""
        return _may_be_terminal(sys.stdout) and self.out.is_terminal

    @property
    def watched(self) -> bool:
        """Whether stderr is a terminal: then progress is shown."""
        return _may_be_terminal(sys.stderr) and self.err.is_terminal

    def data(self, value: Any) -> None:
        """The answer as JSON: indented for people, one line for programs."""
        sys.stdout.flush()
        if self.for_people:
            sys.stdout.buffer.write(json.dumps(value, indent=2).encode() + b"\n")
        else:
            sys.stdout.buffer.write(jsontext.dumps(value) + b"\n")
        sys.stdout.buffer.flush()

    def text(self, *parts: "RenderableType") -> None:
        """The answer as text: laid out for people, to a program as it is."""
        for part in parts:
            plain = None if self.for_people else _plain(part)
            if plain is None:
                self.out.print(part)
            else:
                sys.stdout.write(f"{plain}\n")

    @contextmanager
    def starting(self, names: Sequence[str]) -> Generator[Callable[[str], None]]:
        """Progress while servers start; the function given is told each one that is done."""
        if not self.watched:
            yield lambda name: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True) as progress:
            left = list(dict.fromkeys(names))
            task = progress.add_task(_waiting_for(left), total=len(left))

            def heard(name: str) -> None:
                if name in left:
                    left.remove(name)
                    progress.update(task, advance=1, description=_waiting_for(left))

            yield heard

    @contextmanager
    def busy(self, text: str) -> Generator[None]:
        """A spinner while one thing is waited for."""
        if not self.watched:
            yield
            return
        from rich.text import Text

        with self.err.status(Text(text)):
            yield

    @contextmanager
    def telling(self, text: str) -> Generator[None]:
        """The same for what takes so long that a program's log should say it, too."""
        if not self.watched:
            note(text)
        with self.busy(text):
            yield


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    return Console(highlight=False, emoji=False, markup=False, stderr=stderr)


def _may_be_terminal(stream: TextIO) -> bool:
    """A cheap look: what says no is right."""
    return any(os.environ.get(name) for name in _FORCED) or stream.closed or stream.isatty()


def _plain(part: "RenderableType") -> str | None:
    """What a text says, without how it looks; None for what is no text."""
    if isinstance(part, str):
        return part
    from rich.text import Text

    return part.plain if isinstance(part, Text) else None


def _waiting_for(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"Starting {shown}{f' and {len(names) - 3} more' if len(names) > 3 else ''}" if names else "Ready"
