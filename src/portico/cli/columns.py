"""Rows in columns: a table for people, aligned lines for programs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from portico.cli.screen import Screen


@dataclass(frozen=True)
class Column:
    """A column: its name and format."""

    name: str
    align_right: bool = False
    style: str = ""
    no_wrap: bool = False
    """Never wrapped, for text that is copied."""
    fill: bool = False
    """Takes the width that is left."""


STATE_STYLES = {
    "ready": "green",
    "down": "red",
    "quarantined": "red",
    "needs sign-in": "yellow",
    "degraded": "yellow",
    "disabled": "yellow",
    "off": "dim",
}
TOOL_COLUMN = Column("tool", style="cyan", no_wrap=True)
SERVER_COLUMN = Column("server", style="bold", no_wrap=True)


def numbers(*names: str) -> tuple[Column, ...]:
    """Return right-aligned columns."""
    return tuple(Column(name, align_right=True) for name in names)


def texts(*names: str) -> tuple[Column, ...]:
    """Return left-aligned columns."""
    return tuple(map(Column, names))


def show_rows(screen: Screen, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Show rows under their column names; a table wraps on a terminal, other output never does."""
    if screen.is_stdout_terminal:
        screen.write_text(build_table(columns, rows))
        return
    lines = [[column.name for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if column.align_right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        )
        screen.write_text("  ".join(cells).rstrip())


def build_table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Text]],
    overflow: Literal["fold", "ellipsis"] = "fold",
) -> Table:
    """Build a table for a terminal."""
    # Only a table that expands gives a column the width that the others leave.
    has_fill = any(column.fill for column in columns)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=has_fill)
    for column in columns:
        table.add_column(
            column.name,
            justify="right" if column.align_right else "left",
            style=column.style,
            no_wrap=column.no_wrap,
            overflow=overflow,
            ratio=1 if column.fill else None,
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
