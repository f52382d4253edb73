"""Where a command writes: answers to stdout, as text or with --json as JSON; progress to stderr, on a terminal only."""

import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from portico.cli.ending import note
from portico.upstream import jsontext


class Screen:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        if hasattr(sys.stdout, "reconfigure"):
            # A terminal that cannot show a character shows a question mark, not a failure.
            sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
        self.out = Console(highlight=False, emoji=False, markup=False)
        self.err = Console(highlight=False, emoji=False, markup=False, stderr=True)

    @property
    def for_people(self) -> bool:
        """Whether stdout is a terminal: then answers are laid out, else they are one line a thing."""
        return self.out.is_terminal

    def data(self, value: Any) -> None:
        """The answer as JSON: indented for people, one line for programs."""
        sys.stdout.flush()
        if self.for_people:
            sys.stdout.buffer.write(json.dumps(value, indent=2).encode() + b"\n")
        else:
            sys.stdout.buffer.write(jsontext.dumps(value) + b"\n")
        sys.stdout.buffer.flush()

    def text(self, *parts: RenderableType) -> None:
        """The answer as text: laid out for people, to a program as it is."""
        for part in parts:
            if isinstance(part, (str, Text)) and not self.for_people:
                sys.stdout.write(f"{part.plain if isinstance(part, Text) else part}\n")
            else:
                self.out.print(part)

    @contextmanager
    def starting(self, names: Sequence[str]) -> Generator[Callable[[str], None]]:
        """Progress while servers start; the function given is told each one that is done."""
        if not self.err.is_terminal:
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
        if not self.err.is_terminal:
            yield
            return
        with self.err.status(Text(text)):
            yield

    @contextmanager
    def telling(self, text: str) -> Generator[None]:
        """The same for what takes so long that a program's log should say it, too."""
        if not self.err.is_terminal:
            note(text)
        with self.busy(text):
            yield


def _waiting_for(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"Starting {shown}{f' and {len(names) - 3} more' if len(names) > 3 else ''}" if names else "Ready"
